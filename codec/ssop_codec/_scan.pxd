# cython: language_level=3
"""Small functions over bytes, for inlining into the encoder."""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from ssop_codec._program cimport Key

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* s, char** end, PyObject* overflow) except? -1.0


cdef extern from "ssop_scan.h" nogil:
    const double* ssop_powers
    bint ssop_likely "SSOP_LIKELY"(bint value)
    bint ssop_unlikely "SSOP_UNLIKELY"(bint value)
    const uint8_t* ssop_skip_plain(const uint8_t* p, const uint8_t* end)
    const uint8_t* ssop_skip_plain_portably(const uint8_t* p, const uint8_t* end)
    const uint8_t* ssop_skip_text(const uint8_t* p, const uint8_t* end, uint64_t* left)
    const uint8_t* ssop_skip_blanks(const uint8_t* p, const uint8_t* end)
    uint32_t ssop_code_point_bytes(const uint8_t* p, const uint8_t* end)
    bint ssop_equal(const uint8_t* left, const uint8_t* right, size_t size)
    void ssop_copy(uint8_t* to, const uint8_t* source, size_t size, bint has_slack)


cdef inline bint is_blank(uint8_t c) noexcept nogil:
    return c == 0x20 or c == 0x0A or c == 0x0D or c == 0x09


cdef inline bint is_digit(uint8_t c) noexcept nogil:
    return 0x30 <= c <= 0x39


cdef inline void narrow(
    Key* keys, uint32_t* low, uint32_t* high, uint32_t position, uint8_t c
) noexcept nogil:
    """Keep those of the sorted keys low to high, equal up to `position`, that have `c` there."""
    cdef uint32_t first = low[0]
    cdef uint32_t last = high[0]
    while first < last and (keys[first].size <= position or keys[first].data[position] < c):
        first += 1
    while first < last and keys[last - 1].data[position] > c:
        last -= 1
    low[0] = first
    high[0] = last


cdef struct Utf8:
    uint32_t need       # bytes that the open code point still lacks
    uint8_t low         # the least and the greatest that the next of them may be
    uint8_t high


cdef struct Points:
    uint32_t low        # code points from here
    uint32_t high       # to here


cdef inline Points points_of(uint32_t point, uint32_t need) noexcept nogil:
    """What a code point can be whose bytes so far say `point`, and that lacks `need` bytes."""
    cdef Points points
    cdef uint32_t bits = 6 * need
    points.low = point << bits
    points.high = min((point << bits) | ((<uint32_t>1 << bits) - 1), 0x10FFFF)
    if points.low == 0 and bits > 6:
        # Shorter forms of less are no UTF-8.
        points.low = 0x800 if need == 2 else 0x10000
    return points


cdef inline bint has_point(const Key* key, uint32_t position, const Points* points, uint32_t count) noexcept nogil:
    """Whether the code point at a position of the key is among `points`."""
    cdef uint32_t point, need, i
    if key.size <= position:
        return False
    point = key.data[position]
    if point >= 0x80:
        need = 1 if point < 0xE0 else 2 if point < 0xF0 else 3
        point &= 0x3F >> need
        for i in range(need):
            point = point << 6 | (key.data[position + 1 + i] & 0x3F)
    for i in range(count):
        if points[i].low <= point <= points[i].high:
            return True
    return False


cdef inline bint begin_code_point(Utf8* utf8, uint8_t c) noexcept nogil:
    """Take the first byte of a longer code point; False where none begins so (the table of RFC 3629)."""
    utf8.low = 0x80
    utf8.high = 0xBF
    if 0xC2 <= c <= 0xDF:
        utf8.need = 1
    elif 0xE0 <= c <= 0xEF:
        utf8.need = 2
        if c == 0xE0:
            utf8.low = 0xA0
        elif c == 0xED:
            utf8.high = 0x9F
    elif 0xF0 <= c <= 0xF4:
        utf8.need = 3
        if c == 0xF0:
            utf8.low = 0x90
        elif c == 0xF4:
            utf8.high = 0x8F
    else:
        return False
    return True


cdef inline bint continue_code_point(Utf8* utf8, uint8_t c) noexcept nogil:
    """Take a byte of the open code point; False where it can't follow."""
    if c < utf8.low or c > utf8.high:
        return False
    utf8.low = 0x80
    utf8.high = 0xBF
    utf8.need -= 1
    return True


