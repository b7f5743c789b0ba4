"""What the SDK raises: one tree. `statuses` maps what the mesh sends to it.

SsopError
  RequestInvalid        PolicyInvalid, SchemaRefused, ContextExceeded, ContentUnsupported, MessageTooLarge
  NotFound              ModelUnknown, RequestUnknown, CacheMiss, CollectionUnknown
  RequestDuplicate
  AuthenticationError
  PermissionDenied      ScopeMissing
  LimitExceeded         RateLimited, QuotaExhausted, Overloaded
  Unavailable
  DeadlineExceeded      also a TimeoutError
  Cancelled
  Aborted               GenerationInterrupted
  Unsupported
  InternalError
  OutputError           OutputInvalid, OutputIncomplete
  DegradedAnswer        DegradedRefused
  ProtocolError         FrameLoss
  ConfigurationError    also a ValueError

No message holds a prompt, a key or generated content.
"""

# ruff: noqa: N818 - names say what happened, as those of the API do

from collections.abc import Mapping
from typing import Any, ClassVar

import grpc


class SsopError(Exception):
    """Base of all errors of the SDK."""

    default_reason: ClassVar[str] = "INTERNAL"
    default_code: ClassVar[grpc.StatusCode] = grpc.StatusCode.UNKNOWN

    def __init__(
        self,
        message: str = "",
        *,
        reason: str | None = None,
        code: grpc.StatusCode | None = None,
        metadata: Mapping[str, str] | None = None,
        fields: tuple[tuple[str, str], ...] = (),
        retry_after_ms: int | None = None,
        request_id: str = "",
        from_mesh: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason if reason is not None else self.default_reason
        """Name of the reason: a value of `ssop.v1.ErrorReason` without prefix, or one of the SDK's own."""
        self.code = code if code is not None else self.default_code
        """The gRPC status code."""
        self.metadata: dict[str, str] = dict(metadata or {})
        """Dynamic values of the reason, as the mesh sent them."""
        self.fields = fields
        """Pairs of (field path, what is wrong with it) for malformed requests; pairs of (subject, what is used up)
        for quotas."""
        self.retry_after_ms = retry_after_ms
        """When the same call may be repeated, in milliseconds; None where the mesh did not say."""
        self.request_id = request_id
        """The request it is about; empty where it is about none."""
        self.from_mesh = from_mesh
        """The mesh itself said so; False for failures of the connection and of this process."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if self.message else self.reason

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.reason}, {self.message!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (type(self), self.__dict__.copy())

    def _number(self, key: str) -> int:
        text = self.metadata.get(key, "")
        return int(text) if text.isascii() and text.isdecimal() else 0


def _revive(kind: type[SsopError], state: dict[str, Any]) -> SsopError:
    error = kind.__new__(kind)
    Exception.__init__(error, state["message"])
    error.__dict__.update(state)
    return error


class RequestInvalid(SsopError):
    """A field is malformed; `fields` names it."""

    default_reason = "REQUEST_INVALID"
    default_code = grpc.StatusCode.INVALID_ARGUMENT


class PolicyInvalid(RequestInvalid):
    """The policy has words that are unknown or contradict each other."""

    default_reason = "POLICY_INVALID"


class SchemaRefused(RequestInvalid):
    """The mesh does not take the schema."""

    default_reason = "SCHEMA_REFUSED"

    @property
    def pointer(self) -> str:
        """JSON Pointer of the offending keyword in the schema."""
        return self.metadata.get("pointer", "")

    @property
    def keyword(self) -> str:
        """The keyword, or the cap that was exceeded."""
        return self.metadata.get("keyword", "")


class ContextExceeded(RequestInvalid):
    """The prompt does not fit any model that may serve it."""

    default_reason = "CONTEXT_EXCEEDED"

    @property
    def limit_tokens(self) -> int:
        """Tokens that would fit; 0 if unknown."""
        return self._number("limit_tokens")

    @property
    def input_tokens(self) -> int:
        """Tokens of the prompt; 0 if unknown."""
        return self._number("input_tokens")


class ContentUnsupported(RequestInvalid):
    """A content part, tool or option that no model of the tier can take."""

    default_reason = "CONTENT_UNSUPPORTED"


class MessageTooLarge(RequestInvalid):
    """The message is over the size limit of the mesh."""

    default_reason = "MESSAGE_TOO_LARGE"
    default_code = grpc.StatusCode.RESOURCE_EXHAUSTED

    @property
    def limit_bytes(self) -> int:
        """The limit; 0 if unknown."""
        return self._number("limit_bytes")


class NotFound(SsopError):
    """What the call names does not exist for this tenant."""

    default_reason = "REQUEST_UNKNOWN"
    default_code = grpc.StatusCode.NOT_FOUND


class ModelUnknown(NotFound):
    """No such model."""

    default_reason = "MODEL_UNKNOWN"

    @property
    def model(self) -> str:
        """The name that was asked for."""
        return self.metadata.get("model", "")


class RequestUnknown(NotFound):
    """Nothing is known of this request, or its resume window is over."""


class CacheMiss(NotFound):
    """The policy allows the cache only, and it has no answer."""

    default_reason = "CACHE_MISS"


class CollectionUnknown(NotFound):
    """No such collection or document for this tenant."""

    default_reason = "COLLECTION_UNKNOWN"


class KeyUnknown(NotFound):
    """There is no API key with this id."""

    default_reason = "KEY_UNKNOWN"


class KeyExists(SsopError):
    """There is an API key with this id."""

    default_reason = "KEY_EXISTS"
    default_code = grpc.StatusCode.ALREADY_EXISTS


class RequestDuplicate(SsopError):
    """A request with this id is running or has ended."""

    default_reason = "REQUEST_DUPLICATE"
    default_code = grpc.StatusCode.ALREADY_EXISTS


class AuthenticationError(SsopError):
    """There is no key, or it is unknown, malformed, expired or revoked."""

    default_reason = "KEY_INVALID"
    default_code = grpc.StatusCode.UNAUTHENTICATED


class PermissionDenied(SsopError):
    """The key may not do this."""

    default_reason = "SCOPE_MISSING"
    default_code = grpc.StatusCode.PERMISSION_DENIED


class ScopeMissing(PermissionDenied):
    """The key lacks a scope."""

    @property
    def scope(self) -> str:
        """The scope that is missing."""
        return self.metadata.get("scope", "")


class LimitExceeded(SsopError):
    """A limit stops the call for now."""

    default_reason = "OVERLOADED"
    default_code = grpc.StatusCode.RESOURCE_EXHAUSTED


class RateLimited(LimitExceeded):
    """Too many requests; `retry_after_ms` says when to come back."""

    default_reason = "RATE_LIMITED"


class QuotaExhausted(LimitExceeded):
    """The token budget is used up; `fields` says which."""

    default_reason = "QUOTA_EXHAUSTED"


class Overloaded(LimitExceeded):
    """A bounded queue of the mesh is full; `retry_after_ms` says when to come back."""


class Unavailable(SsopError):
    """Nothing is left to serve the call, or the mesh can't be reached."""

    default_reason = "BACKEND_FAILED"
    default_code = grpc.StatusCode.UNAVAILABLE


class DeadlineExceeded(SsopError, TimeoutError):
    """The deadline passed."""

    default_reason = "DEADLINE_EXCEEDED"
    default_code = grpc.StatusCode.DEADLINE_EXCEEDED

    @property
    def stage(self) -> str:
        """Where the time ran out; empty if unknown."""
        return self.metadata.get("stage", "")


class Cancelled(SsopError):
    """This side cancelled, or the mesh was told that it did."""

    default_reason = "CANCELLED"
    default_code = grpc.StatusCode.CANCELLED


class Aborted(SsopError):
    """The mesh gave the call up half-way."""

    default_reason = "LEASE_LOST"
    default_code = grpc.StatusCode.ABORTED


class GenerationInterrupted(Aborted):
    """The generation was cut after fields had been sent, and no node could go on with it."""

    default_reason = "GENERATION_INTERRUPTED"

    @property
    def last_seq(self) -> int:
        """Document frames up to this sequence number are final."""
        return self._number("last_seq")

    @property
    def not_continued(self) -> str:
        """Why no node went on, such as `NO_BACKEND` or the part of the schema that is in the way; empty if not said."""
        return self.metadata.get("not_continued", "")


class Unsupported(SsopError):
    """Part of the API that this mesh does not serve."""

    default_reason = "UNSUPPORTED"
    default_code = grpc.StatusCode.UNIMPLEMENTED

    @property
    def feature(self) -> str:
        """What is not served."""
        return self.metadata.get("feature", "")


class InternalError(SsopError):
    """A fault of the mesh; its log has the cause under the request id."""

    default_code = grpc.StatusCode.INTERNAL


class OutputError(SsopError):
    """The answer can't be trusted as a whole."""

    default_code = grpc.StatusCode.FAILED_PRECONDITION

    partial: Any = None
    """Top-level fields that were complete when the answer ended. Each of them conforms to the schema."""


class OutputInvalid(OutputError):
    """The answer broke the schema, or is no JSON."""

    default_reason = "OUTPUT_INVALID"

    @property
    def pointer(self) -> str:
        """JSON Pointer of the value (RFC 6901)."""
        return self.metadata.get("pointer", "")

    @property
    def rule(self) -> str:
        """The keyword or rule that was broken."""
        return self.metadata.get("rule", "")

    @property
    def offset_bytes(self) -> int:
        """Offset in the model's output of the first byte after which no valid document exists."""
        return self._number("offset_bytes")


class OutputIncomplete(OutputError):
    """The answer was cut before its end."""

    default_reason = "OUTPUT_INCOMPLETE"

    @property
    def incomplete_reason(self) -> str:
        """Name of the `IncompleteReason`, such as `MAX_OUTPUT_TOKENS`."""
        return self.metadata.get("incomplete_reason", "")


class DegradedAnswer(SsopError):
    """The answer did not come from the tier that was chosen, and the caller did not allow that."""

    default_reason = "DEGRADED_ANSWER"
    default_code = grpc.StatusCode.FAILED_PRECONDITION

    @property
    def level(self) -> int:
        """1 a similar cached answer, 2 the backup lite model, 3 the canned document; 0 if unknown."""
        return self._number("level")

    @property
    def degraded_reason(self) -> str:
        """Name of the `DegradedReason`, such as `NODES_FAILED`."""
        return self.metadata.get("degraded_reason", "")


class DegradedRefused(DegradedAnswer):
    """The mesh had only an answer that is degraded below `max_degraded_level`."""

    default_reason = "DEGRADED_REFUSED"


class ProtocolError(SsopError):
    """The peer sent what SSOP does not allow."""

    default_reason = "PROTOCOL_ERROR"
    default_code = grpc.StatusCode.DATA_LOSS


class FrameLoss(ProtocolError):
    """Document frames are missing."""

    default_reason = "FRAME_LOSS"

    @property
    def expected_seq(self) -> int:
        """The sequence number that should have come."""
        return self._number("expected_seq")

    @property
    def received_seq(self) -> int:
        """The sequence number that came instead; 0 when the stream ended."""
        return self._number("received_seq")


class ConfigurationError(SsopError, ValueError):
    """The client was set up with values that can't work."""

    default_reason = "CONFIGURATION"
    default_code = grpc.StatusCode.INVALID_ARGUMENT
