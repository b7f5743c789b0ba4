"""Many requests on one channel, with a bound on how many are in flight."""

import asyncio
import collections
import threading
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from typing import Any, Final, Protocol

from ssop_sdk.errors import Cancelled, SsopError

# What one item can do wrong by itself: pydantic.ValidationError is a ValueError.
_ITEM_ERRORS: Final = (SsopError, ValueError, TypeError)

# In order, results wait behind a slow one; so many batches of them are kept meanwhile, so that its followers run on.
_WINDOW_BATCHES: Final = 4


class Cancellable(Protocol):
    """What a batch stops when it is given up."""

    def cancel(self) -> None:
        """Stop now; may be called from any thread."""
        ...


RunItem = Callable[[Any, Callable[[Cancellable], None]], Any]
"""Runs one item to its result; calls back with its stream, so that it can be cancelled."""


class _Running:
    """The streams of a batch that run; safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: dict[int, Cancellable] = {}
        self._is_stopped = False

    def run(self, index: int, item: Any, run: RunItem) -> Any:
        try:
            return run(item, lambda stream: self._register(index, stream))
        finally:
            with self._lock:
                self._streams.pop(index, None)

    def _register(self, index: int, stream: Cancellable) -> None:
        with self._lock:
            self._streams[index] = stream
            if self._is_stopped:
                stream.cancel()

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            for stream in self._streams.values():
                stream.cancel()


def _outcome(future: "Future[Any] | asyncio.Task[Any]", return_errors: bool) -> Any:
    try:
        return future.result()
    except CancelledError:
        return Cancelled("the batch was given up")
    except _ITEM_ERRORS as error:
        if not return_errors:
            raise
        return error


def run_batch(
    run: RunItem,
    items: Iterable[Any],
    *,
    batch_size: int,
    as_completed: bool,
    return_errors: bool,
) -> Iterator[Any]:
    """Run items on `batch_size` threads. Leaving the iterator cancels what runs and waits for it to stop."""
    running = _Running()
    source = enumerate(items)
    window = batch_size if as_completed else batch_size * _WINDOW_BATCHES
    waiting: collections.OrderedDict[Future[Any], int] = collections.OrderedDict()
    pool = ThreadPoolExecutor(batch_size, thread_name_prefix="ssop-batch")
    try:
        while True:
            while len(waiting) < window:
                pair = next(source, None)
                if pair is None:
                    window = 0
                    break
                waiting[pool.submit(running.run, *pair, run)] = pair[0]
            if not waiting:
                return
            if not as_completed:
                future, _ = waiting.popitem(last=False)
                yield _outcome(future, return_errors)
                continue
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                yield waiting.pop(future), _outcome(future, return_errors)
    finally:
        running.stop()
        pool.shutdown(wait=True, cancel_futures=True)


async def _aiter(items: "Iterable[Any] | AsyncIterable[Any]") -> AsyncIterator[Any]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


async def run_batch_async(
    run: Callable[[Any], Awaitable[Any]],
    items: "Iterable[Any] | AsyncIterable[Any]",
    *,
    batch_size: int,
    as_completed: bool,
    return_errors: bool,
) -> AsyncIterator[Any]:
    """Run items as tasks, `batch_size` at a time. Closing the iterator cancels what runs and waits for it to stop."""
    slots = asyncio.Semaphore(batch_size)
    source = _aiter(items)
    window = batch_size if as_completed else batch_size * _WINDOW_BATCHES
    waiting: collections.OrderedDict[asyncio.Task[Any], int] = collections.OrderedDict()
    index = 0

    async def work(item: Any) -> Any:
        async with slots:
            return await run(item)

    try:
        while True:
            while len(waiting) < window:
                try:
                    item = await anext(source)
                except StopAsyncIteration:
                    window = 0
                    break
                waiting[asyncio.create_task(work(item))] = index
                index += 1
            if not waiting:
                return
            if not as_completed:
                task = next(iter(waiting))
                await asyncio.wait([task])
                del waiting[task]
                yield _outcome(task, return_errors)
                continue
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield waiting.pop(task), _outcome(task, return_errors)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
