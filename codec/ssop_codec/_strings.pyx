# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Reads strings: UTF-8 and escapes, judged and sent while they come.

Strings without an enumeration or a format are never held as a whole: what fills a frame leaves as a part.
Plain text is one such string, without quotes and escapes.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from ssop_codec._containers cimport end_key, end_scalar, read_key
from ssop_codec._frame_writer cimport room_of
from ssop_codec._judge_texts cimport judge_string_bytes, judge_string_end
from ssop_codec._program cimport ENUM_STRINGS, HAS_FORMAT, HAS_PATTERN, Node
from ssop_codec._reader cimport Reader
from ssop_codec._scan cimport (
    begin_code_point,
    continue_code_point,
    escaped_letter,
    is_digit,
    narrow,
    put_utf8,
    ssop_skip_plain,
    ssop_skip_plain_portably,
    ssop_skip_text,
    take_escape,
)
from ssop_codec._states cimport (
    AT_START,
    BROKEN,
    CLOSED,
    D_BUFFER,
    D_CONTROL,
    D_ESCAPE,
    D_FORMAT_SIZE,
    D_HEX,
    D_LONE_HALF,
    D_LOW_HALF,
    D_NONE,
    IN_ESCAPE,
    IN_STRING,
    IN_UNIT,
    KIND_PART,
    KIND_VALUE,
)
from ssop_codec._string_pattern cimport (
    begin_pattern,
    end_pattern,
    fail_pattern,
    judge_escape,
    judge_plain,
    judge_point,
    judge_unit,
    judge_utf8,
)

from .checks import keeps_format

# Bytes of a string that stand for themselves and are whole code points.
cdef uint8_t[256] PLAIN
cdef int _i
for _i in range(256):
    PLAIN[_i] = 0x20 <= _i < 0x80 and _i != 0x22 and _i != 0x5C


def plain_bytes(const unsigned char[::1] data, bint portably):
    """How many bytes from the first on stand for themselves in a string; `portably`: as found without blocks."""
    cdef const uint8_t* start = &data[0] if data.shape[0] else NULL
    if portably:
        return ssop_skip_plain_portably(start, start + data.shape[0]) - start
    return ssop_skip_plain(start, start + data.shape[0]) - start


cdef int begin_string(Reader reader, uint64_t offset) except -1:
    """The quote of a string was read."""
    reader.state = IN_STRING
    reader.in_key = False
    reader.text_size = 0
    reader.parts = 0
    reader.chars = 0
    reader.low_key = 0
    reader.high_key = reader.node.string_count
    reader.text_room = room_of(reader.writer, &reader.place, 0)
    if reader.text_room < 4:
        return reader.fail("limit", D_BUFFER, offset, True)
    if reader.node.flags & HAS_PATTERN:
        return begin_pattern(reader, offset)
    return 0


cdef const uint8_t* read_string(
    Reader reader, const uint8_t* start, const uint8_t* end, uint64_t offset
) except NULL:
    """Read on in the string or key that is open, up to its closing quote; returns the place behind what was
    read. `offset` is that of `start`."""
    cdef const uint8_t* p = start
    cdef const uint8_t* q
    cdef uint64_t at
    cdef bint is_free = not (
        reader.in_key
        or reader.node.flags & (ENUM_STRINGS | HAS_FORMAT | HAS_PATTERN)
        or (reader.judge is not None and reader.judge.in_value)
    )
    while p < end and IN_STRING <= reader.state <= IN_UNIT:
        if is_free and reader.state == IN_STRING and not reader.utf8.need and not reader.high:
            p = _read_free(reader, p, end, offset + (p - start))
            if p == end or reader.state == BROKEN:
                break
        at = offset + (p - start)
        q = p + 1
        if reader.state == IN_ESCAPE:
            _read_escape(reader, p[0], at)
        elif reader.state == IN_UNIT:
            _read_unit(reader, p[0], at)
        elif reader.utf8.need:
            if not continue_code_point(&reader.utf8, p[0]):
                reader.fail("utf8", D_NONE, at, not reader.in_key)
            elif _keeps_pattern(reader, p[0], at):
                _add(reader, p, 1, at, 0)
        elif PLAIN[p[0]]:
            q = ssop_skip_plain(q, end)
            if reader.high:
                reader.fail("syntax", D_LOW_HALF, at, not reader.in_key)
            else:
                _add(reader, p, <uint32_t>(q - p), at, 1)
        elif p[0] == 0x22:
            if reader.high:
                reader.fail("syntax", D_LOW_HALF, at, not reader.in_key)
            elif reader.in_key:
                end_key(reader, at)
            else:
                _end_string(reader, at)
        elif p[0] == 0x5C:
            if not reader.high and not reader.in_key and reader.chars == reader.node.max_length:
                reader.fail("maxLength", D_NONE, at, True)
            else:
                reader.state = IN_ESCAPE
                if not reader.high:
                    judge_escape(reader, at)
        else:
            _begin_code_point(reader, p[0], at)
        p = q
    return p


