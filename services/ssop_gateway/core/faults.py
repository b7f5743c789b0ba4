"""Errors of the edge: one class, one table from reasons to HTTP statuses, one body for all of them.

The body has the members that OpenAI's SDKs read (`message`, `type`, `param`, `code`) and those of the mesh beside them.
"""

from collections.abc import Mapping
from typing import Any, Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import REASONS, MeshError, ReasonInfo
from ssop_sdk.errors import OutputIncomplete, SsopError

_PREFIX: Final = "ERROR_REASON_"
_INFO: Final[Mapping[str, ReasonInfo]] = {
    name.removeprefix(_PREFIX): REASONS[number] for name, number in ErrorReason.items() if number in REASONS
}
_STATUS_OF_REASON: Final[Mapping[str, int]] = {
    **{name: info.http_status for name, info in _INFO.items()},
    # Reasons that only the edge and the reading of an answer have.
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "NOT_ACCEPTABLE": 406,
    "PATH_UNKNOWN": 404,
    "METHOD_NOT_ALLOWED": 405,
    "BODY_TIMEOUT": 408,
    "HEAD_TOO_LARGE": 431,
    "OUTPUT_INCOMPLETE": 422,
    "FRAME_LOSS": 502,
    "PROTOCOL_ERROR": 502,
    "DEGRADED_ANSWER": 503,
}
_STATUS_OF_CUT: Final[Mapping[str, int]] = {"DEADLINE": 504, "CANCELLED": 499, "BACKEND_FAILED": 502}
_RETRYABLE: Final = frozenset(name for name, info in _INFO.items() if info.is_retryable)
# What OpenAI's SDKs and the code around them compare; other reasons are their own code in lower case.
_CODES: Final[Mapping[str, str]] = {
    "MODEL_UNKNOWN": "model_not_found",
    "KEY_INVALID": "invalid_api_key",
    "CONTEXT_EXCEEDED": "context_length_exceeded",
    "RATE_LIMITED": "rate_limit_exceeded",
    "QUOTA_EXHAUSTED": "insufficient_quota",
}
_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class EdgeError(Exception):
    """An error that an HTTP client may see. Its text never holds prompts, keys or generated content.

    `fields` are (path, what is wrong) pairs; `param` is the first path. `headers` go on the response.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        status: int | None = None,
        fields: tuple[tuple[str, str], ...] = (),
        metadata: Mapping[str, str] | None = None,
        retry_after_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.status = status if status is not None else _STATUS_OF_REASON.get(reason, 500)
        self.fields = fields
        self.metadata = dict(metadata or {})
        self.retry_after_ms = retry_after_ms
        self.headers = dict(headers or {})

    @property
    def is_retryable(self) -> bool:
        """The same request may succeed a moment later."""
        return self.reason in _RETRYABLE

    def body(self, request_id: str = "") -> dict[str, Any]:
        """The body of the response, and of the error event of a stream."""
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        error: dict[str, Any] = {
            "message": self.message,
            "type": kind,
            "param": self.fields[0][0] if self.fields else None,
            "code": _CODES.get(self.reason, self.reason.lower()),
            "status": self.status,
            "reason": self.reason,
        }
        if self.fields:
            error["fields"] = [{"field": path, "description": text} for path, text in self.fields]
        if self.metadata:
            error["metadata"] = self.metadata
        if self.retry_after_ms is not None:
            error["retry_after_ms"] = self.retry_after_ms
        if request_id:
            error["request_id"] = request_id
        return {"error": error}

    def response_headers(self) -> dict[str, str]:
        """Headers of the response. OpenAI's SDKs repeat by `x-should-retry`, others by `Retry-After` (RFC 9110)."""
        headers = {"x-should-retry": "true" if self.is_retryable else "false", **self.headers}
        if self.retry_after_ms is not None:
            headers["retry-after"] = str(max(1, -(-self.retry_after_ms // 1000)))
            headers["retry-after-ms"] = str(self.retry_after_ms)
        elif self.status == 429:
            headers["retry-after"] = "1"
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return headers


def of_mesh(error: MeshError) -> EdgeError:
    """The error of a call into the mesh."""
    return EdgeError(
        error.reason_name,
        error.message,
        fields=tuple(error.fields) or tuple(error.quotas),
        metadata=error.metadata,
        retry_after_ms=error.retry_after_ms,
    )


def of_answer(error: SsopError) -> EdgeError:
    """The error that reading an answer found: cut, invalid, frames lost, degraded."""
    status = None
    if isinstance(error, OutputIncomplete):
        status = _STATUS_OF_CUT.get(error.incomplete_reason)
    return EdgeError(error.reason, error.message, status=status, fields=error.fields, metadata=error.metadata)


def invalid(path: str, description: str) -> EdgeError:
    """400 that names a member of the body, a header or a parameter."""
    return EdgeError("REQUEST_INVALID", f"{path}: {description}", fields=((path, description),))


def unsupported(path: str, description: str) -> EdgeError:
    """400 for a member that is known and not served; never ignored. OpenAI's own answer is a 400, too."""
    return EdgeError("UNSUPPORTED", f"{path}: {description}", status=400, fields=((path, description),))
