"""Rows of one byte a number beside the exact ones: what can't be among the best is ruled out at a quarter of the memory
traffic, and what is left is scored exactly, so that nothing is approximate.

A row is `center + scale * codes + rest`, the query `step * its_codes + its_rest`. Products of codes are whole numbers;
what the rests add is bounded by the lengths of the vectors (Cauchy and Schwarz), so that each row's cosine is known
to lie in an interval. Most embedders put all their vectors into one narrow cone: without its axis, which a product
knows exactly, the rests are half as long.
"""

from typing import Final

import numkong
import numpy as np
from numpy.typing import NDArray

from ssop_rag.core.model import Matrix, Vector

_LEVELS: Final = 127
_BLOCK_ROWS: Final = 65_536
_SLACK: Final = 1e-5
"""More than what float32 arithmetic may add to a cosine here (the rests themselves are worked out in float64)."""


class CoarseRows:
    """Intervals for the cosines of up to `capacity` rows. `rows` are (n, dim), of length 1; the first n are filled."""

    def __init__(self, rows: Matrix, capacity: int) -> None:
        self._center: NDArray[np.float64] = rows.mean(axis=0, dtype=np.float64)
        self._codes: NDArray[np.int8] = np.zeros((0, rows.shape[1]), dtype=np.int8)
        self._scales = np.zeros(0, dtype=np.float32)
        self._lengths = np.zeros(0, dtype=np.float32)
        self._errors = np.zeros(0, dtype=np.float32)
        self.grow(capacity)
        for begin in range(0, len(rows), _BLOCK_ROWS):
            self.put(begin, rows[begin : begin + _BLOCK_ROWS])

    def grow(self, capacity: int) -> None:
        """Make room for so many rows in all."""
        more = capacity - len(self._codes)
        self._codes = np.pad(self._codes, ((0, more), (0, 0)))
        self._scales = np.pad(self._scales, (0, more))
        self._lengths = np.pad(self._lengths, (0, more))
        self._errors = np.pad(self._errors, (0, more))

    def put(self, begin: int, rows: Matrix) -> None:
        """Fill the places from `begin` on with (n, dim) rows."""
        places = slice(begin, begin + len(rows))
        moved = rows - self._center
        codes, scales = _quantise(moved)
        kept = codes * scales[:, None]
        self._codes[places] = codes
        self._scales[places] = scales
        self._lengths[places] = np.linalg.norm(kept, axis=1)
        self._errors[places] = np.linalg.norm(moved - kept, axis=1)

    def may_be_best(self, query: Vector, is_live: NDArray[np.bool_], k: int) -> NDArray[np.intp]:
        """The rows under the (n,) mask that may be among the best `k` for (dim,) `query`, or tie with the last."""
        count = len(is_live)
        k = min(k, int(is_live.sum()))
        if k <= 0:
            return np.empty(0, dtype=np.intp)
        exact = query.astype(np.float64)
        codes, steps = _quantise(exact[None, :])
        rest = float(np.linalg.norm(exact - codes[0] * steps[0]))
        middles = self._products(codes, count) * (self._scales[:count] * np.float32(steps[0]))
        middles += np.float32(exact @ self._center)
        reaches = self._lengths[:count] * np.float32(rest) + self._errors[:count]
        reaches *= np.float32(np.linalg.norm(exact))  # which is 1, but for rounding
        reaches += np.float32(_SLACK)
        lowest = np.where(is_live, middles - reaches, -np.inf)
        kth = np.partition(lowest, count - k)[count - k]
        return np.flatnonzero(is_live & (middles + reaches >= kth))

    def _products(self, codes: NDArray[np.int8], count: int) -> NDArray[np.float32]:
        """Products of the first `count` rows' codes with (1, dim) codes: below 2**24, so exact in float32."""
        products = np.empty(count, dtype=np.float32)
        for begin in range(0, count, _BLOCK_ROWS):
            end = min(count, begin + _BLOCK_ROWS)
            products[begin:end] = np.asarray(numkong.dot(self._codes[begin:end], codes))
        return products


def _quantise(rows: NDArray[np.float64]) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """(n, dim) codes and (n,) scales; rows of zeros have scale 1."""
    scales = np.abs(rows).max(axis=1) / _LEVELS
    scales[scales == 0] = 1.0
    return np.rint(rows / scales[:, None]).astype(np.int8), scales
