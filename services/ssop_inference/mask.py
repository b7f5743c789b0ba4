"""What a grammar allows next, byte by byte: llguidance without the model's vocabulary.

The engine masks only where its first draw breaks the grammar, and says nothing of the mask: the probabilities that it
reports are those of all tokens, allowed or not.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import llguidance

from ssop_inference.core.masked import masked_logprob

# A token that is likelier than this among all is as likely among those that are allowed.
_CERTAIN_LOGPROB: Final = -0.005
# A probability that rounds to 0 still has a logarithm.
_MIN_PROBABILITY: Final = 1e-30


class GrammarMask:
    """Follows the output of one generation. Not safe on several threads."""

    def __init__(self, grammar: str) -> None:
        """Takes milliseconds of CPU. A grammar that does not compile makes a mask that is lost."""
        self._matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), grammar, log_level=0)

    @property
    def is_lost(self) -> bool:
        """The output left the grammar, or the grammar is too complex: the mask is not known any more."""
        return bool(self._matcher.is_error())

    def allows(self, piece: bytes) -> bool:
        """Whether the output may go on with these bytes."""
        return bool(self._matcher.validate_tokens(list(piece)) == len(piece))

    def advance(self, text: bytes) -> None:
        """The output went on with these bytes."""
        if not self.is_lost:
            self._matcher.consume_tokens(list(text))


class TokenScorer:
    """Reads log-probabilities from the engine's pieces, in their order; after the mask where there is a grammar."""

    def __init__(self, mask_grammar: str | None) -> None:
        """Takes milliseconds of CPU with a grammar."""
        self._mask = GrammarMask(mask_grammar) if mask_grammar is not None else None

    def __call__(self, text: bytes, choice: Mapping[str, Any]) -> float | None:
        """The logarithm for the text of a piece; None where the engine said nothing."""
        entries = (choice.get("logprobs") or {}).get("content")
        if not entries:
            return None
        logprob = _logprob(entries[-1])
        if self._mask is None:
            return logprob
        # Bytes of one character that came as several tokens are one piece here, whose candidates are not known.
        if len(entries) == 1 and logprob < _CERTAIN_LOGPROB and not self._mask.is_lost:
            logprob = masked_logprob(text, logprob, _candidates(entries[0]), self._mask.allows)
        self._mask.advance(text)
        return logprob


def _candidates(entry: Mapping[str, Any]) -> Iterator[tuple[bytes, float]]:
    for candidate in entry.get("top_logprobs", ()):
        yield bytes(candidate["bytes"]), float(candidate["logprob"])


def _logprob(entry: Mapping[str, Any]) -> float:
    if "prob" in entry:
        return math.log(max(entry["prob"], _MIN_PROBABILITY))
    return max(float(entry["logprob"]), math.log(_MIN_PROBABILITY))
