# cython: annotation_typing=False
"""What stands in gRPC's headers and trailers ("gRPC over HTTP2" and "HTTP to gRPC status mapping"). Pure."""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import ceil
from typing import Final, TypeVar
from urllib.parse import quote, unquote_to_bytes

from google.rpc import code_pb2

from ssop_chassis.call import Metadata
from ssop_transport import compression

Pairs = list[tuple[bytes, bytes]]
STATUS_DETAILS: Final = "grpc-status-details-bin"
USER_AGENT: Final = b"grpc-python-ssop/0.1"
REFUSED_STREAM: Final = 7
CONNECTION_LOST: Final = 0xFFFFFFFF
"""What stands for an error code where the connection is gone; RFC 9113 has none."""
UNSENT: Final = 0xFFFFFFFE
"""The same, where it went before anything of the call was sent."""
ACCEPTS: Final = (b"grpc-accept-encoding", compression.ACCEPTED)
_PACKING_REQUEST: Final = ((b"grpc-encoding", compression.GZIP), ACCEPTS)
_PACKING_ANSWER: Final = ((b"grpc-encoding", compression.GZIP),)
_KEY: Final = re.compile(r"[0-9a-z_.-]+")
_TIMEOUT_DIGITS: Final = 8
_MOST_DIGITS: Final = 99_999_999
_MOST_MILLIS_S: Final = _MOST_DIGITS / 1000
_UNITS_S: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_FIRST_PRINTABLE: Final = 0x20
_LAST_PRINTABLE: Final = 0x7E
_OWN: Final = frozenset({"te", "content-type"})
_HIDDEN, _BINARY, _PLAIN = range(3)
# By error code of RFC 9113, section 7; what is not here is INTERNAL.
_RESETS: Final[Mapping[int, int]] = {
    REFUSED_STREAM: code_pb2.UNAVAILABLE,
    CONNECTION_LOST: code_pb2.UNAVAILABLE,
    UNSENT: code_pb2.UNAVAILABLE,
    8: code_pb2.CANCELLED,
    11: code_pb2.RESOURCE_EXHAUSTED,
    12: code_pb2.PERMISSION_DENIED,
}
_HTTP: Final[Mapping[int, int]] = {
    400: code_pb2.INTERNAL,
    401: code_pb2.UNAUTHENTICATED,
    403: code_pb2.PERMISSION_DENIED,
    404: code_pb2.UNIMPLEMENTED,
    429: code_pb2.UNAVAILABLE,
    502: code_pb2.UNAVAILABLE,
    503: code_pb2.UNAVAILABLE,
    504: code_pb2.UNAVAILABLE,
}


K = TypeVar("K")
# Keys are few. The token of a principal comes with each of its calls.
_MOST_KNOWN: Final = 256
_names: dict[str, bytes] = {}
_encoded: dict[bytes, bytes] = {}


class WireError(ValueError):
    """Headers that are not gRPC's."""


def is_grpc(content_type: bytes) -> bool:
    """Whether a content type is gRPC's own; `application/grpc-web` is another protocol."""
    rest = content_type.removeprefix(b"application/grpc")
    return rest != content_type and rest[:1] in {b"", b"+", b";"}


def encode_timeout(timeout_s: float) -> bytes:
    """`grpc-timeout`: at most eight digits, rounded up."""
    if timeout_s > _MOST_MILLIS_S:
        return b"%dS" % min(_MOST_DIGITS, ceil(timeout_s))
    millis = int(timeout_s * 1000)
    if millis < timeout_s * 1000:
        millis += 1
    return f"{max(1, millis)}m".encode()


# Most calls of a client name one of few.
@lru_cache(1_024)
def decode_timeout(value: bytes) -> float:
    """Seconds. Raises WireError."""
    digits, unit_s = value[:-1], _UNITS_S.get(value[-1:])
    if unit_s is None or not digits.isdigit() or len(digits) > _TIMEOUT_DIGITS:
        raise WireError("grpc-timeout can't be read")
    return int(digits) * unit_s


def encode_message(message: str) -> bytes:
    """`grpc-message`: what is not printable ASCII, and the percent sign, as %XX of its UTF-8."""
    return quote(message, safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}~").encode()


def decode_message(value: bytes) -> str:
    """The message; what is malformed in it stays as it is."""
    return unquote_to_bytes(value).decode(errors="replace")


def encode_metadata(metadata: Metadata) -> Pairs:
    """Metadata as headers. Raises WireError for a key or a value that HTTP/2 can't carry."""
    return [_encode(key, value) for key, value in metadata.items()]


