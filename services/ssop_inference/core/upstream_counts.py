"""Token counts of a model server that is not in this process: said by it, or estimated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ssop_inference.core.prompt import ChatMessage, Image

# English takes about four bytes a token, Chinese about three; both are common vocabularies' averages.
_BYTES_PER_TOKEN: Final = 3.5
_TOKENS_PER_MESSAGE: Final = 4
# What the largest picture that Anthropic does not shrink takes; OpenAI's take less.
_TOKENS_PER_IMAGE: Final = 1_600
MAX_TOKENS: Final = 2**31


@dataclass(slots=True)
class Counts:
    """Tokens as a server said them; None for what it did not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int = 0

    def take_usage(self, usage: Any) -> None:
        """OpenAI's `usage`, with DeepSeek's word for the prefix cache. What is malformed counts as not said."""
        if not isinstance(usage, Mapping):
            return
        self.input_tokens = _count(usage.get("prompt_tokens"), self.input_tokens)
        self.output_tokens = _count(usage.get("completion_tokens"), self.output_tokens)
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, Mapping) else usage.get("prompt_cache_hit_tokens")
        self.cached_input_tokens = _count(cached, self.cached_input_tokens) or 0

    def take_timings(self, timings: Any) -> None:
        """llama-server's `timings`, which come with every token."""
        if not isinstance(timings, Mapping):
            return
        self.output_tokens = _count(timings.get("predicted_n"), self.output_tokens)
        self.cached_input_tokens = _count(timings.get("cache_n"), self.cached_input_tokens) or 0
        read = _count(timings.get("prompt_n"), None)
        if read is not None:
            self.input_tokens = read + self.cached_input_tokens

    def take_message_usage(self, usage: Any) -> None:
        """Anthropic's `usage`: its `input_tokens` are those that no cache held."""
        if not isinstance(usage, Mapping):
            return
        read = _count(usage.get("input_tokens"), None)
        cached = _count(usage.get("cache_read_input_tokens"), 0) or 0
        written = _count(usage.get("cache_creation_input_tokens"), 0) or 0
        if read is not None:
            self.input_tokens = read + cached + written
            self.cached_input_tokens = cached
        self.output_tokens = _count(usage.get("output_tokens"), self.output_tokens)


def estimate_tokens(messages: Sequence[ChatMessage]) -> int:
    """About how many tokens a prompt has, for models whose tokenizer is out of reach."""
    text = estimate_text(sum(map(_text_bytes, messages)))
    return text + _TOKENS_PER_MESSAGE * len(messages) + _TOKENS_PER_IMAGE * _count_images(messages) + 1


def estimate_text(size_bytes: int) -> int:
    """About how many tokens a text of so many bytes has."""
    return int(size_bytes / _BYTES_PER_TOKEN)


def most_tokens(messages: Sequence[ChatMessage]) -> int:
    """More tokens than a prompt can have: every byte one, and a template around each message."""
    text = sum(_text_bytes(message) + 16 for message in messages)
    return text + _TOKENS_PER_IMAGE * _count_images(messages) + 64


def _text_bytes(message: ChatMessage) -> int:
    calls = sum(len(call.name) + len(call.arguments.encode()) + 16 for call in message.calls)
    return len(message.content.encode()) + calls


def _count_images(messages: Sequence[ChatMessage]) -> int:
    return sum(isinstance(part, Image) for message in messages for part in message.parts)


def _count(value: Any, otherwise: int | None) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_TOKENS
    return value if is_count else otherwise
