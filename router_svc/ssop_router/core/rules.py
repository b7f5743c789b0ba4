"""Rules that prefer a tier from the wording of a request: data, compiled once, applied in order."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ssop.v1.mesh_pb2 import Tier, TierReason

# A rule reads no more than this much of a text, so that its cost does not grow with the prompt.
READ_CHARS: Final = 4_000
_GAP: Final = "..."
_GAP_CHARS: Final = 80


@dataclass(frozen=True, slots=True)
class Rule:
    """Prefers `tier` where all its conditions hold; conditions that are None hold always.

    `max_chars` bounds the user's text, inclusive; `min_documents` counts attached documents.
    """

    tier: Tier.ValueType
    reason: TierReason.ValueType
    pattern: re.Pattern[str] | None = None
    max_chars: int | None = None
    min_documents: int | None = None

    def applies(self, text: str, documents: int) -> bool:
        """Whether the rule speaks about a request with this user text and so many documents."""
        if self.max_chars is not None and len(text) > self.max_chars:
            return False
        if self.min_documents is not None and documents < self.min_documents:
            return False
        return self.pattern is None or self.pattern.search(text[:READ_CHARS]) is not None


def compile_words(words: Sequence[str]) -> re.Pattern[str]:
    """A pattern that finds any of the words, in any case; `...` in a word stands for up to 80 characters.

    Words of Latin letters match whole words only; Chinese has no word boundaries to match.
    """
    return re.compile("|".join(_word(word) for word in words), re.IGNORECASE | re.DOTALL)


def _word(word: str) -> str:
    pieces = [re.escape(piece.strip()) for piece in word.split(_GAP)]
    pattern = f".{{0,{_GAP_CHARS}}}?".join(pieces)
    before = r"\b" if word[:1].isascii() and word[:1].isalnum() else ""
    after = r"\b" if word[-1:].isascii() and word[-1:].isalnum() else ""
    return f"{before}{pattern}{after}"
