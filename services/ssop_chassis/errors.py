"""The error model: one exception class, one table from reasons to statuses, one from foreign exceptions to reasons.

Statuses carry google.rpc details (AIP-193): ErrorInfo always, BadRequest, QuotaFailure and RetryInfo where they apply.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError
from google.rpc import code_pb2, error_details_pb2, status_pb2

from ssop.v1.errors_pb2 import ErrorReason
from ssop_codec import SchemaError

DOMAIN: Final = "ssop"
# Message and details travel in trailers of at most 8 KiB, percent-encoded and in base64; what is longer would make
# the client see a transport error instead of this one.
_MAX_MESSAGE_BYTES: Final = 512
_MAX_VALUE_BYTES: Final = 320
_MAX_ENTRIES: Final = 4
_MOST_CAUSES: Final = 16
_CUT: Final = "…"
_PREFIX: Final = "ERROR_REASON_"


@dataclass(frozen=True, slots=True)
class ReasonInfo:
    """What a reason means to callers: gRPC code, HTTP status of the edge, and whether the same call may be repeated."""

    code: int
    http_status: int
    is_retryable: bool = False


R = ErrorReason
REASONS: Final[Mapping[int, ReasonInfo]] = {
    R.ERROR_REASON_REQUEST_INVALID: ReasonInfo(code_pb2.INVALID_ARGUMENT, 400),
    R.ERROR_REASON_SCHEMA_REFUSED: ReasonInfo(code_pb2.INVALID_ARGUMENT, 422),
    R.ERROR_REASON_MODEL_UNKNOWN: ReasonInfo(code_pb2.NOT_FOUND, 404),
    R.ERROR_REASON_POLICY_INVALID: ReasonInfo(code_pb2.INVALID_ARGUMENT, 400),
    R.ERROR_REASON_CONTEXT_EXCEEDED: ReasonInfo(code_pb2.INVALID_ARGUMENT, 413),
    R.ERROR_REASON_CONTENT_UNSUPPORTED: ReasonInfo(code_pb2.INVALID_ARGUMENT, 400),
    R.ERROR_REASON_LOGPROBS_UNSUPPORTED: ReasonInfo(code_pb2.INVALID_ARGUMENT, 400),
    R.ERROR_REASON_MESSAGE_TOO_LARGE: ReasonInfo(code_pb2.RESOURCE_EXHAUSTED, 413),
    R.ERROR_REASON_REQUEST_DUPLICATE: ReasonInfo(code_pb2.ALREADY_EXISTS, 409),
    R.ERROR_REASON_KEY_MISSING: ReasonInfo(code_pb2.UNAUTHENTICATED, 401),
    R.ERROR_REASON_KEY_INVALID: ReasonInfo(code_pb2.UNAUTHENTICATED, 401),
    R.ERROR_REASON_KEY_EXISTS: ReasonInfo(code_pb2.ALREADY_EXISTS, 409),
    R.ERROR_REASON_KEY_UNKNOWN: ReasonInfo(code_pb2.NOT_FOUND, 404),
    R.ERROR_REASON_SCOPE_MISSING: ReasonInfo(code_pb2.PERMISSION_DENIED, 403),
    R.ERROR_REASON_PRINCIPAL_INVALID: ReasonInfo(code_pb2.UNAUTHENTICATED, 401),
    R.ERROR_REASON_RATE_LIMITED: ReasonInfo(code_pb2.RESOURCE_EXHAUSTED, 429, is_retryable=True),
    R.ERROR_REASON_QUOTA_EXHAUSTED: ReasonInfo(code_pb2.RESOURCE_EXHAUSTED, 429),
    R.ERROR_REASON_OVERLOADED: ReasonInfo(code_pb2.RESOURCE_EXHAUSTED, 429, is_retryable=True),
    R.ERROR_REASON_OUTPUT_INVALID: ReasonInfo(code_pb2.FAILED_PRECONDITION, 422),
    R.ERROR_REASON_GENERATION_INTERRUPTED: ReasonInfo(code_pb2.ABORTED, 502),
    R.ERROR_REASON_DEGRADED_REFUSED: ReasonInfo(code_pb2.FAILED_PRECONDITION, 503),
    R.ERROR_REASON_NO_BACKEND: ReasonInfo(code_pb2.UNAVAILABLE, 503, is_retryable=True),
    R.ERROR_REASON_BACKEND_FAILED: ReasonInfo(code_pb2.UNAVAILABLE, 503, is_retryable=True),
    R.ERROR_REASON_BACKEND_NOT_READY: ReasonInfo(code_pb2.UNAVAILABLE, 503, is_retryable=True),
    R.ERROR_REASON_STORE_UNAVAILABLE: ReasonInfo(code_pb2.UNAVAILABLE, 503, is_retryable=True),
    R.ERROR_REASON_DEADLINE_EXCEEDED: ReasonInfo(code_pb2.DEADLINE_EXCEEDED, 504),
    R.ERROR_REASON_CANCELLED: ReasonInfo(code_pb2.CANCELLED, 499),
    R.ERROR_REASON_REQUEST_UNKNOWN: ReasonInfo(code_pb2.NOT_FOUND, 404),
    R.ERROR_REASON_CACHE_MISS: ReasonInfo(code_pb2.NOT_FOUND, 404),
    R.ERROR_REASON_COLLECTION_UNKNOWN: ReasonInfo(code_pb2.NOT_FOUND, 404),
    R.ERROR_REASON_LEASE_LOST: ReasonInfo(code_pb2.ABORTED, 409),
    R.ERROR_REASON_UNSUPPORTED: ReasonInfo(code_pb2.UNIMPLEMENTED, 501),
    R.ERROR_REASON_INTERNAL: ReasonInfo(code_pb2.INTERNAL, 500),
}

# A peer that is no mesh service, or a transport that failed by itself, sends a code without ErrorInfo.
_REASON_OF_CODE: Final[Mapping[int, int]] = {
    # What this side cancels never comes back as a status. A server that drains ends so what comes before its clients
    # know, and what still runs when its time is over.
    code_pb2.CANCELLED: R.ERROR_REASON_BACKEND_FAILED,
    code_pb2.INVALID_ARGUMENT: R.ERROR_REASON_REQUEST_INVALID,
    code_pb2.DEADLINE_EXCEEDED: R.ERROR_REASON_DEADLINE_EXCEEDED,
    code_pb2.PERMISSION_DENIED: R.ERROR_REASON_SCOPE_MISSING,
    code_pb2.RESOURCE_EXHAUSTED: R.ERROR_REASON_OVERLOADED,
    code_pb2.UNIMPLEMENTED: R.ERROR_REASON_UNSUPPORTED,
    code_pb2.UNAVAILABLE: R.ERROR_REASON_BACKEND_FAILED,
    code_pb2.UNAUTHENTICATED: R.ERROR_REASON_PRINCIPAL_INVALID,
}

# gRPC's own words for a message over the limit; it has no code for that alone.
_TOO_LARGE: Final = "message larger than max"


class MeshError(Exception):
    """An error that callers may see. Its text never contains prompts, keys or generated content.

    `fields` are (field path, what is wrong) pairs for BadRequest; `quotas` are (subject, what is used up) pairs for
    QuotaFailure; `metadata` holds the dynamic values that the reason promises (keys of at most 64 characters).
    """

    def __init__(
        self,
        reason: ErrorReason.ValueType,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        fields: Sequence[tuple[str, str]] = (),
        quotas: Sequence[tuple[str, str]] = (),
        retry_after_ms: int | None = None,
    ) -> None:
        self.message = _clip(message, _MAX_MESSAGE_BYTES)
        super().__init__(self.message)
        self.reason = reason
        self.metadata = {key: _clip(value, _MAX_VALUE_BYTES) for key, value in (metadata or {}).items()}
        self.fields = _clip_pairs(fields)
        self.quotas = _clip_pairs(quotas)
        self.retry_after_ms = retry_after_ms
        self.details: bytes | None = None
        """What a peer added to its status (`grpc-status-details-bin`); None for an error of this process."""

    @property
    def code(self) -> int:
        """The gRPC status code (google.rpc.Code)."""
        return REASONS[self.reason].code

    @property
    def reason_name(self) -> str:
        """The reason as ErrorInfo carries it, without the prefix of the enum."""
        return ErrorReason.Name(self.reason).removeprefix(_PREFIX)

    def __repr__(self) -> str:
        return f"MeshError({self.reason_name}, {self.message!r})"

    def to_status(self) -> status_pb2.Status:
        """The google.rpc.Status with its details."""
        status = status_pb2.Status(code=self.code, message=self.message)
        info = error_details_pb2.ErrorInfo(reason=self.reason_name, domain=DOMAIN, metadata=self.metadata)
        status.details.add().Pack(info)
        if self.fields:
            bad = error_details_pb2.BadRequest()
            for path, description in self.fields:
                bad.field_violations.add(field=path, description=description)
            status.details.add().Pack(bad)
        if self.quotas:
            failure = error_details_pb2.QuotaFailure()
            for subject, description in self.quotas:
                failure.violations.add(subject=subject, description=description)
            status.details.add().Pack(failure)
        if self.retry_after_ms is not None:
            retry = error_details_pb2.RetryInfo()
            retry.retry_delay.FromMilliseconds(self.retry_after_ms)
            status.details.add().Pack(retry)
        return status


def _clip(text: str, limit_bytes: int) -> str:
    """A text of at most `limit_bytes` bytes of UTF-8, cut between two characters."""
    data = text.encode(errors="replace")
    if len(data) <= limit_bytes:
        return data.decode()
    return data[: limit_bytes - len(_CUT.encode())].decode(errors="ignore") + _CUT


def _clip_pairs(pairs: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((_clip(a, _MAX_VALUE_BYTES), _clip(b, _MAX_VALUE_BYTES)) for a, b in pairs[:_MAX_ENTRIES])


def parse_status(data: bytes) -> MeshError:
    """The error in a serialised google.rpc.Status; INTERNAL for one that can't be read."""
    status = status_pb2.Status()
    try:
        status.ParseFromString(data)
    except DecodeError:
        return MeshError(R.ERROR_REASON_INTERNAL, "an error that can't be read")
    return from_status(status.code, status.message, data)


