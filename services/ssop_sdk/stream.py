"""A stream of frames from a sync client."""

import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import grpc

from ssop.v1.router_pb2 import GenerateRequest
from ssop_codec import Frame
from ssop_sdk.answer import Answer
from ssop_sdk.connection import error_of_rpc, read_trailers
from ssop_sdk.errors import SsopError
from ssop_sdk.receipts import ReceiptBook
from ssop_sdk.retry import RetryPolicy
from ssop_sdk.stream_base import StreamBase

R = TypeVar("R")

OpenCall = Callable[[float], Any]
"""Starts the call with so many seconds of time; returns gRPC's iterator of chunk bytes."""


class Stream(StreamBase, Generic[R]):
    """The answer to one request, as frames: iterate over it, or ask for `result()`.

    ```python
    with client.generate("...", output_schema=SCHEMA) as stream:
        for frame in stream:
            print(frame.path, frame.value)
        answer = stream.result()
    ```

    Frames are the codec's: `delta` holds the top-level properties that a frame completes, whole; `path`, `value`
    and `is_part` say the rest. A field that is acted on before the stream has ended is acted on provisionally: the
    verdict comes last, and a bad one is raised as OutputInvalid or OutputIncomplete when the frames are used up.

    One thread consumes a stream; `cancel` may be called from any. To stop early without an error leave the `with`
    block, or call `close`.
    """

    def __init__(
        self,
        open_call: OpenCall,
        answer: Answer,
        *,
        timeout_s: float,
        retry: RetryPolicy,
        receipts: ReceiptBook,
        random: Callable[[], float],
        carrier: GenerateRequest | None = None,
        holds_back: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Any] | None = None,
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
        self._was_cancelled = threading.Event()
        self._sleep = sleep or self._was_cancelled.wait
        self._call = open_call(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Frame]:
        return self

    def __next__(self) -> Frame:
        while not self._has_frame():
            if self._is_over:
                raise self._error or StopIteration
            self._advance()
        return self._pending.popleft()

    def result(self) -> R:
        """Wait for the end and return the whole: a dict (or what the schema's root is), or the Pydantic model.

        A str where no schema was given. Raises what iterating raises; and pydantic.ValidationError where the model
        has rules of its own that the answer breaks.
        """
        while not self._is_over:
            self._advance()
        if self._error is not None:
            raise self._error
        result: R = self._answer.load_result()
        return result

    def cancel(self) -> None:
        """Stop the generation now, everywhere. Whoever still iterates gets Cancelled."""
        self._is_cancelled = True
        self._was_cancelled.set()
        self._call.cancel()

    def close(self) -> None:
        """Be done with the stream: cancels what still runs, raises nothing. Idempotent."""
        if not self._is_over:
            self.cancel()
            self._end(self._cancelled())

    def _advance(self) -> None:
        """Take one chunk, or the end."""
        try:
            chunk = self._read()
            if chunk is not None:
                self._pending.extend(self._answer.feed(chunk))
                return
            self._answer.finish(read_trailers(self._call.trailing_metadata()))
        except SsopError as error:
            self._call.cancel()
            self._end(error)
        except BaseException:
            self.close()
            raise
        else:
            self._end(None)

    def _read(self) -> bytes | None:
        while True:
            try:
                chunk: bytes | None = next(self._call, None)
            except grpc.RpcError as failure:
                if self._is_cancelled:
                    raise self._cancelled() from failure
                error = self._answer.fail(error_of_rpc(failure, self.request_id))
                wait_s = self._wait_s(error)
                if wait_s is None:
                    raise error from failure
                self._sleep(wait_s)
                self._call = self._open_call(self._begin_attempt(error))
            else:
                return chunk
