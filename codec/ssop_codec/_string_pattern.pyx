# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Judges the `pattern` of a string while it is read.

The automaton reads code points. Of a code point that is not read to its end, all those are tried that it can
still become, so that a text is refused at the first byte after which it can't match.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from ssop_codec._containers cimport judge_points_of_key
from ssop_codec._judge_texts cimport judge_points
from ssop_codec._pattern cimport ACCEPT_ALL, DEAD, FIRST_STATE, LOST, Pattern
from ssop_codec._program cimport ENUM_STRINGS, HAS_PATTERN, IS_SHAPE, Node
from ssop_codec._reader cimport Reader
from ssop_codec._scan cimport Points, has_point
from ssop_codec._states cimport D_NONE, D_PATTERN


cdef str _keyword(Reader reader):
    return "format" if reader.node.flags & IS_SHAPE else "pattern"


cdef int begin_pattern(Reader reader, uint64_t offset) except -1:
    """The quote of a string was read."""
    reader.pattern_state = (<Pattern>reader.node.pattern).start()
    return fail_pattern(reader, offset)


cdef int fail_pattern(Reader reader, uint64_t offset) except -1:
    """Fail the reader if the state of the pattern is one that ends the document."""
    if reader.pattern_state == DEAD:
        return reader.fail(_keyword(reader), D_NONE, offset, True)
    if reader.pattern_state == LOST:
        return reader.fail("limit", D_PATTERN, offset, True)
    return 0


cdef uint32_t judge_plain(Reader reader, const uint8_t* data, uint32_t size) except? 0:
    """Take bytes that are code points each; returns how many of them a text that matches can have. Where those are
    not all, `fail_pattern` has to follow, unless another rule is broken before."""
    cdef Pattern pattern = <Pattern>reader.node.pattern
    cdef uint32_t at = 0
    while at < size and reader.pattern_state >= FIRST_STATE:
        at += <uint32_t>pattern.run(&reader.pattern_state, data + at, size - at)
        if at < size and reader.pattern_state >= FIRST_STATE:
            reader.pattern_state = pattern.step(reader.pattern_state, data[at])
            at += 1
    if reader.pattern_state == ACCEPT_ALL:
        return size
    if reader.pattern_state < FIRST_STATE:
        at -= 1
    return at


cdef int judge_point(Reader reader, uint32_t point, uint64_t offset) except -1:
    """Take a code point."""
    reader.pattern_state = (<Pattern>reader.node.pattern).step(reader.pattern_state, point)
    return fail_pattern(reader, offset)


cdef int _judge_range(Reader reader, uint32_t low, uint32_t high, uint64_t offset) except -1:
    if (<Pattern>reader.node.pattern).can_take(reader.pattern_state, low, high):
        return 0
    return reader.fail(_keyword(reader), D_NONE, offset, True)


cdef int judge_utf8(Reader reader, uint8_t c, uint64_t offset) except -1:
    """Take a byte of a code point that is longer than one byte; the decoder of UTF-8 has taken it."""
    cdef uint32_t need = reader.utf8.need
    cdef uint32_t rest
    if c >= 0xC0:
        reader.point = c & (0x3F >> need)
    else:
        reader.point = reader.point << 6 | (c & 0x3F)
    if not need:
        return judge_point(reader, reader.point, offset)
    rest = 6 * (need - 1)
    return _judge_range(
        reader,
        (reader.point << 6 | (reader.utf8.low & 0x3F)) << rest,
        (((reader.point << 6 | (reader.utf8.high & 0x3F)) + 1) << rest) - 1,
        offset,
    )


cdef int judge_escape(Reader reader, uint64_t offset) except -1:
    """A backslash was read that is not the second half of a surrogate pair: any code point can follow."""
    cdef Points[2] points
    points[0].low, points[0].high = 0, 0xD7FF
    points[1].low, points[1].high = 0xE000, 0x10FFFF
    return _judge_points(reader, points, 2, offset)


cdef int judge_unit(Reader reader, uint64_t offset) except -1:
    """A digit of a UTF-16 unit was read, which is not the last of a code point."""
    cdef uint32_t open_bits = 4 * (4 - reader.unit_digits)
    cdef uint32_t low = reader.unit << open_bits
    cdef uint32_t high = ((reader.unit + 1) << open_bits) - 1
    cdef Points[3] points
    cdef uint32_t count = 0
    cdef uint32_t i
    if reader.high:
        count = _add_points(points, count, max(low, 0xDC00), min(high, 0xDFFF))
        for i in range(count):
            points[i].low += 0x10000 - 0xDC00 + ((reader.high - 0xD800) << 10)
            points[i].high += 0x10000 - 0xDC00 + ((reader.high - 0xD800) << 10)
    else:
        count = _add_points(points, count, low, min(high, 0xD7FF))
        count = _add_points(points, count, max(low, 0xE000), high)
        low = max(low, 0xD800)
        high = min(high, 0xDBFF)
        if low <= high:
            count = _add_points(points, count, 0x10000 + ((low - 0xD800) << 10), 0x103FF + ((high - 0xD800) << 10))
    # None: which is no JSON, and told so when the unit is whole.
    return _judge_points(reader, points, count, offset) if count else 0


cdef uint32_t _add_points(Points* points, uint32_t count, uint32_t low, uint32_t high) noexcept:
    if low > high:
        return count
    points[count].low = low
    points[count].high = high
    return count + 1


cdef int _judge_points(Reader reader, const Points* points, uint32_t count, uint64_t offset) except -1:
    """The open code point is among `points`: can any be taken?"""
    cdef Node* node = reader.node
    cdef uint32_t i
    if reader.in_key:
        return judge_points_of_key(reader, points, count, offset)
    if node.flags & ENUM_STRINGS:
        for i in range(reader.low_key, reader.high_key):
            if has_point(&node.strings[i], reader.text_size, points, count):
                break
        else:
            return reader.fail_member(offset)
    if node.flags & HAS_PATTERN:
        for i in range(count):
            if (<Pattern>node.pattern).can_take(reader.pattern_state, points[i].low, points[i].high):
                break
        else:
            return reader.fail(_keyword(reader), D_NONE, offset, True)
    if reader.judge is not None and reader.judge.in_value and judge_points(reader.judge, points, count):
        return reader.fail_judged(offset)
    return 0


cdef int end_pattern(Reader reader, uint64_t offset) except -1:
    """The closing quote was read."""
    if (<Pattern>reader.node.pattern).accepts(reader.pattern_state):
        return 0
    return reader.fail(_keyword(reader), D_NONE, offset, True)
