"""What the decoder returns for frames that are not values."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import Violation
from .rules import FieldNode


@dataclass(frozen=True, slots=True)
class Header:
    """What was agreed for a document. All but `nodes` is set in the first header frame only."""

    wire_version: int
    codec_version: str
    schema_hash: bytes
    node_count: int
    stream_buffer_bytes: int
    nodes: tuple[FieldNode, ...]
    annotations: tuple[str, ...]
    is_text: bool
    tool_name: str
    tool_call_id: str


@dataclass(frozen=True, slots=True)
class End:
    """The last frame of a document."""

    verdict: int
    violation: Violation | None
    incomplete_reason: int
    finish_reason: int
    frames: int
    input_tokens: int
    output_tokens: int
    cached_input_tokens: int
