"""Numbers of the wire format; the same as in `ssop/v1/frame.proto`."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

WIRE_VERSION: Final = 1
CODEC_VERSION: Final = "0.1.0"

READY: Final = 1
"""Flag of `Encoder.feed`: a sealed chunk waits in `take()`."""
DONE: Final = 2
"""Flag of `Encoder.feed`: the root value is closed."""
INVALID: Final = 4
"""Flag of `Encoder.feed`: the first violation was found; what follows is ignored."""

MIN_BUFFER_BYTES: Final = 64
MAX_BUFFER_BYTES: Final = 16 * 1024 * 1024
MIN_AUTO_BUFFER_BYTES: Final = 1_024
MAX_AUTO_BUFFER_BYTES: Final = 16_384


class FrameKind(IntEnum):
    """What a frame says. 1 to 15 belong to the document, from 16 to the delivery."""

    HEADER = 1
    VALUE = 2
    PART = 3
    CLOSE = 4
    END = 5
    DECISION = 16
    STATUS = 17
    ACCOUNTING = 18
    RECEIPT = 19
    LOGPROBS = 20
    CONFIDENCE = 21


class Verdict(IntEnum):
    """Whether the document may be trusted as a whole."""

    UNSPECIFIED = 0
    OK = 1
    INVALID = 2
    INCOMPLETE = 3


class IncompleteReason(IntEnum):
    """Why a document was cut."""

    UNSPECIFIED = 0
    MAX_OUTPUT_TOKENS = 1
    CONTEXT_FULL = 2
    DEADLINE = 3
    CANCELLED = 4
    BACKEND_FAILED = 5
    STOPPED_EARLY = 6
    CONTENT_FILTER = 7


class FinishReason(IntEnum):
    """Why the model stopped."""

    UNSPECIFIED = 0
    STOP = 1
    LENGTH = 2
    TOOL_CALLS = 3
    CONTENT_FILTER = 4
    ABORTED = 5


class FieldStep(IntEnum):
    """How a node of the field table hangs on its parent."""

    ROOT = 1
    PROPERTY = 2
    ITEM = 3
    MAP_VALUE = 4
    PREFIX_ITEM = 5


class FieldType(IntEnum):
    """JSON types as bits of `FieldNode.types`. NUMBER is always set together with INTEGER."""

    STRING = 1
    INTEGER = 2
    NUMBER = 4
    BOOLEAN = 8
    NULL = 16
    OBJECT = 32
    ARRAY = 64


ALL_TYPES: Final = 127

MESH_CONTENT_FIELD: Final = {
    FrameKind.DECISION: 18,
    FrameKind.STATUS: 19,
    FrameKind.ACCOUNTING: 20,
    FrameKind.RECEIPT: 21,
    FrameKind.LOGPROBS: 22,
    FrameKind.CONFIDENCE: 23,
}
"""Field of `Frame` that holds the message of a mesh frame."""
