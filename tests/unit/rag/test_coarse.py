"""The coarse copy of large tables: it rules rows out, and never one that is among the best."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from ssop_rag.core.coarse import CoarseRows
from ssop_rag.core.model import Matrix
from ssop_rag.core.ranking import exact_scores, unit_rows
from ssop_rag.core.table import PassageTable

DIM = 48
Rng = np.random.Generator


def cone(rng: Rng, count: int) -> Matrix:
    """Rows as an embedder makes them: most of each is the same direction."""
    return unit_rows(rng.standard_normal((count, DIM)) * 0.1 + 1)


def ball(rng: Rng, count: int) -> Matrix:
    return unit_rows(rng.standard_normal((count, DIM)))


def axes(rng: Rng, count: int) -> Matrix:
    """Many rows are equal, and have one number that is not zero."""
    return unit_rows(np.eye(DIM)[rng.integers(0, DIM, count)])


def spikes(rng: Rng, count: int) -> Matrix:
    """One large number hides the small ones from a scale."""
    rows = rng.standard_normal((count, DIM)) * 1e-3
    rows[:, 0] = 1
    return unit_rows(rows)


@pytest.mark.parametrize("make", [cone, ball, axes, spikes])
@pytest.mark.parametrize("seed", range(5))
def test_a_table_with_a_coarse_copy_finds_what_one_without_finds(make: Callable[[Rng, int], Matrix], seed: int) -> None:
    rng = np.random.default_rng(seed)
    exact, coarse = PassageTable("c", DIM, coarse_from=10**9), PassageTable("c", DIM, coarse_from=100)
    for step in range(120):
        name, count = f"d{rng.integers(0, 60)}", int(rng.integers(1, 12))
        vectors, expires_at_ms = make(rng, count), int(rng.choice([0, 500]))
        for table in (exact, coarse):
            if step % 5 == 4:
                table.remove(name)
            else:
                table.put(name, vectors, expires_at_ms)
        query, k, now_ms = make(rng, 1)[0], int(rng.choice([1, 5, 40, 1_000])), int(rng.choice([1, 600]))
        assert coarse.search(query, k, now_ms) == exact.search(query, k, now_ms)


def test_most_rows_of_a_cone_are_ruled_out() -> None:
    rng = np.random.default_rng(1)
    rows = cone(rng, 4_000)
    near = CoarseRows(rows, len(rows)).may_be_best(cone(rng, 1)[0], np.ones(4_000, dtype=bool), 10)
    assert 10 <= len(near) < 400


def test_intervals_hold_for_rows_unlike_those_that_made_the_center() -> None:
    rng = np.random.default_rng(2)
    rows = np.concatenate([cone(rng, 300), -cone(rng, 300)])
    coarse = CoarseRows(rows[:300], 1_000)
    coarse.put(300, rows[300:])
    query = -cone(rng, 1)[0]
    best = np.argsort(-exact_scores(rows, query))[:20]
    assert set(best) <= set(coarse.may_be_best(query, np.ones(600, dtype=bool), 20))


def test_no_row_is_left_where_none_is_live() -> None:
    rows = cone(np.random.default_rng(3), 10)
    dead: NDArray[np.bool_] = np.zeros(10, dtype=bool)
    assert not CoarseRows(rows, 10).may_be_best(rows[0], dead, 5).size


def test_growing_keeps_what_is_there() -> None:
    rng = np.random.default_rng(4)
    rows = ball(rng, 200)
    coarse = CoarseRows(rows[:100], 100)
    coarse.grow(200)
    coarse.put(100, rows[100:])
    query = rows[150]
    assert 150 in coarse.may_be_best(query, np.ones(200, dtype=bool), 1)
