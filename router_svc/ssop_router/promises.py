# cython: annotation_typing=False
"""What a request waits for that can't be admitted, where serving it unadmitted would break a promise.

A lone request without a budget is served without its admission, as soon as that is late. One whose tenant has a token
budget would be refused, and of several that ask for the same thing at once each would be a model call of its own; so
they wait a while for a store that is slow, or comes back.

`promises.pxd` gives the types with which this very file is compiled.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from ssop_chassis.errors import MeshError
from ssop_router.dependency import Unavailable

_TRY_S: Final = 0.05
"""How often one of those that wait asks again, for all of them."""
T = TypeVar("T")


class Promises:
    """Those that wait do so for `wait_s` at most. Owned by the event loop."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._asking: dict[bytes, int] = {}
        self._is_tried = False
        self._is_given_up = False
        self._is_news = asyncio.Event()
        self._told = 0
        self._waiting = 0

    async def keep(
        self,
        ask: Callable[[], Awaitable[T]],
        key: bytes,
        *,
        has_budget: bool,
        remaining_s: Callable[[], float],
        has_other: Callable[[Unavailable], Awaitable[bool]],
    ) -> T:
        """What `ask` returns, or the last Unavailable. `ask` is repeated, so it must be idempotent.

        `has_other`: there is an answer that needs no admission. `remaining_s` is the time of the request.
        """
        self._asking[key] = self._asking.get(key, 0) + 1
        try:
            try:
                answer = await ask()
            except Unavailable as error:
                is_bound = has_budget or (bool(key) and self._asking[key] > 1)
                if not is_bound or self._is_given_up or await has_other(error):
                    raise
            except MeshError:
                self._tell()
                raise
            else:
                self._tell()
                return answer
            # Half of the request's own time is left for what comes then.
            return await self._wait(ask, min(self._wait_s, remaining_s() / 2))
        finally:
            if (left := self._asking[key] - 1) > 0:
                self._asking[key] = left
            else:
                del self._asking[key]

    async def _wait(self, ask: Callable[[], Awaitable[T]], wait_s: float) -> T:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_s
        try:
            while True:
                await self._pause(loop, until_s)
                try:
                    answer = await ask()
                except Unavailable:
                    if loop.time() >= until_s:
                        # It is gone: who comes now need not wait for that again.
                        self._is_given_up = wait_s >= self._wait_s
                        raise
                except MeshError:
                    self._tell()
                    raise
                else:
                    self._tell()
                    return answer
        finally:
            if not self._is_tried:
                # Who leaves may be the one that asked for all.
                self._wake()

    async def _pause(self, loop: asyncio.AbstractEventLoop, until_s: float) -> None:
        told = self._told
        while self._is_tried:
            left_s = until_s - loop.time()
            if left_s <= 0:
                return
            self._waiting += 1
            try:
                # Not wait_for: on Python 3.11 it can lose a cancel that comes together with the event.
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._is_news.wait()
            finally:
                self._waiting -= 1
            if self._told != told:
                return
        left_s = until_s - loop.time()
        if left_s <= 0:
            return
        self._is_tried = True
        try:
            await asyncio.sleep(min(_TRY_S, left_s))
        finally:
            self._is_tried = False

    def _tell(self) -> None:
        """Somebody was admitted, or judged: whoever waits asks again."""
        self._is_given_up = False
        self._told += 1
        self._wake()

    def _wake(self) -> None:
        if self._waiting:
            self._is_news.set()
            self._is_news = asyncio.Event()
