# cython: annotation_typing=False
"""One generation on its way to the caller."""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from ssop.v1 import frame_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Call
from ssop_chassis.deadline import Deadline
from ssop_chassis.errors import MeshError
from ssop_codec.probes import stream_number
from ssop_inference.backend import Generation, Outcome, Stop, Token
from ssop_inference.core.constraint import Mode, is_lost
from ssop_inference.core.document import DocumentWriter, Ending, usage_of
from ssop_inference.core.request import Asked
from ssop_inference.core.tool_answer import ToolAnswerWriter
from ssop_inference.model_metrics import ModelMetrics
from ssop_inference.outbox import Outbox
from ssop_inference.plan import Manner

# What is kept of the deadline so that the END frame still arrives.
_MARGIN_SHARE: Final = 0.1
_MAX_MARGIN_S: Final = 0.1
# The model has nothing to say any more, so this is a token or two.
_COUNTS_WAIT_S: Final = 0.2

_Reasons = tuple[frame_pb2.FinishReason.ValueType, frame_pb2.IncompleteReason.ValueType]
_ENDINGS: Final[dict[Stop, _Reasons]] = {
    Stop.END: (frame_pb2.FINISH_REASON_STOP, frame_pb2.INCOMPLETE_REASON_STOPPED_EARLY),
    Stop.OUTPUT_LIMIT: (frame_pb2.FINISH_REASON_LENGTH, frame_pb2.INCOMPLETE_REASON_MAX_OUTPUT_TOKENS),
    Stop.CONTEXT_FULL: (frame_pb2.FINISH_REASON_LENGTH, frame_pb2.INCOMPLETE_REASON_CONTEXT_FULL),
    Stop.CONTENT_FILTER: (
        frame_pb2.FINISH_REASON_CONTENT_FILTER,
        frame_pb2.INCOMPLETE_REASON_CONTENT_FILTER,
    ),
    Stop.CANCELLED: (frame_pb2.FINISH_REASON_ABORTED, frame_pb2.INCOMPLETE_REASON_CANCELLED),
}
_VERDICTS: Final[dict[int, str]] = {
    number: name.removeprefix("VERDICT_").lower() for name, number in frame_pb2.Verdict.items()
}
"""As they stand in metrics."""


class Terms(NamedTuple):
    """What holds for all answers of a model. `linger_ms`: of those whose request names none; see `Outbox`."""

    metrics: ModelMetrics
    linger_ms: int = 0


