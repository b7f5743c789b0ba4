# cython: annotation_typing=False
"""What a model gives: pieces of an answer, and how it ended."""

from enum import Enum
from typing import Final, NamedTuple


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


class Outcome:
    """How a generation ended and what it consumed. `is_estimated`: the backend did not say the counts."""

    __slots__ = ("cached_input_tokens", "input_tokens", "is_estimated", "output_tokens", "stop")

    def __init__(
        self,
        stop: Stop,
        input_tokens: int,
        output_tokens: int,
        cached_input_tokens: int = 0,
        is_estimated: bool = False,
    ) -> None:
        self.stop = stop
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.cached_input_tokens = cached_input_tokens
        self.is_estimated = is_estimated


UNUSED: Final = Outcome(Stop.END, 0, 0)
"""Of what consumes nothing."""
