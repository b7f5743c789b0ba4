# cython: annotation_typing=False
"""A service that requests can be served without: called with short deadlines, left alone while it is down.

`dependency.pxd` gives the types with which this very file is compiled.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.attention import Attention
from ssop_chassis.call import OnMessage, Peer
from ssop_chassis.errors import MeshError

R = ErrorReason
_FAILURES_TO_SKIP: Final = 3
_GRACE_S: Final = 10.0
"""What the deadline on the wire is later by where the loop's lag counts for nothing: that one is of the wall clock."""
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

_log = logging.getLogger(__name__)

InnerMetadata = Mapping[str, str | bytes]


class Unavailable(Exception):  # noqa: N818 - an outcome that callers flag, never an error that leaves the router
    """The dependency did not answer, or is not asked because it did not answer before."""


class Lane:
    """Calls of one kind, `width` at a time, others in the order in which they came; at most `most_waiting` wait.

    Without it a crowd's calls all run at once, and each takes as long as all of them.
    """

    def __init__(self, width: int, most_waiting: int) -> None:
        self._slots = asyncio.Semaphore(width)
        self._most_waiting = most_waiting
        self.waiting = 0

    async def enter(self) -> None:
        """Wait for the turn; `leave` must follow. Raises OVERLOADED where too many wait."""
        if self.waiting >= self._most_waiting:
            raise MeshError(R.ERROR_REASON_OVERLOADED, "too many calls wait for this service", retry_after_ms=1_000)
        self.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.waiting -= 1

    def leave(self) -> None:
        """The turn is over."""
        self._slots.release()


class _Receiver:
    """Takes the messages of a stream; `has_failed`: the error that ends it is its own, and says nothing of the peer."""

    def __init__(self, on_message: OnMessage) -> None:
        self._on_message = on_message
        self.has_failed = False

    async def take(self, message: bytes) -> None:
        try:
            if (pending := self._on_message(message)) is not None:
                await pending
        except MeshError:
            self.has_failed = True
            raise


class Dependency:
    """A peer, whether it answers, and since when. After three failures in a row one call each `skip_ms` tries it.

    `clock_ms` is monotonic; with `attention` unary calls are timed by that clock. Owned by the event loop.
    """

    def __init__(
        self, name: str, peer: Peer, *, skip_ms: int, clock_ms: Callable[[], int], attention: Attention | None = None
    ) -> None:
        self.name = name
        self._attention = attention
        self._peer = peer
        self._skip_ms = skip_ms
        self._clock_ms = clock_ms
        self._failures = 0
        self._is_serving = True
        self._ask_again_ms = 0
        self._answered_ms = clock_ms()

    @property
    def address(self) -> str:
        """Where it is."""
        return self._peer.address

    @property
    def is_available(self) -> bool:
        """It answered the last call."""
        return self._is_serving

    @property
    def last_answer_age_ms(self) -> int:
        """Milliseconds since it last answered, or since the start."""
        return max(0, self._clock_ms() - self._answered_ms)

    @property
    def clock_s(self) -> float:
        """The clock of its time-outs, in seconds; stands still while the loop does."""
        return self._attention.now_s if self._attention is not None else self._clock_ms() / 1000

    def is_left_alone(self) -> bool:
        """It failed, and is not to be tried yet."""
        return self._failures >= _FAILURES_TO_SKIP and self._clock_ms() < self._ask_again_ms

    async def unary(
        self, method: str, request: bytes, *, timeout_s: float, metadata: InnerMetadata, lane: Lane | None = None
    ) -> bytes:
        """Call it, when it is the call's turn in its lane; `timeout_s` begins then.

        Raises Unavailable when it does not serve, MeshError for what it says about the request.
        """
        self._check()
        if lane is None:
            return await self._unary(method, request, timeout_s, metadata)
        await lane.enter()
        try:
            if self._failures >= _FAILURES_TO_SKIP:
                # It went while others were waited for; who tries it is decided by `_check`.
                self._check()
            return await self._unary(method, request, timeout_s, metadata)
        finally:
            lane.leave()

    async def _unary(self, method: str, request: bytes, timeout_s: float, metadata: InnerMetadata) -> bytes:
        try:
            response = await self._ask(method, request, timeout_s, metadata)
        except MeshError as error:
            self.judge(error)
            raise
        self._answer()
        return response

    async def _ask(self, method: str, request: bytes, timeout_s: float, metadata: InnerMetadata) -> bytes:
        if self._attention is None:
            return await self._peer.unary(method, request, timeout_s=timeout_s, metadata=metadata)
        try:
            async with self._attention.timeout(timeout_s):
                return await self._peer.unary(method, request, timeout_s=timeout_s + _GRACE_S, metadata=metadata)
        except TimeoutError as error:
            raise MeshError(R.ERROR_REASON_DEADLINE_EXCEEDED, f"no answer within {timeout_s:g} s") from error

    async def stream(
        self, method: str, request: bytes, on_message: OnMessage, *, timeout_s: float, metadata: InnerMetadata
    ) -> None:
        """Call a streaming method; as `unary`, but a deadline says nothing: the length is not its own."""
        self._check()
        receiver = _Receiver(on_message)
        try:
            await self._peer.stream(method, request, receiver.take, timeout_s=timeout_s, metadata=metadata)
        except MeshError as error:
            if not receiver.has_failed and error.reason != R.ERROR_REASON_DEADLINE_EXCEEDED:
                self.judge(error)
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

    def judge(self, error: MeshError) -> None:
        """What it said: an answer about the request, or (Unavailable) that it does not serve."""
        if error.reason not in _UNAVAILABLE:
            self._answer()
            return
        if self._is_serving:
            _log.warning("a service does not serve", extra={"dependency": self.name, "reason": error.reason_name})
        self._is_serving = False
        if error.reason == R.ERROR_REASON_STORE_UNAVAILABLE:
            # It is there, says at once what it can't do, and is the first to know when it can again.
            self._failures = 0
        else:
            self._failures += 1
            self._ask_again_ms = self._clock_ms() + self._skip_ms
        raise Unavailable(self.name) from error

    def _answer(self) -> None:
        self._failures = 0
        self._is_serving = True
        self._answered_ms = self._clock_ms()
