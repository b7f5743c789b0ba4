# cython: annotation_typing=False
"""Rules that prefer a tier from the wording of a request: data, compiled once, applied in order.

`rules.pxd` gives the types with which this very file is compiled.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ssop.v1.mesh_pb2 import Tier, TierReason
from ssop_router.core.tuples import make

# What is asked stands at the beginning of a long text or at its end, and what is between is what it is asked about.
# So a rule reads no more, and its cost does not grow with the prompt.
_HEAD_CHARS: Final = 600
_TAIL_CHARS: Final = 400
GAP: Final = "..."
MAX_GAPS: Final = 2
_GAP_CHARS: Final = 80
# From here on scripts write without spaces: CJK radicals and what follows.
_FIRST_CJK: Final = "\u2e80"


class Excerpt(NamedTuple):
    """What rules read of a text. `latin` holds its ASCII characters alone, in lower case: quick to search.

    `lowered` is all of it in lower case; empty where that is `latin`.
    """

    text: str
    latin: str
    lowered: str


@dataclass(frozen=True, slots=True)
class _Word:
    """Pieces in lower case, with a gap between each two. A piece of Latin letters begins and ends at a word's border.

    Searched by hand: a regular expression with gaps costs a hundred times as much on a text made for it.
    """

    pieces: tuple[str, ...]
    has_border_before: bool
    has_border_after: bool

    def is_in(self, text: str) -> bool:
        """Whether the word is in a text of lower case."""
        first, at = self.pieces[0], -1
        while (at := text.find(first, at + 1)) >= 0:
            is_inside = self.has_border_before and at > 0 and _joins(text[at - 1])
            if not is_inside and self._goes_on(text, at + len(first), 1):
                return True
        return False

    def _goes_on(self, text: str, end: int, index: int) -> bool:
        """Whether the pieces from `index` on follow; the one before ended at `end`."""
        if index == len(self.pieces):
            return not (self.has_border_after and end < len(text) and _joins(text[end]))
        piece = self.pieces[index]
        limit, at = end + _GAP_CHARS + len(piece), end - 1
        while (at := text.find(piece, at + 1, limit)) >= 0:
            if self._goes_on(text, at + len(piece), index + 1):
                return True
        return False


def _joins(char: str) -> bool:
    """Whether a character continues a word of Latin letters. Chinese next to it does not."""
    return char == "_" or (char.isalnum() and char < _FIRST_CJK)


@dataclass(frozen=True, slots=True)
class Words:
    """Words to look for, each with its longest piece, which is looked for first. `latin` have one of ASCII."""

    latin: tuple[tuple[str, _Word], ...]
    others: tuple[tuple[str, _Word], ...]
    digest: str
    """Names the words in a log that does not hold the texts; the same for the same words in any order."""

    def is_in(self, excerpt: Excerpt) -> bool:
        """Whether any of the words is in a text."""
        latin, lowered = excerpt.latin, excerpt.lowered
        for needle, word in self.latin:
            if needle in latin and word.is_in(lowered or latin):
                return True
        if lowered:
            for needle, word in self.others:
                if needle in lowered and word.is_in(lowered):
                    return True
        return False


@dataclass(frozen=True, slots=True)
class Rule:
    """Prefers `tier` where all its conditions hold; conditions that are None hold always.

    `max_chars` bounds the user's text, inclusive; `min_documents` counts attached documents. With `has_prefetch` the
    retrieval of a request does not wait for its admission.
    """

    tier: Tier.ValueType
    reason: TierReason.ValueType
    words: Words | None = None
    max_chars: int | None = None
    min_documents: int | None = None
    name: str = ""
    has_prefetch: bool = False

    def applies(self, excerpt: Excerpt, chars: int, documents: int) -> bool:
        """Whether the rule speaks about a request whose user text has so many characters."""
        if self.max_chars is not None and chars > self.max_chars:
            return False
        if self.min_documents is not None and documents < self.min_documents:
            return False
        return self.words is None or self.words.is_in(excerpt)

    def is_in_bounds(self, chars: int, documents: int) -> bool:
        """Whether all conditions but the words hold."""
        if self.max_chars is not None and chars > self.max_chars:
            return False
        return self.min_documents is None or documents >= self.min_documents


def make_excerpt(text: str) -> Excerpt:
    """What rules read of a user's text: all of a short one, the two ends of a long one."""
    if len(text) > _HEAD_CHARS + _TAIL_CHARS:
        text = f"{text[:_HEAD_CHARS]}\n{text[-_TAIL_CHARS:]}"
    if text.isascii():
        return make(Excerpt, (text, text.lower(), ""))
    return Excerpt(text, text.encode("ascii", "ignore").lower().decode("ascii"), text.lower())


def compile_words(words: Sequence[str]) -> Words:
    """Finds any of the words; `...` in a word stands for up to 80 characters.

    Words of Latin letters match whole words only; Chinese has no word boundaries to match.
    """
    lowered = sorted({word.lower() for word in words})
    compiled = [_compile(word) for word in lowered]
    return Words(
        tuple((needle, word) for needle, word in compiled if needle.isascii()),
        tuple((needle, word) for needle, word in compiled if not needle.isascii()),
        hashlib.sha256("\n".join(lowered).encode()).hexdigest()[:16],
    )


def _compile(word: str) -> tuple[str, _Word]:
    pieces = tuple(piece for part in word.split(GAP) if (piece := part.strip()))
    first, last = pieces[0][0], pieces[-1][-1]
    found = _Word(pieces, first.isascii() and first.isalnum(), last.isascii() and last.isalnum())
    return max(pieces, key=len), found
