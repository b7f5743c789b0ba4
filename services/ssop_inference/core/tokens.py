"""What a model gives: pieces of an answer, and how it ended."""

from enum import Enum
from typing import NamedTuple


class Token(NamedTuple):
    """A piece of the answer, in the order of generation. Never splits a code point. `logprob` natural, at most 0.

    `call` 0: of the text; from 1: of the arguments of that call, in the order in which they began. `name` and `id` of
    the call are on its first piece at least; an `id` may be empty.
    """

    text: bytes
    logprob: float | None = None
    call: int = 0
    name: str = ""
    id: str = ""


class Stop(Enum):
    """Why the model stopped."""

    END = "end"
    OUTPUT_LIMIT = "output_limit"
    CONTEXT_FULL = "context_full"
    CONTENT_FILTER = "content_filter"
    CANCELLED = "cancelled"


class Outcome(NamedTuple):
    """How a generation ended and what it consumed. `is_estimated`: the backend did not say the counts."""

    stop: Stop
    input_tokens: int
    output_tokens: int
    cached_input_tokens: int = 0
    is_estimated: bool = False
