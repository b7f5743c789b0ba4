"""A whole document and what stands around it, for the slow encoder. Product code never imports it."""

from __future__ import annotations

from ._reader_py import BLANKS, DIGITS, BrokenError, D, Reading, SlowReader
from ._values_py import read_token, read_value
from .constants import FieldType


def read_document(reader: SlowReader) -> Reading:
    """Mark or preamble, the root, and what follows it."""
    if reader.is_envelope:
        yield from _read_preamble(reader)
    else:
        for position, byte in enumerate(b"\xef\xbb\xbf"):
            read = yield from reader.next_byte()
            if read != byte:
                if position:
                    raise BrokenError("syntax", reader.at, reader.root, D.VALUE)
                reader.held = read
                break
    yield from read_value(reader, (yield from read_token(reader, reader.root)), reader.root)
    reader.is_done = True
    while True:
        byte = yield from reader.next_byte()
        if byte not in BLANKS and not reader.is_envelope:
            raise BrokenError("trailing", reader.at, reader.root)


def _read_preamble(reader: SlowReader) -> Reading:
    while True:
        byte = yield from reader.next_byte()
        reader.preamble.append(byte)
        if _begins_document(reader):
            reader.held = byte
            return


def _begins_document(reader: SlowReader) -> bool:  # noqa: C901, PLR0911, PLR0912  # SPEC.md section 9, rule by rule
    """Whether the last byte of the preamble is the first of the document."""
    types = reader.root.rule.types
    text = bytes(reader.preamble)
    at = 0
    is_after_prose = False
    ticks = 0
    while at < len(text):
        byte = text[at]
        rest = text[at:]
        if (byte == 0x7B and types & FieldType.OBJECT) or (byte == 0x5B and types & FieldType.ARRAY):
            return True
        if rest.startswith(b"<think>"):
            end = text.find(b"</think>", at + 7)
            if end < 0:
                return False
            at = end + 8
            is_after_prose = False
            continue
        if byte == 0x3C:
            # A tag that breaks off is no prose until the byte that breaks it.
            at += next(n for n in range(1, 8) if rest[: n + 1] != b"<think>"[: n + 1])
            ticks = 0
            continue
        ticks = ticks + 1 if byte == 0x60 else 0
        at += 1
        if ticks == 3:
            ticks = 0
            while at < len(text) and text[at] != 0x0A:
                if text[at] == 0x7B and types & FieldType.OBJECT:
                    return True
                if text[at] == 0x5B and types & FieldType.ARRAY:
                    return True
                at += 1
            if at == len(text):
                return False
            at += 1
            is_after_prose = False
            continue
        if byte in BLANKS or byte >= 0x80 or byte == 0x60 or is_after_prose:
            continue
        if byte == 0x22 and types & FieldType.STRING:
            return True
        if (byte in DIGITS or byte == 0x2D) and types & FieldType.INTEGER:
            return True
        if not types & (FieldType.OBJECT | FieldType.ARRAY):
            return True
        is_after_prose = True
    return False
