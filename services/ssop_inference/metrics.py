"""Metrics of a node. Names follow OpenTelemetry's GenAI conventions where they have one."""

import math
import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ssop_chassis.metrics import (
    DURATION_BUCKETS_S,
    FIRST_TOKEN_BUCKETS_S,
    GEN_AI_REQUEST_DURATION,
    GEN_AI_TIME_PER_OUTPUT_TOKEN,
    GEN_AI_TIME_TO_FIRST_TOKEN,
    GEN_AI_TOKEN_USAGE,
    TOKEN_BUCKETS,
)
from ssop_chassis.tallies import Counter, Gauge, Histogram
from ssop_inference.backend import Load
from ssop_inference.gpu import GpuSample
from ssop_inference.model_metrics import ModelMetrics
from ssop_inference.resource import Memory

_MODEL = "gen_ai_request_model"


class NodeMetrics:
    """Durations are in seconds. Labels: the model, and small enumerations."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def histogram(name: str, text: str, labels: list[str], buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, [_MODEL, *labels], buckets=buckets, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(name, text, [_MODEL], registry=registry)

        self._first_token = histogram(
            GEN_AI_TIME_TO_FIRST_TOKEN, "From the request to the first token.", [], FIRST_TOKEN_BUCKETS_S
        )
        self._first_field = histogram(
            "ssop_inference_time_to_first_field_seconds",
            "From the request to the first field frame.",
            [],
            FIRST_TOKEN_BUCKETS_S,
        )
        self._per_token = histogram(
            GEN_AI_TIME_PER_OUTPUT_TOKEN, "Time per token after the first.", [], FIRST_TOKEN_BUCKETS_S
        )
        self._duration = histogram(GEN_AI_REQUEST_DURATION, "Duration of generations.", ["outcome"], DURATION_BUCKETS_S)
        self._usage = histogram(GEN_AI_TOKEN_USAGE, "Tokens of a request.", ["gen_ai_token_type"], TOKEN_BUCKETS)
        self._cached = Counter(
            "ssop_inference_cached_input_tokens",
            "Prompt tokens that the engine's prefix cache held.",
            [_MODEL],
            registry=registry,
        )
        self._estimated = Counter(
            "ssop_inference_estimated_usages",
            "Generations whose token counts are estimates, since the model server did not say them.",
            [_MODEL],
            registry=registry,
        )
        self._modes = Counter(
            "ssop_inference_constraint_modes",
            "Generations by the mode that held the model to the schema.",
            [_MODEL, "mode"],
            registry=registry,
        )
        self._violations = Counter(
            "ssop_inference_violations",
            "Answers that were stopped for breaking their schema.",
            [_MODEL, "mode"],
            registry=registry,
        )
        self._frames = Counter(
            "ssop_inference_frames_sent", "Document frames sent to routers.", [_MODEL], registry=registry
        )
        self._queue = histogram("ssop_inference_queue_seconds", "Wait for a slot.", [], FIRST_TOKEN_BUCKETS_S)
        self._busy = gauge("ssop_inference_slots_busy", "Slots in use.")
        self._waiting = gauge("ssop_inference_queue_length", "Requests that wait for a slot.")
        self._kv = gauge("ssop_inference_kv_used_ratio", "Share of the server's KV cache in use; NaN: it does not say.")
        self._rate = gauge("ssop_inference_output_tokens_per_second", "Tokens generated per second over all slots.")

    def of(self, model: str) -> ModelMetrics:
        """What is counted of one model."""
        return ModelMetrics(
            first_token=self._first_token.labels(model),
            first_field=self._first_field.labels(model),
            per_token=self._per_token.labels(model),
            queue=self._queue.labels(model),
            input_tokens=self._usage.labels(model, "input"),
            output_tokens=self._usage.labels(model, "output"),
            cached=self._cached.labels(model),
            estimated=self._estimated.labels(model),
            frames=self._frames.labels(model),
            ends=lambda outcome: self._duration.labels(model, outcome),
            modes=lambda mode: self._modes.labels(model, mode.name.lower()),
            violations=lambda mode: self._violations.labels(model, mode.name.lower()),
        )

    def track_load(self, model: str, load_now: Callable[[], Load]) -> None:
        """Ask how busy a model is whenever the metrics are read; `load_now` is called in any thread."""
        self._busy.labels(model).set_function(lambda: load_now().slots_busy)
        self._waiting.labels(model).set_function(lambda: load_now().queue_length)
        self._rate.labels(model).set_function(lambda: load_now().output_tokens_per_s)
        self._kv.labels(model).set_function(lambda: _or_nan(load_now().kv_used_ratio))


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


class ResourceMetrics(Collector):
    """Memory of the node and of its host's GPUs, read whenever the metrics are. In any thread."""

    def __init__(self, memory: Callable[[], Memory], gpus: Callable[[], GpuSample]) -> None:
        self._memory = memory
        self._gpus = gpus

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        memory, sample = self._memory(), self._gpus()
        for name, text, value in (
            ("memory_free_bytes", "Memory that is free in the node's cgroup, or on its host.", memory.free_bytes),
            ("memory_total_bytes", "Memory that the node may use in all.", memory.total_bytes),
            ("process_memory_bytes", "Memory that the node's process holds.", memory.process_bytes),
        ):
            yield GaugeMetricFamily(f"ssop_inference_{name}", text, value)
        yield CounterMetricFamily(
            "ssop_inference_oom_kills", "Times that the node's cgroup was killed for memory.", memory.oom_count
        )
        if not sample.gpus:
            return
        free, total, busy = (
            GaugeMetricFamily(f"ssop_inference_gpu_{name}", text, labels=["gpu", "name"])
            for name, text in (
                ("memory_free_bytes", "Free memory of a GPU."),
                ("memory_total_bytes", "Memory of a GPU."),
                ("busy_ratio", "Share of the last second or so in which a GPU computed."),
            )
        )
        for index, gpu in enumerate(sample.gpus):
            labels = [str(index), gpu.name]
            free.add_metric(labels, gpu.free_bytes)
            total.add_metric(labels, gpu.total_bytes)
            if gpu.busy_ratio is not None:
                busy.add_metric(labels, gpu.busy_ratio)
        yield from (free, total, busy)
        age_s = max(0.0, time.monotonic() - sample.at_s)
        yield GaugeMetricFamily("ssop_inference_gpu_age_seconds", "Age of what is said of the GPUs.", age_s)