cdef const uint8_t* _read_free(Reader reader, const uint8_t* start, const uint8_t* end, uint64_t offset) except NULL:
    """Whole code points, escaped ones too, of a string about which nothing but its length is asked; returns the place
    behind them. `offset` is that of `start`."""
    cdef const uint8_t* p = start
    cdef const uint8_t* q
    cdef uint64_t left = reader.node.max_length - reader.chars
    cdef uint8_t[4] utf8
    cdef int point
    while True:
        q = ssop_skip_text(p, end, &left)
        if q != p:
            _append(reader, p, <uint64_t>(q - p), offset + (p - start), 1)
            p = q
        if p == end or p[0] != 0x5C or not left or reader.state == BROKEN:
            break
        point = take_escape(&p, end)
        if point < 0:
            break
        left -= 1
        _append(reader, utf8, put_utf8(utf8, <uint32_t>point), offset + (p - start) - 1, 0)
    reader.chars = reader.node.max_length - left
    return p


cdef int _begin_code_point(Reader reader, uint8_t c, uint64_t offset) except -1:
    """A byte of a string that is no plain one: a control or the first of a longer code point."""
    cdef bint in_child = not reader.in_key
    if c < 0x20:
        return reader.fail("syntax", D_CONTROL, offset, in_child)
    if reader.high:
        return reader.fail("syntax", D_LOW_HALF, offset, in_child)
    if not begin_code_point(&reader.utf8, c):
        return reader.fail("utf8", D_NONE, offset, in_child)
    if in_child:
        if reader.chars == reader.node.max_length:
            return reader.fail("maxLength", D_NONE, offset, True)
        reader.chars += 1
    if not _keeps_pattern(reader, c, offset):
        return 0
    return _add(reader, &c, 1, offset, 0)


cdef bint _keeps_pattern(Reader reader, uint8_t c, uint64_t offset) except -1:
    """Whether a byte of a longer code point leaves a text that matches; no failure is told twice."""
    if reader.in_key or not reader.node.flags & HAS_PATTERN:
        return True
    judge_utf8(reader, c, offset)
    return reader.state != BROKEN


# -- escapes --------------------------------------------------------------------------------------------


cdef int _read_escape(Reader reader, uint8_t c, uint64_t offset) except -1:
    """The byte behind a backslash."""
    cdef bint in_child = not reader.in_key
    if c == 0x75:
        reader.unit = 0
        reader.unit_digits = 0
        reader.state = IN_UNIT
        return 0
    if reader.high:
        return reader.fail("syntax", D_LOW_HALF, offset, in_child)
    c = escaped_letter(c)
    if not c:
        return reader.fail("syntax", D_ESCAPE, offset, in_child)
    return _add_escaped(reader, c, offset)


cdef int _read_unit(Reader reader, uint8_t c, uint64_t offset) except -1:
    """A digit behind a backslash and u: four are a UTF-16 unit, two units may be one code point."""
    cdef uint32_t digit
    cdef bint in_child = not reader.in_key
    if is_digit(c):
        digit = c - 0x30
    elif 0x61 <= (c | 0x20) <= 0x66:
        digit = (c | 0x20) - 0x61 + 10
    else:
        return reader.fail("syntax", D_HEX, offset, in_child)
    reader.unit = reader.unit << 4 | digit
    reader.unit_digits += 1
    if reader.unit_digits < 4:
        return judge_unit(reader, offset)
    cdef uint32_t unit = reader.unit
    if reader.high:
        if not 0xDC00 <= unit <= 0xDFFF:
            return reader.fail("syntax", D_LOW_HALF, offset, in_child)
        unit = 0x10000 + ((reader.high - 0xD800) << 10) + (unit - 0xDC00)
        reader.high = 0
    elif 0xD800 <= unit <= 0xDBFF:
        judge_unit(reader, offset)
        if reader.state == BROKEN:
            return 0
        reader.high = unit
        reader.state = IN_STRING
        return 0
    elif 0xDC00 <= unit <= 0xDFFF:
        return reader.fail("syntax", D_LONE_HALF, offset, in_child)
    return _add_escaped(reader, unit, offset)


