# cython: annotation_typing=False
"""One call on its server, and the ways in which it ends."""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from typing import Any, Final

from google.rpc import code_pb2

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Metadata, Outlives
from ssop_chassis.deadline import running_loop
from ssop_chassis.dispatch import REQUEST_ID_METADATA, CallState
from ssop_chassis.errors import MeshError
from ssop_transport import compression, wire
from ssop_transport._stream import Stream
from ssop_transport.opening import Opening, Refusal

_log = logging.getLogger(__name__)


class NativeCall(CallState):
    """Server side of a call."""

    def __init__(self, opening: Opening, stream: Stream, peer: str, deadline_s: float, is_packing: bool) -> None:
        self._begin(opening, stream, peer, deadline_s, is_packing)

    def _begin(self, opening: Opening, stream: Stream, peer: str, deadline_s: float, is_packing: bool) -> None:
        method, metadata, request_id = opening.method, opening.metadata, stream.request_id
        if request_id is not None:
            metadata = {**metadata, REQUEST_ID_METADATA: request_id.decode("latin-1")}
        self._set_up(method.path, metadata, deadline_s)
        self._request: bytes | None = b"" if opening.is_bidi else None
        self.served = method
        self.stream = stream
        self.peer = peer
        self.is_unary = opening.is_unary
        self.task: asyncio.Task[None] | None = None
        self.has_begun = False
        self._outlives: Outlives | None = None
        self._is_packing = is_packing
        self._headers = _PACKING_HEADERS if is_packing else _PLAIN_HEADERS
        self._has_written = False
        self._answer: bytes | None = None
        self._is_answer_packed = False
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def request(self) -> bytes:
        """See Call.request. Read when it is asked for: unpacking costs much more than sending, so callers prove who
        they are first. Raises MeshError."""
        if self._request is None:
            self._request = self.stream.take()
            if self._request is None:
                raise unreadable(self.stream)
        return self._request

    def listen(self) -> None:
        """Hear of what comes from the client."""
        self.stream.listener = self.news

    def news(self) -> None:
        """Something happened on the stream."""
        if self.stream.is_closed:
            self.leave()
        elif self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def carry(self, work: Coroutine[Any, Any, None], outlives: Outlives) -> Awaitable[None]:
        """See Call.carry: in the call's own task, which then outlives the call."""
        self._outlives = outlives
        return work

    def leave(self) -> None:
        """The client went, or the server stops."""
        task, outlives = self.task, self._outlives
        if task is None:
            return
        if not self.has_begun:
            # A task that is cancelled before its first step never takes one.
            self.task = None
            return
        if outlives is None or not outlives(task):
            task.cancel()
            return
        self.task = None
        self.is_left = True
        self.stream.reset()

    def let_go(self) -> None:
        """Its work is done: nobody asks or is asked any more. Both may hold the call: circles are dear to collect."""
        self.task = self._outlives = None
        self.stream.leave()

    async def _wait(self) -> None:
        # A session reads and writes at the same time, so that there may be several who wait.
        waiter = running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    async def read(self) -> bytes | None:
        """See Call.read."""
        while (message := self.stream.take()) is None:
            if self.stream.failure or (self.stream.is_ended and self.stream.is_truncated):
                raise unreadable(self.stream)
            if self.stream.is_ended:
                return None
            await self._wait()
        return message

    async def write(self, message: bytes) -> None:
        """See Call.write."""
        if (pending := self.send(message)) is not None:
            await pending

    def send(self, message: bytes) -> Awaitable[None] | None:
        """See Call.send."""
        if self.is_unary and self._has_written:
            raise RuntimeError(f"{self.method} is unary: it writes one message")
        self._has_written = True
        is_packed = self._is_packing and len(message) >= compression.LEAST_BYTES
        if is_packed:
            message = compression.pack(message)
        if self.is_unary:
            # Its client does nothing with it before it knows the status: both go together.
            self._answer, self._is_answer_packed = message, is_packed
            return None
        stream = self.stream
        if not stream.has_responded:
            stream.respond(self._headers)
        stream.write(message, is_packed)
        return None if stream.has_room else self._wait_for_room()

    async def _wait_for_room(self) -> None:
        while not self.stream.has_room:
            await self._wait()

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        """See Call.send_initial_metadata."""
        self.stream.respond(wire.response_headers(metadata, is_packing=self._is_packing))

    def end(self, error: MeshError | None) -> None:
        """Send the trailers."""
        if error is None and self.is_unary and not self._has_written:
            error = MeshError(ErrorReason.ERROR_REASON_INTERNAL, "the handler wrote no response")
        try:
            if error is None:
                pairs = wire.trailers(code_pb2.OK, "", self.trailing) if self.trailing else _OK_TRAILERS
            else:
                pairs = failed(error, self.trailing)
        except wire.WireError:
            _log.exception("trailers that can't be sent", extra={"method": self.method})
            error = MeshError(ErrorReason.ERROR_REASON_INTERNAL, "internal error")
            pairs = failed(error)
        if self._answer is None or error is not None:
            finish(self.stream, pairs)
        else:
            self.stream.answer(self._headers, self._answer, self._is_answer_packed, pairs)


