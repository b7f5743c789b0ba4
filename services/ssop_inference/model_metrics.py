# cython: annotation_typing=False
"""What is counted of one model."""

from collections.abc import Callable

from ssop_chassis.tallies import Count, Distribution
from ssop_inference.core.constraint import Mode
from ssop_inference.core.tokens import Outcome


class ModelMetrics:
    """Its counts, each looked up once. Durations are in seconds."""

    def __init__(
        self,
        *,
        first_token: Distribution,
        first_field: Distribution,
        per_token: Distribution,
        queue: Distribution,
        input_tokens: Distribution,
        output_tokens: Distribution,
        cached: Count,
        estimated: Count,
        frames: Count,
        ends: Callable[[str], Distribution],
        modes: Callable[[Mode], Count],
        violations: Callable[[Mode], Count],
    ) -> None:
        """`first_token` and `first_field` are counted from the request on; `frames`: document frames that went out."""
        self._first_token = first_token
        self._first_field = first_field
        self._per_token = per_token
        self._queue = queue
        self._input_tokens = input_tokens
        self._output_tokens = output_tokens
        self._cached = cached
        self._estimated = estimated
        self._frames = frames
        self._make_end = ends
        self._make_mode = modes
        self._make_violations = violations
        self._ends: dict[str, Distribution] = {}
        self._modes: dict[Mode, Count] = {}

    def observe_start(self, mode: Mode, queue_s: float) -> None:
        """A generation got its slot."""
        count = self._modes.get(mode)
        if count is None:
            count = self._modes[mode] = self._make_mode(mode)
        count.inc()
        self._queue.observe(queue_s)

    def observe_first_token(self, after_s: float) -> None:
        """The model has said something."""
        self._first_token.observe(after_s)

    def observe_first_field(self, after_s: float) -> None:
        """A field frame was made."""
        self._first_field.observe(after_s)

    def observe_violation(self, mode: Mode) -> None:
        """An answer broke its schema."""
        self._make_violations(mode).inc()

    def count_frames(self, frames: int) -> None:
        """So many document frames went out."""
        self._frames.inc(frames)

    def observe_end(self, outcome: str, usage: Outcome, total_s: float, decode_s: float) -> None:
        """A generation ended; `decode_s` is the time after its first token."""
        end = self._ends.get(outcome)
        if end is None:
            end = self._ends[outcome] = self._make_end(outcome)
        end.observe(total_s)
        output_tokens = usage.output_tokens
        self._input_tokens.observe(usage.input_tokens)
        self._output_tokens.observe(output_tokens)
        if usage.cached_input_tokens:
            self._cached.inc(usage.cached_input_tokens)
        if usage.is_estimated:
            self._estimated.inc()
        if output_tokens > 1:
            self._per_token.observe(decode_s / (output_tokens - 1))
