"""From labelled texts to a classifier: features, heads, the choice among candidates.

The choice is made by a criterion on training rows alone: each row is scored by heads that saw nothing of its group;
the criterion is the mean of three areas. `between`: APGR over all rows with qualities (can it tell tasks apart?);
`within`: the same over ranks inside each source (can it tell requests of one task apart?); `tier`: the same area over
English rows with labels, full being the gain (does it know which task types need the full tier?). Each source is
capped so that none decides alone. What lies within one standard error of the best can't be told from it, so the blend
that is shipped is the mean of all those.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ssop_router.classification.extraction import make_extractor
from ssop_router.classification.training.artefact import specify, write_artefact
from ssop_router.classification.training.fitting import (
    BalancedRidge,
    Scale,
    fit_grams,
    fit_leaving_out,
    fit_ridge,
    make_grams,
    measure_scale,
    normalise_grams,
    place_knots,
    rank_values,
    weigh_grams,
    weigh_groups,
)
from ssop_router.classification.training.graph import CHINESE_SHARE, Floats, Parameters
from ssop_router.classification.training.measures import measure_apgr, rank_within
from ssop_router.classification.training.rows import Row, cap_sources

GRAM_BITS: Final = 15
GRAM_PENALTY: Final = 3.0
NEED_PENALTY: Final = 3000.0
TASK_PENALTY: Final = 2000.0
PENALTIES: Final = (1000.0, 3000.0, 10000.0)
BLEND_STEPS: Final = 4
"""Shares of the blend are multiples of a quarter."""
STANDARD_ERROR: Final = 0.006
"""Of the criterion, by bootstrap over rows."""
MAX_OF_SOURCE: Final = 400
MIN_OF_LANGUAGE: Final = 50
"""Fewer rows give no ranks of their own: all rows do then."""
GRAMMAR: Final = (
    "log_names", "log_relatives", "question_place", "log_possessives", "log_degrees", "log_of", "log_the", "past_share",
)  # fmt: skip
"""Features that help to tell task types apart and nothing else: the heads of the blend do without them."""
NEED_PAIRED: Final = (
    "log_words", "log_sentences", "log_questions", "relative", "log_capitals", "capital_share", "cause", "contrast",
    "condition", "quantity", "compare", "logic", "passage", "code", "technical", "chat", "relation", "log_numbers",
    "ask", "write", "math_share", "summarise", "classify", "words_per_sentence", "log_lines", "log_options",
)  # fmt: skip
"""Features whose products count in the need head; the gain head has more rows a feature, and takes more."""
GAIN_PAIRED: Final = (
    *NEED_PAIRED, "pronoun", "number", "mathematics", "solve", "choice", "sequence", "explain", "extract", "law",
    "number_share", "log_chars", "ends_asking", "starts_lower", "log_quotes", "longest_word", "log_long_words",
)  # fmt: skip
TASK_PAIRED: Final = (*NEED_PAIRED, *GRAMMAR)


@dataclass(frozen=True, slots=True)
class Texts:
    """Rows with their features: `dense` [N, F], `grams` [N, D] where n-grams are used."""

    rows: Sequence[Row]
    dense: NDArray[np.float32]
    grams: Any
    sources: NDArray[np.str_]
    groups: NDArray[np.str_]
    is_zh: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Candidate:
    """What was tried: the blend of length, gain, need and grams, and how it did on the criterion.

    That is the mean of `between`, `within` and, with labels, `tier`.
    """

    penalty: float
    blend: tuple[float, ...]
    between: float
    within: float
    tier: float | None

    @property
    def criterion(self) -> float:
        """The criterion."""
        parts = [part for part in (self.between, self.within, self.tier) if part is not None]
        return sum(parts) / len(parts)


@dataclass(frozen=True, slots=True)
class Trained:
    """A classifier as bytes of an artefact, with all candidates that were tried, best first."""

    artefact: bytes
    version: str
    candidates: list[Candidate]
    length: Candidate
    """Length alone, for comparison."""
    chosen: Candidate
    """With the mean of the blends; its areas are those of the best single blend."""
    parameters: Parameters = field(repr=False)

    @property
    def blend(self) -> tuple[float, ...]:
        """Shares of length, gain, need and grams."""
        return self.chosen.blend

    @property
    def penalty(self) -> float:
        """The penalty of the gain head."""
        return self.chosen.penalty


def read_features(rows: Sequence[Row], bits: int) -> Texts:
    """Extract the features of all rows."""
    extractor = make_extractor(specify(bits))
    found = [extractor.extract(row.text) for row in rows]
    dense = np.stack([row[2] for row in found]) if found else np.empty((0, extractor.width), np.float32)
    grams = None
    if bits and found:
        starts = np.cumsum([0, *(len(row[0]) for row in found)])
        ids = np.concatenate([row[0] for row in found])
        weights = np.concatenate([row[1] for row in found]).astype(np.float64)
        grams = sparse.csr_matrix((weights, ids, starts), shape=(len(rows), 1 << bits))
    return Texts(
        rows,
        dense,
        grams,
        np.array([row.source for row in rows], dtype=np.str_),
        np.array([row.group for row in rows], dtype=np.str_),
        dense[:, _index("ideograph_share")] > CHINESE_SHARE,
    )


def _index(name: str) -> int:
    specification = specify(0)
    names: list[str] = [*specification["base"], *specification["categories"]]
    return names.index(name)


def scale_of(texts: Texts, paired: Sequence[str], leaves_out: Sequence[str] = ()) -> Scale:
    """The scale on which a head is fitted."""
    used = sorted(set(range(texts.dense.shape[1])) - {_index(name) for name in leaves_out})
    return measure_scale(texts.dense, _index("ideograph_share"), used, [_index(name) for name in paired])


def need_problem(texts: Texts, columns: Floats) -> BalancedRidge:
    """The need head: which task types gain from a full model. Large data sets count for less than their size."""
    needs_full = np.array([row.needs_full for row in texts.rows])
    return _tier_problem(texts, columns, needs_full, weigh_groups(texts.groups, 0.75), NEED_PENALTY)


def task_problem(texts: Texts, columns: Floats) -> BalancedRidge:
    """The task head: the labels of task types. English sources, hundreds of templates among them, count alike."""
    is_full = np.array([bool(row.is_full) for row in texts.rows])
    weights = weigh_groups(texts.sources, np.where(texts.is_zh, 0.75, 0.0))
    return _tier_problem(texts, columns, is_full, weights, TASK_PENALTY)


def _tier_problem(
    texts: Texts, columns: Floats, is_full: NDArray[np.bool_], weights: Floats, penalty: float
) -> BalancedRidge:
    cells = texts.is_zh.astype(np.intp) * 2 + is_full
    return BalancedRidge(columns, np.where(is_full, 1.0, -1.0), weights, cells, penalty)


class _Trainer:
    def __init__(self, gains: Texts, tasks: Texts | None) -> None:
        self.gains, self.tasks = gains, tasks
        reference = tasks if tasks is not None else gains
        self.scale = scale_of(reference, GAIN_PAIRED, GRAMMAR)
        self.need_scale, self.task_scale = scale_of(reference, NEED_PAIRED, GRAMMAR), scale_of(reference, TASK_PAIRED)
        self.columns = self.scale.expand(gains.dense)
        self.gain_needs = self.need_scale.expand(gains.dense)
        self.target = np.array([row.gain for row in gains.rows], np.float64)
        self.weights = weigh_groups(gains.sources)
        self.kept = np.array(cap_sources(gains.rows, MAX_OF_SOURCE))
        self.lengths = gains.dense[:, 0].astype(np.float64)
        self.need_columns = None if tasks is None else self.need_scale.expand(tasks.dense)
        self.need: BalancedRidge | None = None
        self.need_coefficients = np.zeros(self.gain_needs.shape[1])
        if tasks is not None and self.need_columns is not None:
            self.need = need_problem(tasks, self.need_columns)
            self.need_coefficients = self.need.fit()
        self.judged = self._judged_tasks()
        self.need_values = self._needs_held_out()
        self.idf = np.ones(1) if gains.grams is None else weigh_grams(gains.grams)
        self.gram_rows: Any = None if gains.grams is None else normalise_grams(gains.grams, self.idf)
        self.gram_values = self._grams_held_out()

    def _needs_held_out(self) -> tuple[Floats, Floats]:
        """The need of rows with qualities and of judged ones, by heads that saw nothing of their group."""
        found = self.gain_needs @ self.need_coefficients
        if self.tasks is None or self.need is None or self.need_columns is None:
            return found, np.zeros(len(self.judged))
        margins = np.zeros(len(self.tasks.rows))
        for group in np.unique(self.tasks.groups):
            held, seen = self.gains.groups == group, self.tasks.groups == group
            if not held.any() and not seen[self.judged].any():
                continue
            coefficients = self.need.fit(seen)
            found[held] = self.gain_needs[held] @ coefficients
            margins[seen] = self.need_columns[seen] @ coefficients
        return found, margins[self.judged]

    def _judged_tasks(self) -> NDArray[np.intp]:
        """Rows with labels that the criterion looks at: English, capped, none where a tier is missing."""
        if self.tasks is None:
            return np.empty(0, np.intp)
        at = np.array(cap_sources([replace(row, source=row.group) for row in self.tasks.rows], MAX_OF_SOURCE))
        at = at[~self.tasks.is_zh[at]]
        tiers = {self.tasks.rows[one].needs_full for one in at}
        return at if len(tiers) == 2 else np.empty(0, np.intp)

    def _gains_held_out(self, penalty: float) -> tuple[Floats, Floats]:
        """The gain of rows with qualities and of judged ones, by heads that saw nothing of their group."""
        found, judged, groups = np.zeros(len(self.target)), np.zeros(len(self.judged)), np.empty(0, np.str_)
        columns = np.empty((0, self.columns.shape[1]))
        if len(self.judged) and self.tasks is not None:
            groups = self.tasks.groups[self.judged]
            columns = self.scale.expand(self.tasks.dense[self.judged])
            judged = columns @ fit_ridge(self.columns, self.target, self.weights, penalty)
        for group, coefficients in fit_leaving_out(self.columns, self.target, self.weights, penalty, self.gains.groups):
            held, seen = self.gains.groups == group, groups == group
            found[held] = self.columns[held] @ coefficients
            judged[seen] = columns[seen] @ coefficients
        return found, judged

    def _fit_grams(self, chosen: NDArray[np.bool_]) -> Floats:
        """n-grams against the weak model's failures; each source loses its mean, which is not theirs to learn."""
        left = np.array([1.0 - (row.weak or 0.0) for row in self.gains.rows])
        for source in np.unique(self.gains.sources[chosen]):
            at = chosen & (self.gains.sources == source)
            left[at] -= left[at].mean()
        return fit_grams(self.gram_rows[chosen], left[chosen], self.weights[chosen], GRAM_PENALTY)

    def _grams_held_out(self) -> tuple[Floats, Floats]:
        """What n-grams say of rows with qualities and of judged ones, by heads that saw nothing of their group."""
        found, judged = np.zeros(len(self.target)), np.zeros(len(self.judged))
        if self.tasks is None or self.gains.grams is None:
            return found, judged
        rows, groups = normalise_grams(self.tasks.grams[self.judged], self.idf), self.tasks.groups[self.judged]
        judged = rows @ self._fit_grams(np.ones(len(self.target), np.bool_))
        for group in np.unique(self.gains.groups):
            held, seen = self.gains.groups == group, groups == group
            weights = self._fit_grams(~held)
            found[held] = self.gram_rows[held] @ weights
            judged[seen] = rows[seen] @ weights
        return found, judged

    def try_blends(self, penalty: float) -> list[Candidate]:
        """All blends of the heads, with the criterion's parts."""
        kept = self.kept
        gain, need, grams = self._gains_held_out(penalty), self.need_values, self.gram_values
        values = [self.lengths[kept], gain[0][kept], need[0][kept], grams[0][kept]]
        others: Sequence[Floats] = [np.empty(0)] * len(values)
        if len(self.judged) and self.tasks is not None:
            others = [self.tasks.dense[self.judged, 0].astype(np.float64), gain[1], need[1], grams[1]]
            is_full = np.array([float(self.tasks.rows[at].needs_full) for at in self.judged])
        knots = [place_knots(np.concatenate(pair)) for pair in zip(values, others, strict=True)]
        ranks = np.stack([rank_values(value, places) for value, places in zip(values, knots, strict=True)], axis=1)
        judged = np.stack([rank_values(value, places) for value, places in zip(others, knots, strict=True)], axis=1)
        sources, target = self.gains.sources[kept], self.target[kept]
        found = []
        for steps in itertools.product(range(BLEND_STEPS + 1), repeat=4):
            lacks_head = (steps[2] and self.tasks is None) or (steps[3] and self.gains.grams is None)
            if sum(steps) != BLEND_STEPS or lacks_head:
                continue
            blend = tuple(step / BLEND_STEPS for step in steps)
            score = ranks @ np.array(blend)
            between = measure_apgr(score, np.zeros(len(kept)), target)
            within = measure_apgr(rank_within(score, sources), np.zeros(len(kept)), target)
            tier = None
            if len(judged):
                tier = measure_apgr(judged @ np.array(blend), np.zeros(len(is_full)), is_full)
            found.append(Candidate(penalty, blend, between, within, tier))
        return found

    def _fit_task(self) -> Floats:
        if self.tasks is None:
            return np.zeros(self.task_scale.expand(self.gains.dense[:1]).shape[1])
        return task_problem(self.tasks, self.task_scale.expand(self.tasks.dense)).fit()

    def finish(self, best: Candidate, *, chinese_blend: Sequence[float] | None) -> Parameters:
        """Fit all heads on all rows."""
        coefficients = fit_ridge(self.columns, self.target, self.weights, best.penalty)
        every = self.gains.grams is not None and best.blend[3] > 0
        weights = self._fit_grams(np.ones(len(self.target), np.bool_)) if every else None
        parts = [(self.gains, self.kept, self.columns, self.gain_needs)]
        if self.tasks is not None and self.need_columns is not None:
            at = np.array(cap_sources(self.tasks.rows, MAX_OF_SOURCE))
            parts.append((self.tasks, at, self.scale.expand(self.tasks.dense), self.need_columns))
        values, chinese = [], []
        for texts, at, columns, need_columns in parts:
            grams = np.zeros(len(at)) if weights is None else normalise_grams(texts.grams[at], self.idf) @ weights
            lengths = texts.dense[at, 0].astype(np.float64)
            values.append(
                np.stack(
                    [lengths, columns[at] @ coefficients, need_columns[at] @ self.need_coefficients, grams], axis=1
                )
            )
            chinese.append(texts.is_zh[at])
        everything, is_zh = np.concatenate(values), np.concatenate(chinese)
        blend = np.array([best.blend, best.blend if chinese_blend is None else chinese_blend])
        knots, score_knots = [], []
        for language in (False, True):
            of_language = everything[is_zh == language]
            chosen = of_language if len(of_language) >= MIN_OF_LANGUAGE else everything
            places = np.stack([place_knots(chosen[:, head]) for head in range(4)])
            ranks = np.stack([rank_values(chosen[:, head], places[head]) for head in range(4)], axis=1)
            knots.append(places)
            score_knots.append(place_knots(ranks @ blend[int(language)]))
        return Parameters(
            mean=self.scale.mean,
            scale=self.scale.scale,
            gain=self.scale.head(coefficients),
            need=self.need_scale.head(self.need_coefficients),
            task=self.task_scale.head(self._fit_task()),
            grams=None if weights is None else make_grams(weights, self.idf),
            knots=np.stack(knots),
            blend=blend,
            score_knots=np.stack(score_knots),
            ideographs=self.scale.ideographs,
        )


