"""Quality of opinion records: the hint alone on all rows, whole records on a seeded sample, beside the baselines.

Usage: PYTHONPATH=tests SSOP_SUITES=FOLDER python tests/bench/bench_opinion_quality.py [--rows 300] [--hint-only]
[--sets NAME ...] [--seed 7] [--events | --event-records 28]

Data come from SSOP_SUITES/opinion and do not ship. Records are made by the embedded default model, through a mesh that
is started for it, by the analyst that the application uses. Chinese reviews have two labels: a record says the one on
whose side its score lies, and 0 is on neither.
"""

import argparse
import asyncio
import gzip
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from prometheus_client import CollectorRegistry

from helpers.live_mesh import run_mesh
from ssop_opinion.analyst import MeshAnalyst, open_analyst
from ssop_opinion.core.hint_features import Extractor
from ssop_opinion.core.post import Post
from ssop_opinion.core.prompt import EVENTS
from ssop_opinion.core.record import Analysis
from ssop_opinion.core.wording import even_out, find_language
from ssop_opinion.hint.model import HintModel, open_hint
from ssop_opinion.hint.training.event_graph import without_events
from ssop_opinion.hint.training.events import EventRow, read_posts
from ssop_opinion.ports import MeshAwayError
from ssop_opinion.settings import OpinionSettings
from ssop_opinion.tenants import Tenant, Tenants
from ssop_opinion.wiring import Setup

LABELS: Final = ("negative", "neutral", "positive")
COMPOUND_NEUTRAL: Final = 0.05
"""VADER's own threshold."""
DRAWS: Final = 1_000
IN_FLIGHT: Final = 4
TRIES: Final = 5
ROOT: Final = Path(__file__).parents[2]
EVENT_POSTS: Final = ROOT / "tests/vectors/opinion_events.txt"
SHIPPED_EVENTS: Final = ROOT / "tests/vectors/opinion_events_shipped.json"
SHIPPED_POSTS: Final = ROOT / "services/ssop_cli/data/posts.jsonl"
SILVER: Final = {"new_launch": "launch", "product_failure": "failure", "pr_crisis": "crisis"}
"""Labels of the headlines, of which the rest are of none of the three."""


@dataclass(frozen=True)
class Suite:
    """An evaluation set. `labels` are those that its rows have."""

    name: str
    labels: Sequence[str]
    split: str = ""

    def rows(self, folder: Path) -> list[tuple[str, str]]:
        """Texts with their labels."""
        words = {0: "negative", 1: "positive"}
        return [
            (row["text"], words.get(row["label"], row["label"]))
            for row in read(folder, self.name)
            if not self.split or row["split"] == self.split
        ]


SUITES: Final = (
    Suite("en_tweet_sentiment3", LABELS, "test"),
    Suite("zh_product_review_10cats", ("negative", "positive")),
    Suite("zh_waimai", ("negative", "positive")),
    Suite("zh_hotel_chnsenticorp", ("negative", "positive")),
)


def read(folder: Path, name: str) -> list[dict[str, Any]]:
    """Rows of a set."""
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def score(suite: Suite, truth: Sequence[str], guesses: Sequence[str]) -> str:
    """Accuracy and macro-recall, with 95 % intervals over rows."""
    codes = {label: code for code, label in enumerate(suite.labels)}
    wanted = np.array([codes[label] for label in truth])
    found = np.array([codes.get(label, -1) for label in guesses])

    def judge(at: Any) -> tuple[float, float]:
        right = wanted[at] == found[at]
        recalls = [right[wanted[at] == code].mean() for code in range(len(codes)) if (wanted[at] == code).any()]
        return float(right.mean()), float(np.mean(recalls))

    draw = np.random.default_rng(1)
    sampled = np.array([judge(draw.integers(0, len(wanted), len(wanted))) for _ in range(DRAWS)])
    low, high = np.percentile(sampled, [2.5, 97.5], axis=0)
    accuracy, recall = judge(np.arange(len(wanted)))
    return f"acc {accuracy:.3f} [{low[0]:.3f}-{high[0]:.3f}]  macro-recall {recall:.3f} [{low[1]:.3f}-{high[1]:.3f}]"