cdef int _add_escaped(Reader reader, uint32_t point, uint64_t offset) except -1:
    cdef uint8_t[4] utf8
    cdef uint32_t size = put_utf8(utf8, point)
    reader.state = IN_STRING
    reader.chars += 1
    if not reader.in_key and reader.node.flags & HAS_PATTERN:
        judge_point(reader, point, offset)
        if reader.state == BROKEN:
            return 0
    return _add(reader, utf8, size, offset, 0)


# -- text -----------------------------------------------------------------------------------------------


cdef int _add(Reader reader, const uint8_t* data, uint32_t size, uint64_t offset, int step) except -1:
    """Bytes of a string, unescaped. `step` 1: plain bytes, each a code point, the first at `offset`;
    0: bytes of one code point, all known at `offset`."""
    cdef uint32_t take = size
    cdef uint32_t asked = size
    cdef uint32_t i, taken
    cdef uint64_t room
    cdef Node* node
    if reader.in_key:
        return read_key(reader, data, size, offset, step)
    node = reader.node
    if step:
        room = node.max_length - reader.chars
        if take > room:
            take = <uint32_t>room
        asked = take
        if node.flags & HAS_PATTERN:
            take = judge_plain(reader, data, take)
        reader.chars += take
    if node.flags & ENUM_STRINGS:
        for i in range(take):
            narrow(node.strings, &reader.low_key, &reader.high_key, reader.text_size + i, data[i])
            if reader.low_key == reader.high_key:
                if _judge(reader, data, i, offset, step):
                    return 0
                return reader.fail_member(offset + step * i)
        if _judge(reader, data, take, offset, step):
            return 0
        memcpy(reader.text + reader.text_size, data, take)
        reader.text_size += take
    elif node.flags & HAS_FORMAT:
        room = reader.caps.format_bytes - reader.text_size
        if take > room:
            if _judge(reader, data, <uint32_t>room, offset, step):
                return 0
            return reader.fail("limit", D_FORMAT_SIZE, offset + step * room, True)
        if _judge(reader, data, take, offset, step):
            return 0
        memcpy(reader.text + reader.text_size, data, take)
        reader.text_size += take
    else:
        taken = take
        if reader.judge is not None and reader.judge.in_value:
            taken = judge_string_bytes(reader.judge, data, take)
        _append(reader, data, taken, offset, step)
        if taken < take:
            return reader.fail_judged(offset + step * taken)
    if take < asked:
        return fail_pattern(reader, offset + step * take)
    if take < size:
        return reader.fail("maxLength", D_NONE, offset + step * take, True)
    return 0


cdef bint _judge(Reader reader, const uint8_t* data, uint32_t size, uint64_t offset, int step) except -1:
    """Whether the judge finds a violation in these bytes."""
    cdef uint32_t taken
    if reader.judge is None or not reader.judge.in_value:
        return False
    taken = judge_string_bytes(reader.judge, data, size)
    if taken < size:
        reader.fail_judged(offset + step * taken)
    return taken < size


cdef int _append(Reader reader, const uint8_t* data, uint64_t size, uint64_t offset, int step) except -1:
    """Keep bytes until they fill a frame. `step` 1: the first is at `offset`; 0: all are known there."""
    cdef uint32_t take, room
    while size:
        room = reader.text_room + 1 - reader.text_size
        take = <uint32_t>size if size < room else room
        memcpy(reader.text + reader.text_size, data, take)
        reader.text_size += take
        data += take
        size -= take
        offset += step * take
        if reader.text_size > reader.text_room:
            _cut_part(reader, offset - step)
            if reader.state == BROKEN:
                return 0
    return 0


