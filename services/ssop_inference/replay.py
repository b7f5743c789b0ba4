# cython: annotation_typing=False
"""The `replay` backend: recorded token streams, played with their timing. For tests and benchmarks, and named so.

A recording is JSON lines (docs/backends.md). Each line is one stream; they are played in turn, whatever is asked, with
pauses that are rounded up to two milliseconds and do not add up:

    {"tokens": [[WAIT_MS, TEXT], [WAIT_MS, TEXT, LOGPROB], ...], "stop": "end", "input_tokens": 12}

`stop` is `end`, `output_limit`, `context_full` or `content_filter`, or `failed`: the stream then breaks with
BACKEND_FAILED. `match` (optional) plays a line only for prompts whose last message holds that text.
"""

import asyncio
import json
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import accumulate, cycle
from pathlib import Path
from typing import Any, Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_inference.backend import Capabilities, GenerateRequest, Load, Outcome, Stop, Token
from ssop_inference.core.constraint import Constraint, Mode
from ssop_inference.core.prompt import ChatMessage, ControlTokens
from ssop_inference.core.throughput import ThroughputMeter
from ssop_inference.core.upstream_counts import estimate_tokens
from ssop_inference.slots import Slot, SlotQueue
from ssop_inference.wheel import Wheel

FAILED: Final = "failed"
_STOPS: Final = {stop.value: stop for stop in Stop if stop is not Stop.CANCELLED}
_MAX_BYTES: Final = 256 << 20
_CONTEXT_TOKENS: Final = 1 << 20
_MAX_WAIT_S: Final = 3600.0


class RecordingError(Exception):
    """A recording that can't be played; the text says which line and why."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One stream. `at_s` is when each token comes, from the beginning on; `stop` None: it breaks."""

    tokens: tuple[Token, ...]
    at_s: tuple[float, ...]
    stop: Stop | None = Stop.END
    input_tokens: int = 0
    match: str = ""


NOTHING: Final = Recorded((), ())
"""What is played while nothing was chosen."""


