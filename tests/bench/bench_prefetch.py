"""What prefetching from the first words finds and saves, on the retrieval suites of SSOP_SUITES.

Run by name: `python tests/bench/bench_prefetch.py [--vectors DIR] [--ranker vector|bm25|hybrid] [SET ...]`. The vectors
are made where DIR (.vectors) has none (half an hour on two idle cores). One passage a document: title and text, 1,000
characters.
k = 5; "4x" is 20 candidates.

Latency is that of a model on a virtual clock: words typed at 3 a second (Chinese: 3 times 2 characters), prefetches due
as `ssop_router.core.arrival` says, an embedding as long as measured here, and an engine that takes 50, 200 or 600 ms;
what is found, proven and ranked is the real core's.
"""

import argparse
import gzip
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in the service; before numpy

import numpy as np
from numpy.typing import NDArray

from ssop_chassis.words import count_tokens, take_tokens
from ssop_rag.core.model import Candidates, Matrix, Query
from ssop_rag.core.ranking import Ranker
from ssop_rag.core.search import Chosen, gather, prove, rank, rank_within
from ssop_rag.core.table import PassageTable
from ssop_rag.core.terms import extract_terms
from ssop_rag.embedder import E5
from ssop_router.core.arrival import Arrival, Timing

K = 5
TIMES = (1, 2, 4, 8, 16)
ENGINES_MS = (50, 200, 600)
WORDS_A_SECOND = 3
MAX_QUERIES = 1_000
SETS = {
    "en_xquad2wiki": "XQuAD + 2Wiki, English",
    "zh_cmrc_xquad": "CMRC + XQuAD, Chinese",
    "en_cranfield": "Cranfield",
}
_NOW_MS = 1


