"""A generation on a model server, as its caller sees it."""

import asyncio
from collections.abc import Sequence
from typing import Final

from ssop_chassis.errors import MeshError
from ssop_inference.core.budget import Budget
from ssop_inference.core.throughput import ThroughputMeter
from ssop_inference.core.tokens import Outcome, Stop, Token
from ssop_inference.slots import Slot
from ssop_inference.token_stream import MAX_BUFFERED_TOKENS
from ssop_inference.wire import Reader

# No text has more on average: the longest tokens of common vocabularies are words.
_MOST_BYTES_PER_TOKEN: Final = 8


class UpstreamGeneration:
    """See `backend.Generation`."""

    def __init__(self, reader: Reader, budget: Budget, slot: Slot, meter: ThroughputMeter) -> None:
        self.reader = reader
        self._budget = budget
        self._meter = meter
        self._loop = asyncio.get_running_loop()
        self._tokens: list[Token] = []
        self._text_bytes = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._error: MeshError | None = None
        self._is_over = False
        self._is_metered = False
        self._stop = Stop.CANCELLED
        self.task: asyncio.Task[None] | None = None
        self.queue_s = slot.queue_s

    @property
    def outcome(self) -> Outcome:
        """See `backend.Generation`."""
        counts = self.reader.counts
        is_said = counts.input_tokens is not None and counts.output_tokens is not None
        # A server may count the last tokens only after it has sent them.
        output = max(counts.output_tokens or 0, 0 if self._is_counted else self.reader.pieces)
        return Outcome(
            self._stop,
            self._budget.input_tokens if counts.input_tokens is None else counts.input_tokens,
            output,
            counts.cached_input_tokens,
            is_estimated=not is_said,
        )

    @property
    def is_over(self) -> bool:
        """See `backend.Generation`."""
        return self._is_over

    @property
    def _is_counted(self) -> bool:
        return self._is_over and self._stop is not Stop.CANCELLED and self.reader.counts.output_tokens is not None

    async def read(self) -> Sequence[Token]:
        """See `backend.Generation`."""
        while True:
            if self._tokens:
                tokens, self._tokens = self._tokens, []
                self._room.set()
                self._count(tokens)
                return tokens
            if self._error is not None:
                raise self._error
            if self._is_over:
                return []
            await self._changed.wait()
            self._changed.clear()

    def cancel(self) -> None:
        """See `backend.Generation`."""
        # After the end the task reads the rest of the body, which is next to nothing, so that the connection is kept.
        if self.task is not None and not self._is_over:
            self.task.cancel()

    async def push(self, tokens: Sequence[Token]) -> None:
        """Hand tokens over; waits while nobody takes them."""
        self._tokens += tokens
        self._text_bytes += sum(len(token.text) for token in tokens)
        self._changed.set()
        while len(self._tokens) >= MAX_BUFFERED_TOKENS:
            self._room.clear()
            await self._room.wait()

    @property
    def is_too_long(self) -> bool:
        """The server goes on beyond the limit that it was given, by its pieces and by its bytes."""
        limit = self._budget.max_output_tokens
        return self.reader.pieces > limit and self._text_bytes > limit * _MOST_BYTES_PER_TOKEN

    def finish(self, error: MeshError | None = None) -> None:
        """No more tokens come. The first call counts."""
        if not self._is_over:
            self._is_over = True
            self._error = error
            self._settle()
        self._changed.set()

    def complete(self, stop: Stop) -> None:
        """The model stopped by itself."""
        if not self._is_over:
            is_full = stop is Stop.OUTPUT_LIMIT and self._budget.is_context_bound
            self._stop = Stop.CONTEXT_FULL if is_full else stop
        self.finish()

    def _count(self, tokens: Sequence[Token]) -> None:
        if self._is_over and not self._is_metered:
            return
        now_s = self._loop.time()
        if not self._is_metered:
            self._is_metered = True
            self._meter.start(now_s)
        self._meter.add(len(tokens), now_s)

    def _settle(self) -> None:
        if self._is_metered:
            self._is_metered = False
            self._meter.stop(self._loop.time())
