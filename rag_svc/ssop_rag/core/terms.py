"""From text to the terms that BM25 counts.

Text is normalised (NFKC, case folded). Runs of a script that is written without spaces give their pairs of neighbouring
characters (a run of one gives itself); other runs of letters and digits are words. Pairs need no dictionary and find
names that no dictionary has. A term is known by 64 bits of its BLAKE2b digest, so that records and tables hold numbers.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

ANALYZER: Final = "pairs/1"
"""Tag of these rules; terms that other rules made are made again from the text."""
_UNSPACED: Final = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u3005\u3007\u3040-\u30ff\u31f0-\u31ff"  # Japanese
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
    "\uac00-\ud7af"  # Korean: spaced, but its words carry particles
)
_RUN: Final = re.compile(rf"([{_UNSPACED}]+)|[^\W_{_UNSPACED}]+")
_MAX_COUNT: Final = int(np.iinfo(np.uint16).max)
_CACHED_TERMS: Final = 65_536


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """The distinct terms of a text. `ids` (n,) uint64, ascending; `counts` (n,) uint16, how often each occurs."""

    ids: NDArray[np.uint64]
    counts: NDArray[np.uint16]


def extract_terms(text: str) -> Terms:
    """The terms of a text."""
    return count_terms(split_terms(text))


def count_terms(words: Iterable[str]) -> Terms:
    """The terms of a text that was split."""
    counted = Counter(map(_term_id, words))
    ids = np.fromiter(counted.keys(), np.uint64, len(counted))
    counts = np.fromiter((min(count, _MAX_COUNT) for count in counted.values()), np.uint16, len(counted))
    order = np.argsort(ids)
    return Terms(ids[order], counts[order])


def split_terms(text: str) -> list[str]:
    """The terms of a text as strings, in order, repeats included."""
    terms: list[str] = []
    for match in _RUN.finditer(unicodedata.normalize("NFKC", text).casefold()):
        run = match[0]
        if match[1] is None or len(run) == 1:
            terms.append(run)
        else:
            terms += [run[i : i + 2] for i in range(len(run) - 1)]
    return terms


@lru_cache(maxsize=_CACHED_TERMS)
def _term_id(term: str) -> int:
    return int.from_bytes(hashlib.blake2b(term.encode(errors="surrogatepass"), digest_size=8).digest(), "little")
