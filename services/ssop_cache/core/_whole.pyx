# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Whether an answer is fit to be stored, read in one pass without an object for each frame.

It knows what answers consist of. Whatever else is in one (a field of a later version, one out of order, a number that is
written longer than it is or that its field does not hold, a verdict other than OK, what is cut) is left to the twin.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t, uint64_t

from ssop_codec._wire cimport get_varint

from ssop_cache.core import _whole_py

cdef enum:
    NUMBER = 1
    FIXED = 2
    BYTES = 3
    TEXT = 4
    # What is inside of a field is read by the fields of a message from here on.
    HEADER = 5
    NODE = 6
    END = 7
    USAGE = 8
    STEP = 9
    FRAME = 10
    MESSAGES = 11
    MAX_NUMBER = 24         # of a field, and one
    MAX_UINT32 = 0xFFFFFFFF
    KIND_END = 5
    VERDICT_OK = 1
    # Numbers of the fields of a frame and of its end.
    SEQ = 1
    KIND = 2
    FIELD_NODE = 3
    VERDICT = 1

# What is in the fields of each message, by its number; 0: not known here.
cdef uint8_t[MESSAGES][MAX_NUMBER] FIELDS
for _message, _fields in {
    FRAME: (0, NUMBER, NUMBER, NUMBER, STEP, NUMBER, NUMBER, 0,
            TEXT, FIXED, NUMBER, NUMBER, NUMBER, BYTES, NUMBER, NUMBER, HEADER, END),
    STEP: (0, NUMBER, TEXT, NUMBER),
    HEADER: (0, NUMBER, TEXT, BYTES, NUMBER, NUMBER, NODE, TEXT, NUMBER, TEXT, TEXT),
    NODE: (0, NUMBER, NUMBER, NUMBER, TEXT, NUMBER, NUMBER, NUMBER, NUMBER),
    END: (0, NUMBER, 0, NUMBER, NUMBER, NUMBER, USAGE),
    USAGE: (0, NUMBER, NUMBER, NUMBER),
}.items():
    for _number in range(MAX_NUMBER):
        FIELDS[_message][_number] = _fields[_number] if _number < len(_fields) else 0


cdef struct Seen:
    uint64_t[MAX_NUMBER] numbers        # by the number of their field


cdef inline bint take_varint(const uint8_t** at, const uint8_t* end, uint64_t* value) noexcept:
    """False, too, where it is written longer than it is."""
    cdef const uint8_t* start = at[0]
    return not get_varint(at, end, value) and ((at[0] - 1)[0] > 0 or at[0] - start == 1)


cdef bint is_text(const uint8_t* at, Py_ssize_t size) noexcept:
    cdef Py_ssize_t place
    cdef uint8_t all_of = 0
    for place in range(size):
        all_of |= at[place]
    if all_of < 0x80:
        return True
    try:
        PyUnicode_DecodeUTF8(<const char*>at, size, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef bint is_message(int kind, const uint8_t* at, const uint8_t* end, Seen* seen, Seen* inner) noexcept:
    """Whether this consists of known fields in their order, so that whoever reads it understands it as it is here.

    Numbers go to `seen`, those of the message inside that is an end to `inner`; either may be NULL.
    """
    cdef uint64_t tag, value
    cdef int content, number, last = 0
    while at < end:
        if not take_varint(&at, end, &tag) or tag >= MAX_NUMBER << 3:
            return False
        number = <int>(tag >> 3)
        content = FIELDS[kind][number]
        if number < last or (number == last and content != STEP and content != NODE and content != TEXT):
            return False
        last = number
        if content == NUMBER:
            if tag & 7 or not take_varint(&at, end, &value):
                return False
            if seen is not NULL:
                seen.numbers[number] = value
        elif content == FIXED:
            if tag & 7 != 1 or end - at < 8:
                return False
            at += 8
        elif content:
            if tag & 7 != 2 or not take_varint(&at, end, &value) or value > <uint64_t>(end - at):
                return False
            if content == TEXT:
                if not is_text(at, <Py_ssize_t>value):
                    return False
            elif content != BYTES and not is_message(content, at, at + value, inner if content == END else NULL, NULL):
                return False
            at += value
        else:
            return False
    return True


cdef bint is_plain(const uint8_t* at, const uint8_t* end) noexcept:
    """Whether all frames are known ones, from 1 without gaps, and the ends among them, of which one is last, are OK."""
    cdef Seen frame, inner
    cdef uint64_t size, seq = 0
    frame.numbers[KIND] = 0
    while at < end:
        if at[0] != 0x0A:
            return False
        at += 1
        if not take_varint(&at, end, &size) or size > <uint64_t>(end - at):
            return False
        frame.numbers[SEQ] = frame.numbers[KIND] = frame.numbers[FIELD_NODE] = inner.numbers[VERDICT] = 0
        if not is_message(FRAME, at, at + size, &frame, &inner):
            return False
        seq += 1
        if frame.numbers[SEQ] != seq or not 0 < frame.numbers[KIND] <= KIND_END:
            return False
        if frame.numbers[FIELD_NODE] > MAX_UINT32:
            return False
        if frame.numbers[KIND] == KIND_END and inner.numbers[VERDICT] != VERDICT_OK:
            return False
        at += size
    return frame.numbers[KIND] == KIND_END


def is_whole(bytes chunk not None):
    """See the twin."""
    cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(chunk)
    return is_plain(at, at + PyBytes_GET_SIZE(chunk)) or _whole_py.is_whole(chunk)
