# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""Reads numbers, judges them exactly and sends them as int64, double or as they were written.

`_bounds` judges them.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from ssop_codec._bounds cimport broken_number, broken_prefix, int64_of, keeps_bounds
from ssop_codec._containers cimport end_scalar
from ssop_codec._judge_values cimport NUMBER_END, judge_number, judge_open_number
from ssop_codec._program cimport (
    ENUM_NUMBERS,
    HAS_BOUNDS,
    HAS_MULTIPLE,
    IS_DOUBLE,
    Node,
)
from ssop_codec._reader cimport Reader
from ssop_codec._scan cimport double_of, is_blank, is_digit
from ssop_codec._states cimport (
    D_BUFFER,
    D_DIGIT,
    D_NONE,
    D_NUMBER_END,
    D_NUMBER_SIZE,
    IN_NUMBER,
    N_E,
    N_EXPONENT,
    N_FRACTION,
    N_MINUS,
    N_POINT,
    N_SIGN,
    N_WHOLE,
    N_ZERO,
    NUMBER,
)

from .number import parse_number, to_int64


cdef int begin_number(Reader reader, uint8_t c, uint64_t offset) except -1:
    """`c` is a minus or a digit."""
    reader.state = IN_NUMBER
    reader.text[0] = c
    reader.text_size = 1
    reader.number_state = N_MINUS if c == 0x2D else N_ZERO if c == 0x30 else N_WHOLE
    return 0


cdef bint judge_prefix(Reader reader) except -1:
    """Judge what was read of the open number by what it can still become; whether that is broken. Called where the
    input of a feed ends inside the number, and before it is found broken by anything that was read later."""
    cdef Node* node = reader.node
    cdef uint32_t size = 0
    cdef uint32_t judged
    found = broken_prefix(reader.program, node, reader.text, reader.text_size, reader.number_state)
    if found is not None:
        size = found[0]
    if reader.judge is not None and reader.judge.in_value:
        judged = judge_open_number(reader.judge, reader.text, reader.text_size, reader.number_state, size)
        if judged:
            reader.fail_judged(reader.value_start + judged - 1)
            return True
    if size:
        reader.fail(found[1], D_NONE, reader.value_start + size - 1, True)
    return size != 0


cdef int _state_after(int state, uint8_t c) noexcept nogil:
    """The number state behind `c`, -1 where it is no byte of the number."""
    if is_digit(c):
        if state == N_WHOLE or state == N_FRACTION or state == N_EXPONENT:
            return state
        if state == N_MINUS:
            return N_ZERO if c == 0x30 else N_WHOLE
        if state == N_POINT:
            return N_FRACTION
        if state == N_E or state == N_SIGN:
            return N_EXPONENT
    elif c == 0x2E:
        if state == N_ZERO or state == N_WHOLE:
            return N_POINT
    elif c == 0x65 or c == 0x45:
        if state == N_ZERO or state == N_WHOLE or state == N_FRACTION:
            return N_E
    elif c == 0x2B or c == 0x2D:
        if state == N_E:
            return N_SIGN
    return -1


cdef bint may_end(int state) noexcept:
    """Whether what was read so far is a number."""
    return state == N_ZERO or state == N_WHOLE or state == N_FRACTION or state == N_EXPONENT


cdef const uint8_t* read_number(
    Reader reader, const uint8_t* start, const uint8_t* end, uint64_t offset
) except NULL:
    """Read on in the number that is open; returns the place behind its bytes. `offset` is that of `start`.
    The byte that ends the number is not taken."""
    cdef const uint8_t* p = start
    cdef int after
    while p < end:
        after = _state_after(reader.number_state, p[0])
        if after < 0:
            _stop(reader, p[0], offset + (p - start))
            break
        if reader.text_size == reader.caps.number_bytes:
            if not judge_prefix(reader):
                reader.fail("limit", D_NUMBER_SIZE, offset + (p - start), True)
            break
        reader.text[reader.text_size] = p[0]
        reader.text_size += 1
        reader.number_state = after
        p += 1
    return p


