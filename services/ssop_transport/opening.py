"""What the head of a call asks for. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Arity, Metadata, Method
from ssop_chassis.errors import MeshError
from ssop_transport import compression, wire


@dataclass(frozen=True, slots=True)
class Opening:
    """What calls with the same head have in common, but for those that nothing can be made of.

    `accepts_gzip`: the client reads messages in it. `is_unary` and `is_bidi` say who streams.
    """

    method: Method
    metadata: Metadata
    accepts_gzip: bool
    is_unary: bool
    is_bidi: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing can be made of a head: an error, or where it is no gRPC the status of HTTP.

    `is_of_encoding`: its messages can't be read either.
    """

    error: MeshError | None = None
    http_status: bytes = b""
    is_of_encoding: bool = False


def read_head(pairs: wire.Pairs, methods: Mapping[bytes, Method]) -> Opening | Refusal:
    """What a head means to a server with these methods by path."""
    headers = dict(pairs)
    encoding = headers.get(b"grpc-encoding")
    if encoding is not None and not compression.is_known(encoding):
        error = MeshError(ErrorReason.ERROR_REASON_UNSUPPORTED, "the encoding of the messages is not known")
        return Refusal(error, is_of_encoding=True)
    if headers.get(b":method") != b"POST":
        return Refusal(http_status=b"405")
    if not wire.is_grpc(headers.get(b"content-type", b"")):
        return Refusal(http_status=b"415")
    method = methods.get(headers.get(b":path", b""))
    if method is None:
        return Refusal(MeshError(ErrorReason.ERROR_REASON_UNSUPPORTED, "no such method"))
    try:
        metadata = wire.decode_metadata(pairs)
    except wire.WireError as error:
        return Refusal(MeshError(ErrorReason.ERROR_REASON_REQUEST_INVALID, str(error)))
    return Opening(
        method,
        metadata,
        compression.accepts_gzip(headers.get(b"grpc-accept-encoding", b"")),
        is_unary=method.arity is Arity.UNARY,
        is_bidi=method.arity is Arity.BIDI,
    )
