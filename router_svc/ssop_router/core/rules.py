"""Rules that prefer a tier from the wording of a request: data, compiled once, applied in order."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ssop.v1.mesh_pb2 import Tier, TierReason

# What is asked stands at the beginning of a long text or at its end, and what is between is what it is asked about.
# So a rule reads no more, and its cost does not grow with the prompt.
_HEAD_CHARS: Final = 600
_TAIL_CHARS: Final = 400
GAP: Final = "..."
MAX_GAPS: Final = 2
_GAP_CHARS: Final = 80


class Excerpt(NamedTuple):
    """What rules read of a text. `latin` holds its ASCII characters alone, in lower case: quick to search.

    `lowered` is all of it in lower case; empty where that is `latin`.
    """

    text: str
    latin: str
    lowered: str


@dataclass(frozen=True, slots=True)
class Words:
    """Words to look for. One of the needles is in every text that `pattern` matches, and costs far less to find.

    `latin` are needles of ASCII; `others` are in lower case.
    """

    latin: tuple[str, ...]
    others: tuple[str, ...]
    pattern: re.Pattern[str]

    def is_in(self, excerpt: Excerpt) -> bool:
        """Whether any of the words is in a text."""
        return self._may_be_in(excerpt) and self.pattern.search(excerpt.text) is not None

    def _may_be_in(self, excerpt: Excerpt) -> bool:
        latin = excerpt.latin
        for needle in self.latin:  # a generator would cost more than the search
            if needle in latin:
                return True
        if lowered := excerpt.lowered:
            for needle in self.others:
                if needle in lowered:
                    return True
        return False

    @property
    def digest(self) -> str:
        """Names the words in a log that does not hold the texts; the same for the same words in any order."""
        return hashlib.sha256(self.pattern.pattern.encode()).hexdigest()[:16]


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
        return Excerpt(text, text.lower(), "")
    return Excerpt(text, text.encode("ascii", "ignore").lower().decode("ascii"), text.lower())


def compile_words(words: Sequence[str]) -> Words:
    """Finds any of the words; `...` in a word stands for up to 80 characters.

    Words of Latin letters match whole words only; Chinese has no word boundaries to match.
    """
    lowered = sorted({word.lower() for word in words})
    needles = sorted({max(map(str.strip, word.split(GAP)), key=len) for word in lowered})
    return Words(
        tuple(needle for needle in needles if needle.isascii()),
        tuple(needle for needle in needles if not needle.isascii()),
        re.compile("|".join(map(_word, lowered)), re.DOTALL | re.IGNORECASE),
    )


def _word(word: str) -> str:
    pieces = [re.escape(piece.strip()) for piece in word.split(GAP)]
    pattern = f".{{0,{_GAP_CHARS}}}?".join(pieces)
    before = r"\b" if word[:1].isascii() and word[:1].isalnum() else ""
    after = r"\b" if word[-1:].isascii() and word[-1:].isalnum() else ""
    return f"{before}{pattern}{after}"
