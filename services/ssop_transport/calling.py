# cython: annotation_typing=False
"""One call on its way, and what became of it."""

import asyncio
import contextvars
from collections.abc import Awaitable, Coroutine
from typing import Final

from google.rpc import code_pb2

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Metadata, OnMessage, wait_within
from ssop_chassis.deadline import Alarm
from ssop_chassis.errors import MeshError, from_status
from ssop_transport import wire
from ssop_transport._block import Block
from ssop_transport._connection import Connection
from ssop_transport._stream import Stream

# Codes have two digits; int() refuses to read thousands of them.
_STATUS_DIGITS: Final = 4
# Of a call that no server looked at. One of which nothing was sent may be begun anew more often.
_REFUSALS: Final = 1


class Calling(Alarm):
    """A call on its way, from `start` to `leave`. Its task awaits what `advance` returns, until that is None."""

    __slots__ = ("_is_late", "_refusals", "_waiter", "stream")

    def __init__(self) -> None:
        self._set_out()

    def _set_out(self) -> None:
        self._set_in()
        self.stream: Stream | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._is_late = False
        self._refusals = 0

    def begin(self, connection: Connection, headers: wire.Pairs, request: bytes, is_packed: bool) -> None:
        """Send the request. Raises ConnectionError."""
        self.stream = None
        self.stream = connection.open(headers, self.news, request, is_packed)

    def remaining_s(self) -> float:
        """Time until the deadline."""
        return self.at_s - self.loop.time()

    def advance(self) -> Awaitable[None] | None:
        """What the call waits for, to be awaited at once; None when it is over. Raises MeshError when time is up."""
        self._hear()
        return None if self.is_over else self.await_news()

    def _hear(self) -> None:
        """What was awaited has come."""
        if self._waiter is not None:
            self._waiter = None
            self.check_time()

    def news(self) -> None:
        """Something happened on the stream."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def ring(self) -> None:
        """See Alarm.ring."""
        self._is_late = True
        self.news()

    def await_news(self) -> "asyncio.Future[None]":
        """What is done when there are news, or the time is up. Raises MeshError where it is up already."""
        # It may have been up before the call began, and then nothing would say so again.
        self.check_time()
        self._waiter = waiter = self.loop.create_future()
        return waiter

    def check_time(self) -> None:
        """Raise MeshError when time is up."""
        if self._is_late:
            raise MeshError(ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED, "Deadline Exceeded")

    @property
    def is_over(self) -> bool:
        """Nothing more comes."""
        return self.stream is None or self.stream.is_over

    def may_begin_anew(self) -> bool:
        """Whether no server can have begun it: the connection was lost before anything of it was sent, or the server
        never looked at it (RFC 9113, 8.7), which is taken for an answer the next time."""
        stream = self.stream
        if stream is None or not stream.error_code:
            return False
        if stream.error_code == wire.REFUSED_STREAM and stream.head is None:
            self._refusals += 1
            return self._refusals <= _REFUSALS
        return stream.error_code == wire.UNSENT

    def leave(self) -> None:
        """Stop the clock, and break the call off if it still runs."""
        self.stop()
        if self.stream is not None:
            self.stream.leave()
            # A server may end its answer before it has read the request, which nobody wants then.
            self.stream.reset()


class Streaming(Calling):
    """Hands each message over in the turn of the loop in which it came, in the context of the caller."""

    __slots__ = ("_context", "_on_message")

    def __init__(self, on_message: OnMessage) -> None:
        self._set_out()
        self._on_message = on_message
        self._context = contextvars.copy_context()

    def begin(self, connection: Connection, headers: wire.Pairs, request: bytes, is_packed: bool) -> None:
        """See Calling.begin."""
        Calling.begin(self, connection, headers, request, is_packed)
        if self.stream is not None:
            self.stream.pass_to(self._on_message, self._context)

    def advance(self) -> Awaitable[None] | None:
        """See Calling.advance: None once everything was handed over, too. Raises what the caller has raised."""
        self._hear()
        stream = self.stream
        if stream is None:
            return None
        stream.hand_over()
        if stream.fault is not None:
            raise stream.fault
        if stream.pending is not None:
            return self._await_taker(stream)
        return None if stream.is_over else self.await_news()

    async def _await_taker(self, stream: Stream) -> None:
        if stream.pending is not None:
            await wait_within(stream.pending, self.remaining_s())
            stream.pending = None

    def leave(self) -> None:
        """See Calling.leave."""
        Calling.leave(self)
        stream = self.stream
        if stream is None:
            return
        pending, stream.pending = stream.pending, None
        if pending is not None and isinstance(pending, Coroutine):
            # Its caller was cancelled in the turn in which it came: nobody waits for it any more.
            pending.close()


def judge(stream: Stream | None) -> Metadata:
    """Trailing metadata of a call that is over and went well. Raises MeshError for one that did not."""
    if stream is None:
        raise MeshError(ErrorReason.ERROR_REASON_INTERNAL, "a call that never began")
    tail = stream.tail
    if stream.failure or stream.is_truncated or tail is None or tail.meaning is None:
        return _judge_closely(stream, tail)
    found: Metadata = tail.meaning
    return found


def _judge_closely(stream: Stream, tail: Block | None) -> Metadata:
    _judge_head(stream)
    if stream.failure == "message_too_large":
        text = f"Received message larger than max ({stream.failed_bytes} bytes)"
        raise MeshError(ErrorReason.ERROR_REASON_MESSAGE_TOO_LARGE, text)
    if stream.failure:
        raise MeshError(ErrorReason.ERROR_REASON_INTERNAL, f"the answer can't be read: {stream.failure}")
    if tail is None:
        if stream.is_ended:
            raise MeshError(ErrorReason.ERROR_REASON_INTERNAL, "a call ended without a status")
        raise from_status(wire.status_of_reset(stream.error_code), f"the stream was reset: {stream.error_code}")
    metadata = _judge_tail(tail)
    if stream.is_truncated:
        raise MeshError(ErrorReason.ERROR_REASON_INTERNAL, "the answer ends in the middle of a message")
    # Kept of those alone that end a call well. One with a status is gRPC's, whatever the head.
    tail.meaning = metadata
    return metadata


def _judge_tail(tail: Block) -> Metadata:
    pairs = dict(tail.pairs)
    status = pairs.get(b"grpc-status", b"")
    if not status.isdigit() or len(status) > _STATUS_DIGITS:
        raise MeshError(ErrorReason.ERROR_REASON_INTERNAL, "a call ended without a status")
    try:
        metadata = wire.decode_metadata(tail.pairs)
    except wire.WireError as error:
        raise MeshError(ErrorReason.ERROR_REASON_INTERNAL, str(error)) from error
    if int(status) == code_pb2.OK:
        return metadata
    details = metadata.get(wire.STATUS_DETAILS)
    message = wire.decode_message(pairs.get(b"grpc-message", b""))
    raise from_status(int(status), message, details if isinstance(details, bytes) else None)


def _judge_head(stream: Stream) -> None:
    """What came in place of an answer in gRPC, such as the page of a proxy, is judged by its HTTP status."""
    headers = {} if stream.head is None else dict(stream.head.pairs)
    trailers = {} if stream.tail is None else dict(stream.tail.pairs)
    if not headers or wire.is_grpc(headers.get(b"content-type", b"")) or b"grpc-status" in trailers:
        return
    status = headers.get(b":status", b"")
    if status == b"200":
        raise MeshError(ErrorReason.ERROR_REASON_INTERNAL, "the answer is not gRPC's")
    raise from_status(wire.status_of_http(status), f"Received http2 header with status: {status.decode()}")
