"""What the stamp of a collection changes with."""

import pytest

from ssop_rag.core import stamp
from ssop_rag.core.ranking import Ranker, RankerChoice
from ssop_rag.core.stamp import Stamps

STAMPS = Stamps("e5/1", RankerChoice(Ranker.HYBRID, {"code": Ranker.BM25}))


def test_it_begins_with_the_version() -> None:
    assert STAMPS.of("faq", 7).startswith("7.")


@pytest.mark.parametrize(
    "other",
    [
        Stamps("e5/2", STAMPS.rankers),
        Stamps("e5/1", RankerChoice(Ranker.VECTOR)),
        Stamps("e5/1", STAMPS.rankers, "http/reranker"),
    ],
)
def test_another_embedder_ranker_or_reranker_gives_another(other: Stamps) -> None:
    assert other.of("faq", 7) != STAMPS.of("faq", 7)


def test_another_analyzer_gives_another(monkeypatch: pytest.MonkeyPatch) -> None:
    before = STAMPS.of("faq", 7)
    monkeypatch.setattr(stamp, "ANALYZER", "other")
    assert STAMPS.of("faq", 7) != before


def test_the_ranker_is_the_collections_own() -> None:
    assert STAMPS.of("faq", 7) != STAMPS.of("code", 7)


def test_stamps_are_joined_by_name() -> None:
    assert STAMPS.join((("a", 1), ("b", 2))) == f"a:{STAMPS.of('a', 1)},b:{STAMPS.of('b', 2)}"
