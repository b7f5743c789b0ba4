"""One generation on its way to the caller."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from ssop.v1 import content_pb2, frame_pb2, mesh_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Call
from ssop_chassis.errors import MeshError
from ssop_codec import FrameKind, Schema, scan_heads
from ssop_codec.probes import chunk_sent, stream_number
from ssop_inference.backend import Generation, Outcome, Stop, Token
from ssop_inference.core.beginning import Beginning
from ssop_inference.core.buffer import BufferEstimate
from ssop_inference.core.confidence import ConfidenceWriter
from ssop_inference.core.constraint import Constraint, Mode, is_lost
from ssop_inference.core.document import DocumentWriter, Ending
from ssop_inference.core.tool_answer import ToolAnswerWriter
from ssop_inference.metrics import NodeMetrics

# What is kept of the deadline so that the END frame still arrives.
_MARGIN_SHARE: Final = 0.1
_MAX_MARGIN_S: Final = 0.1
# The model has nothing to say any more, so this is a token or two.
_COUNTS_WAIT_S: Final = 0.2

_ENDINGS: Final = {
    Stop.END: (frame_pb2.FINISH_REASON_STOP, frame_pb2.INCOMPLETE_REASON_STOPPED_EARLY),
    Stop.OUTPUT_LIMIT: (frame_pb2.FINISH_REASON_LENGTH, frame_pb2.INCOMPLETE_REASON_MAX_OUTPUT_TOKENS),
    Stop.CONTEXT_FULL: (frame_pb2.FINISH_REASON_LENGTH, frame_pb2.INCOMPLETE_REASON_CONTEXT_FULL),
    Stop.CONTENT_FILTER: (
        frame_pb2.FINISH_REASON_CONTENT_FILTER,
        frame_pb2.INCOMPLETE_REASON_CONTENT_FILTER,
    ),
    Stop.CANCELLED: (frame_pb2.FINISH_REASON_ABORTED, frame_pb2.INCOMPLETE_REASON_CANCELLED),
}


class Delivery:
    """Reads tokens, writes chunks, and ends the document for whatever reason it ends."""

    def __init__(
        self,
        call: Call,
        *,
        request_id: str,
        model: str,
        schema: Schema,
        constraint: Constraint,
        buffer: BufferEstimate | None,
        prompt: content_pb2.Prompt,
        metrics: NodeMetrics,
        deadline_s: float,
        confidence: ConfidenceWriter | None = None,
        beginning: Beginning | None = None,
        open_calls: Callable[[Callable[[], DocumentWriter], int], ToolAnswerWriter] | None = None,
    ) -> None:
        """`open_calls` makes the writer of an answer that may call tools, from what opens its main document."""
        self._call = call
        self._number = stream_number(request_id)
        self._model = model
        self._mode = constraint.mode
        self._metrics = metrics
        self._clock = asyncio.get_running_loop().time
        self._started_s = self._clock()
        self._first_token_s: float | None = None
        # The first field of a document that goes on was another node's.
        self._has_first_field = beginning is not None
        self.has_lost_constraint = False
        # What was consumed so far is told with the confidence alone.
        self._tells_usage = confidence is not None
        # A size that the caller fixed says nothing about the schema.
        self._buffer = None if prompt.stream_buffer_size or beginning is not None else buffer
        fixed_bytes = prompt.stream_buffer_size if beginning is None else beginning.stream_buffer_bytes

        def open_document() -> DocumentWriter:
            return DocumentWriter(
                schema,
                stream_buffer_bytes=fixed_bytes if self._buffer is None else self._buffer.buffer_bytes,
                is_envelope=constraint.mode is Mode.ENVELOPE,
                has_logprobs=prompt.logprobs,
                confidence=confidence,
                beginning=beginning,
                stream=self._number,
            )

        self._writer = open_document() if open_calls is None else open_calls(open_document, self._number)
        margin_s = min(_MAX_MARGIN_S, _MARGIN_SHARE * (deadline_s - self._started_s))
        self.deadline_s = deadline_s - margin_s

    @property
    def is_whole(self) -> bool:
        """The document that another node began lacks nothing but its end."""
        return self._writer.is_done

    async def run(self, generation: Generation) -> None:
        """Deliver to the END frame. Raises BACKEND_FAILED and DEADLINE_EXCEEDED before the first field only."""
        self._metrics.observe_start(self._model, self._mode, generation.queue_s)
        outcome = "cancelled"
        try:
            ending = await self._stream(generation)
            for chunk in self._writer.finish(ending):
                await self._write(chunk)
            if self._buffer is not None and isinstance(self._writer, DocumentWriter):
                self._buffer.observe(self._writer.splits)
            outcome = frame_pb2.Verdict.Name(frame_pb2.Verdict.ValueType(self._writer.verdict)).removeprefix("VERDICT_")
        except MeshError as error:
            outcome = error.reason_name
            raise
        finally:
            self._observe_end(outcome.lower(), generation.outcome)

    @property
    def _is_over(self) -> bool:
        return isinstance(self._writer, ToolAnswerWriter) and self._writer.is_over

    async def end_whole(self) -> None:
        """Write the end that a whole document lacks; no model runs, and nothing is consumed."""
        for chunk in self._writer.finish(Ending(frame_pb2.FINISH_REASON_STOP)):
            await self._write(chunk)

    async def _write(self, chunk: bytes) -> None:
        frames = sum(kind < FrameKind.DECISION for kind, _, _ in scan_heads(chunk))
        chunk_sent(self._number, frames, len(chunk))
        await self._call.write(chunk)
        self._metrics.observe_frames(self._model, frames)

    async def _stream(self, generation: Generation) -> Ending:
        try:
            async with asyncio.timeout_at(self.deadline_s):
                await self._write_fields(generation)
        except TimeoutError as error:
            generation.cancel()
            if not self._writer.has_field:
                raise MeshError(
                    ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED,
                    "the deadline passed before the first field",
                    metadata={"stage": "generate"},
                ) from error
            return _ending(generation.outcome, frame_pb2.FINISH_REASON_ABORTED, frame_pb2.INCOMPLETE_REASON_DEADLINE)
        except MeshError as error:
            if error.reason != ErrorReason.ERROR_REASON_BACKEND_FAILED or not self._writer.has_field:
                raise
            return _ending(
                generation.outcome,
                frame_pb2.FINISH_REASON_ABORTED,
                frame_pb2.INCOMPLETE_REASON_BACKEND_FAILED,
            )
        return self._natural_ending(generation.outcome)

    async def _write_fields(self, generation: Generation) -> None:
        while tokens := await generation.read():
            if self._first_token_s is None:
                self._first_token_s = self._clock()
                self._metrics.observe_first_token(self._model, self._first_token_s - self._started_s)
            chunks = self._feed(tokens, _usage(generation.outcome) if self._tells_usage else None)
            if self._writer.is_settled and (self._writer.is_invalid or not generation.outcome.is_estimated):
                generation.cancel()
            for chunk in chunks:
                await self._write(chunk)
            if not self._has_first_field and self._writer.has_field:
                self._has_first_field = True
                self._metrics.observe_first_field(self._model, self._clock() - self._started_s)
            if self._writer.is_settled:
                await self._await_counts(generation)
                return

    def _feed(self, tokens: Sequence[Token], usage: mesh_pb2.Usage | None) -> list[bytes]:
        if isinstance(self._writer, ToolAnswerWriter):
            return self._writer.feed(tokens, usage)
        return self._writer.feed([(token.text, token.logprob) for token in tokens], usage)

    async def _await_counts(self, generation: Generation) -> None:
        """The document is whole: a server that says its counts last is about to. Whatever else comes is prose."""
        if not self._writer.is_invalid and generation.outcome.is_estimated:
            with suppress(TimeoutError, MeshError):
                async with asyncio.timeout(_COUNTS_WAIT_S):
                    while await generation.read():
                        pass
        generation.cancel()

    def _natural_ending(self, outcome: Outcome) -> Ending:
        if self._writer.is_invalid:
            self._metrics.observe_violation(self._model, self._mode)
            self.has_lost_constraint = is_lost(self._mode, self._writer.violation_rule)
            return _ending(outcome, frame_pb2.FINISH_REASON_ABORTED)
        if self._writer.is_done or self._is_over:
            # The limit may have been reached with the token that closed the document.
            return _ending(outcome, frame_pb2.FINISH_REASON_STOP)
        finish, incomplete = _ENDINGS[outcome.stop]
        if isinstance(self._writer, ToolAnswerWriter):
            if outcome.stop is Stop.END and self._writer.lacks_call:
                raise MeshError(
                    ErrorReason.ERROR_REASON_BACKEND_FAILED, "the model calls no tool, where it was told that it must"
                )
            return _ending(outcome, finish, incomplete)
        if outcome.stop is Stop.END and self._mode is Mode.TEXT:
            incomplete = frame_pb2.INCOMPLETE_REASON_UNSPECIFIED
        return _ending(outcome, finish, incomplete)

    def _observe_end(self, outcome: str, usage: Outcome) -> None:
        now_s = self._clock()
        self._metrics.observe_end(
            self._model,
            outcome,
            usage,
            total_s=now_s - self._started_s,
            decode_s=now_s - (self._first_token_s or now_s),
        )


def _usage(outcome: Outcome) -> mesh_pb2.Usage:
    return mesh_pb2.Usage(
        input_tokens=outcome.input_tokens,
        output_tokens=outcome.output_tokens,
        cached_input_tokens=outcome.cached_input_tokens,
    )


def _ending(
    outcome: Outcome,
    finish_reason: frame_pb2.FinishReason.ValueType,
    incomplete_reason: frame_pb2.IncompleteReason.ValueType = frame_pb2.INCOMPLETE_REASON_UNSPECIFIED,
) -> Ending:
    return Ending(
        finish_reason,
        incomplete_reason,
        outcome.input_tokens,
        outcome.output_tokens,
        outcome.cached_input_tokens,
    )
