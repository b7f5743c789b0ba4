"""Frames back to JSON text, piece by piece, for clients of text APIs. The pieces, joined, are the document."""

import json
from typing import Final

from ssop.v1 import frame_pb2
from ssop_codec import Frame, FrameKind
from ssop_gateway.core.faults import EdgeError
from ssop_sdk.json_text import dump_json

Tokens = tuple[str | int, ...]
_OPEN: Final = {str: "{", int: "["}
_CLOSE: Final = {"{": "}", "[": "]"}


class JsonWriter:
    """Writes one document. Frames come in the order of the document, as the codec sends them.

    Memory is bounded by the document's depth: a bracket and a count for each container that is open.
    """

    def __init__(self) -> None:
        self._open: list[str | int] = []
        self._brackets: list[str] = []
        self._counts: list[int] = []
        self._is_in_string = False

    def write(self, frame: Frame) -> str:
        """The text that a frame adds. Raises PROTOCOL_ERROR for one that does not follow from those before it."""
        tokens = frame.tokens
        if frame.kind == FrameKind.CLOSE:
            return self._close(frame, tokens)
        if self._is_in_string:
            self._is_in_string = frame.kind == FrameKind.PART
            text = json.dumps(frame.value, ensure_ascii=False)[1:]
            return text[:-1] if self._is_in_string else text
        head = self._enter(tokens)
        text = dump_json(frame.value)
        if frame.kind == FrameKind.PART:
            self._is_in_string = True
            text = text[:-1]
        return head + text

    def _enter(self, tokens: Tokens) -> str:
        """Open what contains the value at `tokens`, and begin its member."""
        parts: list[str] = []
        if not tokens:
            return ""
        if not self._brackets:
            parts.append(self._push(tokens[0]))
        depth = len(self._open)
        if len(tokens) <= depth or tokens[:depth] != tuple(self._open):
            raise EdgeError("PROTOCOL_ERROR", "a field arrived outside of what is open")
        for token, inner in zip(tokens[depth:], tokens[depth + 1 :], strict=False):
            parts.append(self._member(token))
            self._open.append(token)
            parts.append(self._push(inner))
        parts.append(self._member(tokens[-1]))
        return "".join(parts)

    def _push(self, token: str | int) -> str:
        bracket = _OPEN[type(token)]
        self._brackets.append(bracket)
        self._counts.append(0)
        return bracket

    def _member(self, token: str | int) -> str:
        comma = ", " if self._counts[-1] else ""
        self._counts[-1] += 1
        return f"{comma}{json.dumps(token, ensure_ascii=False)}: " if isinstance(token, str) else comma

    def _close(self, frame: Frame, tokens: Tokens) -> str:
        if self._brackets and tokens == tuple(self._open):
            self._counts.pop()
            if self._open:
                self._open.pop()
            return _CLOSE[self._brackets.pop()]
        if frame.size:
            raise EdgeError("PROTOCOL_ERROR", "a container was closed that is not open")
        # An empty one was never opened, and only its frame says which kind it is.
        is_object = frame_pb2.Frame.FromString(frame.raw).HasField("object_size")
        return self._enter(tokens) + ("{}" if is_object else "[]")
