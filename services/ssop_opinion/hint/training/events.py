"""The part of the hint that says event types: its written rows, its fit, and what that is worth on rows held out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from ssop_opinion.core.prompt import EVENTS, Hint
from ssop_opinion.core.wording import even_out
from ssop_opinion.hint.model import HintModel
from ssop_opinion.hint.training.fitting import Floats, Matrix, Weights, fit_labels, macro_recall, make_matrix
from ssop_opinion.hint.training.rows import Language

WRITTEN: Final = tuple(Path(__file__).with_name(f"events_{language}.txt") for language in ("en", "zh"))
PENALTIES: Final = (3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
FOLDS: Final = 5
SEED: Final = 1
MIN_ROWS: Final = 2
"""A bucket that fewer rows have is left out: there are few rows."""


@dataclass(frozen=True, slots=True)
class EventRow:
    """A post with its event type, as its place in EVENTS."""

    text: str
    label: int
    language: Language


@dataclass(frozen=True, slots=True)
class Worth:
    """What guesses are worth. `covered` is the share of rows where a type is clear, `precision` how many of those are
    right.
    """

    loss: float
    accuracy: float
    recall: float
    covered: float
    precision: float


def read_posts(path: Path) -> Iterator[EventRow]:
    """The posts of a file of sections: `[language type]`, then a line each. `# ` begins a comment."""
    language, label = "", 0
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            language, event = line.strip("[]").split()
            label = EVENTS.index(event)
        elif line and not line.startswith("# "):
            yield EventRow(even_out(line), label, cast("Language", language))


def written_posts() -> list[EventRow]:
    """The rows that teach, in a fixed order."""
    return list(chain.from_iterable(map(read_posts, WRITTEN)))


class EventPart:
    """The rows of a language, with what the sentiment model says of them as further dense features."""

    def __init__(self, rows: list[EventRow], language: Language, model: HintModel) -> None:
        """Raises ValueError for a row of which the model says nothing."""
        own = [row for row in rows if row.language == language]
        self.labels = np.array([row.label for row in own], np.int64)
        span = model.extractor.span(language)
        self.offset = span.start
        features = [model.extractor.extract(row.text, language) for row in own]
        matrix = make_matrix(features, self.offset, len(span), MIN_ROWS)
        tones = np.array([_tone(model.judge(row.text), row.text) for row in own], np.float32)
        self.matrix: Matrix = replace(matrix, dense=np.hstack([matrix.dense, tones]))

    def fit(self, rows: NDArray[np.bool_], penalty: float) -> Weights:
        """From some of the rows, all types weighing the same."""
        labels = self.labels[rows]
        weights = (1 / np.bincount(labels, minlength=len(EVENTS))[labels]).astype(np.float32)
        return fit_labels(self.matrix.take(rows), labels, weights / weights.sum(), penalty, len(EVENTS))

    def hold_out(self, penalty: float) -> Floats:
        """Probabilities for each row by a model of the other folds."""
        chances = np.zeros((len(self.labels), len(EVENTS)), np.float32)
        fold = np.random.default_rng(SEED).permutation(len(self.labels)) % FOLDS
        for number in range(FOLDS):
            held = fold == number
            outputs = self.fit(~held, penalty).apply(self.matrix.take(held))
            chances[held] = np.exp(outputs - outputs.max(1, keepdims=True))
        return cast("Floats", chances / chances.sum(1, keepdims=True))

    def make(self, penalty: float) -> Mapping[str, NDArray[Any]]:
        """The part of the artefact: `kept` buckets, and for each a row of outputs and the square of its weight."""
        fitted = self.fit(np.ones(len(self.labels), bool), penalty)
        kept = self.matrix.kept
        idf = self.matrix.idf[kept][:, None]
        table = np.hstack([fitted.grams * idf, idf**2])
        return {"kept": kept + self.offset, "table": table, "dense": fitted.dense, "bias": fitted.bias}


def choose(part: EventPart) -> float:
    """The penalty under which held-out rows are likeliest."""
    worth = {penalty: weigh(part.labels, part.hold_out(penalty)) for penalty in PENALTIES}
    for penalty, one in worth.items():
        print(f"{penalty:g} {one}", flush=True)
    return min(PENALTIES, key=lambda penalty: worth[penalty].loss)


def weigh(labels: NDArray[np.int64], chances: Floats) -> Worth:
    """What probabilities of EVENTS, a row each, are worth."""
    guesses = chances.argmax(1)
    said = [Hint(0, 0, 0, 0, tuple(row.tolist())).event for row in chances]
    right = [event == EVENTS[label] for event, label in zip(said, labels.tolist(), strict=True) if event]
    return Worth(
        loss=round(float(-np.log(np.maximum(chances[np.arange(len(labels)), labels], 1e-9)).mean()), 4),
        accuracy=round(float((guesses == labels).mean()), 3),
        recall=round(macro_recall(labels, guesses), 3),
        covered=round(len(right) / len(labels), 3),
        precision=round(sum(right) / max(1, len(right)), 3),
    )


def _tone(hint: Hint | None, text: str) -> tuple[float, ...]:
    if hint is None:
        raise ValueError(f"the hint says nothing of a written row: {text[:20]}")
    return hint.negative, hint.neutral, hint.positive, hint.valence
