"""One answer, as its chunks arrive: no I/O, no clock. Shared by the sync stream, the async stream and sessions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from ssop.v1 import frame_pb2, mesh_pb2
from ssop_codec import Decoder, End, Frame, FrameError, FrameKind, Header, Verdict
from ssop_codec.probes import stream_number
from ssop_sdk.errors import (
    DegradedAnswer,
    FrameLoss,
    GenerationInterrupted,
    OutputError,
    OutputIncomplete,
    OutputInvalid,
    ProtocolError,
    SsopError,
)

M = TypeVar("M", bound=Message)

_CONTENT_KINDS: Final = frozenset({FrameKind.VALUE, FrameKind.PART, FrameKind.CLOSE})


@dataclass(frozen=True, slots=True)
class ToolCallResult:
    """A tool that the model asks the application to call, its arguments validated."""

    id: str
    name: str
    arguments: Any


class Answer:
    """State of one answer.

    `feed` takes chunk bytes and returns the frames that say something about the document; what the mesh says
    about the delivery lands in the attributes. `finish` judges the whole when the call has ended well, `fail`
    when it has not.
    """

    def __init__(
        self,
        request_id: str,
        *,
        load: Callable[[Any], Any] | None = None,
        allow_degraded: bool = False,
        max_degraded_level: int | None = None,
        shown_seq: int = 0,
    ) -> None:
        """`shown_seq` is the last sequence number whose frame the caller already knows; 0 for none."""
        self.request_id = request_id
        self.decision: mesh_pb2.Decision | None = None
        self.status: mesh_pb2.DeliveryStatus | None = None
        self.accounting: mesh_pb2.Accounting | None = None
        self.logprobs: list[mesh_pb2.FieldLogprob] = []
        self.fields: dict[str, Any] = {}
        self.last_seq = 0
        self.has_frames = False
        self._has_content = False
        self._load = load
        self._allow_degraded = allow_degraded
        self._max_degraded_level = 3 if max_degraded_level is None else max_degraded_level
        self._shown_seq = shown_seq
        self._decoder = Decoder(stream_id=stream_number(request_id))
        self._loaded: tuple[Any] | None = None

    @property
    def end(self) -> End | None:
        """The end of the main document; None until it has arrived."""
        return self._decoder.end

    @property
    def _last_end(self) -> End | None:
        """The end that speaks for the whole: the main document's, or the last call's where there are only calls."""
        if (end := self.end) is not None:
            return end
        documents = [found for _, found in sorted(self._decoder.documents.items()) if found.header or found.end]
        if not documents or any(found.end is None for found in documents):
            return None
        last: End | None = documents[-1].end
        return last

    @property
    def text(self) -> str:
        """Plain text as far as it has arrived."""
        return self._decoder.text

    @property
    def document(self) -> Any:
        """The main document as plain JSON values; None until its end."""
        return self._decoder.result if self.end is not None else None

    def header_of(self, document: int) -> Header:
        """What the header of a document says. Raises ProtocolError where none has arrived."""
        found = self._decoder.documents.get(document)
        if found is None or found.header is None:
            raise ProtocolError("a frame arrived before the header of its document", request_id=self.request_id)
        return found.header

    @property
    def tool_calls(self) -> Sequence[ToolCallResult]:
        """Tool calls that have ended with a good verdict, in order."""
        return [
            ToolCallResult(document.header.tool_call_id, document.header.tool_name, document.result)
            for number, document in sorted(self._decoder.documents.items())
            if number and document.header and document.end and document.end.verdict == Verdict.OK
        ]

    @property
    def usage(self) -> mesh_pb2.Usage | None:
        """Tokens that the generation consumed; None until the end."""
        if self.accounting is not None:
            return self.accounting.usage
        end = self._last_end
        if end is None:
            return None
        return mesh_pb2.Usage(
            input_tokens=end.input_tokens,
            output_tokens=end.output_tokens,
            cached_input_tokens=end.cached_input_tokens,
        )

    @property
    def finish_reason(self) -> str:
        """Name of the `FinishReason`; empty until the end."""
        end = self._last_end
        return _name(frame_pb2.FinishReason, end.finish_reason, "FINISH_REASON_") if end is not None else ""

    @property
    def degraded_level(self) -> int:
        """0 for an answer of the tier that was chosen, as far as is known."""
        return self.status.degraded_level if self.status is not None else 0

    @property
    def frames_received(self) -> int:
        """Document frames that arrived."""
        return self._decoder.frames_received

    @property
    def frames_verified(self) -> int:
        """Of these, how many were in sequence and decoded."""
        return self._decoder.frames_verified

    def feed(self, chunk: bytes) -> list[Frame]:
        """Take a chunk; return its frames that carry values, parts and closes, in order.

        Raises DegradedAnswer, FrameLoss and ProtocolError; nothing more may be fed then.
        """
        try:
            frames = self._decoder.feed(chunk)
        except FrameError as error:
            raise ProtocolError(str(error), request_id=self.request_id) from error
        self.has_frames = self.has_frames or bool(frames)
        shown: list[Frame] = []
        for frame in frames:
            if frame.kind >= FrameKind.DECISION:
                self._take_mesh_frame(frame)
                continue
            if frame.document == 0:
                if frame.seq != self.last_seq + 1:
                    raise self._loss(frame.seq)
                self.last_seq = frame.seq
                if frame.delta:
                    self.fields.update(frame.delta)
                if frame.seq <= self._shown_seq:
                    continue
            if frame.kind in _CONTENT_KINDS:
                self._has_content = True
                shown.append(frame)
        if self._decoder.missing:
            raise self._loss(0)
        return shown

    def finish(self, trailers: Mapping[str, str | bytes]) -> None:
        """Judge the whole; the call has ended with OK.

        Raises OutputInvalid, OutputIncomplete, FrameLoss, and DegradedAnswer where only the trailers say so.
        """
        if self.degraded_level == 0 and trailers.get("x-ssop-status") == "DEGRADED":
            level = str(trailers.get("x-ssop-degraded-level", ""))
            self._judge_degradation(int(level) if level.isdecimal() else 1, "UNSPECIFIED")
        documents = [d for _, d in sorted(self._decoder.documents.items()) if d.header or d.end]
        sent = self.accounting.frames_sent if self.accounting is not None else 0
        if not documents or sent > self.frames_received or any(d.end is None for d in documents):
            raise self._loss(0)
        for document in documents:
            self._judge(document.end)

    def fail(self, error: SsopError) -> SsopError:
        """The error to raise; the call has ended with the given one."""
        if isinstance(error, OutputError):
            error.partial = self.partial
        lost_peer = error.code is grpc.StatusCode.UNAVAILABLE and not error.from_mesh
        if not lost_peer or not self._has_content:
            return error
        interrupted = GenerationInterrupted(
            f"the connection was lost: {error.message}",
            metadata={"last_seq": str(self.last_seq)},
            request_id=self.request_id,
        )
        interrupted.__cause__ = error
        return interrupted

    def reopen(self) -> None:
        """Get ready for a delivery that goes on with this answer."""
        self.decision = self.status = self.accounting = None
        self.has_frames = False

    def load_result(self) -> Any:
        """The whole, as what the caller asked for; only after `finish`."""
        if self._loaded is None:
            value = self.document
            # An answer of calls alone has no main document.
            self._loaded = (value if self._load is None or self.end is None else self._load(value),)
        return self._loaded[0]

    @property
    def partial(self) -> Any:
        """What has arrived whole: the text so far, or the complete top-level properties."""
        return self.text or dict(self.fields)

    def receipt(self) -> mesh_pb2.Receipt | None:
        """What arrived; None where nothing did."""
        if not self.frames_received:
            return None
        return mesh_pb2.Receipt(
            request_id=self.request_id,
            frames_received=self.frames_received,
            frames_verified=self.frames_verified,
            is_complete=self._last_end is not None,
        )

    def _take_mesh_frame(self, frame: Frame) -> None:
        payload = frame.mesh or b""
        if frame.kind == FrameKind.DECISION:
            self.decision = self._parse(mesh_pb2.Decision, payload)
        elif frame.kind == FrameKind.STATUS:
            self.status = self._parse(mesh_pb2.DeliveryStatus, payload)
            is_degraded = self.status.state == mesh_pb2.DELIVERY_STATE_DEGRADED
            if is_degraded or self.status.degraded_level:
                self._judge_degradation(
                    self.status.degraded_level,
                    _name(mesh_pb2.DegradedReason, self.status.degraded_reason, "DEGRADED_REASON_"),
                )
        elif frame.kind == FrameKind.ACCOUNTING:
            self.accounting = self._parse(mesh_pb2.Accounting, payload)
        elif frame.kind == FrameKind.LOGPROBS:
            self.logprobs.extend(self._parse(mesh_pb2.FieldLogprobs, payload).fields)

    def _parse(self, kind: type[M], payload: bytes) -> M:
        try:
            return kind.FromString(payload)
        except DecodeError as error:
            raise ProtocolError("a mesh frame is malformed", request_id=self.request_id) from error

    def _judge_degradation(self, level: int, reason: str) -> None:
        if self._allow_degraded and level <= self._max_degraded_level:
            return
        raise DegradedAnswer(
            f"the answer is degraded to level {level} ({reason}); allow_degraded takes such answers",
            metadata={"level": str(level), "degraded_reason": reason},
            request_id=self.request_id,
        )

    def _judge(self, end: End | None) -> None:
        if end is None or end.verdict == Verdict.OK:
            return
        error: OutputError
        if end.verdict == Verdict.INCOMPLETE:
            reason = _name(frame_pb2.IncompleteReason, end.incomplete_reason, "INCOMPLETE_REASON_")
            error = OutputIncomplete(
                f"the answer was cut: {reason}",
                metadata={"incomplete_reason": reason},
                request_id=self.request_id,
            )
        else:
            found = end.violation
            rule, pointer, offset = (
                (found.rule, found.pointer, found.offset_bytes) if found is not None else ("", "", 0)
            )
            error = OutputInvalid(
                f"{rule or 'an unnamed rule'} at {pointer or 'the root'}, offset {offset}",
                metadata={"rule": rule, "pointer": pointer, "offset_bytes": str(offset)},
                request_id=self.request_id,
            )
        error.partial = self.partial
        raise error

    def _loss(self, received_seq: int) -> FrameLoss:
        expected = self.last_seq + 1
        came = f"frame {received_seq} came" if received_seq else "the answer ended or went on without it"
        return FrameLoss(
            f"frame {expected} is missing: {came}",
            metadata={"expected_seq": str(expected), "received_seq": str(received_seq)},
            request_id=self.request_id,
        )


def _name(enum: Any, number: int, prefix: str) -> str:
    try:
        name: str = enum.Name(number)
    except ValueError:
        # A newer mesh has values that these stubs do not know.
        return str(number)
    return name.removeprefix(prefix)
