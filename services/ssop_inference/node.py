"""The models of a node: their states, and what the node says about itself."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ssop.v1 import inference_pb2, mesh_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_inference.backend import Backend, GenerateRequest
from ssop_inference.core.prompt import ChatMessage
from ssop_inference.core.request import SamplingOptions
from ssop_inference.gpu import GpuSample
from ssop_inference.resource import Memory, read_memory
from ssop_inference.status_feed import StatusFeed, StatusWatch

_TIERS: Final = {"lite": mesh_pb2.TIER_LITE, "full": mesh_pb2.TIER_FULL}
_MEMORY_PERIOD_S: Final = 1.0
_NOT_READY_RETRY_MS: Final = 1000
# One token, before everyone who waits: whether a busy node is well must not depend on how many do.
_WARM_UP_PRIORITY: Final = -1
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Model:
    """A model of the node. Its state is changed by `Node` only."""

    backend: Backend
    tiers: tuple[str, ...]
    has_schema_in_prompt: bool = False
    is_remote: bool = False
    """Its engine is another process, which may come later than the node."""
    state: inference_pb2.ModelState.ValueType = inference_pb2.MODEL_STATE_LOADING

    @property
    def name(self) -> str:
        """Name that requests use."""
        return self.backend.name


@dataclass(slots=True)
class _MemorySample:
    memory: Memory
    at_s: float


@dataclass(slots=True)
class Node:
    """A node. Belongs to one event loop."""

    name: str
    models: Sequence[Model]
    started_at_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    memory: Callable[[], Memory] = read_memory
    gpus: Callable[[], GpuSample] = GpuSample
    """The GPUs as they were read last, on the clock of the loop."""
    is_draining: bool = False
    retry_s: float = 1.0
    """Pause between two attempts at a model server."""
    _attempts: set[asyncio.Task[None]] = field(default_factory=set)
    _timeout_s: float = 60.0
    _is_starting: bool = False
    _memory: _MemorySample | None = None
    notify: Callable[[], None] = field(init=False)
    """The load of a model may have changed: those who watch the status hear of it soon."""
    _feed: StatusFeed = field(init=False)

    def __post_init__(self) -> None:
        self._feed = StatusFeed(lambda: self.status().SerializeToString(), self._load)
        self.notify = self._feed.change_load

    def find(self, name: str) -> Model:
        """The model of that name; "" is the first one. Raises MODEL_UNKNOWN."""
        for model in self.models:
            if not name or name == model.backend.name:
                return model
        raise MeshError(
            ErrorReason.ERROR_REASON_MODEL_UNKNOWN,
            f"this node has no such model; it has: {', '.join(model.name for model in self.models)}",
            metadata={"model": name[:64]},
        )

    def find_ready(self, name: str) -> Model:
        """The model of that name, when it serves. Raises MODEL_UNKNOWN and BACKEND_NOT_READY."""
        model = self.find(name)
        if model.state != inference_pb2.MODEL_STATE_READY:
            state = inference_pb2.ModelState.Name(model.state).removeprefix("MODEL_STATE_").lower()
            raise MeshError(
                ErrorReason.ERROR_REASON_BACKEND_NOT_READY,
                f"model {model.name} is {state}",
                retry_after_ms=_NOT_READY_RETRY_MS,
            )
        return model

    async def start(self, *, timeout_s: float) -> None:
        """Load each model and generate with it; each is READY only after that.

        Model servers that do not answer are waited for, at most `timeout_s`, and then on in the background. Raises
        BACKEND_FAILED, and INTERNAL for a model server that refuses what this node is set to ask of it.
        """
        self._timeout_s = timeout_s
        self._is_starting = True
        attempts = [self._try(model) for model in self.models if model.is_remote]
        for model in self.models:
            if not model.is_remote:
                await self._bring_up(model)
        if attempts:
            done, late = await asyncio.wait(attempts, timeout=timeout_s, return_when=asyncio.FIRST_EXCEPTION)
            for attempt in done:
                attempt.result()
            if late:
                _log.warning(
                    "the node serves without a model whose server does not answer", extra={"models": len(late)}
                )
        self._is_starting = False

    def bring_back(self, name: str) -> None:
        """The server of a model is gone: it is not READY until it has come back and generated. Idempotent."""
        model = self.find(name)
        if model.state == inference_pb2.MODEL_STATE_READY and not self.is_draining:
            _log.error("a model server is gone", extra={"model": name})
            self._set(model, inference_pb2.MODEL_STATE_LOADING)
            self._try(model)

    def _try(self, model: Model) -> asyncio.Task[None]:
        attempt = asyncio.create_task(self._attempt(model), name=f"load-{model.name}")
        self._attempts.add(attempt)
        attempt.add_done_callback(self._attempts.discard)
        return attempt

    async def _bring_up(self, model: Model) -> None:
        try:
            await model.backend.load()
            self._set(model, inference_pb2.MODEL_STATE_WARMING)
            elapsed_ms = await self.warm_up(model, timeout_s=self._timeout_s)
        except MeshError:
            self._set(model, inference_pb2.MODEL_STATE_LOADING if model.is_remote else inference_pb2.MODEL_STATE_FAILED)
            raise
        self._set(model, inference_pb2.MODEL_STATE_READY)
        _log.info("a model is ready", extra={"model": model.name, "generation_ms": elapsed_ms})

    async def _attempt(self, model: Model) -> None:
        last = ""
        while not self.is_draining:
            try:
                await self._bring_up(model)
            except MeshError as error:
                if error.reason == ErrorReason.ERROR_REASON_INTERNAL and self._is_starting:
                    raise
                if error.message != last:
                    last = error.message
                    _log.warning("a model server is not ready", extra={"model": model.name, "cause": last})
                await asyncio.sleep(self.retry_s)
            else:
                return

    async def warm_up(self, model: Model, *, timeout_s: float) -> int:
        """Generate one token; how long it took, in milliseconds. Raises BACKEND_FAILED, OVERLOADED."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        request = GenerateRequest(
            (ChatMessage("user", "Hello"),),
            started_s + timeout_s,
            SamplingOptions(max_output_tokens=1),
            priority=_WARM_UP_PRIORITY,
        )
        try:
            async with asyncio.timeout(timeout_s), model.backend.generate(request) as generation:
                while await generation.read():
                    pass
                generated_tokens = generation.outcome.output_tokens
        except TimeoutError as error:
            raise MeshError(
                ErrorReason.ERROR_REASON_BACKEND_FAILED, f"model {model.name} generated nothing in time"
            ) from error
        if generated_tokens < 1:
            raise MeshError(ErrorReason.ERROR_REASON_BACKEND_FAILED, f"model {model.name} generated nothing")
        return round((loop.time() - started_s) * 1000)

    def drain(self) -> None:
        """Take nothing new; those who watch the status are told so, and their streams end. Idempotent."""
        self.is_draining = True
        for model in self.models:
            model.state = inference_pb2.MODEL_STATE_DRAINING
        self._feed.change()

    async def close(self) -> None:
        """Drain, and close every backend."""
        self.drain()
        attempts = list(self._attempts)
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        for model in self.models:
            await model.backend.close()

    def _set(self, model: Model, state: inference_pb2.ModelState.ValueType) -> None:
        model.state = state
        self._feed.change()

    def watch(self) -> StatusWatch:
        """Watch the status."""
        return self._feed.watch()

    def _load(self) -> tuple[tuple[int, int], ...]:
        loads = [model.backend.load_now() for model in self.models]
        return tuple((load.slots_busy, load.queue_length) for load in loads)

    def status(self) -> inference_pb2.WatchStatusResponse:
        """What the node is now."""
        now_s = asyncio.get_running_loop().time()
        if self._memory is None or now_s - self._memory.at_s >= _MEMORY_PERIOD_S:
            self._memory = _MemorySample(self.memory(), now_s)
        sample = self._memory
        age_s = now_s - sample.at_s
        return inference_pb2.WatchStatusResponse(
            node=self.name,
            started_at_ms=self.started_at_ms,
            models=[_model_status(model) for model in self.models],
            memory_free_bytes=_gauge(sample.memory.free_bytes, age_s),
            memory_total_bytes=_gauge(sample.memory.total_bytes, age_s),
            oom_count=sample.memory.oom_count,
            process_memory_bytes=_gauge(sample.memory.process_bytes, age_s),
            gpus=_gpus(self.gpus(), now_s),
        )


