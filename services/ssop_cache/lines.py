"""Connections on which commands that wait together travel together: one write, one turn of the server, one sync."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Any, Final, cast

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

MOST_TOGETHER: Final = 64

Words = tuple[str | bytes | int, ...]
_Entry = tuple[Words, "asyncio.Future[Any]"]


class _Line:
    """What one connection is busy with."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.awaited: asyncio.Future[Any] | None = None


class Lines:
    """At most `count` connections of a pool. Has no bounds on time: who waits has them, and says `drop_silent`."""

    def __init__(self, pool: ConnectionPool, count: int) -> None:
        self._pool = pool
        self._count = count
        self._waiting: deque[_Entry] = deque()
        self._lines: set[_Line] = set()

    def send(self, words: Words) -> "asyncio.Future[Any]":
        """The reply to a command. Raises RedisError and OSError."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((words, future))
        if len(self._lines) < self._count:
            line = _Line()
            self._lines.add(line)
            # Begins when all that is asked for in this turn of the loop has been.
            line.task = asyncio.ensure_future(self._run(line))
        return future

    def drop_silent(self) -> None:
        """Give up the connections whose next reply nobody waits for any more: it may never come."""
        for line in self._lines:
            if line.awaited is not None and line.awaited.cancelled() and line.task is not None:
                line.task.cancel()

    async def warm_up(self, commands: Sequence[Words]) -> None:
        """Run the commands, and make all connections. Raises RedisError and OSError."""
        connections: list[AbstractConnection] = []
        try:
            while len(connections) < self._count:
                connections.append(await self._connect())
        finally:
            for connection in connections:
                await self._pool.release(connection)
        await asyncio.gather(*map(self.send, commands))

    async def close(self) -> None:
        """End what runs."""
        tasks = [line.task for line in self._lines if line.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self, line: _Line) -> None:
        try:
            while self._waiting:
                await self._exchange(line, self._take())
        finally:
            self._lines.discard(line)
            if not self._lines:
                # The last one was dropped: nobody else serves these.
                self._fail(self._waiting, RedisTimeoutError("the server is silent"))
                self._waiting.clear()

    def _take(self) -> list[_Entry]:
        """What still has somebody who waits for it."""
        batch: list[_Entry] = []
        while self._waiting and len(batch) < MOST_TOGETHER:
            entry = self._waiting.popleft()
            if not entry[1].done():
                batch.append(entry)
        return batch

    async def _exchange(self, line: _Line, batch: list[_Entry]) -> None:
        if not batch:
            return
        left = deque(batch)
        # Also while a connection is made.
        line.awaited = batch[0][1]
        connection: AbstractConnection | None = None
        error: BaseException = RedisTimeoutError("the server is silent")
        try:
            connection = await self._connect()
            await _write(connection, [words for words, _ in batch])
            while left:
                line.awaited = left[0][1]
                try:
                    reply = await _read(connection)
                except ResponseError as refusal:
                    _give(left.popleft()[1], refusal)
                else:
                    _give(left.popleft()[1], reply)
        except (RedisError, OSError) as fault:
            error = fault
        finally:
            line.awaited = None
            if connection is not None:
                if left:
                    await connection.disconnect(nowait=True)
                await self._pool.release(connection)
            self._fail(left, error)

    async def _connect(self) -> AbstractConnection:
        return cast("AbstractConnection", await self._pool.get_connection())  # type: ignore[no-untyped-call]

    @staticmethod
    def _fail(entries: deque[_Entry], error: BaseException) -> None:
        for _, future in entries:
            _give(future, error)


def _give(future: "asyncio.Future[Any]", reply: Any) -> None:
    if future.done():
        return
    if isinstance(reply, BaseException):
        future.set_exception(reply)
    else:
        future.set_result(reply)


async def _write(connection: AbstractConnection, commands: Sequence[Words]) -> None:
    await connection.send_packed_command(connection.pack_commands(commands))


async def _read(connection: AbstractConnection) -> Any:
    return await cast("Awaitable[Any]", connection.read_response())
