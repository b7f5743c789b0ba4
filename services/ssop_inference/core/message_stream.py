"""The stream of Anthropic's Messages API, event by event.

Source: Anthropic's API documentation, "Streaming Messages". The answer is the text blocks, or, where a tool was forced
for a schema, the input of that tool. Thinking is a sign of life and nothing else; `ping` is not even that.
"""

from collections.abc import Mapping
from typing import Any, Final

from ssop_inference.core.chat_stream import TextJoiner
from ssop_inference.core.tokens import Stop, Token
from ssop_inference.core.tools import MAX_CALLS, MAX_ID_CHARS
from ssop_inference.core.upstream_counts import Counts
from ssop_inference.core.upstream_errors import WireError, event_error, parse_object

# A tuple, since what is looked for in it may be of any type.
_SIGNS: Final = ("thinking_delta", "text_delta", "input_json_delta")
_STOPS: Final[Mapping[str, Stop]] = {
    "end_turn": Stop.END,
    "stop_sequence": Stop.END,
    "tool_use": Stop.END,
    "max_tokens": Stop.OUTPUT_LIMIT,
    "model_context_window_exceeded": Stop.CONTEXT_FULL,
    "refusal": Stop.CONTENT_FILTER,
}


class MessageStreamReader:
    """See `wire.Reader`."""

    def __init__(self, *, is_tool: bool, has_tools: bool = False) -> None:
        """`is_tool`: the answer is the input of a tool; text beside it is none. `has_tools`: it may be calls."""
        self._is_tool = is_tool
        self._has_tools = has_tools
        self._calls = 0
        self._joiner = TextJoiner()
        self._has_begun = False
        self._block = ""
        self._block_pieces = 0
        self.counts = Counts()
        self.stop: Stop | None = None
        self.pieces = 0
        self.signs = 0
        self.is_ended = False
        self.has_logprobs = False

    def feed(self, event: str, data: str) -> list[Token]:
        """See `wire.Reader`."""
        if self.is_ended:
            return []
        message = parse_object(data)
        kind = message.get("type", event)
        if kind == "error":
            raise event_error(message.get("error"))
        if kind == "message_start":
            return self._begin(message.get("message"))
        if not self._has_begun and kind != "ping":
            raise WireError("the stream does not begin with message_start")
        if kind == "content_block_start":
            return self._open(message.get("content_block"))
        if kind == "content_block_delta":
            return self._extend(message.get("delta"))
        if kind == "content_block_stop":
            return self._close_block()
        if kind == "message_delta":
            self._finish(message)
        elif kind == "message_stop":
            self.close()
        # The API may add kinds of events; those that are not known are passed over, as its documentation asks.
        return []

    def close(self) -> None:
        """See `wire.Reader`."""
        if self.stop is None:
            raise WireError("the stream ended before the answer did")
        self.is_ended = True

    def _begin(self, message: Any) -> list[Token]:
        if not isinstance(message, Mapping) or self._has_begun:
            raise WireError("`message_start` is malformed")
        self._has_begun = True
        self.counts.take_message_usage(message.get("usage"))
        # It is the count at the start of the answer.
        self.counts.output_tokens = None
        return []

    def _open(self, block: Any) -> list[Token]:
        if not isinstance(block, Mapping):
            raise WireError("a content block is no object")
        self._block = str(block.get("type", ""))
        self._block_pieces = 0
        if self._block == "tool_use" and self._has_tools:
            return self._begin_call(block)
        text = block.get("text")
        return self._take(text) if self._block == "text" and not self._is_tool and text else []

    def _extend(self, delta: Any) -> list[Token]:
        if not isinstance(delta, Mapping):
            raise WireError("`delta` is no object")
        kind = delta.get("type")
        if kind in _SIGNS:
            self.signs += 1
        if kind == "text_delta" and not self._is_tool:
            return self._take(delta.get("text"))
        if kind == "input_json_delta" and (self._is_tool or (self._has_tools and self._block == "tool_use")):
            return self._take(delta.get("partial_json"))
        return []

    def _begin_call(self, block: Mapping[str, Any]) -> list[Token]:
        name, call_id = block.get("name"), block.get("id") or ""
        if not isinstance(name, str) or not name or not isinstance(call_id, str) or len(call_id) > MAX_ID_CHARS:
            raise WireError("a tool call has no name")
        if self._calls >= MAX_CALLS or self.stop is not None:
            raise WireError("a tool call is one too many")
        self._calls += 1
        self.pieces += 1
        self.signs += 1
        return [Token(b"", call=self._calls, name=name, id=call_id)]

    def _close_block(self) -> list[Token]:
        is_empty_input = self._is_tool and self._block == "tool_use" and not self._block_pieces
        self._block = ""
        # A tool whose input has no property at all gets no delta.
        return self._take("{}") if is_empty_input else []

    def _take(self, text: Any) -> list[Token]:
        if not isinstance(text, str):
            raise WireError("a delta holds no text")
        if self.stop is not None:
            # What it said was not the end, so the answer has none.
            self.stop = None
            raise WireError("text came after the stop_reason")
        piece = self._joiner.take(text)
        if not piece:
            return []
        self.pieces += 1
        self._block_pieces += 1
        is_call = self._has_tools and self._block == "tool_use"
        return [Token(piece, call=self._calls if is_call else 0)]

    def _finish(self, message: Mapping[str, Any]) -> None:
        delta = message.get("delta")
        reason = delta.get("stop_reason") if isinstance(delta, Mapping) else None
        self.counts.take_message_usage(message.get("usage"))
        if reason is not None:
            stop = _STOPS.get(reason) if isinstance(reason, str) else None
            if stop is None:
                raise WireError("the stop_reason is none that ends an answer")
            self.stop = stop
            self._joiner.end()