def from_status(code: int, message: str, details: bytes | None = None) -> MeshError:
    """The error that a peer sent: a gRPC code, its message and the bytes of `grpc-status-details-bin`, if any."""
    status = status_pb2.Status()
    if details:
        try:
            status.ParseFromString(details)
        except DecodeError:
            status.Clear()
    reason: int = _REASON_OF_CODE.get(code, R.ERROR_REASON_INTERNAL)
    if code == code_pb2.RESOURCE_EXHAUSTED and _TOO_LARGE in message:
        reason = R.ERROR_REASON_MESSAGE_TOO_LARGE
    metadata: dict[str, str] = {}
    fields: list[tuple[str, str]] = []
    quotas: list[tuple[str, str]] = []
    retry_after_ms: int | None = None
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        bad = error_details_pb2.BadRequest()
        failure = error_details_pb2.QuotaFailure()
        retry = error_details_pb2.RetryInfo()
        if detail.Unpack(info) and info.domain == DOMAIN:
            named = ErrorReason.DESCRIPTOR.values_by_name.get(_PREFIX + info.reason)
            reason = named.number if named is not None else reason
            metadata = dict(info.metadata)
        elif detail.Unpack(bad):
            fields = [(v.field, v.description) for v in bad.field_violations]
        elif detail.Unpack(failure):
            quotas = [(v.subject, v.description) for v in failure.violations]
        elif detail.Unpack(retry):
            retry_after_ms = retry.retry_delay.ToMilliseconds()
    error = MeshError(
        ErrorReason.ValueType(reason) if reason in REASONS else R.ERROR_REASON_INTERNAL,
        message,
        metadata=metadata,
        fields=fields,
        quotas=quotas,
        retry_after_ms=retry_after_ms,
    )
    error.details = details
    return error


