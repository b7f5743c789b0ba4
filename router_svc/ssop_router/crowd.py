# cython: annotation_typing=False
"""Admissions and conclusions on their way to the cache service: those that wait together travel together.

A crowd's calls, each on its own, would take the service as long as all of them together; so few are under way at a
time, each with all that waits by then, and the time of a call is the service's own.

`crowd.pxd` gives the types with which this very file is compiled.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, NamedTuple

from ssop.v1.cache_pb2 import BatchEntry
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.deadline import running_loop
from ssop_chassis.errors import MeshError, parse_status
from ssop_chassis.identity import PRINCIPAL_METADATA
from ssop_chassis.pace import Pace
from ssop_router.background import Background
from ssop_router.core.envelope import COMMIT_STATUS, COMMITTED, SETTLED, TOO_LARGE, Admitted, Outcome
from ssop_router.core.envelopes import read_admitted, read_outcomes, write_batch
from ssop_router.dependency import Dependency, InnerMetadata, Unavailable

R = ErrorReason
_SERVICE: Final = "/ssop.v1.CacheService/"
_MOST_TOGETHER: Final = 32
_MOST_BYTES: Final = 1_048_576
"""Answers beyond this are left to the next call: a message holds four times that."""
_WIDTH: Final = 2
"""Calls under way at a time: while one is answered the next is on its way."""


class Work(NamedTuple):
    """One of the two methods that batches hold: its name, and the number of its request in BatchEntry."""

    method: str
    number: int


_ADMIT: Final = Work("Admit", BatchEntry.ADMIT_FIELD_NUMBER)
_SETTLE: Final = Work("Settle", BatchEntry.SETTLE_FIELD_NUMBER)
_SETTLED: Final = Admitted()
"""Stands for the response of Settle, of which nothing is needed."""
Hear = Callable[[BaseException | None], None]
"""Hears what became of a settlement: None where it was taken, CancelledError where it is not asked for any more."""


class Commit:
    """The end of a generation that travels with its request's settlement: `message` is a CommitRequest. Awaited, it
    gives its error, or None.

    `on_end` hears of that whether somebody still waits or not.
    """

    __slots__ = ("_on_end", "_waiter", "error", "is_over", "message")

    def __init__(self, message: bytes, on_end: Callable[[Unavailable | MeshError | None], None]) -> None:
        self.message = message
        self.error: Unavailable | MeshError | None = None
        self.is_over = False
        self._on_end = on_end
        self._waiter: asyncio.Future[None] | None = None

    def conclude(self, error: Unavailable | MeshError | None) -> None:
        """It is over, unless it was before."""
        if self.is_over:
            return
        self.is_over, self.error = True, error
        self._on_end(error)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __await__(self) -> Generator[Any, None, Unavailable | MeshError | None]:
        """Wait until it is over; one task may."""
        if not self.is_over:
            self._waiter = running_loop().create_future()
            yield from self._waiter
        return self.error


class _Asked:
    """A request, under the principal of `metadata`, and the commit that travels with it."""

    def _set(self, work: Work, message: bytes, metadata: InnerMetadata, commit: Commit | None) -> None:
        # Apart from __init__: a call of that through `super` costs as much as all the rest.
        self.work = work
        self.message = message
        self.metadata = metadata
        self.commit = commit

    def has_ended(self) -> bool:
        """Nothing that is said of it is heard any more."""
        raise NotImplementedError

    def take(self, response: Admitted) -> None:
        """It is answered, late perhaps."""
        raise NotImplementedError

    def fail(self, error: Unavailable | MeshError, cause: BaseException | None) -> None:
        """It is not answered, or refused."""
        raise NotImplementedError

    def drop(self) -> None:
        """Nobody asks for it any more."""
        raise NotImplementedError

    def entry(self) -> tuple[bytes, int, bytes, bytes | None]:
        """See `write_batch`."""
        token = self.metadata.get(PRINCIPAL_METADATA, b"")
        commit = self.commit.message if self.commit is not None else None
        return token if isinstance(token, bytes) else b"", self.work.number, self.message, commit


class _Admission(_Asked):
    def __init__(
        self,
        message: bytes,
        metadata: InnerMetadata,
        future: "asyncio.Future[Admitted]",
        on_late: Callable[[Admitted], None] | None,
    ) -> None:
        self._set(_ADMIT, message, metadata, None)
        self._future = future
        self._on_late = on_late

    def has_ended(self) -> bool:
        return self._future.done()

    def take(self, response: Admitted) -> None:
        if not self._future.done():
            self._future.set_result(response)
        elif self._on_late is not None:
            self._on_late(response)

    def fail(self, error: Unavailable | MeshError, cause: BaseException | None) -> None:
        if not self._future.done():
            error.__cause__ = cause
            self._future.set_exception(error)

    def drop(self) -> None:
        self._future.cancel()


class _Settlement(_Asked):
    """`hear` is called once."""

    def __init__(self, message: bytes, metadata: InnerMetadata, hear: Hear, commit: Commit | None) -> None:
        self._set(_SETTLE, message, metadata, commit)
        self._hear: Hear | None = hear

    def has_ended(self) -> bool:
        return self._hear is None

    def take(self, response: Admitted) -> None:  # noqa: ARG002 - nothing of it is needed
        self._end(None)

    def fail(self, error: Unavailable | MeshError, cause: BaseException | None) -> None:
        error.__cause__ = cause
        self._end(error)

    def drop(self) -> None:
        self._end(asyncio.CancelledError())

    def _end(self, error: BaseException | None) -> None:
        if (hear := self._hear) is not None:
            self._hear = None
            hear(error)


class Crowd:
    """Sends entries in the order in which they come; at most `most_waiting` wait. Owned by the event loop.

    `timeout_s` is for a service that answers fast; one that is slower gets more (see Pace).
    """

    def __init__(
        self,
        cache: Dependency,
        background: Background,
        *,
        timeout_s: float,
        most_waiting: int,
        metadata: Callable[[], InnerMetadata],
    ) -> None:
        self._cache = cache
        self._background = background
        self._pace = Pace(timeout_s)
        self._most_waiting = most_waiting
        self._metadata = metadata
        self._waiting: deque[_Asked] = deque()
        self._running = 0
        self._is_due = False
        self._is_batching = True
        self._is_committing = True

    def admit(
        self, message: bytes, metadata: InnerMetadata, on_late: Callable[[Admitted], None] | None = None
    ) -> "asyncio.Future[Admitted]":
        """Ask for an admission under the principal of `metadata`; what is returned is awaited for its response.

        `on_late` takes the response where nobody awaits that any more.

        Raises, at once or there, Unavailable when the cache service does not serve, MeshError for what it says about
        the request, and OVERLOADED where too many wait.
        """
        loop = self._check()
        future: asyncio.Future[Admitted] = loop.create_future()
        self._put(_Admission(message, metadata, future, on_late), loop)
        return future

    def settle(self, message: bytes, metadata: InnerMetadata, hear: Hear, commit: Commit | None = None) -> None:
        """Ask for a settlement, and tell `hear` what `admit` raises there.

        Raises at once as `admit`; nothing was done about `commit` then, and `hear` is not called.
        """
        loop = self._check()
        self._put(_Settlement(message, metadata, hear, commit), loop)

    def _check(self) -> asyncio.AbstractEventLoop:
        if self._cache.is_left_alone():
            raise Unavailable(self._cache.name)
        if len(self._waiting) >= self._most_waiting:
            raise MeshError(R.ERROR_REASON_OVERLOADED, "too many calls wait for the cache service", retry_after_ms=1000)
        return running_loop()

    def _put(self, asked: _Asked, loop: asyncio.AbstractEventLoop) -> None:
        self._waiting.append(asked)
        if not self._is_due and self._running < _WIDTH:
            # What else is asked for in this turn of the loop goes along.
            self._is_due = True
            loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._is_due = False
        while self._running < _WIDTH and (batch := self._take()):
            self._running += 1
            self._background.start(self._send(batch))

    def _take(self) -> list[_Asked]:
        """What still has somebody who waits for it."""
        batch: list[_Asked] = []
        size_bytes = 0
        while self._waiting and len(batch) < _MOST_TOGETHER and size_bytes < _MOST_BYTES:
            asked = self._waiting.popleft()
            # Who left no longer wants to be admitted or charged; the answer that comes along has others who wait.
            if asked.commit is not None:
                size_bytes += len(asked.commit.message)
            elif asked.has_ended():
                continue
            batch.append(asked)
        return batch

    async def _send(self, batch: Sequence[_Asked]) -> None:
        try:
            if self._is_batching and (len(batch) > 1 or (self._is_committing and batch[0].commit is not None)):
                batch = await self._send_together(batch)
            if len(batch) == 1:
                await self._send_alone(batch[0])
            elif batch:
                await asyncio.gather(*map(self._send_alone, batch))
        finally:
            self._running -= 1
            for asked in batch:
                asked.drop()
                if asked.commit is not None:
                    asked.commit.conclude(Unavailable(self._cache.name))
            self._begin()

    async def _send_together(self, batch: Sequence[_Asked]) -> Sequence[_Asked]:
        """Those that must be asked for again, each alone."""
        try:
            reply = await self._call("RunBatch", _pack(batch), self._metadata())
            told = list(zip(batch, read_outcomes(reply), strict=True))
        except (Unavailable, MeshError, ValueError) as error:
            cause = error.__cause__ if isinstance(error, Unavailable) else error
            if isinstance(cause, MeshError) and cause.reason == R.ERROR_REASON_UNSUPPORTED:
                # A cache service that is older than this router.
                self._is_batching = False
                return batch
            for asked in batch:
                asked.fail(Unavailable(self._cache.name), cause)
                if asked.commit is not None:
                    asked.commit.conclude(self._unavailable(cause))
            return ()
        return self._tell(told)

    def _tell(self, told: Sequence[tuple[_Asked, Outcome]]) -> list[_Asked]:
        """Tell each what the service said. What must be asked for again is returned."""
        again: list[_Asked] = []
        for asked, outcome in told:
            if outcome.number == TOO_LARGE:
                again.append(asked)
                continue
            self._conclude(asked, outcome)
            if asked.commit is not None and not self._has_ended(asked.commit, outcome):
                again.append(asked)
        return again

    def _has_ended(self, commit: Commit, outcome: Outcome) -> bool:
        """False: the service is older than this router, and took the settlement alone."""
        if outcome.end == COMMITTED:
            commit.conclude(None)
        elif outcome.end == COMMIT_STATUS:
            commit.conclude(self._judge(parse_status(outcome.end_status)))
        else:
            self._is_committing = False
            return False
        # It may have been upgraded since it did not.
        self._is_committing = True
        return True

    def _judge(self, error: MeshError) -> Unavailable | MeshError:
        """What the service said of one of several."""
        try:
            self._cache.judge(error)
        except Unavailable as unavailable:
            return unavailable
        return error

    def _unavailable(self, cause: BaseException | None) -> Unavailable:
        error = Unavailable(self._cache.name)
        error.__cause__ = cause
        return error

    def _conclude(self, asked: _Asked, outcome: Outcome) -> None:
        if outcome.admitted is not None:
            asked.take(outcome.admitted)
        elif outcome.number == SETTLED:
            asked.take(_SETTLED)
        else:
            said = parse_status(outcome.status)
            error = self._judge(said)
            asked.fail(error, said if error is not said else None)

    async def _send_alone(self, asked: _Asked) -> None:
        if asked.commit is None or asked.commit.is_over:
            await self._ask_alone(asked)
        else:
            await asyncio.gather(self._ask_alone(asked), self._commit_alone(asked.commit, asked.metadata))

    async def _ask_alone(self, asked: _Asked) -> None:
        if asked.has_ended():
            return
        try:
            reply = await self._call(asked.work.method, asked.message, asked.metadata)
            response = read_admitted(reply) if asked.work is _ADMIT else _SETTLED
        except ValueError as error:
            asked.fail(Unavailable(self._cache.name), error)
        except (Unavailable, MeshError) as error:
            asked.fail(error, error.__cause__)
        else:
            asked.take(response)

    async def _commit_alone(self, commit: Commit, metadata: InnerMetadata) -> None:
        try:
            await self._call("Commit", commit.message, metadata)
        except (Unavailable, MeshError) as error:
            commit.conclude(error)
        else:
            commit.conclude(None)

    async def _call(self, method: str, request: bytes, metadata: InnerMetadata) -> bytes:
        now_s = time.monotonic()
        started_s = self._cache.clock_s
        bound_s = self._pace.bound_s(now_s)
        try:
            reply = await self._cache.unary(_SERVICE + method, request, timeout_s=bound_s, metadata=metadata)
        except Unavailable as error:
            if isinstance(error.__cause__, MeshError) and error.__cause__.reason == R.ERROR_REASON_DEADLINE_EXCEEDED:
                self._pace.back_off(bound_s, now_s)
            raise
        self._pace.observe(self._cache.clock_s - started_s, now_s)
        return reply


def _pack(batch: Sequence[_Asked]) -> bytes:
    return write_batch([asked.entry() for asked in batch])
