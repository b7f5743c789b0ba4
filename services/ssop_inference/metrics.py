"""Metrics of a node. Names follow OpenTelemetry's GenAI conventions where they have one."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ssop_chassis.metrics import (
    DURATION_BUCKETS_S,
    FIRST_TOKEN_BUCKETS_S,
    GEN_AI_REQUEST_DURATION,
    GEN_AI_TIME_PER_OUTPUT_TOKEN,
    GEN_AI_TIME_TO_FIRST_TOKEN,
    GEN_AI_TOKEN_USAGE,
    TOKEN_BUCKETS,
)
from ssop_inference.backend import Load, Outcome
from ssop_inference.core.constraint import Mode

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
        self._rate = gauge("ssop_inference_output_tokens_per_second", "Tokens generated per second over all slots.")

    def observe_start(self, model: str, mode: Mode, queue_s: float) -> None:
        """A generation got its slot."""
        self._modes.labels(model, mode.name.lower()).inc()
        self._queue.labels(model).observe(queue_s)

    def observe_first_token(self, model: str, elapsed_s: float) -> None:
        """The first token came, so long after the request."""
        self._first_token.labels(model).observe(elapsed_s)

    def observe_first_field(self, model: str, elapsed_s: float) -> None:
        """The first field frame was ready, so long after the request."""
        self._first_field.labels(model).observe(elapsed_s)

    def observe_violation(self, model: str, mode: Mode) -> None:
        """An answer broke its schema."""
        self._violations.labels(model, mode.name.lower()).inc()

    def observe_frames(self, model: str, frames: int) -> None:
        """Document frames went out."""
        self._frames.labels(model).inc(frames)

    def observe_end(self, model: str, outcome: str, usage: Outcome, *, total_s: float, decode_s: float) -> None:
        """A generation ended; `decode_s` is the time after its first token."""
        self._duration.labels(model, outcome).observe(total_s)
        self._usage.labels(model, "input").observe(usage.input_tokens)
        self._usage.labels(model, "output").observe(usage.output_tokens)
        self._cached.labels(model).inc(usage.cached_input_tokens)
        self._estimated.labels(model).inc(usage.is_estimated)
        if usage.output_tokens > 1:
            self._per_token.labels(model).observe(decode_s / (usage.output_tokens - 1))

    def track_load(self, model: str, load_now: Callable[[], Load]) -> None:
        """Ask how busy a model is whenever the metrics are read; `load_now` is called in any thread."""
        self._busy.labels(model).set_function(lambda: load_now().slots_busy)
        self._waiting.labels(model).set_function(lambda: load_now().queue_length)
        self._rate.labels(model).set_function(lambda: load_now().output_tokens_per_s)
