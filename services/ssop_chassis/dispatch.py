# cython: annotation_typing=False
"""What happens around every handler, on every transport: principal, deadline, request id, metrics, errors."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from time import monotonic, time_ns
from typing import Any, Final, Protocol

from google.rpc import code_pb2

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Call, Metadata, Method, Outlives, carry_apart
from ssop_chassis.deadline import Deadline
from ssop_chassis.errors import MeshError, as_mesh_error, forget_frames
from ssop_chassis.identity import MOST_TOKENS, PRINCIPAL_METADATA, Principal, Signed, read_token
from ssop_chassis.logs import describe, request_id
from ssop_chassis.tracing import is_traced, server_span

REQUEST_ID_METADATA: Final = "x-ssop-request-id"
_MAX_REQUEST_ID_CHARS: Final = 64
_log = logging.getLogger(__name__)

Authenticate = Callable[[Metadata], Principal]
"""Makes the principal of a call from its metadata; raises MeshError."""


class Observer(Protocol):
    """Is told of every call, as CallMetrics is."""

    def start(self, method: str) -> None:
        """A call begins."""
        ...

    def finish(self, method: str, code: int, duration_s: float) -> None:
        """A call ended with a gRPC code."""
        ...


class CallState:
    """The part of a Call that no transport needs to do for itself. Transports derive from it."""

    def __init__(self, method: str, metadata: Metadata, deadline_s: float) -> None:
        self._set_up(method, metadata, deadline_s)

    def _set_up(self, method: str, metadata: Metadata, deadline_s: float) -> None:
        self.is_left = False
        """Its handler goes on, and its client is gone."""
        self.method = method
        self.metadata = metadata
        self.trailing: dict[str, str | bytes] = {}
        self._deadline_s = deadline_s
        self._principal: Principal | None = None

    @property
    def principal(self) -> Principal:
        """Who calls; see Call.principal."""
        if self._principal is None:
            raise MeshError(ErrorReason.ERROR_REASON_PRINCIPAL_INVALID, "the call carries no principal")
        return self._principal

    def admit(self, principal: Principal) -> None:
        """Set who calls."""
        self._principal = principal

    def remaining_s(self) -> float:
        """See Call.remaining_s."""
        return max(0.0, self._deadline_s - monotonic())

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        """See Call.set_trailing_metadata."""
        self.trailing.update(metadata)

    def carry(self, work: Coroutine[Any, Any, None], outlives: Outlives) -> Awaitable[None]:
        """See Call.carry."""
        return carry_apart(work, outlives)


class ServerCall(Call, Protocol):
    """A Call as its transport sees it."""

    is_left: bool

    def admit(self, principal: Principal) -> None:
        """See CallState.admit."""
        ...


class _Unseen:
    """A block of which no tracer hears."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


_UNSEEN: Final = _Unseen()


class Dispatcher:
    """Runs handlers. `authenticate` makes the principal of every method that needs one."""

    def __init__(self, authenticate: Authenticate, observer: Observer | None = None) -> None:
        self.authenticate: Final = authenticate
        self.observer: Final = observer

    async def dispatch(self, method: Method, call: ServerCall) -> MeshError | None:
        """Serve one call; return the error to send, or None. CancelledError passes through."""
        started_s = monotonic()
        code = code_pb2.OK
        if self.observer is not None:
            self.observer.start(method.path)
        sent_id = call.metadata.get(REQUEST_ID_METADATA, "")
        token = request_id.set(sent_id if isinstance(sent_id, str) and len(sent_id) <= _MAX_REQUEST_ID_CHARS else "")
        try:
            with server_span(method.path, call.metadata) if is_traced() else _UNSEEN:
                try:
                    if method.needs_principal:
                        call.admit(self.authenticate(call.metadata))
                    with Deadline(call.remaining_s()):
                        await method.handler(call)
                except MeshError:
                    raise
                except Exception as error:  # the outermost frame of a call: whatever it is must become a status
                    converted = as_mesh_error(error)
                    if converted.code == code_pb2.INTERNAL:
                        _log.error("a handler failed", extra={"method": method.path, "cause": describe(error)})
                    raise converted from error
        except asyncio.CancelledError:
            code = code_pb2.CANCELLED
            raise
        except MeshError as error:
            code = error.code
            forget_frames(error)
            return error
        else:
            return None
        finally:
            request_id.reset(token)
            if self.observer is not None:
                ended = code_pb2.CANCELLED if call.is_left else code
                self.observer.finish(method.path, ended, monotonic() - started_s)


def inner_authenticate(*secrets: bytes) -> Authenticate:
    """For inner services: the principal that the caller signed with one of the secrets.

    The signature of a token is checked when it first comes, its time always.
    """
    known: dict[bytes | str | None, Signed] = {}

    def authenticate(metadata: Metadata) -> Principal:
        token = metadata.get(PRINCIPAL_METADATA)
        signed = known.get(token)
        if signed is None:
            signed = read_token(token, secrets)
            if len(known) >= MOST_TOKENS:
                known.clear()
            known[token] = signed
        return signed.check(time_ns() // 1_000_000)

    return authenticate
