"""Many requests on one stream, whose prompts may arrive in pieces."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, Unpack

import grpc

from ssop.v1 import router_pb2 as pb
from ssop_codec import Frame
from ssop_sdk.answer import Answer
from ssop_sdk.calls import answer_of
from ssop_sdk.configuration import Setup
from ssop_sdk.connection import error_of_rpc
from ssop_sdk.errors import DeadlineExceeded, ProtocolError, RequestDuplicate, SsopError, Unavailable
from ssop_sdk.messages import PromptLike
from ssop_sdk.receipts import ReceiptBook
from ssop_sdk.request import UNSET, GenerateOptions, Plan, Unset, plan_request
from ssop_sdk.retry import RetryPolicy, is_retryable
from ssop_sdk.schema import SchemaLike
from ssop_sdk.statuses import error_of_status
from ssop_sdk.stream_base import StreamBase

R = TypeVar("R")

CREDIT_BYTES: Final = 65_536
"""Bytes of chunks that the mesh may send of a request before this side has taken any."""
_MAX_CHUNK_BYTES: Final = 16_384
# The mesh's own verdict on a late request is better than ours, so it gets the time to arrive.
_DEADLINE_GRACE_S: Final = 1.0
_NO_RETRY: Final = RetryPolicy(max_retries=0)

_Event = bytes | SsopError | None
"""What the reader hands to a request: chunk bytes, an error, or None for a good end."""


class SessionStream(StreamBase, Generic[R]):
    """One request on a session, and its answer as frames.

    The prompt grows with `piece` until `commit`; after that it is an `AsyncStream` in all but name.
    """

    def __init__(self, session: "AsyncSession", plan: Plan, answer: Answer, *, is_complete: bool) -> None:
        super().__init__(
            answer,
            timeout_s=plan.timeout_s,
            retry=_NO_RETRY,
            receipts=ReceiptBook(),
            carrier=None,
            holds_back=not plan.streaming,
            clock=time.monotonic,
            random=lambda: 0.0,
        )
        self._session = session
        self._timeout_s = plan.timeout_s
        self._is_committed = is_complete
        self._events: asyncio.Queue[_Event] = asyncio.Queue()
        self._is_overrun = False
        self._unreturned_bytes = 0
        self._consumed_bytes = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Frame]:
        return self

    async def __anext__(self) -> Frame:
        while not self._has_frame():
            if self._is_over:
                raise self._error or StopAsyncIteration
            await self._advance()
        return self._pending.popleft()

    async def piece(self, text: str) -> None:
        """Append text to the last user message."""
        if self._is_committed:
            raise RuntimeError("the prompt is complete")
        self._deadline = self._clock() + self._timeout_s
        await self._send(pb.SessionRequest(request_id=self.request_id, piece=text))

    async def commit(self) -> None:
        """The prompt is complete: generate. A second commit does nothing."""
        if self._is_committed:
            return
        self._is_committed = True
        self._deadline = self._clock() + self._timeout_s
        await self._send(pb.SessionRequest(request_id=self.request_id, commit=pb.SessionCommit()))

    async def result(self) -> R:
        """See `Stream.result`."""
        while not self._is_over:
            await self._advance()
        if self._error is not None:
            raise self._error
        result: R = self._answer.load_result()
        return result

    async def cancel(self) -> None:
        """Stop this request; the session goes on. Whoever still iterates gets Cancelled."""
        if self._is_over or self._is_cancelled:
            return
        self._is_cancelled = True
        self._events.put_nowait(self._cancelled())
        await self._session.stop(self.request_id)

    async def close(self) -> None:
        """Be done with the request: cancels it if it still runs, raises nothing. Idempotent."""
        if not self._is_over:
            await self.cancel()
            self._end(self._cancelled())

    def deliver(self, event: _Event) -> None:
        """Take what the reader has for this request. What comes beyond the credit is its end."""
        if isinstance(event, bytes):
            self._unreturned_bytes += len(event)
            if self._unreturned_bytes > CREDIT_BYTES + _MAX_CHUNK_BYTES:
                if not self._is_overrun:
                    self._is_overrun = True
                    self._events.put_nowait(
                        ProtocolError("more was sent than credit was given", request_id=self.request_id)
                    )
                return
        self._events.put_nowait(event)

    async def _send(self, message: pb.SessionRequest) -> None:
        if self._is_over or self._is_cancelled:
            raise self._error or self._cancelled()
        await self._session.send(message)

    async def _advance(self) -> None:
        try:
            event = await self._next_event()
            if isinstance(event, bytes):
                self._pending.extend(self._answer.feed(event))
                await self._return_credit(len(event))
                return
            self._finish(event)
        except SsopError as error:
            await self._stop_with(error)
        except BaseException:
            await self.close()
            raise
        else:
            await self._stop_with(None)

    def _finish(self, error: SsopError | None) -> None:
        if error is not None:
            raise self._answer.fail(error)
        self._answer.finish({})

    async def _next_event(self) -> _Event:
        if not self._is_committed:
            # Before the commit only pieces move the deadline, and the session itself ends what nobody commits.
            return await self._events.get()
        try:
            async with asyncio.timeout(self._deadline + _DEADLINE_GRACE_S - self._clock()):
                return await self._events.get()
        except TimeoutError:
            raise DeadlineExceeded("the deadline passed", request_id=self.request_id) from None

    async def _return_credit(self, chunk_bytes: int) -> None:
        self._consumed_bytes += chunk_bytes
        if self._consumed_bytes < CREDIT_BYTES // 2:
            return
        returned_bytes, self._consumed_bytes = self._consumed_bytes, 0
        self._unreturned_bytes -= returned_bytes
        await self._session.give_credit(self.request_id, returned_bytes)

    async def _stop_with(self, error: SsopError | None) -> None:
        self._end(error)
        if error is not None:
            await self._session.stop(self.request_id)
        await self._session.file_receipts(self._receipts)


class AsyncSession:
    """Requests on one stream; made by `AsyncSsopClient.session`.

    ```python
    async with client.session() as session:
        stream = await session.begin("What is ")
        await stream.piece("the capital of France?")
        await stream.commit()
        answer = await stream.result()
    ```

    Requests are independent: an error ends its request only. Each has a credit of 64 KiB, given back as its frames
    are consumed, so a request that nobody reads holds up no other. Nothing on a session is ever repeated.
    """

    def __init__(
        self,
        open_call: Callable[[], Any],
        setup: Setup,
        receipts: ReceiptBook,
        *,
        max_requests: int,
        on_lost: Callable[[], None],
    ) -> None:
        self._open_call = open_call
        self._on_lost = on_lost
        self._setup = setup
        self._receipts = receipts
        self._slots = asyncio.Semaphore(max_requests)
        self._writing = asyncio.Lock()
        self._streams: dict[str, SessionStream[Any]] = {}
        self._call: Any = None
        self._reader: asyncio.Task[None] | None = None
        self._error: SsopError | None = None

    async def __aenter__(self) -> Self:
        self._call = self._open_call()
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def begin(
        self,
        prompt: PromptLike,
        *,
        output_schema: "SchemaLike | Unset" = UNSET,
        is_complete: bool = False,
        **options: Unpack[GenerateOptions],
    ) -> SessionStream[Any]:
        """Open a request with what is known of its prompt; waits while `max_requests` are in flight.

        With `is_complete` no piece and no commit follow. Other arguments are those of `generate`.
        """
        plan = plan_request(self._setup.defaults, prompt, output_schema, options=options)
        request_id = plan.request.request_id
        if request_id in self._streams:
            raise RequestDuplicate("the session has a request of this id", request_id=request_id)
        plan.request.timeout_ms = max(1, round(plan.timeout_s * 1000))
        await self._slots.acquire()
        stream: SessionStream[Any] = SessionStream(self, plan, answer_of(plan), is_complete=is_complete)
        self._streams[request_id] = stream
        plan.request.receipts.extend(self._receipts.take())
        begin = pb.SessionBegin(request=plan.request, is_complete=is_complete, initial_credit_bytes=CREDIT_BYTES)
        try:
            await self.send(pb.SessionRequest(request_id=request_id, begin=begin))
        except BaseException:
            self._receipts.add(*plan.request.receipts)
            self._forget(request_id)
            raise
        return stream

    async def close(self) -> None:
        """End the session; what still runs is cancelled. Idempotent."""
        if self._call is None:
            return
        self._call.cancel()
        if self._reader is not None:
            await asyncio.wait([self._reader])

    async def send(self, message: pb.SessionRequest) -> None:
        """Send one message; used by the requests. Raises the error that ended the session."""
        if self._call is None:
            raise RuntimeError("the session is not open; use `async with`")
        async with self._writing:
            if self._error is not None:
                raise self._error
            try:
                await self._call.write(message)
            except (grpc.RpcError, asyncio.InvalidStateError) as failure:
                raise await self._reason_of_end(failure) from failure

    async def give_credit(self, request_id: str, credit_bytes: int) -> None:
        """Let the mesh send more of a request, if it still sends; used by the requests."""
        if request_id not in self._streams:
            return
        try:
            await self.send(pb.SessionRequest(request_id=request_id, credit=pb.SessionCredit(bytes=credit_bytes)))
        except SsopError:
            # What has arrived is still good, and the reader hands over the end of the session behind it.
            return

    async def _reason_of_end(self, failure: Exception) -> SsopError:
        """Why the session is over: a failed write says only that it is, the reader knows the status."""
        if self._reader is not None:
            await asyncio.wait([self._reader], timeout=_DEADLINE_GRACE_S)
        if self._error is not None:
            return self._error
        return Unavailable(f"a write to the session failed: {type(failure).__name__}")

    async def stop(self, request_id: str) -> None:
        """Cancel a request if it still runs; used by the requests."""
        if request_id not in self._streams:
            return
        self._forget(request_id)
        try:
            await self.send(pb.SessionRequest(request_id=request_id, cancel=pb.SessionCancel()))
        except SsopError:
            # The session is over, and the request with it.
            return

    async def file_receipts(self, book: ReceiptBook) -> None:
        """Send receipts of requests that have ended, or keep them for the client's next call."""
        for receipt in book.take():
            try:
                await self.send(pb.SessionRequest(request_id=receipt.request_id, receipt=receipt))
            except SsopError:
                self._receipts.add(receipt)

    def _forget(self, request_id: str) -> SessionStream[Any] | None:
        stream = self._streams.pop(request_id, None)
        if stream is not None:
            self._slots.release()
        return stream

    async def _read(self) -> None:
        error: SsopError = Unavailable("the session is over")
        try:
            async for response in self._call:
                self._dispatch(response)
        except grpc.RpcError as failure:
            error = error_of_rpc(failure)
            if self._writing.locked() and error.code is grpc.StatusCode.INTERNAL and not error.from_mesh:
                # grpc.aio puts INTERNAL in the place of the call's status when a write meets the end of the call.
                error = Unavailable("the session ended while this side wrote, and its status is lost")
            if is_retryable(error):
                self._on_lost()
        finally:
            # Also when the session was closed here: whoever waits must hear of it.
            self._error = error
            for request_id in list(self._streams):
                stream = self._forget(request_id)
                if stream is not None:
                    stream.deliver(error)

    def _dispatch(self, response: pb.SessionResponse) -> None:
        request_id = response.request_id
        stream = self._streams.get(request_id)
        if stream is None:
            # The tail of a request that was cancelled here.
            return
        if response.WhichOneof("message") == "chunk":
            stream.deliver(response.chunk.SerializeToString())
        elif response.WhichOneof("message") == "finished":
            self._forget(request_id)
            status = response.finished.status
            if status.code == 0:
                stream.deliver(None)
            else:
                stream.deliver(
                    error_of_status(status.code, status.message, status.SerializeToString(), request_id=request_id)
                )
