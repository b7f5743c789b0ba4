"""Splits chunk bytes at frame borders, where the router must take a mesh frame out or read an end.

Everything else is forwarded as it came; values are never decoded.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from ssop.v1.frame_pb2 import Frame, FrameKind

_FRAME_TAG: Final = 0x0A
FIRST_MESH_KIND: Final = 16
ALL_KINDS: Final = (1 << 64) - 1
"""Kinds as bits: those of `ssop_codec.survey`."""
DOCUMENT_KINDS: Final = (1 << FIRST_MESH_KIND) - 1
FIELD_BITS: Final = 1 << FrameKind.FRAME_KIND_VALUE | 1 << FrameKind.FRAME_KIND_PART | 1 << FrameKind.FRAME_KIND_CLOSE
END_BIT: Final = 1 << FrameKind.FRAME_KIND_END


def split_frames(chunk: bytes) -> Iterator[bytes]:
    """Each frame of a chunk as a chunk of its own; joined they are the chunk. Raises ValueError where it is none."""
    position, size = 0, len(chunk)
    while position < size:
        if chunk[position] != _FRAME_TAG:
            raise ValueError("a chunk holds frames only")
        cursor, length, shift = position + 1, 0, 0
        while True:
            if cursor >= size or shift > 28:
                raise ValueError("a chunk ends inside the length of a frame")
            byte = chunk[cursor]
            cursor += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        end = cursor + length
        if end > size:
            raise ValueError("a chunk ends inside a frame")
        yield chunk[position:end]
        position = end


def parse_frame(chunk: bytes) -> Frame:
    """The frame of a chunk that holds one. Raises DecodeError."""
    position = 1
    while chunk[position] >= 0x80:
        position += 1
    return Frame.FromString(chunk[position + 1 :])


def pack_frames(frames: Iterable[bytes], chunk_bytes: int) -> Iterator[bytes]:
    """Chunks of at most `chunk_bytes` bytes from one-frame chunks; a frame that is larger goes alone."""
    held: list[bytes] = []
    size = 0
    for frame in frames:
        if held and size + len(frame) > chunk_bytes:
            yield b"".join(held)
            held, size = [], 0
        held.append(frame)
        size += len(frame)
    if held:
        yield b"".join(held)
