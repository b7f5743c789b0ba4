"""What the router reads of a prompt."""

from typing import Final, NamedTuple

# A message of a few bytes costs microseconds here and in the model's template, and megabytes hold a lot of them.
MAX_MESSAGES: Final = 4_096
MAX_TOOLS: Final = 128


class PlainText(NamedTuple):
    """What a prompt of the common kind holds: the text of its last user message, and the bytes of all texts."""

    user_text: str
    text_bytes: int


class PromptParts(NamedTuple):
    """A prompt taken apart. `wire` is its deterministic serialisation, and what is bytes here are pieces of that.

    No more messages and tools are taken than any prompt may have: whoever checks requests refuses one with more.
    `plain` is set where it is nothing but messages of text, few enough and without a fault, whose sampling is within
    its bounds and stops at no word; None says nothing. `schema` is None where none is given.
    """

    wire: bytes
    plain: PlainText | None
    messages: tuple[bytes, ...]
    tools: tuple[bytes, ...]
    tool_choice: bytes
    sampling: bytes
    schema: bytes | None
    is_format_asserted: bool
    buffer_bytes: int
    linger_ms: int
    needs_logprobs: bool
    temperature: float
    max_output_tokens: int