_PLAIN_HEADERS: Final = wire.response_headers({})
_PACKING_HEADERS: Final = wire.response_headers({}, is_packing=True)
_OK_TRAILERS: Final = wire.trailers(code_pb2.OK, "", {})


def failed(error: MeshError, trailing: Metadata | None = None) -> wire.Pairs:
    """Trailers of a call that ended badly."""
    details = {wire.STATUS_DETAILS: error.to_status().SerializeToString()}
    return wire.trailers(error.code, error.message, {**(trailing or {}), **details})


def finish(stream: Stream, pairs: wire.Pairs) -> None:
    """End a stream, of which nothing is told any more; with trailers alone where nothing was sent yet."""
    stream.leave()
    if stream.has_responded:
        stream.finish(pairs)
    else:
        stream.refuse([*_PLAIN_HEADERS, *pairs])


def refuse(stream: Stream, refusal: Refusal) -> None:
    """Answer to a head that nothing can be made of."""
    if refusal.error is None:
        stream.leave()
        stream.refuse([(b":status", refusal.http_status)])
    else:
        finish(stream, [*failed(refusal.error), *((wire.ACCEPTS,) if refusal.is_of_encoding else ())])


_FAILURES: Final = {
    "compressed": "a message is flagged as compressed, and no encoding was named",
    "flag_unknown": "a message has a flag that gRPC does not have",
    "damaged": "a compressed message can't be unpacked",
}


def unreadable(stream: Stream) -> MeshError:
    """What a client did wrong with its messages or headers."""
    if stream.failure == "message_too_large":
        text = f"Received message larger than max ({stream.failed_bytes} bytes)"
        return MeshError(ErrorReason.ERROR_REASON_MESSAGE_TOO_LARGE, text)
    if stream.failure == "metadata_too_large":
        text = f"metadata larger than max ({stream.failed_bytes} bytes)"
        return MeshError(ErrorReason.ERROR_REASON_MESSAGE_TOO_LARGE, text)
    if stream.failure == "no_room":
        text = "too many bytes of requests at once"
        return MeshError(ErrorReason.ERROR_REASON_OVERLOADED, text, retry_after_ms=1_000)
    if stream.failure:
        return MeshError(ErrorReason.ERROR_REASON_INTERNAL, _FAILURES.get(stream.failure, stream.failure))
    return MeshError(ErrorReason.ERROR_REASON_REQUEST_INVALID, "the stream ended in the middle of a message")


def too_many() -> MeshError:
    """For a call above a bound of the server."""
    return MeshError(ErrorReason.ERROR_REASON_OVERLOADED, "too many calls at once", retry_after_ms=1_000)
