"""Exact ranking and the proof for prefetched lists."""

import numpy as np
import pytest

from ssop_rag.core.model import Candidates, Hit, Query
from ssop_rag.core.ranking import (
    Ranker,
    RankerChoice,
    best_rows,
    exact_scores,
    fuse,
    merge_top_k,
    prove_top_k,
    scan,
    unit_rows,
)
from ssop_rag.core.table import PassageTable


def test_unit_rows_have_length_one() -> None:
    assert np.allclose(np.linalg.norm(unit_rows(np.array([[3.0, 4.0], [0.1, 0.0]])), axis=1), 1)


def test_unit_rows_refuse_a_zero_vector() -> None:
    with pytest.raises(ValueError, match="zero"):
        unit_rows(np.zeros((1, 3)))


def test_scan_finds_what_a_full_sort_finds() -> None:
    rng = np.random.default_rng(7)
    matrix = unit_rows(rng.standard_normal((500, 24)))
    query = unit_rows(rng.standard_normal((1, 24)))[0]
    rows, scores = scan(matrix, np.ones(500, dtype=bool), query, 10)
    best = rows[np.argsort(-scores)][:10]
    assert best.tolist() == np.argsort(-exact_scores(matrix, query))[:10].tolist()


def test_scan_returns_all_that_tie_with_the_last() -> None:
    matrix = unit_rows(np.array([[1.0, 0.0]] * 5 + [[0.0, 1.0]]))
    rows, _ = scan(matrix, np.ones(6, dtype=bool), matrix[0], 2)
    assert rows.tolist() == [0, 1, 2, 3, 4]


def test_scan_leaves_out_masked_rows() -> None:
    matrix = unit_rows(np.eye(3))
    rows, _ = scan(matrix, np.array([False, True, True]), matrix[0], 3)
    assert rows.tolist() == [1, 2]


def test_merge_takes_the_best_of_all_lists() -> None:
    lists = [[Hit(0.9, "a", "1", 0), Hit(0.1, "a", "2", 0)], [Hit(0.5, "b", "3", 0)]]
    assert [hit.document_id for hit in merge_top_k(lists, 2)] == ["1", "3"]


def test_equal_scores_are_ordered_by_name() -> None:
    lists = [[Hit(0.5, "b", "1", 0)], [Hit(0.5, "a", "9", 0)]]
    assert [hit.collection for hit in merge_top_k(lists, 2)] == ["a", "b"]


def _candidates(matrix: np.ndarray, prefix: np.ndarray, count: int) -> Candidates:
    table = PassageTable("c", matrix.shape[1])
    for number, row in enumerate(matrix):
        table.put(f"{number:04}", row[None, :], 0)
    hits = table.search(prefix, count, 1)
    return Candidates(Query("", prefix), (), (), hits, table.vectors(hits), is_complete=len(hits) == len(matrix))


def test_a_near_query_is_proven_from_candidates() -> None:
    rng = np.random.default_rng(3)
    near = unit_rows(np.array([1.0, 0, 0, 0]) + 0.05 * rng.standard_normal((8, 4)))
    far = unit_rows(np.array([-1.0, 0, 0, 0]) + 0.05 * rng.standard_normal((100, 4)))
    prefix, query = unit_rows(np.array([[1.0, 0, 0, 0], [1.0, 0.02, 0, 0]]))
    assert prove_top_k(_candidates(np.concatenate([near, far]), prefix, 9), prefix, query, 4) is not None


def test_a_far_query_is_not_proven() -> None:
    rng = np.random.default_rng(3)
    matrix = unit_rows(rng.standard_normal((200, 4)))
    prefix, query = unit_rows(np.eye(4)[:2])
    assert prove_top_k(_candidates(matrix, prefix, 10), prefix, query, 4) is None


def test_too_few_candidates_prove_nothing() -> None:
    matrix = unit_rows(np.random.default_rng(1).standard_normal((50, 4)))
    prefix = matrix[0]
    assert prove_top_k(_candidates(matrix, prefix, 3), prefix, prefix, 4) is None


def test_all_passages_prove_any_query() -> None:
    matrix = unit_rows(np.random.default_rng(1).standard_normal((6, 4)))
    hits = prove_top_k(_candidates(matrix, matrix[0], 10), matrix[0], matrix[5], 2)
    assert hits is not None
    assert hits[0].document_id == "0005"


def test_table_replaces_a_document() -> None:
    table = PassageTable("c", 2)
    table.put("d", unit_rows(np.array([[1.0, 0.0], [0.0, 1.0]])), 0)
    table.put("d", unit_rows(np.array([[0.0, 1.0]])), 0)
    assert (table.documents, table.passages) == (1, 1)


def test_table_keeps_its_rows_when_dead_ones_are_squeezed_out() -> None:
    table = PassageTable("c", 2)
    east, north = unit_rows(np.array([[1.0, 0.0]])), unit_rows(np.array([[0.0, 1.0]]))
    table.put("kept", north, 50)
    for _ in range(300):
        table.put("changing", east, 0)
    hits = table.search(north[0], 5, 10)
    assert [hit.document_id for hit in hits] == ["kept", "changing"]
    assert table.expired(50) == ["kept"]


def test_table_does_not_find_what_has_expired() -> None:
    table = PassageTable("c", 2)
    table.put("d", unit_rows(np.array([[1.0, 0.0]])), 100)
    assert [len(table.search(np.array([1, 0], np.float32), 1, now)) for now in (99, 100)] == [1, 0]


def test_fusion_adds_reciprocal_ranks() -> None:
    one, two = Hit(0.9, "a", "1", 0), Hit(0.8, "a", "2", 0)
    fused = fuse([[one, two], [Hit(7.0, "a", "2", 0)]])
    assert [(hit.document_id, hit.score) for hit in fused] == [("2", 1 / 62 + 1 / 61), ("1", 1 / 61)]


def test_fusion_orders_equal_scores_by_name() -> None:
    assert [hit.document_id for hit in fuse([[Hit(1, "a", "2", 0)], [Hit(9, "a", "1", 0)]])] == ["1", "2"]


def test_best_rows_leave_out_what_scores_nothing() -> None:
    assert best_rows(np.array([0.0, 2.0, 0.0, 1.0]), 3).tolist() == [1, 3]


def test_best_rows_keep_all_that_tie_with_the_last() -> None:
    assert best_rows(np.array([1.0, 2.0, 1.0, 0.5]), 2).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("names", "needs"), [((), True), (("terms",), False), (("terms", "both"), True), (("other",), False)]
)
def test_a_vector_is_needed_where_one_ranker_compares_them(names: tuple[str, ...], needs: bool) -> None:
    choice = RankerChoice(Ranker.BM25, {"both": Ranker.HYBRID, "terms": Ranker.BM25})
    assert choice.needs_vector(names) is needs
