"""How likely a token was among those that the grammar allows."""

import math
from collections.abc import Callable, Iterable
from typing import Final

_MIN_PROBABILITY: Final = 1e-30
# A candidate that is so much less likely than what was chosen changes nothing that matters, nor do those after it.
_NEGLIGIBLE: Final = 1e-4


def masked_logprob(
    text: bytes, logprob: float, candidates: Iterable[tuple[bytes, float]], is_allowed: Callable[[bytes], bool]
) -> float:
    """The logarithm of the probability of `text` after the mask; natural, from `logprob` (before it) to 0.

    `candidates` are the likeliest pieces with their logarithms before the mask, likeliest first. Pieces that spell
    the beginning of the text, or go on from it, do not contradict it: a value has many spellings in tokens.
    """
    same = max(math.exp(min(logprob, 0.0)), _MIN_PROBABILITY)
    against = 0.0
    for piece, piece_logprob in candidates:
        probability = math.exp(min(piece_logprob, 0.0))
        if probability < same * _NEGLIGIBLE:
            break
        if not piece or piece == text or not is_allowed(piece):
            continue
        if piece.startswith(text) or text.startswith(piece):
            same += probability
        else:
            against += probability
    return math.log(same / (same + against))
