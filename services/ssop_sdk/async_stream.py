"""A stream of frames from an async client."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import grpc
import grpc.aio

from ssop.v1.router_pb2 import GenerateRequest
from ssop_codec import Frame
from ssop_sdk.answer import Answer
from ssop_sdk.connection import error_of_rpc, read_trailers
from ssop_sdk.errors import SsopError
from ssop_sdk.receipts import ReceiptBook
from ssop_sdk.retry import RetryPolicy
from ssop_sdk.stream_base import StreamBase

R = TypeVar("R")

OpenAsyncCall = Callable[[float], Any]
"""Starts the call with so many seconds of time; returns gRPC's async call of chunk bytes."""


class AsyncStream(StreamBase, Generic[R]):
    """As `Stream`, for `async for` and `await stream.result()`.

    One task consumes it; a task that is cancelled meanwhile cancels the generation.
    """

    def __init__(
        self,
        open_call: OpenAsyncCall,
        answer: Answer,
        *,
        timeout_s: float,
        retry: RetryPolicy,
        receipts: ReceiptBook,
        random: Callable[[], float],
        carrier: GenerateRequest | None = None,
        holds_back: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        super().__init__(
            answer,
            timeout_s=timeout_s,
            retry=retry,
            receipts=receipts,
            carrier=carrier,
            holds_back=holds_back,
            clock=clock,
            random=random,
        )
        self._open_call = open_call
        self._sleep = sleep
        self._loop = asyncio.get_running_loop()
        self._call = open_call(timeout_s)

    def __del__(self) -> None:
        # grpc.aio goes on receiving for a call that nobody holds any more.
        if not getattr(self, "_is_over", True) and hasattr(self, "_call") and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._call.cancel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> AsyncIterator[Frame]:
        return self

    async def __anext__(self) -> Frame:
        while not self._has_frame():
            if self._is_over:
                raise self._error or StopAsyncIteration
            await self._advance()
        return self._pending.popleft()

    async def result(self) -> R:
        """See `Stream.result`."""
        while not self._is_over:
            await self._advance()
        if self._error is not None:
            raise self._error
        result: R = self._answer.load_result()
        return result

    def cancel(self) -> None:
        """Stop the generation now, everywhere. Whoever still iterates gets Cancelled."""
        self._is_cancelled = True
        self._call.cancel()

    def close(self) -> None:
        """Be done with the stream: cancels what still runs, raises nothing. Idempotent."""
        if not self._is_over:
            self.cancel()
            self._end(self._cancelled())

    async def _advance(self) -> None:
        """Take one chunk, or the end."""
        try:
            chunk = await self._read()
            if chunk is not None:
                self._pending.extend(self._answer.feed(chunk))
                return
            self._answer.finish(read_trailers(await self._call.trailing_metadata()))
        except SsopError as error:
            self._call.cancel()
            self._end(error)
        except BaseException:
            self.close()
            raise
        else:
            self._end(None)

    async def _read(self) -> bytes | None:
        while True:
            try:
                chunk = await self._call.read()
            except grpc.RpcError as failure:
                if self._is_cancelled:
                    raise self._cancelled() from failure
                error = self._answer.fail(error_of_rpc(failure, self.request_id))
                wait_s = self._wait_s(error)
                if wait_s is None:
                    raise error from failure
                await self._sleep(wait_s)
                self._call = self._open_call(self._begin_attempt(error))
            except asyncio.CancelledError:
                # grpc.aio raises this for its own cancelled calls too; only a cancelled task may swallow the reader.
                if not self._is_cancelled or self._task_is_cancelled():
                    raise
                raise self._cancelled() from None
            else:
                return None if chunk is grpc.aio.EOF else chunk

    @staticmethod
    def _task_is_cancelled() -> bool:
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
