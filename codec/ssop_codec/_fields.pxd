# cython: language_level=3
"""Protobuf fields, one at a time. Whatever is malformed raises FrameError."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ssop_codec._wire cimport get_varint

cdef enum:
    UINT32 = 0xFFFFFFFF

cdef struct Field:
    uint32_t number
    uint32_t wire           # 0 varint, 1 eight bytes, 2 bytes, 5 four bytes
    uint64_t value          # varint, or the bytes of wire types 1 and 5
    const uint8_t* data     # wire type 2
    uint64_t size

cdef int malformed(str what) except -1
cdef str text_of(Field* field)
cdef bytes bytes_of(Field* field)


cdef inline int next_field(const uint8_t** at, const uint8_t* end, Field* field) except -1:
    """Read one field and move behind it."""
    cdef uint64_t tag
    if get_varint(at, end, &tag):
        return malformed("a tag is cut or too long")
    field.wire = <uint32_t>(tag & 7)
    if tag >> 3 == 0 or tag >> 3 >= 1 << 29:
        return malformed("a field number is out of range")
    field.number = <uint32_t>(tag >> 3)
    field.value = 0
    if field.wire == 0:
        if get_varint(at, end, &field.value):
            return malformed("a varint is cut or too long")
    elif field.wire == 2:
        if get_varint(at, end, &field.size) or field.size > <uint64_t>(end - at[0]):
            return malformed("a field is longer than what holds it")
        field.data = at[0]
        at[0] += field.size
    elif field.wire == 1 or field.wire == 5:
        field.size = 8 if field.wire == 1 else 4
        if field.size > <uint64_t>(end - at[0]):
            return malformed("a field is longer than what holds it")
        memcpy(&field.value, at[0], field.size)
        at[0] += field.size
    else:
        return malformed("a wire type is not known")
    return 0


cdef inline int expect(Field* field, uint32_t wire) except -1:
    if field.wire != wire:
        return malformed("a field has the wire type of another")
    return 0


cdef inline bint next_frame(const uint8_t** at, const uint8_t* end, Field* field) except -1:
    """Read one field of a chunk and move behind it; False where it is no frame."""
    cdef const uint8_t* p = at[0]
    if end - p > 1 and p[0] == 0x0A and p[1] < 0x80 and p[1] <= end - p - 2:
        field.size = p[1]
        field.data = p + 2
        at[0] = p + 2 + p[1]
        return True
    next_field(at, end, field)
    if field.number != 1:
        return False
    expect(field, 2)
    return True


cdef inline uint64_t uint_of(Field* field, uint64_t limit) except? 0:
    expect(field, 0)
    if field.value > limit:
        malformed("a number is out of range")
    return field.value
