"""What an answer of a model server that is no answer means to the mesh.

The texts of servers may quote prompts, so none of them gets into an error: only their codes do.
"""

import json
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError

R = ErrorReason
DEFAULT_RETRY_MS: Final = 1_000
MAX_RETRY_MS: Final = 600_000
_CODE: Final = re.compile(r"[A-Za-z0-9_.\-]{1,64}")
# 529 is Anthropic's word for 503.
_BUSY: Final = frozenset({429, 503, 529})
_BUSY_CODES: Final = frozenset({"overloaded_error", "rate_limit_error", "rate_limit_exceeded", "server_overloaded"})
_BAD_KEY: Final = frozenset({401, 402, 403})
_CONTEXT_CODES: Final = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_CONTEXT_WORDS: Final = (
    "maximum context length",
    "prompt is too long",
    "context size",
    "longer than the model's context",
)


class WireError(Exception):
    """The stream of a model server breaks its format; the text names the fault and quotes nothing."""


def status_error(status: int, headers: Mapping[str, str], body: bytes, *, now_s: float) -> MeshError:
    """The error for an HTTP answer that is not 200. `headers` ignore case; `now_s` is seconds since the epoch.

    OVERLOADED with a retry delay for 429, 503 and 529; CONTEXT_EXCEEDED where the server says so; INTERNAL for
    other 4xx, which are this node's own mistakes; BACKEND_FAILED for a refused key and for everything else.
    """
    error = _error_of(body)
    code = _code(error)
    named = f"the model server answered {status}" + (f" ({code})" if code else "")
    if status in _BUSY:
        return overloaded(named, retry_after_ms=retry_after_ms(headers, now_s=now_s))
    if status in {400, 413, 422, 500} and _is_context(error, code):
        return context_exceeded(error)
    if status in _BAD_KEY:
        named += ": it does not take this node's key"
    if 400 <= status < 500 and status not in {408, 409, 425}:
        return MeshError(R.ERROR_REASON_INTERNAL, named, metadata={"status": str(status)})
    return MeshError(R.ERROR_REASON_BACKEND_FAILED, named, metadata={"status": str(status)})


def event_error(error: Any) -> MeshError:
    """The error for an `error` object inside of a stream that began well."""
    error = error if isinstance(error, Mapping) else {}
    code = _code(error)
    named = "the model server ended the stream with an error" + (f" ({code})" if code else "")
    status = error.get("code")
    if code in _BUSY_CODES or (isinstance(status, int) and status in _BUSY):
        return overloaded(named, retry_after_ms=DEFAULT_RETRY_MS)
    if _is_context(error, code):
        return context_exceeded(error)
    return MeshError(R.ERROR_REASON_BACKEND_FAILED, named)


def overloaded(text: str, *, retry_after_ms: int) -> MeshError:
    """The server is full and well."""
    return MeshError(R.ERROR_REASON_OVERLOADED, text, retry_after_ms=retry_after_ms)


def context_exceeded(error: Mapping[str, Any]) -> MeshError:
    """The prompt is too long for the model, by the server's own count."""
    metadata = {
        name: str(error[key])
        for name, key in (("limit_tokens", "n_ctx"), ("input_tokens", "n_prompt_tokens"))
        if isinstance(error.get(key), int)
    }
    return MeshError(
        R.ERROR_REASON_CONTEXT_EXCEEDED, "the prompt does not fit the context of the model", metadata=metadata
    )


def retry_after_ms(headers: Mapping[str, str], *, now_s: float) -> int:
    """When to come back, in milliseconds: `retry-after-ms`, else `Retry-After` in either form (RFC 9110, 10.2.3)."""
    try:
        if value := headers.get("retry-after-ms"):
            wait_ms = float(value)
        elif value := headers.get("retry-after"):
            is_number = value.strip().replace(".", "", 1).isdecimal()
            wait_ms = (float(value) if is_number else parsedate_to_datetime(value).timestamp() - now_s) * 1000
        else:
            return DEFAULT_RETRY_MS
        return int(min(max(wait_ms, 0.0), MAX_RETRY_MS))
    except (ValueError, OverflowError):
        return DEFAULT_RETRY_MS


def parse_object(text: str | bytes) -> dict[str, Any]:
    """A JSON object. Raises WireError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError("what should be JSON is none") from error
    if not isinstance(value, dict):
        raise WireError("what should be a JSON object is none")
    return value


def _error_of(body: bytes) -> Mapping[str, Any]:
    try:
        value = parse_object(body)
    except WireError:
        return {}
    error = value.get("error", value)
    return error if isinstance(error, Mapping) else {"message": error}


def _code(error: Mapping[str, Any]) -> str:
    for key in ("code", "type"):
        value = error.get(key)
        if isinstance(value, str) and _CODE.fullmatch(value):
            return value
    return ""


def _is_context(error: Mapping[str, Any], code: str) -> bool:
    text = str(error.get("message", "")).lower()
    return code in _CONTEXT_CODES or any(words in text for words in _CONTEXT_WORDS)
