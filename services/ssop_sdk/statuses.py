"""Statuses as errors: the one table from reasons and gRPC codes to the classes of `errors`."""

from collections.abc import Mapping
from typing import Final

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from ssop_sdk.errors import (
    Aborted,
    AuthenticationError,
    CacheMiss,
    Cancelled,
    CollectionUnknown,
    ContentUnsupported,
    ContextExceeded,
    DeadlineExceeded,
    DegradedRefused,
    GenerationInterrupted,
    InternalError,
    KeyExists,
    KeyUnknown,
    LimitExceeded,
    MessageTooLarge,
    ModelUnknown,
    NotFound,
    OutputInvalid,
    Overloaded,
    PermissionDenied,
    PolicyInvalid,
    ProtocolError,
    QuotaExhausted,
    RateLimited,
    RequestDuplicate,
    RequestInvalid,
    RequestUnknown,
    SchemaRefused,
    ScopeMissing,
    SsopError,
    Unavailable,
    Unsupported,
)

_DOMAIN: Final = "ssop"
_CODE_BY_NUMBER: Final = {int(code.value[0]): code for code in grpc.StatusCode}

CLASS_OF_REASON: Final[Mapping[str, type[SsopError]]] = {
    "REQUEST_INVALID": RequestInvalid,
    "SCHEMA_REFUSED": SchemaRefused,
    "MODEL_UNKNOWN": ModelUnknown,
    "POLICY_INVALID": PolicyInvalid,
    "CONTEXT_EXCEEDED": ContextExceeded,
    "CONTENT_UNSUPPORTED": ContentUnsupported,
    "LOGPROBS_UNSUPPORTED": ContentUnsupported,
    "MESSAGE_TOO_LARGE": MessageTooLarge,
    "REQUEST_DUPLICATE": RequestDuplicate,
    "KEY_MISSING": AuthenticationError,
    "KEY_INVALID": AuthenticationError,
    "KEY_EXISTS": KeyExists,
    "KEY_UNKNOWN": KeyUnknown,
    "SCOPE_MISSING": ScopeMissing,
    "PRINCIPAL_INVALID": AuthenticationError,
    "RATE_LIMITED": RateLimited,
    "QUOTA_EXHAUSTED": QuotaExhausted,
    "OVERLOADED": Overloaded,
    "OUTPUT_INVALID": OutputInvalid,
    "GENERATION_INTERRUPTED": GenerationInterrupted,
    "DEGRADED_REFUSED": DegradedRefused,
    "NO_BACKEND": Unavailable,
    "BACKEND_FAILED": Unavailable,
    "BACKEND_NOT_READY": Unavailable,
    "STORE_UNAVAILABLE": Unavailable,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "CANCELLED": Cancelled,
    "REQUEST_UNKNOWN": RequestUnknown,
    "CACHE_MISS": CacheMiss,
    "COLLECTION_UNKNOWN": CollectionUnknown,
    "LEASE_LOST": Aborted,
    "UNSUPPORTED": Unsupported,
    "INTERNAL": InternalError,
}

# A peer that is no mesh service, or a transport that failed by itself, sends a code without ErrorInfo; a newer
# mesh sends reasons that this table lacks.
CLASS_OF_CODE: Final[Mapping[grpc.StatusCode, type[SsopError]]] = {
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.INVALID_ARGUMENT: RequestInvalid,
    grpc.StatusCode.OUT_OF_RANGE: RequestInvalid,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: RequestDuplicate,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.RESOURCE_EXHAUSTED: LimitExceeded,
    grpc.StatusCode.ABORTED: Aborted,
    grpc.StatusCode.UNIMPLEMENTED: Unsupported,
    grpc.StatusCode.INTERNAL: InternalError,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DATA_LOSS: ProtocolError,
    grpc.StatusCode.UNAUTHENTICATED: AuthenticationError,
}

# gRPC's own words for what this process cancelled itself.
_CANCELLED_HERE: Final = frozenset({"Locally cancelled by application!", "Channel closed!"})
# Words for a stream that was reset, of gRPC and of the native transport.
_RESET: Final = ("RST_STREAM", "the stream was reset")
# gRPC's own words for a message over the limit; it has no code for that alone.
_TOO_LARGE: Final = "message larger than max"


def error_of_status(
    code: grpc.StatusCode | int, message: str, details: bytes | None = None, *, request_id: str = ""
) -> SsopError:
    """The error for a status: a gRPC code, its message and the bytes of `grpc-status-details-bin`, if any."""
    code = _read_code(code, message, details)
    status = status_pb2.Status()
    if details:
        try:
            status.ParseFromString(details)
        except DecodeError:
            # The code and the message still hold; the class is then chosen by the code alone.
            status.Clear()
    reason: str | None = None
    metadata: dict[str, str] = {}
    fields: tuple[tuple[str, str], ...] = ()
    retry_after_ms: int | None = None
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        bad = error_details_pb2.BadRequest()
        quota = error_details_pb2.QuotaFailure()
        retry = error_details_pb2.RetryInfo()
        if detail.Unpack(info) and info.domain == _DOMAIN:
            reason, metadata = info.reason, dict(info.metadata)
        elif detail.Unpack(bad):
            fields = tuple((v.field, v.description) for v in bad.field_violations)
        elif detail.Unpack(quota):
            fields = tuple((v.subject, v.description) for v in quota.violations)
        elif detail.Unpack(retry):
            retry_after_ms = max(0, retry.retry_delay.ToMilliseconds())
    kind = CLASS_OF_REASON.get(reason or "") or CLASS_OF_CODE.get(code, SsopError)
    if reason is None and code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in message:
        kind = MessageTooLarge
    return kind(
        message,
        reason=reason,
        code=code,
        metadata=metadata,
        fields=fields,
        retry_after_ms=retry_after_ms,
        request_id=request_id,
        from_mesh=reason is not None,
    )


def _read_code(code: grpc.StatusCode | int, message: str, details: bytes | None) -> grpc.StatusCode:
    if not isinstance(code, grpc.StatusCode):
        code = _CODE_BY_NUMBER.get(code, grpc.StatusCode.UNKNOWN)
    if code is grpc.StatusCode.CANCELLED and not details and message not in _CANCELLED_HERE:
        # A server that drains ends so what comes before its clients know that. The mesh itself says who cancelled.
        return grpc.StatusCode.UNAVAILABLE
    if code is grpc.StatusCode.INTERNAL and not details and any(words in message for words in _RESET):
        # By a proxy whose router is gone in the middle of an answer. The mesh itself says what is wrong within.
        return grpc.StatusCode.UNAVAILABLE
    return code
