"""A channel in the shape of grpc.aio's, on the native transport: what the SDK's async client makes its calls on.

It has what that client asks of a channel, for plain targets: unary calls and streams of the server. Sessions need both
directions, and are gRPC's.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import grpc
import grpc.aio

from ssop_chassis.errors import MeshError
from ssop_transport.client import NativePeer, connect
from ssop_transport.wire import STATUS_DETAILS

_MAX_UNREAD: Final = 64
"""Messages of a call that nobody has taken; beyond it the server waits."""
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}

Serialize = Callable[[Any], bytes]
Pairs = Iterable[tuple[str, str]]


class ChannelError(grpc.RpcError):
    """How a call ended, in the words of grpc.RpcError."""

    def __init__(self, error: MeshError) -> None:
        super().__init__(error.message)
        self._error = error

    def code(self) -> grpc.StatusCode:
        """The status."""
        return _CODES[self._error.code]

    def details(self) -> str:
        """What the peer says, or the transport."""
        return self._error.message

    def trailing_metadata(self) -> Any:
        """What the peer added to the status; empty where it never came to one."""
        details = self._error.details
        return () if details is None else ((STATUS_DETAILS, details),)


class StreamCall:
    """A call whose answer streams, for one reader."""

    def __init__(self, peer: NativePeer, method: str, request: bytes, timeout_s: float, metadata: Pairs) -> None:
        self._loop = asyncio.get_running_loop()
        self._unread: deque[bytes] = deque()
        self._news: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._task = self._loop.create_task(
            peer.stream(method, request, self._take, timeout_s=timeout_s, metadata=dict(metadata))
        )
        self._task.add_done_callback(self._ended)

    async def read(self) -> Any:
        """The next message, or `grpc.aio.EOF`. Raises ChannelError, and CancelledError once it was cancelled."""
        while not self._unread:
            if self._task.done():
                await self.trailing_metadata()
                return grpc.aio.EOF
            self._news = self._loop.create_future()
            try:
                await self._news
            finally:
                self._news = None
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        return self._unread.popleft()

    async def trailing_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """Trailers of a call that ended well. Raises as `read`."""
        try:
            return tuple((await self._task).items())
        except MeshError as error:
            raise ChannelError(error) from error

    def cancel(self) -> bool:
        """Break it off, where it still runs; what was not read is dropped."""
        self._unread.clear()
        return self._task.cancel()

    def _take(self, message: bytes) -> Awaitable[None] | None:
        self._unread.append(message)
        self._tell()
        if len(self._unread) < _MAX_UNREAD:
            return None
        self._room = self._loop.create_future()
        return self._room

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        if not task.cancelled():
            # Looked at, so that an error that nobody reads is not reported when the call is dropped.
            task.exception()
        self._tell()


class NativeChannel:
    """One connection, made with the first call, and again whenever it is lost. Belongs to the loop that first calls."""

    def __init__(self, address: str) -> None:
        self._peer = connect(address)

    def unary_stream(self, method: str, request_serializer: Serialize) -> Callable[..., StreamCall]:
        """As `grpc.aio.Channel.unary_stream`; messages of the answer are bytes."""

        def call(request: Any, *, timeout: float, metadata: Pairs = ()) -> StreamCall:
            return StreamCall(self._peer, method, request_serializer(request), timeout, metadata)

        return call

    def unary_unary(
        self, method: str, request_serializer: Serialize, response_deserializer: Callable[[bytes], Any]
    ) -> Callable[..., Awaitable[Any]]:
        """As `grpc.aio.Channel.unary_unary`."""

        async def call(request: Any, *, timeout: float, metadata: Pairs = ()) -> Any:
            try:
                answer = await self._peer.unary(
                    method, request_serializer(request), timeout_s=timeout, metadata=dict(metadata)
                )
            except MeshError as error:
                raise ChannelError(error) from error
            return response_deserializer(answer)

        return call

    def stream_stream(self, *_: Any) -> Any:
        """Raises NotImplementedError: sessions are gRPC's."""
        raise NotImplementedError("the native channel has no sessions; use a client without open_channel")

    async def close(self) -> None:
        """Drop the connection; calls that run end with an error."""
        await self._peer.close()
