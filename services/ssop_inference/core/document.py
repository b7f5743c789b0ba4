# cython: annotation_typing=False
"""From tokens to chunks of one document."""

from collections.abc import Sequence
from typing import Final

from ssop.v1 import frame_pb2, mesh_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_codec import DONE, INVALID, Encoder, FrameKind, Schema, mesh_chunk
from ssop_inference.core.beginning import Beginning, refuse_continuing
from ssop_inference.core.confidence import ConfidenceWriter
from ssop_inference.core.logprobs import FieldScorer, FieldSpan, TokenSpan
from ssop_inference.core.tokens import UNUSED, Outcome, Token


class Ending:
    """Why the document ends, and what it consumed."""

    __slots__ = ("finish_reason", "incomplete_reason", "outcome")

    def __init__(
        self,
        finish_reason: frame_pb2.FinishReason.ValueType,
        incomplete_reason: frame_pb2.IncompleteReason.ValueType = frame_pb2.INCOMPLETE_REASON_UNSPECIFIED,
        outcome: Outcome = UNUSED,
    ) -> None:
        self.finish_reason = finish_reason
        self.incomplete_reason = incomplete_reason
        self.outcome = outcome


OK: Final = frame_pb2.VERDICT_OK


def usage_of(outcome: Outcome) -> mesh_pb2.Usage:
    """What it consumed, as the protocol has it."""
    return mesh_pb2.Usage(
        input_tokens=outcome.input_tokens,
        output_tokens=outcome.output_tokens,
        cached_input_tokens=outcome.cached_input_tokens,
    )


