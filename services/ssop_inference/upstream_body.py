"""The body of an answer, read where no cancel reaches.

The client library loses a connection of its pool when a cancel arrives while it closes that connection, and it may do
so at any read. So a task of its own reads, and nobody cancels it: to give up, the connection is closed under it, and it
ends by itself with an error that nobody hears.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, cast

import httpx

_MAX_PIECES: Final = 16
Hold = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
"""Starts a task, and keeps it from being collected."""


class GuardedBody(httpx.AsyncByteStream):
    """Takes the place of a response's stream. Its reader may be cancelled anywhere, and more than once."""

    def __init__(self, response: httpx.Response, hold: Hold) -> None:
        """`response` is one that `AsyncClient.send` gave with `stream`."""
        self._stream = cast("httpx.AsyncByteStream", response.stream)
        self._network = response.extensions["network_stream"]
        self._hold = hold
        self._pieces: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._error: Exception | None = None
        self._has_ended = False
        self._is_given_up = False
        self._is_over = False
        self._reading: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self.check: Callable[[bytes], None] = lambda _: None
        """Looks at each piece; what it raises ends the reading."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._reading = self._hold(self._read())
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                self._room.set()
                self.check(piece)
                yield piece
            if self._is_over:
                break
            self._changed.clear()
            await self._changed.wait()
        if self._error is not None:
            raise self._error

    async def _read(self) -> None:
        try:
            async for piece in self._stream:
                self._pieces.append(piece)
                self._changed.set()
                while len(self._pieces) >= _MAX_PIECES and not self._is_given_up:
                    self._room.clear()
                    await self._room.wait()
                if self._is_given_up:
                    break
            self._has_ended = True
            await self._stream.aclose()
        except Exception as error:  # noqa: BLE001 - raised where the pieces are read
            self._error = error
            with suppress(Exception):
                await self._stream.aclose()
        finally:
            self._is_over = True
            self._changed.set()

    async def aclose(self) -> None:
        """Give up what is not read yet. Goes on to its end when it is cancelled. Idempotent."""
        if self._closing is None:
            self._closing = self._hold(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._reading is None:
            await self._stream.aclose()
            return
        if not self._has_ended:
            self._is_given_up = True
            self._room.set()
            with suppress(Exception):
                await self._network.aclose()
        await self._reading
