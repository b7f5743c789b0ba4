"""Brings messages to one channel: at its rate, several in one when they would not fit, again when it was away."""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol, TypeVar

from ssop_opinion.alert_store import AlertStore, Message
from ssop_opinion.core.pacing import Bucket, back_off_ms
from ssop_opinion.notifiers.notifier import BrokenError, LaterError, Notifier, RefusedError, TellError

_log = logging.getLogger(__name__)
BROKEN_WAIT_MS: Final = 300_000
"""How long a broken channel is left alone: somebody may have mended it."""
ALONE: Final = 3
"""So many messages are told one by one; more of them, or a channel near its rate, become one."""
ABREAST: Final = 8
"""Messages that go at the same time where none are merged."""
_IDLE_MS: Final = 60_000
T = TypeVar("T")


class OnStore(Protocol):
    """Runs a function of the store on its thread."""

    def __call__(self, function: Callable[[AlertStore], T]) -> Awaitable[T]:
        """Its result. Raises sqlite3.Error."""
        ...


@dataclass(slots=True)
class Health:
    """How a channel is. `fault` is empty while it works; times are Unix ms, 0 is never."""

    fault: str = ""
    since_ms: int = 0
    is_broken: bool = False
    sent_ms: int = 0


class Courier:
    """One task a channel. `now_ms` is the wall clock; `count` hears of each message: channel, outcome, number."""

    def __init__(
        self,
        channel: str,
        notifier: Notifier,
        bucket: Bucket,
        store: OnStore,
        *,
        give_up_after_ms: int,
        now_ms: Callable[[], int],
        rng: Random,
        count: Callable[[str, str, int], None],
    ) -> None:
        self.channel = channel
        self.health = Health()
        self._notifier = notifier
        self._bucket = bucket
        self._store = store
        self._give_up_after_ms = give_up_after_ms
        self._now_ms = now_ms
        self._rng = rng
        self._count = count
        self._woken = asyncio.Event()
        self._resume_ms = 0

    def wake(self) -> None:
        """Something may have to be told."""
        self._woken.set()

    async def run(self) -> None:
        """Tell what is due, until cancelled."""
        while True:
            self._woken.clear()
            try:
                wait_ms = await self.step()
            except sqlite3.Error:
                _log.exception("the messages of a channel can't be read", extra={"channel": self.channel})
                wait_ms = _IDLE_MS
            if wait_ms <= 0:
                continue
            try:
                async with asyncio.timeout(wait_ms / 1_000):
                    await self._woken.wait()
            except TimeoutError:
                pass

    async def step(self) -> int:
        """Tell once, if something is due. How long until there may be more, in milliseconds."""
        now_ms = self._now_ms()
        if now_ms < self._resume_ms:
            return self._resume_ms - now_ms
        wait_ms = self._bucket.wait_ms(now_ms)
        if wait_ms:
            return wait_ms
        most = self._notifier.most
        due = await self._store(lambda store: store.due(self.channel, now_ms, max(most, 4 * ABREAST)))
        if not due:
            next_ms = await self._store(lambda store: store.next_due_ms(self.channel))
            return _IDLE_MS if next_ms is None else min(_IDLE_MS, max(1, next_ms - now_ms))
        free = self._bucket.free(now_ms)
        if most == 1:
            await self._tell_abreast(due, min(free, ABREAST), now_ms)
        elif len(due) > ALONE or len(due) > free:
            await self._tell(due[:most], now_ms)
        else:
            await self._tell(due[:1], now_ms)
        return 0

    async def _tell_abreast(self, due: list[Message], most: int, now_ms: int) -> None:
        # What is told of one alert keeps its order: only its first message goes.
        first = {one.notice.alert.id: one for one in reversed(due)}
        messages = [one for one in due if first[one.notice.alert.id] is one][:most]
        ids = [one.id for one in messages]
        await self._store(lambda store: store.begin(ids))
        for _ in messages:
            self._bucket.take(now_ms)
        faults = await asyncio.gather(*(self._try(one, now_ms) for one in messages))
        sent = [one for one, fault in zip(messages, faults, strict=True) if fault is None]
        if sent:
            self.health = Health(sent_ms=self._now_ms())
            await self._end(sent, "sent", "")
        for one, fault in zip(messages, faults, strict=True):
            if fault is not None:
                await self._settle([one], fault)

    async def _try(self, message: Message, now_ms: int) -> TellError | None:
        try:
            await self._notifier.tell([message], now_ms)
        except TellError as error:
            return error
        return None

    async def _tell(self, messages: list[Message], now_ms: int) -> None:
        ids = [one.id for one in messages]
        await self._store(lambda store: store.begin(ids))
        self._bucket.take(now_ms)
        try:
            await self._notifier.tell(messages, now_ms)
        except TellError as error:
            await self._settle(messages, error)
        else:
            self.health = Health(sent_ms=self._now_ms())
            await self._end(messages, "sent", "")

    async def _settle(self, messages: list[Message], error: TellError) -> None:
        if isinstance(error, LaterError):
            wait_ms = error.retry_after_ms or back_off_ms(max(one.tries for one in messages) + 1, self._rng)
            await self._wait(messages, error, wait_ms)
        elif isinstance(error, RefusedError) and len(messages) == 1:
            _log.warning("a message was refused", extra={"channel": self.channel, "reason": error.reason})
            await self._end(messages, "failed", error.reason)
        elif isinstance(error, RefusedError):
            # One of them is at fault: each goes alone now.
            await self._alone(messages)
        else:
            await self._wait(messages, error, BROKEN_WAIT_MS)

    async def _wait(self, messages: list[Message], error: TellError, wait_ms: int) -> None:
        now_ms = self._now_ms()
        is_broken = isinstance(error, BrokenError)
        if self.health.fault != error.reason:
            _log.warning(
                "a channel does not take messages",
                extra={"channel": self.channel, "reason": error.reason, "is_broken": is_broken},
            )
            self.health = Health(error.reason, now_ms, is_broken, self.health.sent_ms)
        # The channel waits, not these messages alone: the others would meet the same.
        self._resume_ms = max(self._resume_ms, now_ms + wait_ms)
        late = [one for one in messages if now_ms - max(one.created_ms, one.due_ms) > self._give_up_after_ms]
        if late:
            await self._end(late, "failed", error.reason)
        self._count(self.channel, "later", len(messages) - len(late))

    async def _alone(self, messages: list[Message]) -> None:
        for one in messages:
            if wait_ms := self._bucket.wait_ms(self._now_ms()):
                await asyncio.sleep(wait_ms / 1_000)
            await self._tell([one], self._now_ms())
            if self._now_ms() < self._resume_ms:
                return

    async def _end(self, messages: list[Message], outcome: Any, reason: str) -> None:
        ids = [one.id for one in messages]
        await self._store(lambda store: store.end(ids, outcome, reason))
        self._count(self.channel, outcome, len(ids))
