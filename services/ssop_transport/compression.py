"""Messages packed and unpacked ("Compression" of the gRPC project: `grpc-encoding`, `grpc-accept-encoding`). Pure."""

import zlib
from collections.abc import Iterable
from typing import Final, Literal

Choice = Literal["none", "gzip"]
"""As MeshSettings.compression."""
GZIP: Final = b"gzip"
ACCEPTED: Final = b"identity,deflate,gzip"
LEAST_BYTES: Final = 1_024
"""Shorter messages are sent as they are: packing them costs more than it saves."""
# The bits of a window that zlib is told, which also choose the container: RFC 1952 and RFC 1950.
_WINDOW_BITS: Final = {GZIP: 31, b"deflate": 15}
# Five times as fast as the default, and a tenth larger.
_LEVEL: Final = 1


class PackError(ValueError):
    """A message that is not what its encoding says."""


class PackTooLargeError(ValueError):
    """A message that is larger than allowed once it is unpacked."""


def is_known(encoding: bytes) -> bool:
    """Whether messages under this `grpc-encoding` can be read."""
    return encoding == b"identity" or encoding in _WINDOW_BITS


def accepts_gzip(accepted: bytes) -> bool:
    """Whether a peer with this `grpc-accept-encoding` reads gzip."""
    return GZIP in map(bytes.strip, accepted.split(b","))


def encoding_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """What `grpc-encoding` says; empty where nothing is packed, or the encoding is unknown."""
    found = next((value for name, value in headers if name == b"grpc-encoding"), b"")
    return found if found in _WINDOW_BITS else b""


def pack(message: bytes) -> bytes:
    """The message in gzip."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW_BITS[GZIP])
    return packer.compress(message) + packer.flush()


def unpack(encoding: bytes, packed: bytes, most_bytes: int) -> bytes:
    """The message. Raises PackTooLargeError as soon as it is over `most_bytes`, PackError for what is damaged."""
    unpacker = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        message = unpacker.decompress(packed, most_bytes + 1)
    except zlib.error as error:
        raise PackError("a message that can't be unpacked") from error
    if len(message) > most_bytes:
        raise PackTooLargeError("a message that is too large once it is unpacked")
    if not unpacker.eof or unpacker.unused_data:
        raise PackError("a message that ends before its encoding does, or after it")
    return message
