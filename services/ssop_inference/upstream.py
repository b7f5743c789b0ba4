"""A model behind a model server: one backend, whatever the server speaks (`Wire`).

A task for each generation reads the server's stream into a bounded buffer. Cancelling it closes the connection, which
is what frees the server; the slot here is free when the connection is closed.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_chassis.logs import describe
from ssop_inference.backend import Capabilities, GenerateRequest, Load
from ssop_inference.core.budget import Budget, fit_budget
from ssop_inference.core.constraint import Constraint
from ssop_inference.core.prompt import IMAGE, TOOLS, ChatMessage, ControlTokens
from ssop_inference.core.throughput import ThroughputMeter
from ssop_inference.core.tokens import Stop
from ssop_inference.core.upstream_counts import estimate_text, estimate_tokens, most_tokens
from ssop_inference.core.upstream_errors import WireError
from ssop_inference.slots import Slot, SlotQueue
from ssop_inference.upstream_generation import UpstreamGeneration
from ssop_inference.upstream_http import CONNECT, UpstreamHttp
from ssop_inference.wire import Reader, ServerFacts, ServerLoad, Wire

# What may come after the reason to stop: the counts; and after these, the end of the body.
_TAIL_S: Final = 2.0
_END_S: Final = 0.2
# The caller ends a generation at its deadline; the task outlives it by no more than this.
_DEADLINE_MARGIN_S: Final = 0.5
_NO_SUCH_PAGE: Final = frozenset({"404", "405", "501"})
# So often in a row nobody listens before the server counts as gone.
_LOST_AFTER: Final = 3
_REACH_PERIODS: Final = 2
_UNKNOWN_CONTEXT_TOKENS: Final = 8_192
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UpstreamOptions:
    """How a server is used. `context_tokens` 0: what the server says."""

    context_tokens: int = 0
    slots: int = 4
    has_images: bool = False
    max_waiting: int = 64
    max_output_tokens: int = 512
    first_token_timeout_s: float = 30.0
    stall_timeout_s: float = 10.0
    page_timeout_s: float = 5.0
    load_timeout_s: float = 60.0
    load_period_s: float = 1.0


class _Heard(NamedTuple):
    """Requests of others on the server, when it was asked last."""

    running: int
    waiting: int
    at_s: float
    kv_used_ratio: float | None = None


def _without(load: ServerLoad, own: int) -> _Heard:
    """What a server says, less this node's own requests; those of them that do not run wait."""
    own_waiting = max(0, own - load.running)
    return _Heard(max(0, load.running - own), max(0, load.waiting - own_waiting), load.at_s, load.kv_used_ratio)


