"""The embedded index on its own."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ssop_rag.core.model import Document, Query, UnknownCollectionError
from ssop_rag.core.record import PASSAGE, encode_key
from ssop_rag.embedded import EmbeddedIndex, IndexUnavailableError

EAST = np.array([1, 0], np.float32)
QUERY = Query("text", EAST)


def open_index(directory: Path, embedder: str = "e/1", skipped: Counter[str] | None = None) -> EmbeddedIndex:
    counter: Counter[str] = Counter() if skipped is None else skipped
    return EmbeddedIndex(directory, embedder, 2, lambda fault, count: counter.update({fault: count}))


def east(document_id: str, *, expires_at_ms: int = 0, passages: int = 1) -> Document:
    return Document(document_id, "", {}, expires_at_ms, ["text"] * passages, np.tile(EAST, (passages, 1)))


def test_a_restart_keeps_documents_and_versions(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    index.upsert("acme", "faq", [east("1", passages=3)], 1)
    index.upsert("acme", "faq", [east("2")], 1)
    index.close()
    index = open_index(tmp_path)
    (stats,) = index.stats("acme", 1)
    assert (stats.documents, stats.passages, stats.version) == (2, 4, 2)
    assert index.upsert("acme", "faq", [east("3")], 1).version == 3
    index.close()


def test_a_deletion_survives_a_restart(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    index.upsert("acme", "a", [east("1"), east("2", passages=2)], 1)
    index.upsert("acme", "b", [east("1")], 1)
    index.delete("acme", "a", ["2"], 1)
    index.drop("acme", "b", 1)
    index.close()
    index = open_index(tmp_path)
    assert [(stats.name, stats.passages) for stats in index.stats("acme", 1)] == [("a", 1)]
    index.close()


def test_an_expired_document_is_not_found_after_a_restart(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    index.upsert("acme", "faq", [east("1", expires_at_ms=10)], 1)
    index.close()
    index = open_index(tmp_path)
    assert index.search("acme", (), QUERY, 4, 10).passages == []
    index.close()


def test_a_second_opener_is_told_why_it_fails(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    with pytest.raises(IndexUnavailableError, match="in use by another process"):
        open_index(tmp_path)
    index.close()


def test_a_path_that_is_no_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(IndexUnavailableError, match="can't be made"):
        open_index(tmp_path / "file")


def test_vectors_of_another_embedder_are_listed_and_not_compared(tmp_path: Path) -> None:
    index = open_index(tmp_path, "e/1")
    index.upsert("acme", "faq", [east("1")], 1)
    index.close()
    skipped: Counter[str] = Counter()
    index = open_index(tmp_path, "e/2", skipped)
    assert index.search("acme", ("faq",), QUERY, 4, 1).passages == []
    (stats,) = index.stats("acme", 1)
    assert (stats.documents, stats.embedder, skipped) == (1, "e/1", {"embedder": 1})
    index.upsert("acme", "faq", [east("1")], 1)
    (stats,) = index.stats("acme", 1)
    assert (stats.documents, stats.passages, stats.embedder) == (1, 1, "e/2")
    index.close()


def test_an_unknown_collection_is_named(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    with pytest.raises(UnknownCollectionError) as caught:
        index.search("acme", ("nope",), QUERY, 4, 1)
    assert caught.value.collection == "nope"
    index.close()


def test_candidates_are_void_after_a_change(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    index.upsert("acme", "faq", [east("1")], 1)
    candidates = index.candidates("acme", (), QUERY, 4, 1)
    assert index.search_within("acme", candidates, QUERY, 1, 1, is_lossy=True) is not None
    index.upsert("acme", "other", [east("1")], 1)
    assert index.search_within("acme", candidates, QUERY, 1, 1, is_lossy=True) is None
    index.close()


def test_terms_are_found_after_a_restart(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    index.upsert("acme", "faq", [east("1"), Document("2", "", {}, 0, ["退款 refund"], EAST[None, :])], 1)
    index.close()
    index = open_index(tmp_path)
    answer = index.search("acme", (), Query("退款", EAST), 1, 1)
    assert [found.hit.document_id for found in answer.passages] == ["2"]
    index.close()


@pytest.mark.parametrize("damage", [b"", b"\x02garbage", b"\x09" + bytes(40)])
def test_a_corrupt_passage_is_skipped_and_counted(tmp_path: Path, damage: bytes) -> None:
    index = open_index(tmp_path)
    index.upsert("acme", "faq", [east("1", passages=2), east("2")], 1)
    index._db._db.put(encode_key(PASSAGE, "acme", "faq", "1", number=1), damage)
    index.close()
    skipped: Counter[str] = Counter()
    index = open_index(tmp_path, skipped=skipped)
    answer = index.search("acme", (), QUERY, 4, 1)
    assert [found.hit.document_id for found in answer.passages] == ["2"]
    assert sum(skipped.values()) == 1
    index.close()
