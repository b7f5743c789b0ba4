"""The stream of an OpenAI-compatible server (`chat.completion.chunk`), event by event.

Source: OpenAI's API reference, "Chat completion chunk object", and what vLLM, SGLang, llama-server, DeepSeek, Qwen and
xAI document beside it. Text that the model thinks (`reasoning_content`) is a sign of life and nothing else.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ssop_inference.core.tokens import Stop, Token
from ssop_inference.core.tools import MAX_CALLS, MAX_ID_CHARS
from ssop_inference.core.upstream_counts import Counts
from ssop_inference.core.upstream_errors import WireError, event_error, parse_object

DONE: Final = "[DONE]"
_STOPS: Final[Mapping[str, Stop]] = {
    "stop": Stop.END,
    "end_turn": Stop.END,
    "eos": Stop.END,
    "length": Stop.OUTPUT_LIMIT,
    "content_filter": Stop.CONTENT_FILTER,
}
_MIN_LOGPROB: Final = -70.0

Score = Callable[[bytes, Mapping[str, Any]], float | None]
"""The log-probability of a piece, from its text and the choice that it came in."""


class TextJoiner:
    """Makes bytes of texts that may break a surrogate pair between two of them."""

    def __init__(self) -> None:
        self._half = ""

    def take(self, text: str) -> bytes:
        """The bytes that are whole. Raises WireError for half a character that nothing completes."""
        text = self._half + text
        self._half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        try:
            return text.encode()
        except UnicodeEncodeError:
            try:
                return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le").encode()
            except UnicodeDecodeError as error:
                raise WireError("a text holds half a character") from error

    def end(self) -> None:
        """No more text. Raises WireError."""
        if self._half:
            raise WireError("the text ends with half a character")


class ChatStreamReader:
    """Reads the events of one answer. Raises WireError for what breaks the format, MeshError for errors in it."""

    def __init__(self, *, score: Score | None = None, has_tools: bool = False) -> None:
        """`score` says log-probabilities instead of the server's own. `has_tools`: the answer may be calls."""
        self._has_tools = has_tools
        self._calls: dict[int, int] = {}
        self._argument_joiner = TextJoiner()
        self._score = score
        self._joiner = TextJoiner()
        self.pieces = 0
        """Texts so far: one a token, as a rule."""
        self.signs = 0
        """Texts and thoughts so far."""
        self.counts = Counts()
        self.stop: Stop | None = None
        """Why the model stopped; None until the server has said it."""
        self.is_ended = False
        """Nothing more is to come."""
        self.has_logprobs = False
        """The server gave some."""

    def feed(self, event: str, data: str) -> list[Token]:
        """Take the next event; the text that it adds."""
        if self.is_ended:
            return []
        if data.strip() == DONE:
            self._end()
            return []
        chunk = parse_object(data)
        if event == "error" or chunk.get("error"):
            raise event_error(chunk.get("error", chunk))
        self.counts.take_usage(chunk.get("usage"))
        self.counts.take_timings(chunk.get("timings"))
        choices = chunk.get("choices", [])
        if not isinstance(choices, list):
            raise WireError("`choices` is no list")
        return self._read(choices[0]) if choices else []

    def close(self) -> None:
        """The body is over. Raises WireError where the answer is not."""
        if self.stop is None:
            raise WireError("the stream ended before the answer did")
        self.is_ended = True

    def _end(self) -> None:
        if self.stop is None:
            raise WireError("the stream ended without a finish_reason")
        self.is_ended = True

    def _read(self, choice: Any) -> list[Token]:
        if not isinstance(choice, Mapping):
            raise WireError("a choice is no object")
        delta = choice.get("delta") or {}
        if not isinstance(delta, Mapping):
            raise WireError("`delta` is no object")
        content = delta.get("content")
        if not isinstance(content, str | None):
            raise WireError("`content` is no text")
        if content and self.stop is not None:
            # What it said was not the end, so the answer has none.
            self.stop = None
            raise WireError("text came after the finish_reason")
        self.signs += bool(content or delta.get("reasoning_content") or delta.get("reasoning"))
        tokens = self._tokens(content, choice) if content else []
        if self._has_tools and delta.get("tool_calls"):
            tokens += self._take_calls(delta["tool_calls"])
        self._finish(choice.get("finish_reason"), is_refused=bool(delta.get("refusal")))
        return tokens

    def _finish(self, reason: Any, *, is_refused: bool) -> None:
        if is_refused:
            self.stop = Stop.CONTENT_FILTER
        elif reason is not None and self.stop is None:
            stop = self._stop_of(reason) if isinstance(reason, str) else None
            if stop is None:
                raise WireError("the finish_reason is none that ends a text")
            self.stop = stop
        if self.stop is not None:
            self._joiner.end()
            self._argument_joiner.end()

    def _stop_of(self, reason: str) -> Stop | None:
        return Stop.END if self._has_tools and reason == "tool_calls" else _STOPS.get(reason)

    def _take_calls(self, deltas: Any) -> list[Token]:
        if not isinstance(deltas, list):
            raise WireError("`tool_calls` is no list")
        if self.stop is not None:
            self.stop = None
            raise WireError("a tool call came after the finish_reason")
        return [token for delta in deltas for token in self._take_call(delta)]

    def _take_call(self, delta: Any) -> list[Token]:
        """One piece of a call: the first one names it, and calls come one after the other."""
        if not isinstance(delta, Mapping) or not isinstance(function := delta.get("function") or {}, Mapping):
            raise WireError("a tool call is no object")
        name, text, call_id = function.get("name"), function.get("arguments"), delta.get("id") or ""
        if not isinstance(text, str | None) or not isinstance(name, str | None) or not isinstance(call_id, str):
            raise WireError("a tool call holds what is no text")
        index = delta.get("index")
        if not isinstance(index, int):
            # Some servers send each call whole, and no number.
            index = len(self._calls) if name else len(self._calls) - 1
        is_new = index not in self._calls
        if is_new:
            if not name or len(self._calls) >= MAX_CALLS or len(call_id) > MAX_ID_CHARS:
                raise WireError("a tool call begins without a name, or is one too many")
            self._argument_joiner.end()
            self._calls[index] = len(self._calls) + 1
        elif self._calls[index] != len(self._calls):
            raise WireError("a tool call goes on after another one has begun")
        self.signs += 1
        piece = self._argument_joiner.take(text or "")
        if not piece and not is_new:
            return []
        self.pieces += 1
        return [
            Token(piece, call=self._calls[index], name=(name or "") if is_new else "", id=call_id if is_new else "")
        ]

    def _tokens(self, content: str, choice: Mapping[str, Any]) -> list[Token]:
        text = self._joiner.take(content)
        if not text:
            return []
        self.pieces += 1
        try:
            logprobs = choice.get("logprobs")
            entries = (logprobs.get("content") or []) if isinstance(logprobs, Mapping) else []
            if not entries:
                return [Token(text)]
            self.has_logprobs = True
            if self._score is not None:
                return [Token(text, self._score(text, choice))]
            return _split(text, entries)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise WireError("`logprobs` is malformed") from error


def _split(text: bytes, entries: list[Mapping[str, Any]]) -> list[Token]:
    """The text as the tokens that it was made of, those that share a character together; whole where they differ."""
    tokens: list[Token] = []
    piece, logprob = b"", 0.0
    for entry in entries:
        raw = entry.get("bytes")
        piece += bytes(raw) if raw is not None else str(entry["token"]).encode()
        logprob += min(0.0, max(float(entry["logprob"]), _MIN_LOGPROB))
        try:
            piece.decode()
        except UnicodeDecodeError:
            continue
        tokens.append(Token(piece, logprob))
        piece, logprob = b"", 0.0
    if piece or b"".join(token.text for token in tokens) != text:
        return [Token(text, sum(token.logprob or 0.0 for token in tokens) + logprob)]
    return tokens
