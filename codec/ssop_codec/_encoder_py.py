"""The encoder written for the reader, not for the machine: the oracle that `_encoder` is tested against.

It follows the grammar of JSON with one generator per rule, takes one byte at a time and judges by the plain
reading of the schema. Same interface, same bytes. Product code never imports it.
"""

from __future__ import annotations

from typing import Any

from . import describe, wire
from ._document_py import read_document
from ._numbers_py import end_number
from ._reader_py import DIGITS, BrokenError, D, SlowReader
from ._strings_py import finish_text, flush_text, read_text
from .constants import DONE, INVALID, READY, Verdict
from .errors import CodecError, Violation
from .rules import Schema


class Encoder(SlowReader):
    """Makes the frames of one document from the bytes that a model generates."""

    def __init__(self, schema: Schema | None, **options: Any) -> None:
        super().__init__(schema, **options)
        self.reading = read_text(self) if self.schema.is_text else read_document(self)
        next(self.reading)

    def feed(self, data: bytes | bytearray | memoryview) -> int:
        """Read the next bytes of model output; returns flags READY, DONE, INVALID."""
        if self.is_finished:
            raise CodecError("feed after finish")
        for byte in bytes(data):
            if self.violation is not None:
                break
            try:
                self._take_byte(byte)
            except BrokenError as broken:
                self._break(broken)
        flags = READY if self.sealed else 0
        if self.violation is not None:
            return flags | INVALID
        return flags | (DONE if self.is_done else 0)

    def _take_byte(self, byte: int) -> None:
        if self.offset == self.limits.max_document_bytes and not (self.is_done and self.is_envelope):
            around = self.innermost[-1] if self.innermost else self.root
            raise BrokenError("limit", self.offset, around, D.DOCUMENT)
        self.offset += 1
        self.read.append(byte)
        self.reading.send(byte)

    def take(self) -> bytes:
        """The next sealed chunk, or an empty one."""
        return self.sealed.pop(0) if self.sealed else b""

    def flush(self) -> bytes:
        """Seal what is pending and return the oldest chunk."""
        if self.schema.is_text and not self.is_finished and self.violation is None:
            flush_text(self)
        self.seal()
        return self.take()

    def drain(self, flush: bool = False) -> list[bytes]:
        """All sealed chunks, and with `flush` the pending one."""
        chunks = [self.flush()] if flush else []
        chunks += self.sealed
        self.sealed = []
        return [chunk for chunk in chunks if chunk]

    def take_spans(self) -> list[tuple[int, int, int]]:
        """Spans of the values completed since the last call."""
        spans, self.spans = self.spans, []
        return spans

    @property
    def frames(self) -> int:
        """Document frames made so far."""
        return self.seq - self.first_seq

    def finish(
        self,
        *,
        finish_reason: int = 0,
        incomplete_reason: int = 0,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cached_input_tokens: int = 0,
    ) -> None:
        """Decide the verdict and append the END frame."""
        if self.is_finished:
            return
        try:
            if self.schema.is_text and self.violation is None:
                finish_text(self, incomplete_reason)
            elif self._ends_with_number() and not incomplete_reason:
                end_number(self, self.number_place, bytes(self.number or b""), self.offset)
                self.is_done = True
        except BrokenError as broken:
            self._break(broken)
        self.is_finished = True
        if self.violation is not None:
            self.verdict = Verdict.INVALID
        else:
            self.verdict = Verdict.OK if self.is_done else Verdict.INCOMPLETE
        self.push(
            wire.end_frame(
                self.seq,
                self.buffer_bytes,
                self.verdict,
                document=self.document,
                violation=self.violation,
                incomplete_reason=wire.incomplete_reason_or_default(incomplete_reason),
                finish_reason=finish_reason,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cached_input_tokens=cached_input_tokens,
            )
        )

    def _ends_with_number(self) -> bool:
        """The output so far is a whole number at the root."""
        is_open = self.number is not None and self.violation is None and not self.innermost
        return is_open and self.number is not None and self.number[-1] in DIGITS

    def _break(self, broken: BrokenError) -> None:
        place = broken.place
        if broken.detail:
            text = describe.DETAILS[broken.detail]
        else:
            text = describe.expected(broken.rule, place.rule, place.structure, broken.missing)
        self.is_done = False
        self.violation = Violation(broken.rule, place.pointer, broken.offset, text)