class Vectors:
    """Vectors of texts, kept in a file."""

    def __init__(self, path: Path, make: Callable[[Sequence[str]], Matrix]) -> None:
        self._path = path
        self._make = make
        self._of: dict[str, NDArray[np.float32]] = {}
        if path.exists():
            with np.load(path) as kept:
                self._of = dict(zip(kept["texts"].tolist(), kept["vectors"], strict=True))

    def of(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """The vectors of texts; those that are missing are made and kept."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._of]
        for begin in range(0, len(missing), 100):
            part = missing[begin : begin + 100]
            self._of.update(zip(part, self._make(part), strict=True))
            print(f"  {self._path.stem}: {begin + len(part)} of {len(missing)}", file=sys.stderr)
        if missing:
            names = list(self._of)
            np.savez(self._path, texts=np.array(names), vectors=np.stack([self._of[name] for name in names]))
        return [self._of[text] for text in texts]


def read(folder: Path, name: str, kind: str) -> list[dict[str, Any]]:
    """Records of a suite."""
    with gzip.open(folder / "rag" / f"{name}_{kind}.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


@dataclass
class Case:
    """A suite with a ranker."""

    chosen: list[Chosen]
    ranker: Ranker
    vectors: Vectors

    def query(self, text: str) -> Query:
        """A text as the ranker takes it."""
        return Query(text, self.vectors.of([text])[0] if self.ranker.has_vector else None)

    def top(self, text: str, count: int) -> list[str]:
        """Ids of the best documents."""
        return [hit.document_id for hit in rank(self.chosen, self.query(text), count, _NOW_MS)]

    def candidates(self, text: str, count: int) -> Candidates:
        """What a prefetch of a text fetches."""
        return gather(self.chosen, (), self.query(text), count, _NOW_MS)


@dataclass
class Cover:
    """How much of the best five the candidates hold."""

    top1: list[bool] = field(default_factory=list)
    cover: list[float] = field(default_factory=list)

    def add(self, best: Sequence[str], fetched: Sequence[str]) -> None:
        """One query."""
        held = set(fetched)
        self.top1.append(best[0] in held)
        self.cover.append(sum(one in held for one in best) / len(best))

    def __str__(self) -> str:
        whole = statistics.fmean(share == 1 for share in self.cover)
        return f"best {statistics.fmean(self.top1):.3f}  cover {statistics.fmean(self.cover):.3f}  all {whole:.2f}"


def measure_cover(case: Case, queries: Sequence[str], tokens: int, *, again: int = 0) -> None:
    """Print what prefixes find, by candidates; with `again`, of queries that reach as many tokens, that prefix."""
    by_times = {times: Cover() for times in TIMES}
    proven = dict.fromkeys(TIMES, 0)
    for text in queries:
        best = case.top(text, K)
        if not best:
            continue
        prefix = take_tokens(text, again if again and count_tokens(text) >= again else tokens)
        fetched = case.candidates(prefix, max(TIMES) * K)
        names = [hit.document_id for hit in fetched.hits]
        query = case.query(text)
        for times, cover in by_times.items():
            cover.add(best, names[: times * K])
            part = Candidates(
                fetched.prefix, (), fetched.versions, fetched.hits[: times * K], fetched.vectors[: times * K], False
            )
            proven[times] += prove([case.ranker], part, query, K) is not None
    for times, cover in by_times.items():
        share = proven[times] / len(cover.cover)
        print(f"    {tokens}{f', again {again}' if again else ''} tokens, {times:2}x: {cover}  proven {share:.3f}")


@dataclass(frozen=True)
class Typed:
    """A query as it was typed: the prefetches that became due, and when it was sent, in milliseconds."""

    text: str
    issues: list[tuple[float, str]]
    sent_ms: float


def type_in(text: str, pause_ms: float) -> Typed:
    """Type a query, and send it `pause_ms` after its last word."""
    is_spaced = " " in text
    pieces = [f"{word} " for word in text.split()] if is_spaced else [text[i : i + 2] for i in range(0, len(text), 2)]
    arrival = Arrival(Timing(), "", 0)
    issues: list[tuple[float, str]] = []
    now_ms = 0.0

    def wait_until(end_ms: float) -> None:
        while (due_ms := arrival.due_ms) is not None and due_ms < end_ms:
            if prefix := arrival.take_due(due_ms):
                issues.append((due_ms, prefix))

    for number, piece in enumerate(pieces):
        now_ms = number * 1000 / WORDS_A_SECOND
        wait_until(now_ms)
        arrival.add(piece, now_ms)
        if prefix := arrival.take_due(now_ms):
            issues.append((now_ms, prefix))
    wait_until(now_ms + pause_ms)
    return Typed(text, issues, now_ms + pause_ms)


@dataclass
class Outcome:
    """Latencies in milliseconds, and what became of the prefetches."""

    latencies_ms: list[float] = field(default_factory=list)
    used: int = 0
    issued: int = 0
    kept: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        p50, p95 = statistics.median(self.latencies_ms), statistics.quantiles(self.latencies_ms, n=20)[18]
        wasted = f"  {self.issued} fetched, {1 - self.used / self.issued:.0%} wasted" if self.issued else ""
        kept = f"  top 5 kept {statistics.fmean(self.kept):.3f}" if self.kept else ""
        return f"P50 {p50:4.0f}  P95 {p95:4.0f} ms{wasted}{kept}"


def simulate(case: Case, typed: Sequence[Typed], engine_ms: int, embed_ms: float, count: int, mode: str) -> Outcome:
    """Retrieve each query, as the service does it."""
    outcome = Outcome()
    embed_ms = embed_ms if case.ranker.has_vector else 0.0
    for one in typed:
        plain_ms = embed_ms + engine_ms
        if mode == "off" or not one.issues:
            outcome.latencies_ms.append(plain_ms)
            continue
        outcome.issued += len(one.issues)
        began_ms, prefix = one.issues[-1]
        left_ms = max(0.0, began_ms + embed_ms + engine_ms - one.sent_ms)
        if " ".join(prefix.split()) == " ".join(one.text.split()):
            outcome.latencies_ms.append(left_ms)
            outcome.used += 1
            continue
        fetched = case.candidates(prefix, count)
        if mode == "lossy" and len(fetched.hits) >= K:
            best = case.top(one.text, K)
            within = rank_within(case.chosen, fetched, case.query(one.text), K, _NOW_MS)
            outcome.kept.append(len({hit.document_id for hit in within} & set(best)) / len(best))
            outcome.latencies_ms.append(max(left_ms, embed_ms))
            outcome.used += 1
        elif left_ms == 0 and prove([case.ranker], fetched, case.query(one.text), K) is not None:
            outcome.latencies_ms.append(embed_ms)
            outcome.used += 1
        else:
            outcome.latencies_ms.append(plain_ms)
    return outcome


def measure_latency(case: Case, queries: Sequence[str], embed_ms: float, count: int) -> None:
    """Print latencies without and with prefetches."""
    for pause_ms in (0, 1000):
        typed = [type_in(text, pause_ms) for text in queries]
        for engine_ms in ENGINES_MS:
            for mode in ("off", "lossless", "lossy"):
                outcome = simulate(case, typed, engine_ms, embed_ms, count, mode)
                print(f"    sent after {pause_ms} ms, engine {engine_ms} ms, {mode:8}: {outcome}")


def bench(name: str, suites: Path, folder: Path, embedder: E5, embed_ms: float, rankers: Sequence[Ranker]) -> None:
    """All figures of a suite."""
    documents = read(suites, name, "docs")
    texts = [f"{one['title']}\n{one['text']}".strip()[:1000] for one in documents]
    has_vector = any(ranker.has_vector for ranker in rankers)
    passages = (
        Vectors(folder / f"{name}_docs.npz", embedder.embed_passages).of(texts)
        if has_vector
        else [np.eye(1, embedder.dim, dtype=np.float32)[0]] * len(texts)
    )
    queries = Vectors(folder / f"{name}_queries.npz", embedder.embed_query)
    table = PassageTable(name, embedder.dim)
    for one, text, vector in zip(documents, texts, passages, strict=True):
        table.put(one["id"], vector[None, :], 0, [extract_terms(text)])
    asked = [one["text"] for one in read(suites, name, "queries")]
    long = [text for text in asked if count_tokens(text) > 10]
    print(f"{SETS[name]}: {len(documents)} documents, {len(asked)} queries, {1 - len(long) / len(asked):.0%} of them")
    print("  with 10 tokens or fewer; the figures are of up to 1,000 of the others")
    if len(long) > MAX_QUERIES:
        long = random.Random(5).sample(long, MAX_QUERIES)
    if has_vector:
        queries.of([*long, *(take_tokens(text, tokens) for text in long for tokens in (10, 15))])
    for ranker in rankers:
        case = Case([Chosen(name, 1, table, ranker)], ranker, queries)
        started_s = time.perf_counter()
        for text in long[:100]:
            case.top(text, K)
        search_ms = (time.perf_counter() - started_s) * 10
        print(f"  {ranker.value} (a search of the embedded store takes {search_ms:.2f} ms)")
        measure_cover(case, long, 10)
        measure_cover(case, long, 10, again=15)
        if name != "en_cranfield" and ranker is rankers[-1]:
            measure_latency(case, long, embed_ms, 38)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--vectors", type=Path, default=Path(".vectors"), help="where vectors are kept")
    parser.add_argument("--ranker", action="append", type=Ranker, default=[])
    parser.add_argument("sets", nargs="*", default=list(SETS))
    options = parser.parse_args()
    if unknown := set(options.sets) - set(SETS):
        parser.error(f"there are no sets {', '.join(sorted(unknown))}; there are {', '.join(SETS)}")
    options.vectors.mkdir(parents=True, exist_ok=True)
    embedder = E5()
    took_ms = []
    for number in range(50):
        started_s = time.thread_time()
        embedder.embed_query([f"when does parcel {number} from the warehouse arrive at my door"])
        took_ms.append((time.thread_time() - started_s) * 1e3)
    embed_ms = statistics.median(took_ms)
    print(f"embedding a query of 11 words: {embed_ms:.1f} ms of CPU ({embedder.tag})")
    for name in options.sets:
        bench(
            name, Path(os.environ["SSOP_SUITES"]), options.vectors, embedder, embed_ms, options.ranker or list(Ranker)
        )


if __name__ == "__main__":
    main()