class DocumentWriter:
    """Feeds the codec and collects what is ready. After `is_settled` more tokens change nothing.

    With a `beginning` its text is read first. The frames that are final already are made again and dropped, each once
    it is shown to be the same; `feed` and `finish` raise BACKEND_FAILED for one that is not.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        stream_buffer_bytes: int,
        is_envelope: bool,
        has_logprobs: bool,
        confidence: ConfidenceWriter | None = None,
        beginning: Beginning | None = None,
        document: int = 0,
        tool_name: str = "",
        tool_call_id: str = "",
        stream: int = 0,
    ) -> None:
        """`document` from 1, `tool_name` and `tool_call_id`: the document is the arguments of a call.

        `stream` is the number that tracers know the document's stream by; 0 for one of its own.
        """
        self._encoder = Encoder(
            schema,
            stream_id=stream,
            stream_buffer_bytes=stream_buffer_bytes,
            envelope=is_envelope,
            track_spans=has_logprobs or confidence is not None,
            document=document,
            tool_name=tool_name,
            tool_call_id=tool_call_id,
        )
        self._scorer = FieldScorer() if has_logprobs or confidence is not None else None
        self._has_logprobs = has_logprobs
        self._confidence = confidence
        self._offset = 0
        self._is_envelope = is_envelope
        self.is_invalid = False
        self.is_done = False
        self._final = beginning.frames if beginning is not None else ()
        self._repeated = 0
        if beginning is not None:
            self._begin(beginning)

    def _begin(self, beginning: Beginning) -> None:
        """Read what is final. Raises UNSUPPORTED where this codec, or this schema, makes other frames of it."""
        text = beginning.text
        if beginning.ends_with_number and self._is_envelope and not beginning.is_whole:
            # Without a grammar the model could write more digits.
            text += " "
        for part in beginning.parts if beginning.is_text else (text,):
            flags = self._encoder.feed(part.encode())
            self._offset += len(part.encode())
            self.is_invalid = bool(flags & INVALID)
            self.is_done = bool(flags & DONE)
            try:
                is_other = bool(self._collect(None)) or self.is_invalid
            except MeshError:
                is_other = True
            if is_other:
                raise refuse_continuing("this node makes other frames of what was sent")
        if beginning.is_text and beginning.is_whole:
            # Its last piece was sent by the end, not by a flush.
            self._encoder.feed(beginning.text[sum(map(len, beginning.parts)) :].encode())
            self.is_done = True

    @property
    def is_settled(self) -> bool:
        """The model should stop: a violation, or a document after which only prose may come."""
        return self.is_invalid or (self.is_done and self._is_envelope)

    @property
    def has_field(self) -> bool:
        """A field frame was made."""
        return self._encoder.has_field

    @property
    def violation_rule(self) -> str:
        """The rule that was broken; empty while none is."""
        violation = self._encoder.violation
        return "" if violation is None else violation.rule

    def feed(self, tokens: Sequence[Token], usage: mesh_pb2.Usage | None = None) -> list[bytes]:
        """Take a batch; give every chunk that it completes, the last one flushed. Only text and log-probability count.

        `usage` is what the generation has consumed so far, for those who are told the confidence.
        """
        if self._scorer is None:
            # The codec reads on after the end of a document, and has nothing to say of it.
            if not self.is_settled:
                self._feed(tokens[0].text if len(tokens) == 1 else b"".join([token.text for token in tokens]))
            return self._collect(usage)
        for token in tokens:
            if self.is_settled:
                break
            self._score(self._scorer, token.text, token.logprob)
            self._feed(token.text)
        return self._collect(usage)

    def _feed(self, text: bytes) -> None:
        flags = self._encoder.feed(text)
        self.is_invalid = bool(flags & INVALID)
        self.is_done = bool(flags & DONE)

    def finish(self, ending: Ending) -> list[bytes]:
        """The last chunks, END included."""
        outcome = ending.outcome
        self._encoder.finish(
            finish_reason=int(ending.finish_reason),
            incomplete_reason=int(ending.incomplete_reason),
            input_tokens=outcome.input_tokens,
            output_tokens=outcome.output_tokens,
            cached_input_tokens=outcome.cached_input_tokens,
        )
        return self._collect(None if self._scorer is None else usage_of(outcome))

    @property
    def verdict(self) -> int:
        """The verdict, as in `ssop.v1.Verdict`; 0 before `finish`."""
        return int(self._encoder.verdict)

    def _score(self, scorer: FieldScorer, text: bytes, logprob: float | None) -> None:
        if logprob is not None:
            scorer.add_token(TokenSpan(self._offset, self._offset + len(text), logprob))
        self._offset += len(text)

    def _drop_final(self, chunks: list[bytes]) -> list[bytes]:
        """What is new in chunks that begin with frames which are final already."""
        left: list[bytes] = []
        for chunk in chunks:
            frames = frame_pb2.Chunk.FromString(chunk).frames
            known = min(len(frames), len(self._final) - self._repeated)
            for frame in frames[:known]:
                if frame != self._final[self._repeated]:
                    raise MeshError(ErrorReason.ERROR_REASON_BACKEND_FAILED, "the model contradicts what was sent")
                self._repeated += 1
            if not known:
                left.append(chunk)
            elif known < len(frames):
                left.append(frame_pb2.Chunk(frames=frames[known:]).SerializeToString(deterministic=True))
        return left

    def _collect(self, usage: mesh_pb2.Usage | None) -> list[bytes]:
        chunks: list[bytes] = self._encoder.drain(flush=True)
        if not chunks and self._scorer is None:
            return chunks
        if self._repeated < len(self._final):
            chunks = self._drop_final(chunks)
        if self._scorer is None:
            return chunks
        spans = [FieldSpan(*span) for span in self._encoder.take_spans()]
        fields = self._scorer.score([span for span in spans if span.seq > len(self._final)])
        before: list[bytes] = []
        if self._confidence is not None:
            said = self._confidence.write(chunks, fields, self._scorer, usage or mesh_pb2.Usage())
            before = [mesh_chunk(FrameKind.CONFIDENCE, said.SerializeToString())] if said else []
        if fields.fields and self._has_logprobs:
            scored = mesh_chunk(FrameKind.LOGPROBS, fields.SerializeToString())
            # END is the last frame of a document, so what speaks of its fields goes before it.
            chunks = [*chunks[:-1], scored, chunks[-1]] if self.verdict else [*chunks, scored]
        return before + chunks
