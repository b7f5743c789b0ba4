"""The record of a stored answer.

A record repeats what its key says (tenant, versions), so that a record that came under a wrong key is never served.
"""

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

_MAGIC: Final = b"SSA1"
_LENGTHS: Final = struct.Struct(">HHHHI")
_SIZE: Final = struct.Struct(">I")
"""What the lengths end with: that of the chunk."""


class RecordError(ValueError):
    """A record that can't be used; the text says why, without content."""


class AnswerRecord(NamedTuple):
    """A stored answer: whose, made by which versions and model, and the chunk bytes of its document frames."""

    tenant: str
    wire_version: int
    codec_version: str
    model: str
    chunk: bytes


def encode_record(record: AnswerRecord) -> bytes:
    """The record as bytes. Raises RecordError when a name is longer than 65,535 bytes."""
    return encode_head(*record[:4])(record.chunk)


def encode_head(tenant: str, wire_version: int, codec_version: str, model: str) -> Callable[[bytes], bytes]:
    """The records of a tenant's answers by one model: `encode_record` of each chunk. Raises as that."""
    parts = [name.encode() for name in (tenant, codec_version, model)]
    names, write_size = b"".join(parts), _SIZE.pack
    try:
        start = _MAGIC + _LENGTHS.pack(wire_version, *map(len, parts), 0)[: -_SIZE.size]
    except struct.error as error:
        raise RecordError("a name is too long for a record") from error
    return lambda chunk: b"".join((start, write_size(len(chunk)), names, chunk))


def decode_record(data: bytes) -> AnswerRecord:
    """The record of the bytes. Raises RecordError unless they are exactly one record."""
    start = len(_MAGIC) + _LENGTHS.size
    if data[: len(_MAGIC)] != _MAGIC or len(data) < start:
        raise RecordError("not a record of this format")
    wire_version, *lengths = _LENGTHS.unpack_from(data, len(_MAGIC))
    if len(data) != start + sum(lengths):
        raise RecordError("the lengths of the record do not add up")
    parts: list[bytes] = []
    for length in lengths:
        parts.append(data[start : start + length])
        start += length
    try:
        tenant, codec, model = (part.decode() for part in parts[:3])
    except UnicodeDecodeError as error:
        raise RecordError("a name in the record is not UTF-8") from error
    return AnswerRecord(tenant, wire_version, codec, model, parts[3])
