"""Wake-ups from the state instance, so that followers need not poll fast.

One subscription for the process. A wake-up may be lost, with the connection or before the subscription holds; so who
waits polls as well, slowly.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from ssop_cache.store import RedisStore
from ssop_chassis.logs import describe

_IDLE_CHANNEL: Final = "ssop:wake:none"
_RECONNECT_S: Final = 0.2
_SUBSCRIBE_S: Final = 1.0
_READ_S: Final = 0.5
"""How long a subscription at an instance that was lost, and says nothing, is kept at most."""
_log = logging.getLogger(__name__)


class Wakes:
    """Events by channel. `close` ends the subscription."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._events: dict[str, asyncio.Event] = {}
        self._subscription: PubSub | None = None
        self._task: asyncio.Task[None] | None = None

    async def watch(self, channel: str) -> asyncio.Event:
        """An event that is set when the channel is woken. One watcher for each channel."""
        event = self._events[channel] = asyncio.Event()
        if self._task is None:
            self._task = asyncio.ensure_future(self._listen())
        elif self._subscription is not None:
            await self._tell(self._subscription.subscribe, channel)
        return event

    async def unwatch(self, channel: str, event: asyncio.Event) -> None:
        """The event is no longer needed."""
        if self._events.get(channel) is not event:
            return  # another watcher has taken the channel over
        del self._events[channel]
        if self._subscription is not None:
            await self._tell(self._subscription.unsubscribe, channel)

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _tell(self, command: Callable[[str], Awaitable[object]], channel: str) -> None:
        try:
            async with asyncio.timeout(self._store.timeout_s):
                await command(channel)
        except (RedisError, OSError, TimeoutError) as error:
            # The listener meets the same fault and subscribes anew to all channels.
            _log.debug("a subscription failed: %s", describe(error))

    async def _listen(self) -> None:
        while True:
            changes = self._store.changes
            subscription: PubSub | None = None
            try:
                subscription = self._store.subscriber()
                async with asyncio.timeout(_SUBSCRIBE_S):
                    await subscription.subscribe(_IDLE_CHANNEL, *self._events)
                self._subscription = subscription
                self._wake_all()
                while changes == self._store.changes:
                    message = await subscription.get_message(timeout=_READ_S)
                    if message is not None and (event := self._events.get(message["channel"].decode())) is not None:
                        event.set()
            except (RedisError, OSError, TimeoutError) as error:
                _log.debug("the subscription was lost: %s", describe(error))
            finally:
                self._subscription = None
                if subscription is not None:
                    await subscription.aclose()  # type: ignore[no-untyped-call]
            await asyncio.sleep(_RECONNECT_S)

    def _wake_all(self) -> None:
        # What was said while nobody listened is found by reading.
        for event in self._events.values():
            event.set()