def side(value: float, suite: Suite, neutral_up_to: float) -> str:
    """The label of a score; in a set of two labels only 0 is neutral."""
    bound = neutral_up_to if "neutral" in suite.labels else 0.0
    return "neutral" if abs(value) <= bound else "positive" if value > 0 else "negative"


def hint_label(model: HintModel, text: str, suite: Suite) -> str:
    """What the hint says."""
    hint = model.judge(even_out(text))
    if hint is None:
        return "neutral"
    if "neutral" in suite.labels:
        return hint.label
    return "positive" if hint.positive > hint.negative else "negative"


def record_label(analysis: Analysis, suite: Suite) -> str:
    """What a record says; nothing where it has no good verdict."""
    if analysis.verdict != "ok":
        return ""
    if "neutral" in suite.labels:
        return str(analysis.fields["sentiment_label"])
    return side(float(analysis.fields["sentiment_score"]), suite, 0)


def judge_alone(folder: Path, suite: Suite, model: HintModel, extractor: Extractor) -> None:
    """Baselines and the hint on all rows."""
    rows = suite.rows(folder)
    truth = [label for _, label in rows]
    counts = Counter(truth)
    print(f"\n{suite.name}: {len(rows)} rows, {dict(counts)}")
    print(f"  majority  {score(suite, truth, [counts.most_common(1)[0][0]] * len(rows))}")
    compounds = [extractor.extract(text, find_language(text)).dense[0] for text in (even_out(text) for text, _ in rows)]
    print(f"  lexicon   {score(suite, truth, [side(value, suite, COMPOUND_NEUTRAL) for value in compounds])}")
    started_s = time.perf_counter()
    guesses = [hint_label(model, text, suite) for text, _ in rows]
    cost_us = (time.perf_counter() - started_s) / len(rows) * 1e6
    print(f"  hint      {score(suite, truth, guesses)}  {cost_us:.0f} us a text")


def judge_valence(folder: Path, model: HintModel, extractor: Extractor) -> None:
    """Mean absolute error of valences from 0 to 1; a line is fitted to each signal on the set's training rows."""
    rows = read(folder, "en_tweet_valence_reg")
    signals: dict[str, Callable[[str], float]] = {
        "mean": lambda _: 0.0,
        "lexicon": lambda text: extractor.extract(text, find_language(text)).dense[0],
        "hint": lambda text: hint.valence if (hint := model.judge(text)) is not None else 0.0,
    }
    print(f"\nen_tweet_valence_reg: {sum(row['split'] == 'test' for row in rows)} test rows")
    for name, signal in signals.items():
        values = np.array([signal(even_out(row["text"])) for row in rows])
        truth = np.array([float(row["label"]) for row in rows])
        train, test = (np.array([row["split"] == split for row in rows]) for split in ("train", "test"))
        slope, offset = np.polyfit(values[train], truth[train], 1) if values.any() else (0.0, truth[train].mean())
        error = np.abs(np.clip(slope * values[test] + offset, 0, 1) - truth[test]).mean()
        pearson = np.corrcoef(values[test], truth[test])[0, 1] if values.any() else float("nan")
        print(f"  {name:9} MAE {error:.3f}  Pearson {pearson:.3f}")


async def analyse(analyst: MeshAnalyst, post: Post) -> Analysis:
    """The analysis of a post, tried again as the application does while the mesh is away."""
    for _ in range(TRIES - 1):
        try:
            return await analyst.analyse(post, lambda _name, _value: None)
        except MeshAwayError as error:
            print(f"  again: {error}", flush=True)
            await asyncio.sleep(error.retry_after_s)
    return await analyst.analyse(post, lambda _name, _value: None)


