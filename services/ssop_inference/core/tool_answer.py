"""An answer that may call tools: a document for its text, and one for the arguments of each call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ssop.v1 import frame_pb2, mesh_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_codec import Schema
from ssop_inference.core.document import OK, DocumentWriter, Ending
from ssop_inference.core.tokens import Token
from ssop_inference.core.tools import CallSplitter, Choice, ToolUse

_NO_ARGUMENTS: Final = Token(b"{}")


@dataclass(slots=True)
class _Call:
    """A call and the writer of its arguments."""

    writer: DocumentWriter
    is_empty: bool = True
    is_ended: bool = False


class ToolAnswerWriter:
    """As `DocumentWriter`, of several documents. `feed` and `finish` raise BACKEND_FAILED for a call that can't be.

    The main document is there only where the model writes text, or nothing at all. Text of an answer that must be a
    call is none of it and is left out.
    """

    is_done = False
    """More calls may come until the model stops."""

    def __init__(
        self,
        use: ToolUse,
        schemas: Mapping[str, Schema],
        open_main: Callable[[], DocumentWriter],
        *,
        stream_buffer_bytes: int,
        is_text: bool,
        is_envelope: bool,
        new_id: Callable[[], str],
        splitter: CallSplitter | None = None,
        stream: int = 0,
    ) -> None:
        """`schemas`: of the arguments of each tool. `is_text`: the main document is plain text.

        `splitter`: the model writes calls in the marked form. `stream` as in `DocumentWriter`.
        """
        self._stream = stream
        self._use = use
        self._schemas = {spec.name: schemas[spec.name] for spec in use.callable}
        self._open_main = open_main
        self._buffer_bytes = stream_buffer_bytes
        self._is_text = is_text
        self._is_envelope = is_envelope
        self._new_id = new_id
        self._splitter = splitter
        self._main: DocumentWriter | None = None
        self._calls: list[_Call] = []
        self.is_settled = False
        self.is_over = False
        """All calls that are wanted were made."""

    @property
    def _writers(self) -> list[DocumentWriter]:
        main = [self._main] if self._main is not None else []
        return main + [call.writer for call in self._calls]

    @property
    def has_field(self) -> bool:
        """A field frame was made."""
        return any(writer.has_field for writer in self._writers)

    @property
    def is_invalid(self) -> bool:
        """A document breaks its schema."""
        return any(writer.is_invalid for writer in self._writers)

    @property
    def violation_rule(self) -> str:
        """The rule that was broken first; empty while none is."""
        return next((writer.violation_rule for writer in self._writers if writer.is_invalid), "")

    @property
    def verdict(self) -> int:
        """The gravest verdict of its documents; 0 before `finish`."""
        verdicts = [writer.verdict for writer in self._writers]
        return next((verdict for verdict in verdicts if verdict != OK), OK if verdicts else 0)

    @property
    def lacks_call(self) -> bool:
        """A call is required, and there is none."""
        return self._use.choice is Choice.REQUIRED and not self._calls

    def feed(self, tokens: Sequence[Token], usage: mesh_pb2.Usage | None = None) -> list[bytes]:
        """Take a batch of tokens; give every chunk that it completes, the last one flushed."""
        chunks: list[bytes] = []
        for token in self._splitter.split(tokens) if self._splitter is not None else tokens:
            if not self.is_settled:
                chunks += self._take(token, usage)
        return chunks

    def finish(self, ending: Ending) -> list[bytes]:
        """The last chunks, an END for each document that has none."""
        chunks: list[bytes] = []
        for token in self._splitter.end() if self._splitter is not None else ():
            chunks += self._take(token, None)
        # A call in the marked form is all of its answer, so nothing can be missing after it.
        is_cut = ending.finish_reason != frame_pb2.FINISH_REASON_STOP and self._splitter is None
        if self._calls:
            if ending.finish_reason == frame_pb2.FINISH_REASON_STOP:
                ending = Ending(frame_pb2.FINISH_REASON_TOOL_CALLS, ending.incomplete_reason, ending.outcome)
            chunks += self._end_call(self._calls[-1], ending)
        if self._main is None and (not self._calls or (is_cut and self.verdict == OK)):
            # Where all calls are whole, and others may have been to come, only this document can say so.
            self._main = self._open_main()
        if self._main is not None:
            is_whole = self._main.is_done or (
                self._is_text
                and ending.finish_reason in {frame_pb2.FINISH_REASON_STOP, frame_pb2.FINISH_REASON_TOOL_CALLS}
            )
            chunks += self._main.finish(_whole(ending) if is_whole else ending)
        return chunks

    def _take(self, token: Token, usage: mesh_pb2.Usage | None) -> list[bytes]:
        if token.call == 0:
            return self._take_text(token, usage)
        chunks: list[bytes] = []
        if token.call > len(self._calls):
            if self._calls:
                if self._use.is_single:
                    self.is_settled = self.is_over = True
                    return []
                chunks += self._end_call(self._calls[-1], Ending(frame_pb2.FINISH_REASON_TOOL_CALLS))
            self._open_call(token)
        call = self._calls[-1]
        if token.text and not self.is_settled:
            call.is_empty = False
            chunks += call.writer.feed([token], usage)
            self.is_settled = call.writer.is_invalid
        return chunks

    def _take_text(self, token: Token, usage: mesh_pb2.Usage | None) -> list[bytes]:
        if self._use.choice is Choice.REQUIRED:
            return []
        if self._main is None:
            # Servers put line breaks around calls, which are no text of an answer.
            if not token.text.strip() and self._calls:
                return []
            self._main = self._open_main()
        chunks = self._main.feed([token], usage)
        self.is_settled = self._main.is_invalid
        return chunks

    def _open_call(self, token: Token) -> None:
        schema = self._schemas.get(token.name)
        if schema is None:
            raise MeshError(ErrorReason.ERROR_REASON_BACKEND_FAILED, "the model calls a tool that it may not call")
        writer = DocumentWriter(
            schema,
            stream_buffer_bytes=self._buffer_bytes,
            is_envelope=self._is_envelope,
            has_logprobs=False,
            document=len(self._calls) + 1,
            tool_name=token.name,
            tool_call_id=token.id or self._new_id(),
            stream=self._stream,
        )
        self._calls.append(_Call(writer))

    def _end_call(self, call: _Call, ending: Ending) -> list[bytes]:
        """The END of a call; one whose arguments are not whole is the end of the answer, too."""
        if call.is_ended:
            return []
        call.is_ended = True
        chunks: list[bytes] = []
        if call.is_empty and ending.finish_reason == frame_pb2.FINISH_REASON_TOOL_CALLS:
            # Some servers send nothing for a tool without arguments.
            chunks += call.writer.feed([_NO_ARGUMENTS])
        if call.writer.is_done or call.writer.is_invalid:
            ending = _whole(ending)
        elif not ending.incomplete_reason:
            ending = Ending(ending.finish_reason, frame_pb2.INCOMPLETE_REASON_STOPPED_EARLY, ending.outcome)
        chunks += call.writer.finish(ending)
        self.is_settled = self.is_settled or call.writer.verdict != OK
        return chunks


def _whole(ending: Ending) -> Ending:
    return Ending(ending.finish_reason, outcome=ending.outcome)
