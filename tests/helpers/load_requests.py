"""The request of a load, and what its answer has to be."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ssop.v1 import router_pb2
from ssop.v1.content_pb2 import ContentPart, Message, Prompt, Role
from ssop.v1.frame_pb2 import VERDICT_OK, Chunk, FrameKind
from ssop.v1.mesh_pb2 import CacheReason
from ssop_codec import FrameError, survey

GENERATE: Final = "/ssop.v1.RouterService/Generate"
DOCUMENT: Final[dict[str, Any]] = {
    "entity": "Harbour Ferries",
    "kind": "company",
    "event": "complaint",
    "score": -3,
    "severity": 4,
    "confidence": 0.82,
    "is_urgent": True,
    "summary": "a customer missed the last boat",
    "language": "en",
}
FRAMES: Final = len(DOCUMENT) + 3
"""The header, a frame for each field, the close of the object and the end."""
TOKENS: Final = 12
_KINDS: Final[dict[type, dict[str, Any]]] = {
    str: {"type": "string", "maxLength": 64},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
}
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {name: _KINDS[type(value)] for name, value in DOCUMENT.items()},
    "required": list(DOCUMENT),
    "additionalProperties": False,
}
_END: Final = 1 << FrameKind.FRAME_KIND_END
_MARK: Final = "0123456789abcdef"
_FILLER: Final = "A customer of the harbour ferries writes that the last boat left early and nobody answers. "
_PROMPT_CHARS: Final = 320


def write_recording(wait_ms: float) -> str:
    """The recording of a `replay` model that writes the document in 12 tokens, with `wait_ms` before each."""
    text = json.dumps(DOCUMENT, separators=(",", ":"))
    size = -(-len(text) // TOKENS)
    tokens = [[wait_ms, text[at : at + size]] for at in range(0, len(text), size)]
    tokens += [[wait_ms, " "]] * (TOKENS - len(tokens))
    return json.dumps({"tokens": tokens, "stop": "end", "input_tokens": 100}) + "\n"


def with_tests(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment in which `python -m helpers.NAME` runs."""
    tests = str(Path(__file__).resolve().parents[1])
    return {**environ, "PYTHONPATH": os.pathsep.join(filter(None, [tests, environ.get("PYTHONPATH", "")]))}


class Requests:
    """Requests whose prompts all differ, so that none is a hit: one message with a number written over."""

    def __init__(self, run: int) -> None:
        """`run` tells this generator's prompts from those of others on the same mesh."""
        body = f"{_MARK} {_FILLER * 8}"[:_PROMPT_CHARS]
        prompt = Prompt(messages=[Message(role=Role.ROLE_USER, parts=[ContentPart(text=body)])])
        prompt.output_schema.json_schema = json.dumps(SCHEMA, separators=(",", ":"))
        self.message = router_pb2.GenerateRequest(prompt=prompt)
        self._head, self._tail = self.message.SerializeToString().split(_MARK.encode())
        self._run = run << 32

    def encode(self, number: int) -> bytes:
        """The request with this number, as bytes."""
        return b"%b%016x%b" % (self._head, self._run | number, self._tail)

    def build(self, number: int) -> router_pb2.GenerateRequest:
        """The request with this number, as a message."""
        return router_pb2.GenerateRequest.FromString(self.encode(number))


class FrameCount:
    """Counts the document frames of an answer without reading values."""

    __slots__ = ("count", "is_ended")

    def __init__(self) -> None:
        self.count = 0
        self.is_ended = False

    def add(self, message: bytes) -> None:
        """Count those of one message."""
        try:
            found = survey(message)
        except FrameError:
            self.count = -1_000_000
            return
        if found.documents:
            self.count += found.documents
            self.is_ended = bool(found.kinds & _END)

    def fault(self, frames: int) -> str:
        """What is wrong with the number; empty where it is right."""
        return "" if self.count == frames and self.is_ended else f"{max(self.count, -1)} frames"


def find_flaw(messages: Sequence[bytes]) -> str:
    """What a whole answer lacks to be one of the full path: empty, or why."""
    verdict, cache_reason, has_status = None, None, False
    for frame in (frame for message in messages for frame in Chunk.FromString(message).frames):
        if frame.kind == FrameKind.FRAME_KIND_END:
            verdict = frame.end.verdict
        elif frame.kind == FrameKind.FRAME_KIND_DECISION:
            cache_reason = frame.decision.cache_reason
        elif frame.kind == FrameKind.FRAME_KIND_STATUS:
            has_status = True
            if frame.status.degraded_level or frame.status.is_cached:
                return "degraded or stored"
            if frame.status.unavailable:
                return "without " + ", ".join(frame.status.unavailable)
    if verdict != VERDICT_OK:
        return "verdict"
    if cache_reason != CacheReason.CACHE_REASON_MISS:
        return "no cache miss" if cache_reason is None else CacheReason.Name(cache_reason)
    return "" if has_status else "no status"
