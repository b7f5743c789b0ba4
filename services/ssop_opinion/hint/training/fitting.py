"""Fits the linear model of a language, and says what it is worth on rows that it did not see."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix, vstack

from ssop_opinion.core.hint_features import Features

Floats = NDArray[np.float32]
CLASSES: Final = 3
_MIN_ROWS: Final = 3
_DENSE_PENALTY: Final = 0.1
_STEPS: Final = 60


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows as a sparse matrix of weighted, normed n-grams, and the dense features. `idf` has one entry a bucket."""

    grams: Any
    dense: Floats
    kept: NDArray[np.int64]
    idf: Floats

    def take(self, rows: NDArray[np.bool_]) -> "Matrix":
        """Some of the rows."""
        return Matrix(self.grams[rows], self.dense[rows], self.kept, self.idf)


@dataclass(frozen=True, slots=True)
class Weights:
    """`grams` has a row for each kept bucket, `dense` one for each dense feature; columns are outputs."""

    grams: Floats
    dense: Floats
    bias: Floats

    def apply(self, matrix: Matrix) -> Floats:
        """The outputs for rows."""
        found: Floats = matrix.grams @ self.grams + matrix.dense @ self.dense + self.bias
        return found


def make_matrix(features: Sequence[Features], offset: int, buckets: int, min_rows: int = _MIN_ROWS) -> Matrix:
    """The features of rows of one language, whose buckets begin at `offset`.

    A bucket that fewer than `min_rows` rows have is left out.
    """
    ids = np.concatenate([np.array(one.ids, np.int64) for one in features]) - offset
    seen = np.bincount(ids, minlength=buckets)
    kept = np.flatnonzero(seen >= min_rows)
    idf = np.log((1 + len(features)) / (1 + seen)) + 1
    # Serving knows no counts below the threshold: what is not kept weighs nothing in the norm either.
    idf[seen < min_rows] = 0
    return _weigh(features, offset, kept, idf)


def add_rows(matrix: Matrix, features: Sequence[Features], offset: int) -> Matrix:
    """The matrix with further rows, whose n-grams weigh what they did without them."""
    added = _weigh(features, offset, matrix.kept, matrix.idf)
    grams, dense = vstack([matrix.grams, added.grams]).tocsr(), np.vstack([matrix.dense, added.dense])
    return Matrix(grams, dense, matrix.kept, matrix.idf)


def _weigh(features: Sequence[Features], offset: int, kept: NDArray[np.int64], idf: NDArray[Any]) -> Matrix:
    counts = np.array([len(one.ids) for one in features])
    ids = np.concatenate([np.array(one.ids, np.int64) for one in features]) - offset
    rows = np.repeat(np.arange(len(features)), counts)
    place = np.full(len(idf), -1)
    place[kept] = np.arange(len(kept))
    known = place[ids] >= 0
    rows, ids = rows[known], ids[known]
    norm = np.sqrt(np.bincount(rows, idf[ids] ** 2, minlength=len(features)))
    norm[norm == 0] = 1
    grams = csr_matrix(
        ((idf[ids] / norm[rows]).astype(np.float32), (rows, place[ids])), shape=(len(features), len(kept))
    )
    dense = np.array([one.dense for one in features], np.float32)
    return Matrix(grams, dense, kept, idf.astype(np.float32))


def balance(
    sources: NDArray[Any], groups: NDArray[Any], labels: NDArray[np.int64], shares: Mapping[str, float]
) -> Floats:
    """Weights under which the labels of each group of a source weigh the same; `shares` multiplies a source's rows."""
    weights = np.zeros(len(labels), np.float32)
    for source, group in dict.fromkeys(zip(sources.tolist(), groups.tolist(), strict=True)):
        own = (sources == source) & (groups == group)
        present = np.unique(labels[own]).tolist()
        for label in present:
            rows = own & (labels == label)
            weights[rows] = own.sum() / len(present) / rows.sum() * shares.get(source, 1.0)
    weights /= weights.sum()
    return weights


def fit_labels(
    matrix: Matrix, labels: NDArray[np.int64], weights: Floats, penalty: float, classes: int = CLASSES
) -> Weights:
    """A softmax regression with a quadratic penalty."""
    targets = np.eye(classes, dtype=np.float32)[labels]

    def judge(outputs: Floats) -> tuple[float, Floats]:
        shifted = outputs - outputs.max(1, keepdims=True)
        chances = np.exp(shifted)
        chances /= chances.sum(1, keepdims=True)
        right = np.maximum((chances * targets).sum(1), 1e-12)
        return float(-(weights * np.log(right)).sum()), (chances - targets) * weights[:, None]

    return _fit(matrix, judge, classes, penalty)


def fit_neutral(matrix: Matrix, fitted: Weights, labels: NDArray[np.int64], weights: Floats, penalty: float) -> Weights:
    """The neutral output anew; the others stay as they were fitted, and so does which of them is likelier."""
    targets = np.eye(CLASSES, dtype=np.float32)[labels]
    others = fitted.apply(matrix)

    def judge(outputs: Floats) -> tuple[float, Floats]:
        together = np.column_stack([others[:, 0], outputs[:, 0], others[:, 2]])
        chances = np.exp(together - together.max(1, keepdims=True))
        chances /= chances.sum(1, keepdims=True)
        right = np.maximum((chances * targets).sum(1), 1e-12)
        return float(-(weights * np.log(right)).sum()), ((chances - targets) * weights[:, None])[:, 1:2]

    found = _fit(matrix, judge, 1, penalty)
    made = Weights(fitted.grams.copy(), fitted.dense.copy(), fitted.bias.copy())
    made.grams[:, 1], made.dense[:, 1], made.bias[1] = found.grams[:, 0], found.dense[:, 0], found.bias[0]
    return made


def fit_valence(matrix: Matrix, valences: Floats, weights: Floats, penalty: float) -> Weights:
    """A ridge regression."""

    def judge(outputs: Floats) -> tuple[float, Floats]:
        error = outputs[:, 0] - valences
        return float(0.5 * (weights * error**2).sum()), (weights * error)[:, None]

    return _fit(matrix, judge, 1, penalty)


def _fit(matrix: Matrix, judge: Any, outputs: int, penalty: float) -> Weights:
    grams, dense, turned = matrix.grams, matrix.dense, matrix.grams.T.tocsr()
    sizes = (grams.shape[1] * outputs, dense.shape[1] * outputs)

    def unpack(point: NDArray[np.float64]) -> Weights:
        flat = point.astype(np.float32)
        return Weights(
            flat[: sizes[0]].reshape(-1, outputs),
            flat[sizes[0] : sum(sizes)].reshape(-1, outputs),
            flat[sum(sizes) :],
        )

    def loss(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        at = unpack(point)
        value, slope = judge(at.apply(matrix))
        value += 0.5 * penalty * float((at.grams**2).sum() + _DENSE_PENALTY * (at.dense**2).sum())
        parts = (
            turned @ slope + penalty * at.grams,
            dense.T @ slope + penalty * _DENSE_PENALTY * at.dense,
            slope.sum(0),
        )
        return value, np.concatenate([part.ravel() for part in parts]).astype(np.float64)

    start = np.zeros(sum(sizes) + outputs)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "maxcor": 6})
    return unpack(found.x)


def macro_recall(labels: NDArray[np.int64], guesses: NDArray[np.int64]) -> float:
    """Mean over the labels that occur of how many of their rows are found."""
    found = [float((guesses[labels == label] == label).mean()) for label in np.unique(labels)]
    return float(np.mean(found))