def _encode(key: str, value: str | bytes) -> tuple[bytes, bytes]:
    """One header. Raises WireError."""
    name = _names.get(key)
    if name is None:
        name = _encode_key(key)
    is_binary = name.endswith(b"-bin")
    if isinstance(value, bytes):
        if not is_binary:
            raise WireError(f"{key}: bytes go under a key that ends in -bin")
        return name, _encode_binary(value)
    if is_binary or not value.isascii():
        raise WireError(f"{key}: text is printable ASCII, under a key that does not end in -bin")
    text = value.encode()
    if not _is_printable(text):
        raise WireError(f"{key}: text is printable ASCII, under a key that does not end in -bin")
    return name, text.strip(b" ")


def _is_printable(text: bytes) -> bool:
    for byte in text:  # noqa: SIM110 - a loop of C, where this is compiled
        if not _FIRST_PRINTABLE <= byte <= _LAST_PRINTABLE:
            return False
    return True


def _encode_key(key: str) -> bytes:
    """A key that is new. Raises WireError."""
    if not _KEY.fullmatch(key) or (key.startswith("grpc-") and key != STATUS_DETAILS):
        raise WireError("a metadata key that is not allowed")
    name = key.encode()
    _remember(_names, key, name)
    return name


def _encode_binary(value: bytes) -> bytes:
    encoded = _encoded.get(value)
    if encoded is None:
        encoded = base64.b64encode(value).rstrip(b"=")
        _remember(_encoded, value, encoded)
    return encoded


def _remember(known: dict[K, bytes], key: K, value: bytes) -> None:
    if len(known) >= _MOST_KNOWN:
        known.clear()
    known[key] = value


def decode_metadata(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str | bytes]:
    """Headers as metadata, without those of HTTP/2 and gRPC. Raises WireError for base64 that is none.

    Values of one key are joined by commas (RFC 9110, 5.3), so that a second one never stands for the first.
    """
    found: dict[str, str | bytes] = {}
    for name, value in pairs:
        key, kind = _decode_key(name)
        if kind == _HIDDEN:
            continue
        if kind == _BINARY:
            read = b",".join(map(_decode_binary, value.split(b","))) if b"," in value else _decode_binary(value)
            known = found.get(key)
            found[key] = read if not isinstance(known, bytes) else known + b"," + read
        else:
            text = value.decode("latin-1")
            known = found.get(key)
            found[key] = text if not isinstance(known, str) else f"{known}, {text}"
    return found


@lru_cache(256)
def _decode_key(name: bytes) -> tuple[str, int]:
    """A key, and what kind of values stand under it."""
    key = name.decode("ascii", "replace")
    if (key.startswith((":", "grpc-")) or key in _OWN) and key != STATUS_DETAILS:
        return key, _HIDDEN
    return key, _BINARY if key.endswith("-bin") else _PLAIN


@lru_cache(256)
def _decode_binary(value: bytes) -> bytes:
    value = value.strip()
    try:
        return base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error as error:
        raise WireError("a binary value that is not base64") from error


def begin_request(scheme: bytes, authority: bytes, method: str, *, is_packing: bool = False) -> Pairs:
    """What all calls of a method on a server begin with."""
    return [
        (b":method", b"POST"),
        (b":scheme", scheme),
        (b":path", method.encode()),
        (b":authority", authority),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"user-agent", USER_AGENT),
        *(_PACKING_REQUEST if is_packing else ()),
    ]


def request_headers(beginning: Pairs, timeout_s: float, metadata: Metadata) -> Pairs:
    """The headers that begin a call, after those of `begin_request`. Raises WireError."""
    return [*beginning, (b"grpc-timeout", encode_timeout(timeout_s)), *encode_metadata(metadata)]


def response_headers(metadata: Metadata, is_packing: bool = False) -> Pairs:
    """The headers that begin an answer. Raises WireError."""
    packing = _PACKING_ANSWER if is_packing else ()
    return [(b":status", b"200"), (b"content-type", b"application/grpc"), *packing, *encode_metadata(metadata)]


def trailers(code: int, message: str, metadata: Metadata) -> Pairs:
    """The end of an answer. Raises WireError."""
    pairs: Pairs = [(b"grpc-status", b"%d" % code)]
    if message:
        pairs.append((b"grpc-message", encode_message(message)))
    return pairs + encode_metadata(metadata)


def status_of_reset(error_code: int) -> int:
    """The gRPC code that a reset stream stands for."""
    return _RESETS.get(error_code, int(code_pb2.INTERNAL))


def status_of_http(status: bytes) -> int:
    """The gRPC code that an HTTP status without a grpc-status stands for."""
    return _HTTP.get(int(status) if status.isdigit() else 0, int(code_pb2.UNKNOWN))
