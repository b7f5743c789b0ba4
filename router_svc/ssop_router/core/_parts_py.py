"""The twin of `_parts.pyx`, for where that is not built: the same parts, from the message instead of its bytes."""

from typing import Final

from ssop.v1.content_pb2 import Prompt, Role, Sampling
from ssop_router.core.prompt import MAX_MESSAGES, MAX_TOOLS, PlainText, PromptParts

# Messages, and parts of each, up to which a prompt is of the common kind; together they are within what any may have.
MAX_PLAIN: Final = 64
_USER: Final = Role.ROLE_USER
_SPEAKERS: Final = frozenset({Role.ROLE_SYSTEM, Role.ROLE_USER, Role.ROLE_ASSISTANT})


def read_parts(prompt: Prompt, wire: bytes) -> PromptParts:
    """Take a prompt apart. `wire` is its deterministic serialisation."""
    schema, sampling = prompt.output_schema, prompt.sampling
    has_choice = prompt.HasField("tool_choice")
    is_plain = not has_choice and not prompt.tools and _is_plain(sampling)
    return PromptParts(
        wire,
        _read_texts(prompt) if is_plain else None,
        tuple([message.SerializeToString(deterministic=True) for message in prompt.messages[:MAX_MESSAGES]]),
        tuple([tool.SerializeToString(deterministic=True) for tool in prompt.tools[:MAX_TOOLS]]),
        prompt.tool_choice.SerializeToString(deterministic=True) if has_choice else b"",
        sampling.SerializeToString(deterministic=True) if prompt.HasField("sampling") else b"",
        schema.SerializeToString(deterministic=True) if prompt.HasField("output_schema") else None,
        schema.format_assertion if schema.HasField("format_assertion") else True,
        prompt.stream_buffer_size,
        prompt.linger_ms,
        prompt.logprobs,
        sampling.temperature,
        sampling.max_output_tokens,
    )


def _is_plain(sampling: Sampling) -> bool:
    # Written so that a NaN is none.
    return (
        0 <= sampling.temperature <= 2
        and (not sampling.HasField("top_p") or 0 < sampling.top_p <= 1)
        and -2 <= sampling.presence_penalty <= 2
        and -2 <= sampling.frequency_penalty <= 2
        and not sampling.stop
    )


def _read_texts(prompt: Prompt) -> PlainText | None:
    messages = prompt.messages
    if not 0 < len(messages) <= MAX_PLAIN:
        return None
    text_bytes = 0
    user_text = ""
    for message in messages:
        parts, role = message.parts, message.role
        if role not in _SPEAKERS or not 0 < len(parts) <= MAX_PLAIN or message.tool_calls:
            return None
        if not all(part.HasField("text") for part in parts):
            return None
        texts = [part.text for part in parts]
        text_bytes += sum(len(text.encode()) for text in texts)
        if role == _USER:
            user_text = "\n".join(texts)
    return PlainText(user_text, text_bytes)