class Delivery:
    """Reads tokens, writes chunks, and ends the document for whatever reason it ends.

    Nothing leaves before the first field, since nobody can use it before. The first field and the end never wait.
    """

    def __init__(
        self, call: Call, loop: asyncio.AbstractEventLoop, terms: "Terms", asked: Asked, manner: Manner
    ) -> None:
        """Who is told the confidence acts on it at once, so that nothing lingers."""
        plan, status, confidence, beginning, open_calls = manner
        stream = stream_number(asked.request_id)
        self.mode = mode = plan.constraint.mode
        self._metrics = terms.metrics
        self._clock = loop.time
        self._started_s = started_s = loop.time()
        self._first_token_s = 0.0
        # The first field of a document that goes on was another node's.
        self._has_first_field = beginning is not None
        self.has_lost_constraint = False
        # What was consumed so far is told with the confidence alone.
        self._tells_usage = confidence is not None
        fixed_bytes = asked.stream_buffer_bytes if beginning is None else beginning.stream_buffer_bytes
        # A size that the caller fixed says nothing about the schema.
        self._buffer = None if fixed_bytes or beginning is not None else plan.buffer
        most_bytes = fixed_bytes or (
            plan.schema.auto_buffer_bytes if self._buffer is None else self._buffer.buffer_bytes
        )
        linger_ms = terms.linger_ms if asked.linger_ms is None else asked.linger_ms
        self._outbox = Outbox(call, loop, stream, most_bytes, 0.0 if self._tells_usage else linger_ms / 1000)
        self._outbox.ready.append(status)

        def open_document() -> DocumentWriter:
            return DocumentWriter(
                plan.schema,
                stream_buffer_bytes=most_bytes,
                is_envelope=mode is Mode.ENVELOPE,
                has_logprobs=asked.logprobs,
                confidence=confidence,
                beginning=beginning,
                stream=stream,
            )

        self._writer = open_document() if open_calls is None else open_calls(open_document, stream)
        left_s = call.remaining_s()
        self.deadline_s = started_s + left_s - min(_MAX_MARGIN_S, _MARGIN_SHARE * left_s)

    @property
    def is_whole(self) -> bool:
        """The document that another node began lacks nothing but its end."""
        return self._writer.is_done

    async def run(self, generation: Generation) -> None:
        """Deliver to the END frame. Raises BACKEND_FAILED and DEADLINE_EXCEEDED before the first field only."""
        self._metrics.observe_start(self.mode, generation.queue_s)
        verdict = "cancelled"
        outcome: Outcome | None = None
        try:
            finish, incomplete = await self._stream(generation)
            outcome = generation.outcome
            if (pending := self._end(Ending(finish, incomplete, outcome))) is not None:
                await pending
            if self._buffer is not None and isinstance(self._writer, DocumentWriter):
                self._buffer.observe(self._outbox.splits)
            verdict = _VERDICTS[self._writer.verdict]
        except MeshError as error:
            verdict = error.reason_name.lower()
            raise
        finally:
            self._outbox.close()
            self._observe_end(verdict, outcome or generation.outcome)

    @property
    def _is_over(self) -> bool:
        return isinstance(self._writer, ToolAnswerWriter) and self._writer.is_over

    async def end_whole(self) -> None:
        """Write the end that a whole document lacks; no model runs, and nothing is consumed."""
        if (pending := self._end(Ending(frame_pb2.FINISH_REASON_STOP))) is not None:
            await pending
        self._metrics.count_frames(self._outbox.frames)

    def _end(self, ending: Ending) -> Awaitable[None] | None:
        """Send the last chunks, without waiting where there is room: None then."""
        self._outbox.ready += self._writer.finish(ending)
        return self._outbox.send()

    async def _stream(self, generation: Generation) -> _Reasons:
        try:
            if generation.is_over:
                # A model that has stopped is not waited for.
                await self._write_fields(generation)
            else:
                with Deadline(self.deadline_s - self._clock()):
                    await self._write_fields(generation)
        except TimeoutError as error:
            generation.cancel()
            if not self._writer.has_field:
                raise MeshError(
                    ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED,
                    "the deadline passed before the first field",
                    metadata={"stage": "generate"},
                ) from error
            return frame_pb2.FINISH_REASON_ABORTED, frame_pb2.INCOMPLETE_REASON_DEADLINE
        except MeshError as error:
            if error.reason != ErrorReason.ERROR_REASON_BACKEND_FAILED or not self._writer.has_field:
                raise
            return frame_pb2.FINISH_REASON_ABORTED, frame_pb2.INCOMPLETE_REASON_BACKEND_FAILED
        return self._natural_reasons(generation)

    async def _write_fields(self, generation: Generation) -> None:
        while tokens := await generation.read():
            is_settled = self._take(tokens, generation)
            if is_settled and (self._writer.is_invalid or not generation.outcome.is_estimated):
                generation.cancel()
                return
            # What comes last goes along with the end, which is known at once. Who is told the confidence hears of it
            # before the first field.
            if (
                self._outbox.ready
                and not generation.is_over
                and (self._has_first_field or self._tells_usage)
                and (pending := self._outbox.offer()) is not None
            ):
                await pending
            if is_settled:
                await self._await_counts(generation)
                return

    def _take(self, tokens: Sequence[Token], generation: Generation) -> bool:
        """Write what tokens complete; whether no more are wanted."""
        writer = self._writer
        if not self._first_token_s:
            self._first_token_s = self._clock()
            self._metrics.observe_first_token(self._first_token_s - self._started_s)
        self._outbox.ready += writer.feed(tokens, usage_of(generation.outcome) if self._tells_usage else None)
        if not self._has_first_field and writer.has_field:
            self._has_first_field = True
            self._metrics.observe_first_field(self._clock() - self._started_s)
        return writer.is_settled

    async def _await_counts(self, generation: Generation) -> None:
        """The document is whole: a server that says its counts last is about to. Whatever else comes is prose."""
        with suppress(TimeoutError, MeshError):
            async with asyncio.timeout(_COUNTS_WAIT_S):
                while await generation.read():
                    pass
        generation.cancel()

    def _natural_reasons(self, generation: Generation) -> _Reasons:
        if self._writer.is_invalid:
            self._metrics.observe_violation(self.mode)
            self.has_lost_constraint = is_lost(self.mode, self._writer.violation_rule)
            return frame_pb2.FINISH_REASON_ABORTED, frame_pb2.INCOMPLETE_REASON_UNSPECIFIED
        if self._writer.is_done or self._is_over:
            # The limit may have been reached with the token that closed the document.
            return frame_pb2.FINISH_REASON_STOP, frame_pb2.INCOMPLETE_REASON_UNSPECIFIED
        stop = generation.outcome.stop
        if stop is Stop.END and isinstance(self._writer, ToolAnswerWriter) and self._writer.lacks_call:
            raise MeshError(
                ErrorReason.ERROR_REASON_BACKEND_FAILED, "the model calls no tool, where it was told that it must"
            )
        finish, incomplete = _ENDINGS[stop]
        if stop is Stop.END and self.mode is Mode.TEXT and not isinstance(self._writer, ToolAnswerWriter):
            incomplete = frame_pb2.INCOMPLETE_REASON_UNSPECIFIED
        return finish, incomplete

    def _observe_end(self, verdict: str, usage: Outcome) -> None:
        now_s = self._clock()
        self._metrics.count_frames(self._outbox.frames)
        self._metrics.observe_end(verdict, usage, now_s - self._started_s, now_s - (self._first_token_s or now_s))
