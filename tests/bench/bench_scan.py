"""What a vector search of one large collection costs, with the coarse copy of its vectors and without.

Run by name: `python tests/bench/bench_scan.py [--vectors FOLDER]`. Rows are blends of two vectors and noise, from
FOLDER/*_docs.npy (made by bench_ranking.py), or a cone of made ones. Both tables must find the same. Medians and p95 of
milliseconds of wall time, one thread, and how many rows are left to be scored exactly.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in the service; before numpy

import numpy as np

from ssop_rag.core.coarse import CoarseRows
from ssop_rag.core.model import Hit, Matrix
from ssop_rag.core.ranking import unit_rows
from ssop_rag.core.table import PassageTable

DIM = 384
BATCH = 4_096


def make_rows(rng: np.random.Generator, count: int, folder: Path | None) -> Matrix:
    """(count, 384) rows of length 1."""
    files = sorted(folder.glob("*_docs.npy")) if folder is not None else []
    base = (
        np.concatenate([np.load(file) for file in files]) if files else rng.standard_normal((8_192, DIM)) * 0.02 + 0.05
    )
    one, other = (base[rng.integers(0, len(base), count)] for _ in range(2))
    weight = rng.random((count, 1))
    return unit_rows(weight * one + (1 - weight) * other + 0.02 * rng.standard_normal((count, DIM)))


def fill(rows: Matrix, coarse_from: int) -> tuple[PassageTable, float]:
    """A table with the rows, and how many seconds it took."""
    table, started_s = PassageTable("c", DIM, coarse_from), time.perf_counter()
    for begin in range(0, len(rows), BATCH):
        table.put(str(begin), rows[begin : begin + BATCH], 0)
    return table, time.perf_counter() - started_s


def search(table: PassageTable, queries: Matrix, k: int) -> tuple[str, list[list[Hit]]]:
    """Times as text, and what was found."""
    times_ms, found = [], []
    for query in queries:
        started_s = time.perf_counter()
        found.append(table.search(query, k, 1))
        times_ms.append((time.perf_counter() - started_s) * 1000)
    return f"{statistics.median(times_ms):.1f} / {np.percentile(times_ms, 95):.1f}", found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[16_384, 50_000, 200_000])
    parser.add_argument("--queries", type=int, default=100)
    arguments = parser.parse_args()
    rng = np.random.default_rng(1)
    rows = make_rows(rng, max(arguments.rows), arguments.vectors)
    queries = make_rows(rng, arguments.queries, arguments.vectors)
    print("| rows | k | all rows, ms p50 / p95 | with the coarse copy | rows left | filling, s, without / with |")
    print("|---|---|---|---|---|---|")
    for count in arguments.rows:
        (plain, plain_s), (coarse, coarse_s) = fill(rows[:count], count + 1), fill(rows[:count], 1)
        copy, live = CoarseRows(rows[:count], count), np.ones(count, dtype=bool)
        for k in (5, 128):
            (slow, expected), (fast, found) = search(plain, queries, k), search(coarse, queries, k)
            if found != expected:
                sys.exit("the two tables find different passages")
            left = statistics.mean(len(copy.may_be_best(query, live, k)) for query in queries)
            print(f"| {count:,} | {k} | {slow} | {fast} | {left:,.0f} | {plain_s:.2f} / {coarse_s:.2f} |")


if __name__ == "__main__":
    main()