cdef int _stop(Reader reader, uint8_t c, uint64_t offset) except -1:
    """The number does not go on with `c`: is it whole, and may `c` follow?"""
    if is_blank(c) or c == 0x2C or c == 0x5D or c == 0x7D:
        if may_end(reader.number_state):
            return end_number(reader, offset)
    if judge_prefix(reader):
        return 0
    if not may_end(reader.number_state):
        return reader.fail("syntax", D_DIGIT, offset, True)
    return reader.fail("syntax", D_NUMBER_END, offset, True)


cdef int end_number(Reader reader, uint64_t offset) except -1:
    """Judge the number in `text`, and send it."""
    cdef Node* node = reader.node
    cdef bint is_integer_text = reader.number_state == N_ZERO or reader.number_state == N_WHOLE
    cdef bint fits = False
    cdef bint is_sent
    cdef int64_t value = 0
    cdef uint32_t judged
    cdef str keyword
    # For double_of, which reads up to a zero byte.
    reader.text[reader.text_size] = 0
    if is_integer_text:
        fits = int64_of(reader.text, reader.text + reader.text_size, &value)
    if not (is_integer_text or node.types & NUMBER) or (
        node.flags & (ENUM_NUMBERS | HAS_BOUNDS | HAS_MULTIPLE)
        and not keeps_bounds(node, reader.text, reader.text_size, fits, value)
    ):
        keyword = broken_number(
            reader.program, node, reader.text, reader.text_size, is_integer_text, fits, value
        )
        if keyword is not None:
            return 0 if judge_prefix(reader) else reader.fail(keyword, D_NONE, offset, True)
    if reader.judge is not None and reader.judge.in_value:
        judged = judge_number(
            reader.judge, reader.text, reader.text_size, reader.number_state, is_integer_text, fits, value, offset
        )
        if judged:
            return reader.fail_judged(offset if judged == NUMBER_END else reader.value_start + judged - 1)
    if is_integer_text or node.types & NUMBER:
        is_sent = _put_number(reader, is_integer_text, fits, value)
    else:
        is_sent = _put_odd_integer(reader)
    if not is_sent:
        return reader.fail("limit", D_BUFFER, offset, True)
    return end_scalar(reader, offset)


cdef bint _put_odd_integer(Reader reader) except -1:
    """An integer written with a point or an exponent: 1.0 and 1e2 are integers."""
    value = to_int64(parse_number(PyBytes_FromStringAndSize(<char*>reader.text, reader.text_size)))
    if value is None:
        return reader.writer.put_json(&reader.place, reader.text, reader.text_size)
    return reader.writer.put_int(&reader.place, value)


cdef bint _put_number(Reader reader, bint is_integer_text, bint fits, long long value) except -1:
    """Send the number in the narrowest form that keeps it; whether a chunk holds it."""
    cdef double number
    cdef const uint8_t* p
    if is_integer_text:
        if not fits:
            return reader.writer.put_json(&reader.place, reader.text, reader.text_size)
        if reader.node.flags & IS_DOUBLE:
            number = <double>value
            if number < 9223372036854775808.0 and <long long>number == value:
                if value == 0 and reader.text[0] == 0x2D:
                    number = -0.0
                return reader.writer.put_double(&reader.place, number)
        return reader.writer.put_int(&reader.place, value)
    number = double_of(reader.text, reader.text_size)
    if number - number != 0:
        return reader.writer.put_json(&reader.place, reader.text, reader.text_size)
    if number == 0:
        # Zero, or too small for a double?
        p = reader.text
        while p < reader.text + reader.text_size and p[0] != 0x65 and p[0] != 0x45:
            if 0x31 <= p[0] <= 0x39:
                return reader.writer.put_json(&reader.place, reader.text, reader.text_size)
            p += 1
    return reader.writer.put_double(&reader.place, number)
