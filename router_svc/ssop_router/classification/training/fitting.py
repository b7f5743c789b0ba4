"""Fits the parts of a classifier: ridge regressions in closed form, their held-out predictions, ranks.

Everything is deterministic: no random start, no sampling.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from ssop_router.classification.training.graph import CHINESE_SHARE, CLIP, Floats, Grams, Head

KNOTS: Final = 65
_CROSS_SCALE: Final = 0.5
"""Pairs are shrunk against the features themselves, so that the same penalty holds them back more."""
_STEPS: Final = 60


@dataclass(frozen=True, slots=True)
class Scale:
    """Where dense features lie: `mean` and `scale` [F], and the index of the share of Chinese characters.

    A head looks at the features `used`, and at products of those in `pairs`.
    """

    mean: Floats
    scale: Floats
    ideographs: int
    used: tuple[int, ...]
    pairs: tuple[int, ...]

    def expand(self, dense: NDArray[Any]) -> Floats:
        """Columns of the regressions: 1, features, features of Chinese texts, Chinese, pairs."""
        rows = dense.astype(np.float64)
        standard = np.clip((rows - self.mean) / self.scale, -CLIP, CLIP)
        is_zh = (rows[:, [self.ideographs]] > CHINESE_SHARE).astype(np.float64)
        paired, single = standard[:, list(self.pairs)], standard[:, list(self.used)]
        crossed = [paired[:, [at]] * paired[:, at:] * _CROSS_SCALE for at in range(len(self.pairs))]
        return np.hstack([np.ones((len(rows), 1)), single, single * is_zh, is_zh, *crossed])

    def head(self, coefficients: Floats) -> Head:
        """What a regression on these columns found, as the graph holds it."""
        features, size = len(self.used), len(self.pairs)
        rounded = np.array([float(f"{value:.6g}") for value in coefficients])
        crossed = np.zeros((size, size))
        crossed[np.triu_indices(size)] = rounded[2 + 2 * features :] * _CROSS_SCALE
        linear = np.zeros((2, len(self.mean)))
        linear[:, list(self.used)] = rounded[1 : 1 + 2 * features].reshape(2, features)
        return Head(float(rounded[0]), float(rounded[1 + 2 * features]), linear[0], linear[1], self.pairs, crossed)


def measure_scale(dense: NDArray[Any], ideographs: int, used: Sequence[int], pairs: Sequence[int]) -> Scale:
    """The scale of training texts, rounded so that it reads the same in single precision."""
    rows = dense.astype(np.float64)
    return Scale(
        rows.mean(axis=0).astype(np.float32).astype(np.float64),
        (rows.std(axis=0) + 1e-6).astype(np.float32).astype(np.float64),
        ideographs,
        tuple(used),
        tuple(pairs),
    )


def fit_ridge(columns: Floats, target: Floats, weights: Floats, penalty: float) -> Floats:
    """Weighted ridge regression; the first column is the free constant."""
    weighted = columns * weights[:, None]
    return _solve(columns.T @ weighted, weighted.T @ target, penalty)


def _solve(gram: Floats, moment: Floats, penalty: float) -> Floats:
    hold = np.full(len(gram), penalty)
    hold[0] = 1e-6
    solution: Floats = linalg.solve(gram + np.diag(hold), moment, assume_a="pos", overwrite_a=True)
    return solution


def fit_leaving_out(
    columns: Floats, target: Floats, weights: Floats, penalty: float, groups: NDArray[Any]
) -> Iterator[tuple[Any, Floats]]:
    """For each group, the regression on all other rows."""
    weighted = columns * weights[:, None]
    gram, moment = columns.T @ weighted, weighted.T @ target
    for group in np.unique(groups):
        held = groups == group
        part = columns[held]
        weighed = part * weights[held][:, None]
        yield group, _solve(gram - part.T @ weighed, moment - weighed.T @ target[held], penalty)


class BalancedRidge:
    """A weighted ridge regression in which all cells (a tier in a language) count alike, whichever rows are left out.

    Without that, rows that are left out would shift the balance against their own tier.
    """

    def __init__(
        self, columns: Floats, target: Floats, weights: Floats, cells: NDArray[np.intp], penalty: float
    ) -> None:
        self._columns, self._target, self._weights, self._cells = columns, target, weights, cells
        self._penalty = penalty
        self._whole = {int(cell): self._sum(cells == cell) for cell in np.unique(cells)}

    def _sum(self, at: NDArray[np.bool_]) -> tuple[Floats, Floats, float]:
        part = self._columns[at]
        weighted = part * self._weights[at][:, None]
        return part.T @ weighted, weighted.T @ self._target[at], float(self._weights[at].sum())

    def fit(self, without: NDArray[np.bool_] | None = None) -> Floats:
        """The coefficients, from all rows but those of `without`."""
        left = np.zeros(len(self._target), np.bool_) if without is None else without
        sums = []
        for cell, whole in self._whole.items():
            at = left & (self._cells == cell)
            if not (~left & (self._cells == cell)).any():
                continue
            part = self._sum(at)
            sums.append((whole[0] - part[0], whole[1] - part[1], whole[2] - part[2]))
        share = float((~left).sum()) / len(sums)
        gram = sum((one[0] * (share / one[2]) for one in sums), np.zeros((self._columns.shape[1],) * 2))
        moment = sum((one[1] * (share / one[2]) for one in sums), np.zeros(self._columns.shape[1]))
        return _solve(gram, moment, self._penalty)

    def predict_held_out(self, groups: NDArray[Any]) -> Floats:
        """Predictions for each row by a regression that saw nothing of its group."""
        found = np.empty(len(self._target))
        for group in np.unique(groups):
            held = groups == group
            found[held] = self._columns[held] @ self.fit(held)
        return found


def weigh_groups(groups: NDArray[Any], power: float | Floats = 0.5) -> Floats:
    """Row weights, mean 1, with which a group of n rows counts as n ** power; `power` may differ from row to row."""
    _, inverse, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    weights = sizes[inverse] ** (power - 1.0)
    balanced: Floats = weights / weights.mean()
    return balanced


def place_knots(values: Floats) -> Floats:
    """Quantiles at equal distances, made strictly rising; what `graph` turns a value into its rank with."""
    knots = np.quantile(values, np.linspace(0, 1, KNOTS)).astype(np.float32).astype(np.float64)
    step = max(1e-6, 1e-6 * float(np.abs(knots).max()))
    for at in range(1, KNOTS):
        knots[at] = max(knots[at], knots[at - 1] + step)
    return knots


def rank_values(values: Floats, knots: Floats) -> Floats:
    """What the graph computes: the rank of each value between the knots."""
    low, width = knots[:-1], np.maximum(np.diff(knots), 1e-6)
    ranks: Floats = np.clip((values[:, None] - low) / width, 0, 1).mean(axis=1)
    return ranks


def weigh_grams(counts: Any) -> Floats:
    """Inverse document frequency of each bucket over the rows of a sparse matrix."""
    seen = np.asarray((counts > 0).sum(axis=0)).ravel()
    idf: Floats = np.log((1 + counts.shape[0]) / (1 + seen)) + 1
    return idf


def normalise_grams(counts: Any, idf: Floats) -> Any:
    """Rows of length one."""
    scaled = sparse.csr_matrix(counts.multiply(idf[None, :]))
    lengths = np.sqrt(np.asarray(scaled.multiply(scaled).sum(axis=1)).ravel() + 1e-9)
    return sparse.diags(1 / lengths) @ scaled


def fit_grams(rows: Any, target: Floats, weights: Floats, penalty: float) -> Floats:
    """Weighted ridge regression without a constant on sparse rows, by conjugate gradients with a fixed step count."""
    solution = np.zeros(rows.shape[1])
    residual = rows.T @ (weights * target)
    direction = residual.copy()
    length = float(residual @ residual)
    for _ in range(_STEPS):
        if length < 1e-12:
            break
        image = rows.T @ (weights * (rows @ direction)) + penalty * direction
        step = length / float(direction @ image)
        solution += step * direction
        residual -= step * image
        before, length = length, float(residual @ residual)
        direction = residual + (length / before) * direction
    return solution


def make_grams(weights: Floats, idf: Floats) -> Grams:
    """The n-gram part as the graph holds it."""
    return Grams(weights.astype(np.float32).astype(np.float64), idf.astype(np.float32).astype(np.float64))