def read_recording(path: Path) -> tuple[Recorded, ...]:
    """The streams of a file, at least one. Raises RecordingError."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise RecordingError(f"{path} has more than {_MAX_BYTES >> 20} MiB")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(f"{path} can't be read: {error}") from error
    streams = [_parse(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not streams:
        raise RecordingError(f"{path} holds no stream")
    return tuple(streams)


def _parse(line: str, where: str) -> Recorded:
    try:
        entry = json.loads(line)
        stop = entry.get("stop", "end")
        tokens = tuple(Token(text.encode(), *logprob) for _, text, *logprob in entry["tokens"])
        waits_s = tuple(float(wait_ms) / 1000 for wait_ms, *_ in entry["tokens"])
        known = None if stop == FAILED else _STOPS[stop]
        at_s = tuple(accumulate(waits_s))
        recorded = Recorded(tokens, at_s, known, int(entry.get("input_tokens", 0)), str(entry.get("match", "")))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RecordingError(f"{where} is no recorded stream: {error!r}") from error
    if not all(0 <= wait_s <= _MAX_WAIT_S for wait_s in waits_s):
        raise RecordingError(f"{where} waits for less than nothing, or more than an hour")
    return recorded


class ReplayGeneration:
    """See `backend.Generation`. Entering waits for a slot."""

    def __init__(self, backend: "ReplayBackend", request: GenerateRequest) -> None:
        self._backend = backend
        self._clock = backend.clock
        self._request = request
        self._recorded = NOTHING
        self._slot: Slot | None = None
        self._waiting: asyncio.Future[bool] | None = None
        self._is_cancelled = False
        self._next = 0
        self._stop = Stop.CANCELLED
        self._input_tokens = 0
        self._started_s = 0.0
        self.queue_s = 0.0

    async def __aenter__(self) -> "ReplayGeneration":
        backend, request = self._backend, self._request
        queue = backend.queue
        slot = queue.take_free() or await queue.take(priority=request.priority, deadline_s=request.deadline_s)
        try:
            self._recorded = recorded = backend.choose(request.messages)
        except MeshError:
            slot.release()
            raise
        self._slot = slot
        self.queue_s = slot.queue_s
        self._input_tokens = recorded.input_tokens or estimate_tokens(request.messages)
        self._started_s = now_s = self._clock()
        backend.meter.start(now_s)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._slot is not None:
            self._backend.meter.stop(self._clock())
            self._slot.release()

    @property
    def outcome(self) -> Outcome:
        """See `backend.Generation`."""
        return Outcome(self._stop, self._input_tokens, self._next, 0, not self._recorded.input_tokens)

    @property
    def is_over(self) -> bool:
        """See `backend.Generation`. Tokens whose time has come are there, whoever reads them when."""
        at_s = self._recorded.at_s
        return self._next == len(at_s) or self._is_cancelled or (at_s[-1] <= self._clock() - self._started_s)

    async def read(self) -> Sequence[Token]:
        """See `backend.Generation`. Tokens that are due together come together, as from an engine."""
        tokens, at_s = self._recorded.tokens, self._recorded.at_s
        first = self._next
        if first < len(tokens):
            due_s = self._started_s + at_s[first]
            if due_s > self._clock() and not self._is_cancelled:
                self._waiting = self._backend.wheel.wait_until(due_s)
                await self._waiting
            elif first:
                # Others have their turn, whatever the speed of the recording.
                await asyncio.sleep(0)
        if self._is_cancelled:
            return []
        if first == len(tokens):
            if self._recorded.stop is None:
                raise MeshError(ErrorReason.ERROR_REASON_BACKEND_FAILED, "the recorded stream breaks here")
            self._stop = self._recorded.stop
            return []
        now_s = self._clock()
        self._next = after = bisect_right(at_s, now_s - self._started_s, first + 1)
        self._backend.meter.add(after - first, now_s)
        return tokens[first:after]

    def cancel(self) -> None:
        """See `backend.Generation`."""
        self._is_cancelled = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(False)


class ReplayBackend:
    """See `backend.Backend`. Holds no model to any schema: its mode is `envelope`."""

    def __init__(
        self,
        name: str,
        recording: Sequence[Recorded],
        *,
        slots: int = 4,
        max_waiting: int = 64,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change` is called when `load_now` changes."""
        self.name = name
        self.control = ControlTokens()
        has_logprobs = all(token.logprob is not None for recorded in recording for token in recorded.tokens)
        self.capabilities = Capabilities(_CONTEXT_TOKENS, slots, has_logprobs=has_logprobs, kind="replay")
        self._recording = recording
        self._turns = cycle(range(len(recording)))
        self.meter = ThroughputMeter()
        loop = asyncio.get_running_loop()
        self.clock = loop.time
        self.wheel = Wheel(loop)
        self.queue = SlotQueue(slots, max_waiting=max_waiting, clock=self.clock, on_change=on_change)

    async def load(self) -> None:
        """See `backend.Backend`."""

    def load_now(self) -> Load:
        """See `backend.Backend`."""
        return Load(self.queue.busy, self.queue.waiting, self.queue.queue_s, self.meter.tokens_per_s)

    def constrain(self, schema: Any, *, format_assertion: bool) -> Constraint:  # noqa: ARG002 - the port's
        """See `backend.Backend`."""
        return Constraint(Mode.ENVELOPE, detail="a recording is held to no schema")

    def generate(self, request: GenerateRequest) -> AbstractAsyncContextManager[ReplayGeneration]:
        """See `backend.Backend`."""
        return ReplayGeneration(self, request)

    def choose(self, messages: Sequence[ChatMessage]) -> Recorded:
        """The stream whose turn it is. Raises BACKEND_FAILED where none matches."""
        text = messages[-1].content if messages else ""
        for _ in self._recording:
            recorded = self._recording[next(self._turns)]
            if recorded.match in text:
                return recorded
        raise MeshError(ErrorReason.ERROR_REASON_BACKEND_FAILED, "no recorded stream matches the prompt")

    def check_grammar(self, grammar: str) -> str:  # noqa: ARG002 - the port's
        """See `backend.Backend`."""
        return "recordings are held to nothing"

    async def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """See `backend.Backend`."""
        return estimate_tokens(messages)

    async def close(self) -> None:
        """See `backend.Backend`."""
