"""What a model gives: pieces of an answer, and how it ended."""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the answer, in the order of generation. Never splits a code point. `logprob` natural, at most 0."""

    text: bytes
    logprob: float | None = None


class Stop(Enum):
    """Why the model stopped."""

    END = "end"
    OUTPUT_LIMIT = "output_limit"
    CONTEXT_FULL = "context_full"
    CONTENT_FILTER = "content_filter"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a generation ended and what it consumed. `is_estimated`: the backend did not say the counts."""

    stop: Stop
    input_tokens: int
    output_tokens: int
    cached_input_tokens: int = 0
    is_estimated: bool = False
