"""Frames written byte by byte, for what is written once a document or once a delivery.

The hot frames (values, parts, closes) are written by `_frame_writer`; SPEC.md has the byte tables of all.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from .constants import (
    CODEC_VERSION,
    WIRE_VERSION,
    FieldStep,
    FrameKind,
    IncompleteReason,
    Verdict,
)
from .errors import SchemaError, Violation
from .rules import FieldNode, Schema


class RefStep(int):
    """A path step that follows a reference node; its value is the number of that node."""

    __slots__ = ()


PathStep = int | str | RefStep
"""An array index, a map key, or a reference that was followed."""


def varint(value: int) -> bytes:
    """Base 128, least significant group first. `value` is from 0 to 2**64 - 1."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def uint_field(number: int, value: int) -> bytes:
    """A varint field; nothing where the value is 0, as proto3 has it."""
    return varint(number << 3) + varint(value) if value else b""


def bytes_field(number: int, value: bytes) -> bytes:
    """A length-delimited field, written even when empty."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def path_steps(path: Sequence[PathStep]) -> bytes:
    """The `path` fields of a frame."""
    out = bytearray()
    for step in path:
        if isinstance(step, str):
            body = bytes_field(2, step.encode())
        elif isinstance(step, RefStep):
            body = b"\x18" + varint(step)
        else:
            body = b"\x08" + varint(step)
        out += bytes_field(4, body)
    return bytes(out)


def head(  # noqa: PLR0917  # the fields of a head, in their order
    seq: int, kind: int, node: int = 0, path: bytes = b"", parts: int = 0, document: int = 0
) -> bytes:
    """Everything of a frame before its content; `path` as `path_steps` writes it."""
    return b"".join(
        (
            uint_field(1, seq),
            uint_field(2, kind),
            uint_field(3, node),
            path,
            uint_field(5, parts),
            uint_field(6, document),
        )
    )


def chunk_of(frame: bytes) -> bytes:
    """A chunk with one frame."""
    return bytes_field(1, frame)


def string_content(text: bytes) -> bytes:
    """`string_value`; `text` is UTF-8."""
    return bytes_field(8, text)


def int_content(value: int) -> bytes:
    """`int_value`, in the range of int64."""
    return b"\x50" + varint((value << 1) ^ (value >> 63) if value >= 0 else (-value << 1) - 1)


def double_content(value: float) -> bytes:
    """`double_value`."""
    return b"\x49" + struct.pack("<d", value)


def bool_content(value: bool) -> bytes:
    """`bool_value`."""
    return b"\x58\x01" if value else b"\x58\x00"


NULL_CONTENT: Final = b"\x60\x00"


def json_content(text: bytes) -> bytes:
    """`json_value`: the text of a number."""
    return bytes_field(13, text)


def size_content(size: int, *, is_array: bool) -> bytes:
    """`object_size` or `array_size`."""
    return (b"\x78" if is_array else b"\x70") + varint(size)


def value_content(  # noqa: PLR0911  # one return per type
    value: str | int | float | bool | bytes | None,
) -> bytes:
    """The content field that holds a scalar."""
    if value is None:
        return NULL_CONTENT
    if isinstance(value, bool):
        return bool_content(value)
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return int_content(value)
        return json_content(str(value).encode())
    if isinstance(value, float):
        return double_content(value)
    if isinstance(value, str):
        return string_content(value.encode())
    return json_content(bytes(value))


def append_mesh_frame(kind: int, content_field: int, payload: bytes) -> bytes:
    """As `mesh_chunk`, for any kind, with the number of the content field given."""
    return chunk_of(head(0, kind) + bytes_field(content_field, payload))


def field_node(node: FieldNode) -> bytes:
    """A `FieldNode` message."""
    return b"".join(
        (
            uint_field(1, node.node),
            uint_field(2, node.parent),
            uint_field(3, node.step),
            bytes_field(4, node.key.encode()) if node.key else b"",
            uint_field(5, node.index),
            uint_field(6, node.types),
            b"" if node.ref_node is None else b"\x38" + varint(node.ref_node),
            uint_field(8, node.required),
        )
    )


def header_frames(
    schema: Schema,
    buffer_bytes: int,
    *,
    document: int = 0,
    first_seq: int = 1,
    tool_name: str = "",
    tool_call_id: str = "",
) -> list[bytes]:
    """The HEADER frames of a document, each small enough for a chunk of `buffer_bytes`.

    Annotations that do not fit the first frame are left out. Raises SchemaError that names the node whose
    key, or the ValueError that names the tool field, which does not fit.
    """
    before = b"".join(
        (
            uint_field(1, WIRE_VERSION),
            bytes_field(2, CODEC_VERSION.encode()),
            bytes_field(3, schema.hash) if schema.hash else b"",
            uint_field(4, len(schema.nodes)),
            uint_field(5, buffer_bytes),
        )
    )
    tail = uint_field(8, schema.is_text)
    if tool_name:
        tail += bytes_field(9, tool_name.encode())
    if tool_call_id:
        tail += bytes_field(10, tool_call_id.encode())
    seq = first_seq
    room = _content_room(seq, document, buffer_bytes)
    if len(before) + len(tail) > room:
        raise ValueError(f"tool_name and tool_call_id do not fit a buffer of {buffer_bytes} bytes")
    notes = b""
    for annotation in schema.annotations:
        note = bytes_field(7, annotation.encode())
        if len(before) + len(notes) + len(note) + len(tail) > room:
            break
        notes += note
    tail = notes + tail
    frames: list[bytes] = []
    body = before
    for node in schema.nodes:
        entry = bytes_field(6, field_node(node))
        if len(body) + len(entry) + len(tail) > room:
            if body or tail:
                frames.append(_header(seq, document, body + tail))
                seq += 1
                body = tail = b""
                room = _content_room(seq, document, buffer_bytes)
            if len(entry) > room:
                pointer = schema.rules[node.node].pointer
                raise SchemaError(pointer, "stream_buffer_size", f"the node does not fit {buffer_bytes} bytes")
        body += entry
    frames.append(_header(seq, document, body + tail))
    return frames


def _header(seq: int, document: int, body: bytes) -> bytes:
    return chunk_of(head(seq, FrameKind.HEADER, document=document) + bytes_field(16, body))


def _content_room(seq: int, document: int, buffer_bytes: int) -> int:
    """Bytes of a message that fit a frame as content field 16 to 22."""
    length = len(varint(buffer_bytes))
    return buffer_bytes - 1 - length - len(head(seq, FrameKind.END, document=document)) - 2 - length


def end_frame(
    seq: int,
    buffer_bytes: int,
    verdict: int,
    *,
    document: int = 0,
    violation: Violation | None = None,
    incomplete_reason: int = 0,
    finish_reason: int = 0,
    input_tokens: int = 0,
    output_tokens: int = 0,
    cached_input_tokens: int = 0,
) -> bytes:
    """The END frame.

    What is in words gives way where the buffer is small: first `expected` is cut, then the pointer loses
    segments from its end, so that it names an ancestor; then the offset and the usage go.
    """
    usage = uint_field(1, input_tokens) + uint_field(2, output_tokens) + uint_field(3, cached_input_tokens)
    room = _content_room(seq, document, buffer_bytes)

    def build(said: bytes, counted: bytes) -> bytes:
        return b"".join(
            (
                uint_field(1, verdict),
                said and bytes_field(2, said),
                uint_field(3, incomplete_reason if verdict == Verdict.INCOMPLETE else 0),
                uint_field(4, finish_reason),
                uint_field(5, seq),
                counted and bytes_field(6, counted),
            )
        )

    body = build(b"", usage)
    if violation is not None and verdict == Verdict.INVALID:
        # Two bytes more than a tag and a length, for lengths from 128 up.
        said = violation_body(violation, room - len(body) - 4)
        body = build(said, usage)
    if len(body) > room:
        body = build(b"", b"")
    return chunk_of(head(seq, FrameKind.END, document=document) + bytes_field(17, body))


def violation_body(violation: Violation, room: int) -> bytes:
    """A `Violation` message of at most `room` bytes, or an empty one."""
    rule = bytes_field(1, violation.rule.encode())
    offset = uint_field(3, violation.offset_bytes)
    if len(rule) + len(offset) > room:
        offset = b""
    if len(rule) > room:
        return b""
    pointer = violation.pointer
    while pointer and len(rule) + len(offset) + len(bytes_field(2, pointer.encode())) > room:
        pointer = pointer.rpartition("/")[0]
    body = rule + (bytes_field(2, pointer.encode()) if pointer else b"") + offset
    text = violation.expected.encode()
    text = text[: max(0, room - len(body) - 3)].decode(errors="ignore").encode()
    return body + (bytes_field(4, text) if text else b"")


def incomplete_reason_or_default(reason: int) -> int:
    """A document that was not closed always says why."""
    return reason or IncompleteReason.STOPPED_EARLY


__all__ = ["FieldStep", "PathStep", "RefStep", "append_mesh_frame"]
