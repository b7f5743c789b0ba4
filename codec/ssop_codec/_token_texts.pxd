# cython: language_level=3
"""Strings that lie whole in the input, for the reader of whole tokens."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from ssop_codec._frame_writer cimport BLOCK_BYTES, room_of, write_string
from ssop_codec._pattern cimport Pattern
from ssop_codec._program cimport ENUM_STRINGS, HAS_FORMAT, HAS_PATTERN, Key, Node
from ssop_codec._reader cimport Reader
from ssop_codec._scan cimport (
    put_utf8,
    ssop_likely,
    ssop_skip_plain,
    ssop_skip_text,
    ssop_unlikely,
    take_escape,
)
from ssop_codec._states cimport KIND_VALUE

cdef enum:
    MANY = 1 << 30      # code points; no text within a chunk has as many

cdef struct Text:
    # A string, unescaped.
    const uint8_t* data
    uint32_t size
    bint has_slack      # a block from `data` on may be read
    uint64_t chars


cdef inline int find_text(const Key* keys, uint32_t count, const Text* text) noexcept nogil:
    """The position of a text among sorted ones, or -1."""
    cdef uint32_t low = 0
    cdef uint32_t high = count
    cdef uint32_t middle, shorter
    cdef int order
    while low < high:
        middle = (low + high) >> 1
        shorter = keys[middle].size if keys[middle].size < text.size else text.size
        order = memcmp(keys[middle].data, text.data, shorter)
        if order == 0:
            if keys[middle].size == text.size:
                return <int>middle
            order = -1 if keys[middle].size < text.size else 1
        if order < 0:
            low = middle + 1
        else:
            high = middle
    return -1


cdef inline const uint8_t* take_text(
    Reader reader, const uint8_t* start, const uint8_t* end, uint32_t room, Text* text
) noexcept nogil:
    """Read a string of at most `room` bytes from behind its quote on."""
    cdef const uint8_t* limit = start + room + 1 if <uint64_t>(end - start) > <uint64_t>room + 1 else end
    cdef const uint8_t* q = ssop_skip_plain(start, limit)
    if ssop_unlikely(q == limit):
        return NULL
    text.data = start
    text.size = <uint32_t>(q - start)
    text.chars = text.size
    text.has_slack = end - start >= BLOCK_BYTES
    if ssop_likely(q[0] == 0x22):
        return q + 1
    return take_odd_text(reader, q, end, room, text)


cdef inline const uint8_t* take_odd_text(
    Reader reader, const uint8_t* start, const uint8_t* end, uint32_t room, Text* text
) noexcept nogil:
    """Read on in a string that is not all plain; `text` has what is before `start`. With an escape it is copied."""
    cdef const uint8_t* q = start
    cdef const uint8_t* run
    cdef const uint8_t* limit
    cdef uint64_t left
    cdef uint8_t* into = NULL
    cdef uint8_t c
    cdef int point
    while True:
        # Whole code points that stand for themselves.
        run = q
        limit = q + (room - text.size) + 1 if <uint64_t>(end - q) > <uint64_t>(room - text.size) + 1 else end
        left = MANY
        q = ssop_skip_text(run, limit, &left)
        if q == limit:
            return NULL
        if into is not NULL:
            memcpy(into + text.size, run, q - run)
        text.size += <uint32_t>(q - run)
        text.chars += MANY - left
        c = q[0]
        if c == 0x22:
            return q + 1
        if c != 0x5C or text.size + 4 > room:
            return NULL
        point = take_escape(&q, end)
        if point < 0:
            return NULL
        if into is NULL:
            into = reader.text
            memcpy(into, text.data, text.size)
            text.data = into
            text.has_slack = True
        text.size += put_utf8(into + text.size, <uint32_t>point)
        text.chars += 1


cdef inline const uint8_t* take_string(Reader reader, const uint8_t* start, const uint8_t* end) noexcept nogil:
    """Read and send a string from behind its quote on."""
    cdef Node* node = reader.node
    cdef uint32_t room = room_of(reader.writer, &reader.place, 0)
    cdef Text text
    if ssop_unlikely(room < 4):
        return NULL
    cdef const uint8_t* after = take_text(reader, start, end, room, &text)
    if ssop_unlikely(after is NULL or text.chars > node.max_length):
        return NULL
    if node.flags & (ENUM_STRINGS | HAS_FORMAT | HAS_PATTERN):
        if not keeps_rules(node, &text):
            return NULL
    elif text.chars < node.min_length:
        return NULL
    if not write_string(reader.writer, KIND_VALUE, &reader.place, 0, text.data, text.size, text.has_slack):
        return NULL
    return after


cdef inline bint keeps_rules(Node* node, const Text* text) noexcept nogil:
    """Whether the string is surely a member of its enumeration, and matches."""
    if node.flags & HAS_FORMAT:
        return False
    if node.flags & ENUM_STRINGS:
        if find_text(node.strings, node.string_count, text) < 0:
            return False
    elif text.chars < node.min_length:
        return False
    if node.flags & HAS_PATTERN:
        return (<Pattern>node.pattern).is_known_match(text.data, text.size)
    return True
