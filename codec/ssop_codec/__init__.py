"""Streaming Structured Output Protocol: bytes of a model in, typed frames out, and back.

Sans-IO: no clock, no logging, no transport. SPEC.md beside this package is the wire format.
"""

from ._decoder import HAS_PROBES, Decoder, scan_heads
from ._encoder import Encoder
from ._frame import Frame
from ._survey import Course, Survey, bodies, mesh_chunk, read_heads, select, survey
from ._value_writer import encode_frame, encode_values
from .constants import (
    ALL_TYPES,
    CODEC_VERSION,
    DONE,
    INVALID,
    READY,
    WIRE_VERSION,
    FieldStep,
    FieldType,
    FinishReason,
    FrameKind,
    IncompleteReason,
    Verdict,
)
from .errors import CodecError, FrameError, SchemaError, Violation
from .frames import End, Header
from .limits import Limits
from .rules import FieldNode, Schema
from .schema import compile_schema, text_schema
from .wire import RefStep, append_mesh_frame

__all__ = [
    "ALL_TYPES",
    "CODEC_VERSION",
    "DONE",
    "HAS_PROBES",
    "INVALID",
    "READY",
    "WIRE_VERSION",
    "CodecError",
    "Course",
    "Decoder",
    "Encoder",
    "End",
    "FieldNode",
    "FieldStep",
    "FieldType",
    "FinishReason",
    "Frame",
    "FrameError",
    "FrameKind",
    "Header",
    "IncompleteReason",
    "Limits",
    "RefStep",
    "Schema",
    "SchemaError",
    "Survey",
    "Verdict",
    "Violation",
    "append_mesh_frame",
    "bodies",
    "compile_schema",
    "encode_frame",
    "encode_values",
    "mesh_chunk",
    "read_heads",
    "scan_heads",
    "select",
    "survey",
    "text_schema",
]