cdef inline uint32_t put_utf8(uint8_t* at, uint32_t point) noexcept nogil:
    """Writes a code point, at most 4 bytes; returns their number."""
    if point < 0x80:
        at[0] = <uint8_t>point
        return 1
    if point < 0x800:
        at[0] = <uint8_t>(0xC0 | point >> 6)
        at[1] = <uint8_t>(0x80 | point & 0x3F)
        return 2
    if point < 0x10000:
        at[0] = <uint8_t>(0xE0 | point >> 12)
        at[1] = <uint8_t>(0x80 | point >> 6 & 0x3F)
        at[2] = <uint8_t>(0x80 | point & 0x3F)
        return 3
    at[0] = <uint8_t>(0xF0 | point >> 18)
    at[1] = <uint8_t>(0x80 | point >> 12 & 0x3F)
    at[2] = <uint8_t>(0x80 | point >> 6 & 0x3F)
    at[3] = <uint8_t>(0x80 | point & 0x3F)
    return 4


cdef inline int escaped_unit(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """The UTF-16 unit of the escape at `at`, -1 where none is whole."""
    cdef int unit = 0
    cdef int i
    cdef uint8_t c
    if end - at < 6 or at[0] != 0x5C or at[1] != 0x75:
        return -1
    for i in range(2, 6):
        c = at[i]
        if is_digit(c):
            c -= 0x30
        elif 0x61 <= (c | 0x20) <= 0x66:
            c = (c | 0x20) - 0x61 + 10
        else:
            return -1
        unit = unit << 4 | c
    return unit


cdef inline uint8_t escaped_letter(uint8_t c) noexcept nogil:
    """What a letter behind a backslash stands for; 0 where it stands for no ASCII."""
    if c == 0x6E:
        return 0x0A
    if c == 0x22 or c == 0x5C or c == 0x2F:
        return c
    if c == 0x74:
        return 0x09
    if c == 0x72:
        return 0x0D
    if c == 0x62:
        return 0x08
    if c == 0x66:
        return 0x0C
    return 0


cdef inline int take_escape(const uint8_t** at, const uint8_t* end) noexcept nogil:
    """The code point of the escape at `at`, which is moved behind it; -1 where none is whole."""
    cdef const uint8_t* p = at[0]
    cdef int point, low
    if end - p < 2:
        return -1
    point = escaped_letter(p[1])
    if point:
        at[0] = p + 2
        return point
    point = escaped_unit(p, end)
    if point < 0 or 0xDC00 <= point <= 0xDFFF:
        return -1
    p += 6
    if 0xD800 <= point <= 0xDBFF:
        low = escaped_unit(p, end)
        if not 0xDC00 <= low <= 0xDFFF:
            return -1
        point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00)
        p += 6
    at[0] = p
    return point


cdef inline double double_of(const uint8_t* text, uint32_t size) except? -1.0:
    """The double nearest to a valid JSON number; `text` has a zero byte behind it. Infinite on overflow."""
    cdef const uint8_t* p = text
    cdef const uint8_t* end = text + size
    cdef bint negative = p[0] == 0x2D
    cdef uint64_t digits = 0
    cdef int count = 0
    cdef int exponent = 0
    cdef int shift = 0
    cdef bint shift_down = False
    cdef double result
    if negative:
        p += 1
    while p < end and p[0] != 0x65 and p[0] != 0x45:
        if p[0] == 0x2E:
            # From here on each digit moves the point.
            shift = 1
        else:
            digits = digits * 10 + (p[0] - 0x30)
            count += digits != 0
            exponent -= shift
            if count > 15:
                return PyOS_string_to_double(<char*>text, NULL, NULL)
        p += 1
    shift = 0
    if p < end:
        p += 1
        if p[0] == 0x2B or p[0] == 0x2D:
            shift_down = p[0] == 0x2D
            p += 1
        while p < end:
            if shift < 10000:
                shift = shift * 10 + (p[0] - 0x30)
            p += 1
        exponent += -shift if shift_down else shift
    # Fifteen digits and powers up to 10**22 are exact doubles; one operation rounds once.
    if exponent < -22 or exponent > 22:
        return PyOS_string_to_double(<char*>text, NULL, NULL)
    result = <double>digits
    result = result / ssop_powers[-exponent] if exponent < 0 else result * ssop_powers[exponent]
    return -result if negative else result