class UpstreamBackend:
    """See `backend.Backend`. Belongs to one event loop."""

    def __init__(
        self,
        name: str,
        wire: Wire,
        http: UpstreamHttp,
        options: UpstreamOptions,
        *,
        on_change: Callable[[], None] = lambda: None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change` is called when `load_now` changes; `on_lost` when nobody listens at the server any more."""
        self.name = name
        self.control = ControlTokens()
        self.facts = ServerFacts()
        self.wire = wire
        self._http = http
        self._options = options
        self._on_change = on_change
        self._on_lost = on_lost
        self._clock = asyncio.get_running_loop().time
        self._queue = SlotQueue(options.slots, max_waiting=options.max_waiting, clock=self._clock, on_change=on_change)
        self._meter = ThroughputMeter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch: asyncio.Task[None] | None = None
        self._heard: _Heard | None = None
        self._is_closed = False

    @property
    def capabilities(self) -> Capabilities:
        """See `backend.Backend`."""
        facts = self.facts
        return Capabilities(
            self._context_tokens,
            self._options.slots,
            has_logprobs=facts.has_logprobs,
            strictest_mode=facts.strictest_mode,
            features=self._features,
            has_tools_with_schema=facts.has_tools_with_schema,
            has_marked_calls=facts.has_marked_calls and not facts.has_tools,
            has_prefill=facts.has_prefill,
            kind=self.wire.dialect_name,
            has_estimated_counts=not facts.has_usage,
        )

    @property
    def generations(self) -> int:
        """Generations whose connections are open."""
        return len(self._tasks)

    @property
    def open_requests(self) -> int:
        """Requests whose connections are not given back yet."""
        return self._http.open_requests

    @property
    def _features(self) -> tuple[str, ...]:
        tools = (TOOLS,) if self.facts.has_tools or self.facts.has_marked_calls else ()
        return tools + ((IMAGE,) if self._options.has_images else ())

    @property
    def _context_tokens(self) -> int:
        known = [tokens for tokens in (self._options.context_tokens, self.facts.context_tokens) if tokens]
        return min(known, default=_UNKNOWN_CONTEXT_TOKENS)

    async def load(self) -> None:
        """See `backend.Backend`. One attempt; INTERNAL where the server is there and another one would not help."""
        try:
            async with asyncio.timeout(self._options.load_timeout_s):
                self.facts = await self.wire.find_out(self._http)
        except TimeoutError as error:
            raise _failed(f"model {self.name} is not served: no answer in time") from error
        except WireError as fault:
            raise _failed(f"model {self.name} is not served: {fault}") from fault
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._watch_load(), name=f"load-{self.name}")

    def load_now(self) -> Load:
        """See `backend.Backend`. This node's own requests as they are now, and those of others as last heard of."""
        queue, heard = self._queue, self._heard
        others = heard or _Heard(0, 0, 0.0)
        return Load(
            queue.busy + others.running,
            queue.waiting + others.waiting,
            queue.queue_s,
            self._meter.tokens_per_s,
            0.0 if heard is None else max(0.0, self._clock() - heard.at_s),
            others.kv_used_ratio,
        )

    def constrain(self, schema: Any, *, format_assertion: bool) -> Constraint:
        """See `backend.Backend`."""
        return self.wire.constrain(schema, format_assertion=format_assertion)

    def check_grammar(self, grammar: str) -> str:
        """See `backend.Backend`."""
        return self.wire.check_grammar(grammar)

    async def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """See `backend.Backend`. An estimate where the server does not count."""
        try:
            async with asyncio.timeout(self._options.page_timeout_s):
                counted = await self.wire.count_tokens(self._http, messages)
        except TimeoutError as error:
            raise _failed("the model server did not count the tokens in time") from error
        except WireError as error:
            raise _failed(f"the model server counts no tokens: {error}") from error
        except MeshError as error:
            if error.metadata.get("status") not in _NO_SUCH_PAGE:
                raise
            # A proxy may hide what the server has beside the chat.
            counted = None
        return estimate_tokens(messages) if counted is None else counted

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncIterator[UpstreamGeneration]:
        """See `backend.Backend`."""
        budget = await self._fit(request)
        slot = await self._queue.take(priority=request.priority, deadline_s=request.deadline_s)
        try:
            self._check_open()
            generation = UpstreamGeneration(self.wire.reader(request), budget, slot, self._meter)
            body = self.wire.body(request, budget.max_output_tokens)
            task = asyncio.create_task(self._run(generation, body, request.deadline_s), name=f"generate-{self.name}")
        except BaseException:
            slot.release()
            raise
        generation.task = task
        self._tasks.add(task)
        # A task that is cancelled before its first step runs none of its own `finally`.
        task.add_done_callback(lambda done: self._forget(done, generation, slot))
        try:
            yield generation
        finally:
            generation.cancel()

    def _forget(self, task: asyncio.Task[None], generation: UpstreamGeneration, slot: Slot) -> None:
        self._tasks.discard(task)
        failure = None
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a generation broke", extra={"model": self.name, "cause": describe(error)})
            failure = MeshError(ErrorReason.ERROR_REASON_INTERNAL, "a fault of the node; its log has the cause")
        generation.finish(failure)
        slot.release()

    def _check_open(self) -> None:
        if self._is_closed:
            raise MeshError(ErrorReason.ERROR_REASON_BACKEND_NOT_READY, f"model {self.name} is closed")

    async def _fit(self, request: GenerateRequest) -> Budget:
        begun_tokens = await self._count_beginning(request) if request.beginning else 0
        tools_bytes = request.tools.size_bytes if request.tools is not None else 0
        asked = request.sampling.max_output_tokens
        asked = asked and max(1, asked - begun_tokens)
        default = max(1, self._options.max_output_tokens - begun_tokens)
        context = self._context_tokens
        # What surely fits is not counted: that would be a request more to the server for each one.
        begun_tokens += estimate_text(tools_bytes)
        if most_tokens(request.messages) + tools_bytes + begun_tokens + (asked or default) <= context:
            return Budget(estimate_tokens(request.messages) + begun_tokens, asked or default, False)
        return fit_budget(
            await self.count_tokens(request.messages) + begun_tokens,
            context_tokens=context,
            asked_tokens=asked,
            default_tokens=default,
        )

    async def _count_beginning(self, request: GenerateRequest) -> int:
        try:
            async with asyncio.timeout(self._options.page_timeout_s):
                return await self.wire.try_beginning(self._http, request)
        except (TimeoutError, WireError) as error:
            raise _failed("the model server did not count the tokens") from error

    async def _run(self, generation: UpstreamGeneration, body: Mapping[str, Any], deadline_s: float) -> None:
        """Generate to the end."""
        try:
            await self._pump(generation, body, deadline_s)
        except MeshError as error:
            generation.finish(error)
        except WireError as fault:
            generation.finish(_failed(f"the model server's answer is malformed: {fault}"))

    async def _pump(self, generation: UpstreamGeneration, body: Mapping[str, Any], deadline_s: float) -> None:
        reader = generation.reader
        last_s = deadline_s + _DEADLINE_MARGIN_S
        first_s = min(self._clock() + self._options.first_token_timeout_s, last_s)
        try:
            async with asyncio.timeout_at(first_s) as timer, self._http.stream(self.wire.path, body) as events:
                signs = 0
                async for event in events:
                    if tokens := reader.feed(event.event, event.data):
                        # Who does not read is not the server's fault.
                        timer.reschedule(last_s)
                        await generation.push(tokens)
                    if self._settle(generation):
                        return
                    if tokens or reader.stop is not None or reader.signs > signs:
                        timer.reschedule(min(self._clock() + self._patience_s(reader), last_s))
                    signs = reader.signs
                reader.close()
        except TimeoutError as error:
            if reader.stop is None:
                raise self._late(deadline_s, is_begun=reader.signs > 0) from error
        except (MeshError, WireError):
            # The whole answer is there; what broke is what comes after it.
            if reader.stop is None:
                raise
        if reader.stop is not None:
            generation.complete(reader.stop)

    def _settle(self, generation: UpstreamGeneration) -> bool:
        """Complete a generation that has its end, and one that passes its limit; True: give up what comes."""
        reader = generation.reader
        if reader.stop is not None and reader.is_ended:
            generation.complete(reader.stop)
        if not generation.is_too_long:
            return False
        _log.error("a model server passes the limit on output", extra={"model": self.name})
        generation.complete(Stop.OUTPUT_LIMIT)
        return True

    def _patience_s(self, reader: Reader) -> float:
        if reader.stop is None:
            return self._options.stall_timeout_s
        return _END_S if reader.is_ended else _TAIL_S

    def _late(self, deadline_s: float, *, is_begun: bool) -> MeshError:
        if self._clock() >= deadline_s:
            return MeshError(
                ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED,
                "the deadline passed while the model server generated",
                metadata={"stage": "generate"},
            )
        options = self._options
        text = (
            f"the model server stalled for {options.stall_timeout_s:g} s"
            if is_begun
            else f"the model server gave no token within {options.first_token_timeout_s:g} s"
        )
        return _failed(text)

    async def server_load(self) -> ServerLoad | None:
        """What the server says of its load now; None where it does not. Raises MeshError."""
        try:
            async with asyncio.timeout(self._options.page_timeout_s):
                return await self.wire.read_load(self._http, self._clock())
        except (TimeoutError, WireError) as error:
            raise _failed("the model server does not say its load") from error

    async def _watch_load(self) -> None:
        misses = 0
        while misses < _LOST_AFTER:
            period_s = self._options.load_period_s
            try:
                load = await self.server_load()
                if load is None:
                    # Nothing but the connection says that it is there, and that is not worth asking as often.
                    period_s *= _REACH_PERIODS
                    await self._http.reach()
            except MeshError as error:
                # The last values stay, and their age says how old they are: who does not say its load may be well.
                misses = misses + 1 if error.metadata.get("stage") == CONNECT else 0
            else:
                misses = 0
                if load is not None:
                    self._hear(load)
            await asyncio.sleep(period_s)
        self._heard = None
        self._on_lost()

    def _hear(self, load: ServerLoad) -> None:
        others = _without(load, self._queue.busy)
        is_changed = self._heard is None or others[:2] != self._heard[:2]
        self._heard = others
        if is_changed:
            self._on_change()

    async def close(self) -> None:
        """See `backend.Backend`."""
        self._is_closed = True
        tasks = [*self._tasks, *([self._watch] if self._watch is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._http.close()


def _failed(text: str) -> MeshError:
    return MeshError(ErrorReason.ERROR_REASON_BACKEND_FAILED, text)
