# cython: annotation_typing=False
"""Connections on which the commands of a turn of the loop travel together: one write, one turn of the server, one sync.

redis-py makes the connections: addresses, TLS, passwords, who is master. Once one stands, replies are read here, by
hiredis, and handed to who waits in the order in which Redis gives them (RESP has no numbers: the n-th reply is the
n-th command's). So a command costs no task, no lock and no connection of its own.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, cast

from hiredis import PushNotification, Reader
from redis._parsers.base import BaseParser
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ssop_cache.messages import pack

CALLS_PER_CONNECTION: Final = 4
"""Commands under way on each connection from which one more is made, as long as there may be one."""
_INCOMPLETE: Final = object()

Words = tuple[str | bytes | int, ...]
_Entry = tuple[bytes, "asyncio.Future[Any]"]


class _Wire(asyncio.Protocol):
    """A connection, or one that is being made. Once `is_left` it takes no command more, and ends with its last one."""

    def __init__(self, lines: "Lines") -> None:
        self.is_left = False
        self.is_up = False
        self.failure: Exception | None = None
        self._lines = lines
        self._is_over = False
        self._unsent: deque[_Entry] = deque()
        self._awaited: deque[asyncio.Future[Any]] = deque()
        self._connection: AbstractConnection | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._made_with: asyncio.BaseProtocol | None = None
        self._replies = Reader(
            protocolError=InvalidResponse, replyError=BaseParser.parse_error, notEnoughData=_INCOMPLETE
        )
        self.task = asyncio.ensure_future(self._connect())

    @property
    def load(self) -> int:
        """Commands whose reply has not come."""
        return len(self._awaited) + len(self._unsent)

    @property
    def is_free(self) -> bool:
        """It stands, takes commands, and is not busy."""
        return self.is_up and not self.is_left and self.load < CALLS_PER_CONNECTION

    def send(self, entries: Sequence[_Entry]) -> None:
        """Write commands, at once or as soon as there is a connection."""
        if self._transport is None:
            self._unsent.extend(entries)
            return
        self._awaited.extend(future for _, future in entries)
        self._transport.write(b"".join([packed for packed, _ in entries]))

    def leave_silent(self) -> None:
        """Take nothing more if nobody waits any longer for the reply that is next: it may never come."""
        first = self._awaited[0] if self._awaited else self._unsent[0][1] if self._unsent else None
        if first is None or not first.done():
            return
        self.is_left = True
        if all(future.done() for future in self._awaited) and all(future.done() for _, future in self._unsent):
            self.end(RedisTimeoutError("the server is silent"))

    def leave(self) -> None:
        """Take nothing more, and end once the replies have come."""
        self.is_left = True
        if not self.load:
            self.end(RedisConnectionError("the connection is given up"))

    def end(self, error: Exception) -> None:
        """Give the connection up; who still waits hears why."""
        if self._is_over:
            return
        self._is_over = self.is_left = True
        for _, future in self._unsent:
            _give(future, error)
        for future in self._awaited:
            _give(future, error)
        self._unsent.clear()
        self._awaited.clear()
        self.failure = error
        self._lines.forget(self)
        if self._connection is None:
            if asyncio.current_task() is not self.task:
                self.task.cancel()
        else:
            self.task = asyncio.ensure_future(self._close(self._connection))
            self._lines.watch(self.task)

    async def _connect(self) -> None:
        try:
            connection = await self._lines.connect()
        except (RedisError, OSError) as error:
            self.end(error)
            return
        # redis-py reads and writes by streams; those would cost a task for each exchange.
        writer = cast("asyncio.StreamWriter", connection._writer)  # noqa: SLF001 - it has no way to hand its transport over
        transport = writer.transport
        self._made_with = transport.get_protocol()
        transport.set_protocol(self)
        self._connection, self._transport, self.is_up = connection, transport, True
        if transport.is_closing():
            self.end(RedisConnectionError("the server closed the connection"))
            return
        waiting = [entry for entry in self._unsent if not entry[1].done()]
        self._unsent.clear()
        if waiting:
            self.send(waiting)
        elif self.is_left:
            self.end(RedisConnectionError("the connection is given up"))

    async def _close(self, connection: AbstractConnection) -> None:
        await connection.disconnect(nowait=True)
        await self._lines.release(connection)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        awaited = self._awaited
        try:
            self._replies.feed(data)
            while (reply := self._replies.gets()) is not _INCOMPLETE:
                if isinstance(reply, PushNotification):
                    continue
                if awaited:
                    _give(awaited.popleft(), reply)
                else:
                    self.end(InvalidResponse("a reply that nobody asked for"))
        except InvalidResponse as error:
            self.end(error)
        if self.is_left and not awaited:
            self.end(RedisConnectionError("the connection is given up"))

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        if isinstance(self._made_with, asyncio.Protocol):
            # Its streams learn that they are closed.
            self._made_with.connection_lost(exc)
        self.end(RedisConnectionError("the server closed the connection"))


class Lines:
    """At most `count` connections of a pool that take commands, and those that wait for their last replies.

    Has no bounds on time nor on what waits: who waits has them, and says `drop_silent`.
    """

    def __init__(self, pool: ConnectionPool, count: int) -> None:
        self._pool = pool
        self._count = count
        self._waiting: list[_Entry] = []
        self._is_due = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wires: dict[_Wire, None] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def send(self, words: Words) -> "asyncio.Future[Any]":
        """The reply to a command. Raises RedisError and OSError. Whoever loses interest cancels the future.

        What is no command raises TypeError here, where it is nobody's trouble but the caller's.
        """
        packed = pack(words)
        # Asked for once: on Python 3.11 each time is a system call.
        loop = self._loop = self._loop or asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((packed, future))
        if not self._is_due:
            # What else is asked for in this turn of the loop goes along.
            self._is_due = True
            loop.call_soon(self._flush)
        return future

    def drop_silent(self) -> None:
        """Leave the connections whose next reply nobody waits for any more: it may never come.

        They take no command more, and are closed when nobody waits for any reply of theirs.
        """
        for wire in tuple(self._wires):
            wire.leave_silent()

    def drop_idle(self) -> None:
        """Leave all connections: what was asked is answered, what comes goes over new ones."""
        for wire in tuple(self._wires):
            wire.leave()

    async def warm_up(self, commands: Sequence[Words]) -> None:
        """Run the commands, and make all connections. Raises RedisError and OSError."""
        made = [self._open() for _ in range(self._count - len(self._taking()))]
        if made:
            await asyncio.wait([wire.task for wire in made])
        for wire in made:
            if wire.failure is not None:
                raise wire.failure
        await asyncio.gather(*map(self.send, commands))

    async def close(self) -> None:
        """End what runs."""
        tasks = {wire.task for wire in self._wires}
        for wire in tuple(self._wires):
            wire.end(RedisConnectionError("the store is closed"))
        if tasks := tasks | self._closing:
            await asyncio.wait(tasks)

    # --- for its wires

    async def connect(self) -> AbstractConnection:
        """A connection of the pool, made and greeted."""
        return cast("AbstractConnection", await self._pool.get_connection())  # type: ignore[no-untyped-call]

    async def release(self, connection: AbstractConnection) -> None:
        """Give a connection, closed, back to the pool."""
        await self._pool.release(connection)

    def forget(self, wire: _Wire) -> None:
        """It is over."""
        self._wires.pop(wire, None)

    def watch(self, task: "asyncio.Task[None]") -> None:
        """A connection is being closed."""
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _flush(self) -> None:
        self._is_due = False
        batch = [entry for entry in self._waiting if not entry[1].done()]
        self._waiting.clear()
        if not batch:
            return
        # Replies that come together are read together, so the first that is not busy takes all.
        best = next((wire for wire in self._wires if wire.is_free), None)
        if best is None:
            # The least busy one that stands; one that is being made only where there is no other.
            taking = self._taking()
            best = min(taking, key=lambda wire: (not wire.is_up, wire.load), default=None)
            if best is None or (len(taking) < self._count and all(wire.is_up for wire in taking)):
                made = self._open()
                best = best or made
        best.send(batch)

    def _taking(self) -> list[_Wire]:
        return [wire for wire in self._wires if not wire.is_left]

    def _open(self) -> _Wire:
        wire = _Wire(self)
        self._wires[wire] = None
        self.watch(wire.task)
        return wire


def _give(future: "asyncio.Future[Any]", reply: Any) -> None:
    if future.done():
        return
    if isinstance(reply, BaseException):
        future.set_exception(reply)
    else:
        future.set_result(reply)
