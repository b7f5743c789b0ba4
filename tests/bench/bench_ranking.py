"""Quality of the rankers on public retrieval sets: hit@1, hit@5, MRR@10 for vector, BM25 and hybrid, and BM25's cost.

Run by name: `SSOP_SUITES=DATA python tests/bench/bench_ranking.py [--sets NAME,...] [--vectors FOLDER] [--terms]`. A
document is one passage: title and text, 1,000 characters at most. Vectors are kept in FOLDER, as they take most of the
time. `--terms` compares ways to cut text into terms by BM25 alone. RGB (set `zh_rgb`) may only be evaluated,
not shipped.
"""

import argparse
import gzip
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in the service; before numpy

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers.components import suites_dir
from ssop_rag.core import terms as analysis
from ssop_rag.core.model import Hit, Matrix, Query
from ssop_rag.core.ranking import Ranker
from ssop_rag.core.search import Chosen, rank
from ssop_rag.core.table import PassageTable
from ssop_rag.core.terms import count_terms, extract_terms, split_terms
from ssop_rag.embedder import E5

SETS: Final = ("en_xquad2wiki", "en_cranfield", "zh_cmrc_xquad", "zh_rgb")
PASSAGE_CHARS: Final = 1_000
DEPTH: Final = 10
_NOW_MS: Final = 1


@dataclass(frozen=True)
class Case:
    """A set: documents as (id, passage), queries as (text, ids that are right)."""

    name: str
    documents: list[tuple[str, str]]
    queries: list[tuple[str, set[str]]]


def load(name: str) -> Case:
    """Read a set."""
    folder = suites_dir()
    if folder is None:
        sys.exit("SSOP_SUITES does not name the folder of the test suites")

    def lines(kind: str) -> list[dict[str, Any]]:
        (path,) = (folder / "rag").glob(f"{name}_{kind}*.jsonl.gz")
        with gzip.open(path, "rt") as file:
            return [json.loads(line) for line in file]

    documents = [(d["id"], f"{d['title']}\n{d['text']}".strip()[:PASSAGE_CHARS]) for d in lines("docs")]
    return Case(name, documents, [(q["text"], set(q["rel"])) for q in lines("queries") if q["rel"]])


def vectors(case: Case, folder: Path) -> tuple[Matrix, Matrix]:
    """Of the documents and of the queries, made once."""
    made: list[Matrix] = []
    embedder: E5 | None = None
    for kind, texts in (("docs", [text for _, text in case.documents]), ("queries", [q for q, _ in case.queries])):
        path = folder / f"{case.name}_{kind}.npy"
        if not path.exists():
            embedder = embedder or E5()
            embed = embedder.embed_passages if kind == "docs" else embedder.embed_query
            np.save(path, embed(texts))
        made.append(np.load(path))
        if len(made[-1]) != len(texts):
            sys.exit(f"{path} has vectors of other texts")
    return made[0], made[1]


class Score:
    """hit@1, hit@5 and the mean reciprocal rank among ten."""

    def __init__(self) -> None:
        self._ranks: list[int] = []
        self._took_ms: list[float] = []

    def add(self, found: Sequence[str], right: set[str], took_ms: float) -> None:
        """An answer."""
        self._ranks.append(next((n for n, name in enumerate(found, 1) if name in right), 0))
        self._took_ms.append(took_ms)

    def __str__(self) -> str:
        count = len(self._ranks)
        first = sum(rank == 1 for rank in self._ranks) / count
        five = sum(1 <= rank <= 5 for rank in self._ranks) / count
        reciprocal = sum(1 / rank for rank in self._ranks if rank) / count
        return (
            f"hit@1 {first:.3f}  hit@5 {five:.3f}  MRR@10 {reciprocal:.3f}"
            f"  p50 {statistics.median(self._took_ms):.2f} ms  n {count}"
        )


def measure(case: Case, ask: Callable[[int, str], Sequence[str]]) -> Score:
    """Ask all queries."""
    score = Score()
    for number, (text, right) in enumerate(case.queries):
        started_s = time.process_time()
        found = ask(number, text)
        score.add(found, right, (time.process_time() - started_s) * 1e3)
    return score


def bench_rankers(case: Case, folder: Path) -> None:
    """The rankers as the service has them."""
    documents, queries = vectors(case, folder)
    table = PassageTable("c", documents.shape[1])
    for (name, text), vector in zip(case.documents, documents, strict=True):
        table.put(name, vector[None, :], 0, [extract_terms(text)])
    for ranker in Ranker:
        chosen = [Chosen("c", 1, table, ranker)]

        def ask(number: int, text: str, chosen: list[Chosen] = chosen) -> list[str]:
            hits: list[Hit] = rank(chosen, Query(text, queries[number]), DEPTH, _NOW_MS)
            return [hit.document_id for hit in hits]

        print(f"{case.name:16} {ranker.value:8} {measure(case, ask)}", flush=True)


def with_single(text: str) -> list[str]:
    """Pairs, and each character of them too."""
    unspaced = [
        c for match in analysis._RUN.finditer(text.casefold()) if match[1] for c in match[0] if len(match[0]) > 1
    ]
    return split_terms(text) + unspaced


def by_jieba(text: str) -> list[str]:
    """Words of a dictionary, in the way of jieba's search mode."""
    import jieba  # noqa: PLC0415 - only here

    return [word for word in jieba.cut_for_search(text.casefold()) if analysis._RUN.search(word)]


def by_stemmer(text: str) -> list[str]:
    """English words without their endings."""
    import Stemmer  # noqa: PLC0415 - only here

    stemmed: list[str] = Stemmer.Stemmer("english").stemWords(split_terms(text))
    return stemmed


def bench_terms(case: Case) -> None:
    """Ways to cut text, by the same BM25."""
    other, needed = (by_jieba, "jieba") if case.name.startswith("zh") else (by_stemmer, "Stemmer")
    ways = {"pairs": split_terms, "with single": with_single, other.__name__: other}
    if find_spec(needed) is None:
        print(f"{case.name:16} without {needed}, which is not installed", flush=True)
        del ways[other.__name__]
    for name, split in ways.items():
        analysis._term_id.cache_clear()
        table = PassageTable("c", 1)
        started_s = time.process_time()
        for document_id, text in case.documents:
            table.put(document_id, np.ones((1, 1), np.float32), 0, [count_terms(split(text))])
        built_s = time.process_time() - started_s

        def ask(_: int, text: str, split: Callable[[str], list[str]] = split, table: PassageTable = table) -> list[str]:
            terms = count_terms(split(text))
            return [h.document_id for h in table.search_terms(terms, table.stats(terms, _NOW_MS), DEPTH, _NOW_MS)]

        score = measure(case, ask)
        print(f"{case.name:16} {name:12} {score}  built in {built_s:.1f} s", flush=True)


def main() -> None:
    """All sets that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--vectors", type=Path, default=Path(".vectors"))
    parser.add_argument("--terms", action="store_true")
    asked = parser.parse_args()
    asked.vectors.mkdir(exist_ok=True)
    for name in asked.sets.split(","):
        case = load(name)
        if asked.terms:
            bench_terms(case)
        else:
            bench_rankers(case, asked.vectors)


if __name__ == "__main__":
    main()
