# cython: language_level=3
"""What models write before a document: reasoning, prose, the line of a code fence (SPEC.md section 9)."""

from libc.stdint cimport uint8_t, uint32_t

from ssop_codec._scan cimport is_blank, is_digit
from ssop_codec._states cimport ARRAY, NUMERIC, OBJECT, STRING

cdef enum:
    OUTSIDE, IN_REASONING, IN_FENCE_LINE

cdef struct Envelope:
    int state
    int tag_match       # bytes of the tag that is looked for, so far
    int ticks
    bint after_prose    # words were seen: only a brace or a bracket begins the document


cdef inline bint is_before_document(Envelope* envelope, uint32_t types, uint8_t c) noexcept nogil:
    """Whether the byte stands before a document whose root has one of `types`."""
    cdef const char* think = "<think>"
    cdef const char* think_end = "</think>"
    cdef bint opens = (c == 0x7B and types & OBJECT) or (c == 0x5B and types & ARRAY)
    if envelope.state == IN_REASONING:
        if c == <uint8_t>think_end[envelope.tag_match]:
            envelope.tag_match += 1
            if not think_end[envelope.tag_match]:
                envelope.state = OUTSIDE
                envelope.tag_match = 0
                envelope.after_prose = False
        else:
            envelope.tag_match = 1 if c == 0x3C else 0
        return True
    if opens:
        return False
    if envelope.state == IN_FENCE_LINE:
        if c == 0x0A:
            envelope.state = OUTSIDE
            envelope.after_prose = False
        return True
    if c == <uint8_t>think[envelope.tag_match] or c == 0x3C:
        envelope.ticks = 0
        envelope.tag_match = envelope.tag_match + 1 if c == <uint8_t>think[envelope.tag_match] else 1
        if not think[envelope.tag_match]:
            envelope.state = IN_REASONING
            envelope.tag_match = 0
        return True
    envelope.tag_match = 0
    if c == 0x60:
        envelope.ticks += 1
        if envelope.ticks == 3:
            envelope.state = IN_FENCE_LINE
            envelope.ticks = 0
        return True
    envelope.ticks = 0
    if is_blank(c) or c >= 0x80:
        return True
    if not envelope.after_prose:
        if (c == 0x22 and types & STRING) or ((is_digit(c) or c == 0x2D) and types & NUMERIC):
            return False
        if not types & (OBJECT | ARRAY):
            return False
        envelope.after_prose = True
    return True