def invalid_request(*fields: tuple[str, str]) -> MeshError:
    """REQUEST_INVALID with one BadRequest entry for each (field path, what is wrong)."""
    text = "; ".join(f"{path}: {description}" for path, description in fields)
    return MeshError(R.ERROR_REASON_REQUEST_INVALID, text, fields=fields)


def _schema_refused(error: BaseException) -> MeshError:
    if not isinstance(error, SchemaError):
        raise TypeError(type(error))
    return MeshError(
        R.ERROR_REASON_SCHEMA_REFUSED,
        str(error),
        metadata={"pointer": error.pointer, "keyword": error.keyword},
        fields=[("output_schema", str(error))],
    )


_Convert = Callable[[BaseException], MeshError]


def _fixed(reason: ErrorReason.ValueType, message: str) -> _Convert:
    # The texts of foreign exceptions may quote input, so they go to the log and never to the caller.
    return lambda _: MeshError(reason, message)


_FOREIGN: Final[Sequence[tuple[type[BaseException], _Convert]]] = (
    (SchemaError, _schema_refused),
    (DecodeError, _fixed(R.ERROR_REASON_REQUEST_INVALID, "the message is not valid protobuf")),
    (TimeoutError, _fixed(R.ERROR_REASON_DEADLINE_EXCEEDED, "the deadline passed")),
    (asyncio.CancelledError, _fixed(R.ERROR_REASON_CANCELLED, "the call was cancelled")),
    (ConnectionError, _fixed(R.ERROR_REASON_BACKEND_FAILED, "a connection failed")),
)


def forget_frames(error: BaseException | None) -> None:
    """Drop the tracebacks of an error that has become an answer, and of its causes.

    Frames hold the errors that they raised, which hold the frames: such circles, with all that a request was, are left
    to the garbage collector, which stops the process to find them.
    """
    for _ in range(_MOST_CAUSES):
        if error is None:
            return
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def as_mesh_error(error: BaseException) -> MeshError:
    """The error that callers may see for any exception: itself, or what the table says, or INTERNAL."""
    if isinstance(error, MeshError):
        return error
    for kind, convert in _FOREIGN:
        if isinstance(error, kind):
            return convert(error)
    return MeshError(R.ERROR_REASON_INTERNAL, "a fault of the mesh; its log has the cause")
