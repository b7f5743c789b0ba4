"""Numbers and literals, for the slow encoder. Product code never imports it."""

from __future__ import annotations

from . import wire
from ._reader_py import DIGITS, BrokenError, D, Place, Reading, SlowReader
from .checks import broken_number_rule
from .constants import FieldType, FrameKind
from .number import parse_number, to_int64
from .number_prefix import broken_by_prefix
from .rules import Rule


def read_number(reader: SlowReader, byte: int, place: Place) -> Reading:
    """A number from its first byte on, and the byte behind it, which is held back."""
    text = reader.number = bytearray((byte,))
    reader.number_place = place
    _judge_prefix(reader, text, place)
    while True:
        byte = yield from reader.next_byte()
        if not _is_number_prefix(bytes(text) + bytes((byte,))):
            break
        if len(text) == reader.limits.max_number_bytes:
            raise BrokenError("limit", reader.at, place, D.NUMBER_SIZE)
        text.append(byte)
        _judge_prefix(reader, text, place)
    if text[-1] not in DIGITS:
        raise BrokenError("syntax", reader.at, place, D.DIGIT)
    if byte not in b" \t\r\n,]}":
        raise BrokenError("syntax", reader.at, place, D.NUMBER_END)
    end_number(reader, place, bytes(text), reader.at)
    reader.held = byte


def _judge_prefix(reader: SlowReader, text: bytearray, place: Place) -> None:
    """Whether a number that begins so can still conform."""
    keyword = broken_by_prefix(place.rule, bytes(text))
    if keyword:
        raise BrokenError(keyword, reader.at, place)
    reader.obey(reader.judge.take(text[-1]), reader.at)


def end_number(reader: SlowReader, place: Place, text: bytes, offset: int) -> None:
    """Judge a number that is whole, and send it."""
    reader.number = None
    rule = place.rule
    keyword = broken_number_rule(rule, text)
    if keyword:
        raise BrokenError(keyword, offset, place)
    reader.obey(reader.judge.end(text, text), offset)
    reader.send(FrameKind.VALUE, place, _number_content(rule, text), offset)
    if not reader.innermost and reader.track_spans and offset == reader.offset:
        reader.span(reader.offset - len(text), reader.offset)


def read_literal(reader: SlowReader, byte: int, place: Place) -> Reading:
    """`true`, `false` or `null` from its first byte on."""
    word, value = {0x74: (b"true", True), 0x66: (b"false", False), 0x6E: (b"null", None)}[byte]
    if value is not None and value not in place.rule.bools:
        raise BrokenError(place.rule.enum_keyword, reader.at, place)
    for expected in word[1:]:
        if (yield from reader.next_byte()) != expected:
            raise BrokenError("syntax", reader.at, place, D.LITERAL)
    reader.obey(reader.judge.end(word), reader.at)
    reader.send(FrameKind.VALUE, place, wire.value_content(value), reader.at)


def _is_number_prefix(text: bytes) -> bool:
    """Whether a JSON number can begin with the text, or be it."""
    rest = text.removeprefix(b"-")
    mantissa, mark, exponent = rest.lower().partition(b"e")
    whole, point, fraction = mantissa.partition(b".")
    if not all(byte in DIGITS for byte in whole + fraction):
        return False
    if len(whole) > 1 and whole.startswith(b"0"):
        return False
    if (point or mark) and not whole:
        return False
    if mark and point and not fraction:
        return False
    digits = exponent[1:] if exponent[:1] in (b"+", b"-") else exponent
    return all(byte in DIGITS for byte in digits)


def _number_content(rule: Rule, text: bytes) -> bytes:
    is_integer_text = not set(text) & set(b".eE")
    if not rule.types & FieldType.NUMBER or is_integer_text:
        value = to_int64(parse_number(text))
        if value is None:
            return wire.json_content(text)
        if rule.is_double and rule.types & FieldType.NUMBER and int(float(value)) == value:
            return wire.double_content(float(text))
        return wire.int_content(value)
    double = float(text)
    if double in (float("inf"), float("-inf")) or (double == 0 and parse_number(text)[0]):
        return wire.json_content(text)
    return wire.double_content(double)
