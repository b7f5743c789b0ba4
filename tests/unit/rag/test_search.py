"""BM25 in a table, and search over collections with rankers of their own."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from ssop_rag.core.model import Query
from ssop_rag.core.ranking import Ranker, unit_rows
from ssop_rag.core.search import Chosen, gather, prove, rank, rank_within
from ssop_rag.core.table import PassageTable
from ssop_rag.core.terms import extract_terms, split_terms

TEXTS = ["red cat", "blue cat cat", "green dog sleeps in the sun", "天气很好", "red dog"]


def bm25(query: str, texts: Sequence[str]) -> list[float]:
    """The formula, written down plainly."""
    bags = [split_terms(text) for text in texts]
    mean = sum(map(len, bags)) / len(bags)
    total = []
    for bag in bags:
        score = 0.0
        for term in split_terms(query):
            holders = sum(term in other for other in bags)
            weight = math.log(1 + (len(bags) - holders + 0.5) / (holders + 0.5))
            score += weight * bag.count(term) * 2.2 / (bag.count(term) + 1.2 * (0.25 + 0.75 * len(bag) / mean))
        total.append(score)
    return total


def table(texts: Sequence[str], collection: str = "c") -> PassageTable:
    made = PassageTable(collection, 2)
    for number, text in enumerate(texts):
        angle = number + 0.1
        vectors = unit_rows(np.array([[math.cos(angle), math.sin(angle)]]))
        made.put(str(number), vectors, 0, [extract_terms(text)])
    return made


def chosen(ranker: Ranker, texts: Sequence[str] = TEXTS, collection: str = "c") -> Chosen:
    return Chosen(collection, 1, table(texts, collection), ranker)


def query(text: str, angle: float = 0.0) -> Query:
    return Query(text, unit_rows(np.array([[math.cos(angle), math.sin(angle)]]))[0])


def test_scores_are_those_of_the_formula() -> None:
    hits = rank([chosen(Ranker.BM25)], query("red cat cat"), 9, 1)
    expected = {str(n): s for n, s in enumerate(bm25("red cat cat", TEXTS)) if s}
    assert {hit.document_id: hit.score for hit in hits} == pytest.approx(expected)


def test_scores_do_not_depend_on_what_was_there_before() -> None:
    changed = table([f"{text} cat old words" for text in TEXTS])
    for number in range(200):
        changed.put(f"gone{number}", unit_rows(np.eye(2)[:1]), 0, [extract_terms(f"cat {number}")])
        if number % 3 == 0:
            rank([Chosen("c", 1, changed, Ranker.BM25)], query("cat"), 1, 1)
    for number in range(200):
        changed.remove(f"gone{number}")
    for number, text in enumerate(TEXTS):
        changed.put(str(number), unit_rows(np.eye(2)[:1]), 0, [extract_terms(text)])
    plain = rank([chosen(Ranker.BM25)], query("red cat"), 9, 1)
    assert rank([Chosen("c", 1, changed, Ranker.BM25)], query("red cat"), 9, 1) == plain


def test_a_squeezed_table_keeps_its_terms() -> None:
    made = table(TEXTS)
    for _ in range(300):
        made.put("changing", unit_rows(np.eye(2)[:1]), 0, [extract_terms("cat")])
    made.remove("changing")
    assert rank([Chosen("c", 1, made, Ranker.BM25)], query("red"), 9, 1) == rank(
        [chosen(Ranker.BM25)], query("red"), 9, 1
    )


def test_an_expired_passage_counts_nowhere() -> None:
    made = table(TEXTS)
    made.put("brief", unit_rows(np.eye(2)[:1]), 10, [extract_terms("cat")])
    assert rank([Chosen("c", 1, made, Ranker.BM25)], query("cat"), 9, 10) == rank(
        [chosen(Ranker.BM25)], query("cat"), 9, 1
    )


def test_numbers_of_several_collections_add_up() -> None:
    parts = [chosen(Ranker.BM25, TEXTS[:2], "a"), chosen(Ranker.BM25, TEXTS[2:], "b")]
    scores = sorted(hit.score for hit in rank(parts, query("red cat"), 9, 1))
    assert scores == pytest.approx(sorted(score for score in bm25("red cat", TEXTS) if score))


def test_a_query_without_terms_finds_nothing_by_terms() -> None:
    assert rank([chosen(Ranker.BM25)], query("!?"), 9, 1) == []


def test_an_empty_table_finds_nothing() -> None:
    for ranker in Ranker:
        assert rank([Chosen("c", 1, PassageTable("c", 2), ranker)], query("cat"), 9, 1) == []


def test_hybrid_finds_what_either_ranker_finds() -> None:
    hits = rank([chosen(Ranker.HYBRID)], query("天气", 0.1), 2, 1)
    assert {hit.document_id for hit in hits} == {"0", "3"}


def test_hybrid_takes_part_of_each_collection_by_its_ranker() -> None:
    parts = [chosen(Ranker.VECTOR, ["cat"], "a"), chosen(Ranker.BM25, ["cat"], "b")]
    hits = rank(parts, query("cat", 0.1), 9, 1)
    assert [(hit.collection, hit.score) for hit in hits] == [("a", 1 / 61), ("b", 1 / 61)]


@pytest.mark.parametrize("ranker", list(Ranker))
def test_a_shorter_answer_is_the_beginning_of_a_longer_one(ranker: Ranker) -> None:
    rng = np.random.default_rng(5)
    texts = [" ".join(f"w{n}" for n in rng.integers(0, 30, 5)) for _ in range(300)]
    parts = [chosen(ranker, texts)]
    longest = rank(parts, query("w1 w2 w3"), 32, 1)
    assert all(rank(parts, query("w1 w2 w3"), k, 1) == longest[:k] for k in (1, 4, 31))


@pytest.mark.parametrize("ranker", list(Ranker))
def test_a_prefix_that_is_the_whole_text_is_the_answer(ranker: Ranker) -> None:
    parts = [chosen(ranker)]
    candidates = gather(parts, (), query("red cat"), 4, 1)
    assert prove([ranker], candidates, query("red cat"), 2) == rank(parts, query("red cat"), 2, 1)


def test_a_fused_list_proves_nothing_for_another_text() -> None:
    parts = [chosen(Ranker.HYBRID)]
    assert prove([Ranker.HYBRID], gather(parts, (), query("red"), 5, 1), query("red cat"), 2) is None


@pytest.mark.parametrize("ranker", list(Ranker))
def test_all_passages_rank_within_as_a_search_does(ranker: Ranker) -> None:
    parts = [chosen(ranker, TEXTS[:3], "a"), chosen(ranker, TEXTS[3:], "b")]
    candidates = gather(parts, (), query("red cat dog 天气", 2.0), 128, 1)
    wanted = query("red dog", 1.0)
    within = rank_within(parts, candidates, wanted, 9, 1)
    assert [hit for hit in rank(parts, wanted, 9, 1) if hit in within] == within
    assert len(within) == (5 if ranker.has_vector else 3)


def test_within_ranks_candidates_only() -> None:
    parts = [chosen(Ranker.BM25)]
    candidates = gather(parts, (), query("blue"), 4, 1)
    assert [hit.document_id for hit in rank_within(parts, candidates, query("red cat"), 9, 1)] == ["1"]


def test_a_query_without_vector_is_refused_where_one_is_needed() -> None:
    with pytest.raises(ValueError, match="compares vectors"):
        rank([chosen(Ranker.VECTOR)], Query("cat", None), 1, 1)