async def make_records(
    mesh: Any, folder: Path, texts: Sequence[str], *, has_hint: bool = True, hint_file: Path | None = None
) -> list[Analysis]:
    """Records of texts, by the application's analyst."""
    key_file = folder / "key"
    key_file.write_text(mesh.key)
    key_file.chmod(0o600)
    settings = OpinionSettings(
        router_address=mesh.target, state_directory=folder, tenants_directory=folder, stream_url="redis://unused",
        analysis_timeout_ms=600_000, has_hint=has_hint, hint_file=hint_file,
    )  # fmt: skip
    setup = Setup(settings, Tenants({"local": Tenant(name="local", api_key_file=key_file)}), CollectorRegistry())
    found: dict[int, Analysis] = {}
    waiting = iter(enumerate(texts))
    async with open_analyst(setup) as analyst:

        async def work() -> None:
            for number, text in waiting:
                found[number] = await analyse(analyst, Post("local", "bench", str(number), text, "file", 0))

        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return [found[number] for number in range(len(texts))]


def judge_records(
    folder: Path, suites: Sequence[Suite], model: HintModel, rows: int, seed: int, has_hint: bool
) -> None:
    """Whole records on a sample of each set."""
    samples = [(suite, random.Random(seed).sample(suite.rows(folder), rows)) for suite in suites]
    with tempfile.TemporaryDirectory(prefix="ssop-") as scratch, run_mesh(Path(scratch)) as mesh:
        for suite, sample in samples:
            started_s = time.monotonic()
            texts, truth = zip(*sample, strict=True)
            records = asyncio.run(make_records(mesh, Path(scratch), texts, has_hint=has_hint))
            wall_s = time.monotonic() - started_s
            own = [record_label(record, suite) for record in records]
            hints = [hint_label(model, text, suite) for text in texts]
            print(f"\n{suite.name}: {len(texts)} records, {wall_s / len(texts):.2f} s each of wall time")
            print(f"  records   {score(suite, truth, own)}")
            print(f"  hint      {score(suite, truth, hints)}  on the same rows")
            agreed = sum(ours == theirs for ours, theirs in zip(own, hints, strict=True)) / len(own)
            reasons = dict(Counter(record.reason for record in records if record.reason))
            print(f"  verdicts {dict(Counter(record.verdict for record in records))} {reasons}")
            print(f"  labels {dict(Counter(own))}; as the hint {agreed:.3f}")
            print(f"  event types {dict(Counter(str(r.fields.get('event_type')) for r in records).most_common())}")


def judge_events(model: HintModel) -> None:
    """The hint of event types beside the majority: posts that were written for it, those that ship, headlines."""
    for language in ("en", "zh"):
        rows = [row for row in read_posts(EVENT_POSTS) if row.language == language]
        judge_event_rows(f"written, {language}", [(row.text, EVENTS[row.label]) for row in rows], model)
    shipped = json.loads(SHIPPED_EVENTS.read_text(encoding="utf-8"))
    posts = [json.loads(line) for line in SHIPPED_POSTS.read_text(encoding="utf-8").splitlines()]
    judge_event_rows("shipped", [(even_out(post["text"]), shipped[post["id"]]) for post in posts], model)
    if "SSOP_SUITES" not in os.environ:
        return
    silver = read(Path(os.environ["SSOP_SUITES"]) / "opinion", "en_event_silver_checked")
    print(f"\nheadlines: {len(silver)}")
    hints = [(SILVER.get(row["label"], "none"), model.judge(even_out(row["text"]))) for row in silver]
    said = [(truth, hint.event if hint is not None else "") for truth, hint in hints]
    for event in SILVER.values():
        own, found = [one for truth, one in said if truth == event], [truth for truth, one in said if one == event]
        print(
            f"  {event:8} clear for {own.count(event)} of {len(own)}; said {len(found)} times,"
            f" {found.count(event)} right; said of them {dict(Counter(own))}"
        )