cdef int _cut_part(Reader reader, uint64_t offset) except -1:
    """Send as many whole code points as fit a frame."""
    cdef uint32_t cut = reader.text_room
    while (reader.text[cut] & 0xC0) == 0x80:
        cut -= 1
    _send_part(reader, cut, offset)
    if reader.text_room < 4:
        return reader.fail("limit", D_BUFFER, offset, True)
    return 0


cdef int _send_part(Reader reader, uint32_t cut, uint64_t offset) except -1:
    """Send the first `cut` bytes of the text and keep the rest."""
    if not reader.writer.put_string(KIND_PART, &reader.place, 0, reader.text, cut):
        return reader.fail("limit", D_BUFFER, offset, True)
    reader.text_size -= cut
    memmove(reader.text, reader.text + cut, reader.text_size)
    reader.parts += 1
    reader.text_room = room_of(reader.writer, &reader.place, reader.parts)
    return 0


cdef int _end_string(Reader reader, uint64_t offset) except -1:
    """The closing quote was read: judge the string as a whole, and send its last piece."""
    cdef Node* node = reader.node
    if node.flags & ENUM_STRINGS:
        if reader.low_key == reader.high_key or node.strings[reader.low_key].size != reader.text_size:
            return reader.fail_member(offset)
    elif reader.chars < node.min_length:
        return reader.fail("minLength", D_NONE, offset, True)
    if node.flags & HAS_PATTERN:
        end_pattern(reader, offset)
        if reader.state == BROKEN:
            return 0
    if node.flags & HAS_FORMAT:
        rule = reader.program.schema.rules[node - reader.program.nodes]
        text = PyBytes_FromStringAndSize(<char*>reader.text, reader.text_size)
        if not keeps_format(rule, text):
            return reader.fail("format", D_NONE, offset, True)
    if reader.judge is not None and reader.judge.in_value and judge_string_end(reader.judge, offset + 1):
        return reader.fail_judged(offset)
    while reader.text_size > reader.text_room:
        # Strings that are judged whole were held back.
        _cut_part(reader, offset)
        if reader.state == BROKEN:
            return 0
    if not _send_rest(reader):
        return reader.fail("limit", D_BUFFER, offset, True)
    return end_scalar(reader, offset + 1)


cdef bint _send_rest(Reader reader) except -1:
    return reader.writer.put_string(KIND_VALUE, &reader.place, reader.parts, reader.text, reader.text_size)


# -- plain text -----------------------------------------------------------------------------------------


cdef int read_plain_text(Reader reader, const uint8_t* start, const uint8_t* end, uint64_t offset) except -1:
    """Read on in a document that is plain text. `offset` is that of `start`."""
    cdef const uint8_t* p = start
    cdef const uint8_t* q
    cdef uint64_t at
    if reader.state == AT_START:
        reader.state = IN_STRING
        reader.text_room = room_of(reader.writer, &reader.place, 0)
    while p < end and reader.state == IN_STRING:
        at = offset + (p - start)
        q = p + 1
        if reader.utf8.need:
            if not continue_code_point(&reader.utf8, p[0]):
                return reader.fail("utf8", D_NONE, at, True)
            _append(reader, p, 1, at, 1)
        elif p[0] < 0x80:
            while q < end and q[0] < 0x80:
                q += 1
            _append(reader, p, <uint64_t>(q - p), at, 1)
        else:
            _begin_code_point(reader, p[0], at)
        p = q
    return 0


cdef int flush_plain_text(Reader reader) except -1:
    """Send the whole code points so far as a part."""
    cdef uint32_t cut = reader.text_size
    if reader.state != IN_STRING or not cut:
        return 0
    if reader.utf8.need:
        cut -= 1
        while (reader.text[cut] & 0xC0) == 0x80:
            cut -= 1
    if not cut:
        return 0
    return _send_part(reader, cut, reader.offset)


cdef int end_plain_text(Reader reader, bint is_cut) except -1:
    """The text has ended, by itself or because the output was cut off."""
    if reader.state == BROKEN:
        return 0
    if is_cut:
        return flush_plain_text(reader)
    if reader.utf8.need:
        return reader.fail("utf8", D_NONE, reader.offset, True)
    reader.state = IN_STRING
    if not _send_rest(reader):
        return reader.fail("limit", D_BUFFER, reader.offset, True)
    reader.state = CLOSED
    return 0