def train(
    gain_rows: Sequence[Row],
    task_rows: Sequence[Row],
    *,
    tries_grams: bool,
    is_chinese_seen: bool,
    notes: Mapping[str, str],
    shares: tuple[float, ...] | None = None,
) -> Trained:
    """Choose and fit a classifier. `gain_rows` have qualities, `task_rows` labels (none: no need and task heads).

    Where qualities are of English texts alone (`is_chinese_seen` False), Chinese ones get the blend without length and
    n-grams, of which those rows say nothing for them. `notes` go into the artefact's metadata (licence,
    sources). With `shares`, of length, gain, need and grams, the blend is not chosen but given.
    """
    bits = GRAM_BITS if tries_grams else 0
    gains = read_features(gain_rows, bits)
    trainer = _Trainer(gains, read_features(task_rows, bits) if task_rows else None)
    candidates: list[Candidate] = []
    for penalty in PENALTIES:
        candidates += trainer.try_blends(penalty)
    candidates.sort(key=lambda candidate: (-candidate.criterion, candidate.penalty, candidate.blend))
    length = next(candidate for candidate in candidates if candidate.blend[0] == 1)
    best = pick(candidates) if shares is None else replace(pick(candidates), blend=shares)
    parameters = trainer.finish(best, chinese_blend=None if is_chinese_seen else leave_out(best.blend))
    artefact, version = write_artefact(parameters, 0 if parameters.grams is None else bits, notes)
    return Trained(artefact, version, candidates, length, best, parameters)


def pick(candidates: Sequence[Candidate]) -> Candidate:
    """The best head of gains, and the mean of the blends that can't be told from the best one.

    Blends are averaged over those candidates that have this head, and whose criterion is within a standard error.
    """
    head = next((one for one in candidates if one.blend[1]), candidates[0])
    alike = [
        one
        for one in candidates
        if one.penalty == head.penalty and one.criterion >= candidates[0].criterion - STANDARD_ERROR
    ]
    blend = np.mean([one.blend for one in alike or [head]], axis=0)
    return replace(head, blend=tuple(float(share) for share in blend))


def leave_out(blend: Sequence[float]) -> tuple[float, ...]:
    """The blend without length and n-grams; half and half where nothing else was in it."""
    gain, need = blend[1], blend[2]
    total = gain + need
    return (0.0, gain / total, need / total, 0.0) if total else (0.0, 0.5, 0.5, 0.0)