def judge_event_rows(name: str, rows: Sequence[tuple[str, str]], model: HintModel) -> None:
    """The likeliest type of each text, and the type where it is clear."""
    truth = [event for _, event in rows]
    suite = Suite(name, [event for event in EVENTS if event in truth])
    hints = [model.judge(text) for text, _ in rows]
    likeliest = [EVENTS[int(np.argmax(hint.events))] if hint is not None else "" for hint in hints]
    clear = [hint.event if hint is not None else "" for hint in hints]
    right = sum(one == event for one, event in zip(clear, truth, strict=True) if one)
    print(f"\n{name}: {len(rows)} posts, {dict(Counter(truth))}")
    print(f"  majority  {score(suite, truth, [Counter(truth).most_common(1)[0][0]] * len(rows))}")
    print(f"  likeliest {score(suite, truth, likeliest)}")
    print(f"  clear     {len(rows) - clear.count('')} of {len(rows)}, {right} right")
    for event in suite.labels:
        own = [(a, b) for a, b, wanted in zip(likeliest, clear, truth, strict=True) if wanted == event]
        said = sum(one == event for one in clear)
        kept = sum(one == event for _, one in own)
        print(f"    {event:9} {sum(a == event for a, _ in own)} of {len(own)}; clear {kept}, wrongly {said - kept}")


def judge_event_records(count: int, seed: int) -> None:
    """Event types of whole records, with the hint of them and without."""
    by_type: dict[tuple[str, int], list[EventRow]] = {}
    for row in read_posts(EVENT_POSTS):
        by_type.setdefault((row.language, row.label), []).append(row)
    draw = random.Random(seed)
    share = max(1, count // len(by_type))
    rows = [row for own in by_type.values() for row in draw.sample(own, share)]
    texts, truth = [row.text for row in rows], [EVENTS[row.label] for row in rows]
    with tempfile.TemporaryDirectory(prefix="ssop-") as scratch, run_mesh(Path(scratch)) as mesh:
        bare = Path(scratch) / "bare.onnx"
        bare.write_bytes(without_events((ROOT / "services/ssop_opinion/hint/hint.onnx").read_bytes()))
        for name, hint_file in (("without", bare), ("with", None)):
            started_s = time.monotonic()
            records = asyncio.run(make_records(mesh, Path(scratch), texts, hint_file=hint_file))
            own = [str(record.fields.get("event_type")) for record in records]
            right = sum(one == event for one, event in zip(own, truth, strict=True))
            said = [(one, record.event_hint) for one, record in zip(own, records, strict=True) if record.event_hint]
            unsaid = [one == event for one, event, r in zip(own, truth, records, strict=True) if not r.event_hint]
            print(f"\n{name} hints of events: {len(own)} records, {time.monotonic() - started_s:.0f} s")
            print(f"  verdicts {dict(Counter(record.verdict for record in records))}; right {right}; {Counter(own)}")
            print(f"  as the hint {sum(a == b for a, b in said)} of {len(said)}; unsaid {sum(unsaid)} of {len(unsaid)}")
            tones = [str(record.fields.get("sentiment_label")) for record in records]
            print(f"  labels {dict(Counter(tones))}", flush=True)


def main() -> None:
    """Judge, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300, help="records of each set")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--hint-only", action="store_true", help="no records")
    parser.add_argument("--records-only", action="store_true", help="records alone")
    parser.add_argument("--without-hint", action="store_true", help="records without the hint in the prompt")
    parser.add_argument("--sets", nargs="*", default=[suite.name for suite in SUITES])
    parser.add_argument("--events", action="store_true", help="the hint of event types alone")
    parser.add_argument("--event-records", type=int, default=0, help="so many records, for their event types")
    given = parser.parse_args()
    if given.events:
        judge_events(open_hint())
        return
    if given.event_records:
        judge_event_records(given.event_records, given.seed)
        return
    if "SSOP_SUITES" not in os.environ:
        sys.exit("SSOP_SUITES names the folder that holds opinion/")
    folder = Path(os.environ["SSOP_SUITES"]) / "opinion"
    model, extractor = open_hint(), open_hint().extractor
    suites = [suite for suite in SUITES if suite.name in given.sets]
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}, {model.version}")
    if not given.records_only:
        for suite in suites:
            judge_alone(folder, suite, model, extractor)
        judge_valence(folder, model, extractor)
    if not given.hint_only:
        judge_records(folder, suites, model, given.rows, given.seed, not given.without_hint)


if __name__ == "__main__":
    main()
