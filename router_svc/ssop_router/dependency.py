"""A service that requests can be served without: called with short deadlines, left alone while it is down."""

from collections.abc import Callable, Mapping
from typing import Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import OnMessage, Peer
from ssop_chassis.errors import MeshError

R = ErrorReason
_FAILURES_TO_SKIP: Final = 3
_UNAVAILABLE: Final = frozenset(
    {
        R.ERROR_REASON_STORE_UNAVAILABLE,
        R.ERROR_REASON_BACKEND_FAILED,
        R.ERROR_REASON_BACKEND_NOT_READY,
        R.ERROR_REASON_DEADLINE_EXCEEDED,
        R.ERROR_REASON_OVERLOADED,
        R.ERROR_REASON_INTERNAL,
        R.ERROR_REASON_UNSUPPORTED,
        R.ERROR_REASON_CANCELLED,
        R.ERROR_REASON_PRINCIPAL_INVALID,
    }
)

InnerMetadata = Mapping[str, str | bytes]


class Unavailable(Exception):  # noqa: N818 - an outcome that callers flag, never an error that leaves the router
    """The dependency did not answer, or is not asked because it did not answer before."""


class Dependency:
    """A peer, whether it answers, and since when. After three failures in a row one call each `skip_ms` tries it.

    `clock_ms` is monotonic. Owned by the event loop of its process.
    """

    def __init__(self, name: str, peer: Peer, *, skip_ms: int, clock_ms: Callable[[], int]) -> None:
        self.name = name
        self._peer = peer
        self._skip_ms = skip_ms
        self._clock_ms = clock_ms
        self._failures = 0
        self._ask_again_ms = 0
        self._answered_ms = clock_ms()

    @property
    def address(self) -> str:
        """Where it is."""
        return self._peer.address

    @property
    def is_available(self) -> bool:
        """It answered the last call."""
        return self._failures == 0

    @property
    def last_answer_age_ms(self) -> int:
        """Milliseconds since it last answered, or since the start."""
        return max(0, self._clock_ms() - self._answered_ms)

    async def unary(self, method: str, request: bytes, *, timeout_s: float, metadata: InnerMetadata) -> bytes:
        """Call it. Raises Unavailable when it does not serve, MeshError for what it says about the request."""
        self._check()
        try:
            response = await self._peer.unary(method, request, timeout_s=timeout_s, metadata=metadata)
        except MeshError as error:
            self._judge(error)
            raise
        self._answer()
        return response

    async def stream(
        self, method: str, request: bytes, on_message: OnMessage, *, timeout_s: float, metadata: InnerMetadata
    ) -> None:
        """Call a streaming method; as `unary`, but a deadline says nothing: the length is not its own."""
        self._check()
        is_receivers = False

        async def take(message: bytes) -> None:
            nonlocal is_receivers
            try:
                if (pending := on_message(message)) is not None:
                    await pending
            except MeshError:
                is_receivers = True
                raise

        try:
            await self._peer.stream(method, request, take, timeout_s=timeout_s, metadata=metadata)
        except MeshError as error:
            if not is_receivers and error.reason != R.ERROR_REASON_DEADLINE_EXCEEDED:
                self._judge(error)
            raise
        self._answer()

    def _check(self) -> None:
        if self._failures < _FAILURES_TO_SKIP:
            return
        now_ms = self._clock_ms()
        if now_ms < self._ask_again_ms:
            raise Unavailable(self.name)
        # This call is the probe; those that come while it runs are turned away.
        self._ask_again_ms = now_ms + self._skip_ms

    def _judge(self, error: MeshError) -> None:
        if error.reason not in _UNAVAILABLE:
            self._answer()
            return
        self._failures += 1
        self._ask_again_ms = self._clock_ms() + self._skip_ms
        raise Unavailable(self.name) from error

    def _answer(self) -> None:
        self._failures = 0
        self._answered_ms = self._clock_ms()
