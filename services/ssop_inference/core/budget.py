"""How many tokens a request may take."""

from dataclasses import dataclass

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError


@dataclass(frozen=True, slots=True)
class Budget:
    """Tokens of one request. `is_context_bound`: the context cuts the answer before the output limit does."""

    input_tokens: int
    max_output_tokens: int
    is_context_bound: bool


def fit_budget(input_tokens: int, *, context_tokens: int, asked_tokens: int, default_tokens: int) -> Budget:
    """Fit a prompt and its answer into the context.

    `asked_tokens` 0 is the default, which shrinks to what the context leaves; an explicit limit does not. Raises
    CONTEXT_EXCEEDED with metadata `limit_tokens` and `input_tokens`.
    """
    room_tokens = context_tokens - input_tokens
    if room_tokens < 1 or asked_tokens > room_tokens:
        raise MeshError(
            ErrorReason.ERROR_REASON_CONTEXT_EXCEEDED,
            f"the prompt has {input_tokens} tokens and the answer may have {asked_tokens or 1};"
            f" the context holds {context_tokens}",
            metadata={"limit_tokens": str(context_tokens), "input_tokens": str(input_tokens)},
        )
    limit_tokens = asked_tokens or min(default_tokens, room_tokens)
    return Budget(input_tokens, limit_tokens, not asked_tokens and room_tokens < default_tokens)