def _gpus(sample: GpuSample, now_s: float) -> list[inference_pb2.GpuStatus]:
    age_s = now_s - sample.at_s
    return [
        inference_pb2.GpuStatus(
            name=gpu.name,
            memory_free_bytes=_gauge(gpu.free_bytes, age_s),
            memory_total_bytes=_gauge(gpu.total_bytes, age_s),
            busy_ratio=None if gpu.busy_ratio is None else _gauge(gpu.busy_ratio, age_s),
        )
        for gpu in sample.gpus
    ]


def _model_status(model: Model) -> inference_pb2.ModelStatus:
    capabilities = model.backend.capabilities
    load = model.backend.load_now()
    return inference_pb2.ModelStatus(
        model=model.name,
        state=model.state,
        tiers=[_TIERS[tier] for tier in model.tiers],
        context_tokens=capabilities.context_tokens,
        slots_total=capabilities.slots,
        slots_busy=_gauge(load.slots_busy, load.age_s),
        queue_length=_gauge(load.queue_length, load.age_s),
        queue_ms=_gauge(load.queue_s * 1000, load.age_s),
        output_tokens_per_s=_gauge(load.output_tokens_per_s, load.age_s),
        weights_sha256=capabilities.weights_sha256,
        has_logprobs=capabilities.has_logprobs,
        capabilities=capabilities.features,
        constraint_mode=mesh_pb2.ConstraintMode.ValueType(capabilities.strictest_mode),
        backend=capabilities.kind,
        has_estimated_counts=capabilities.has_estimated_counts,
        kv_used_ratio=None if load.kv_used_ratio is None else _gauge(load.kv_used_ratio, load.age_s),
    )


def _gauge(value: float, age_s: float) -> inference_pb2.Gauge:
    return inference_pb2.Gauge(value=value, age_ms=max(0, round(age_s * 1000)))
