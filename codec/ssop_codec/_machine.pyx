# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Reads a JSON document as it is generated, judges it against a schema and has its frames written.

A state machine over bytes: its state is the same however the input is cut. Nothing recurses over the
depth of the input, and no Python object is made per byte. Tokens that lie whole in the input and keep all rules are
read by `_tokens`, in long feeds without the interpreter's lock.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from ssop_codec._containers cimport begin_item, begin_key, close_container, end_scalar, fail_empty, open_container
from ssop_codec._envelope cimport is_before_document
from ssop_codec._judge_keys cimport judge_comma
from ssop_codec._judge_values cimport judge_begin, judge_literal
from ssop_codec._numbers cimport begin_number, end_number, judge_prefix, may_end, read_number
from ssop_codec._program cimport NO_FALSE, NO_TRUE
from ssop_codec._reader cimport Level, Reader
from ssop_codec._scan cimport is_blank, is_digit
from ssop_codec._states cimport (
    AFTER,
    ARRAY,
    AT_START,
    BEFORE_COLON,
    BEFORE_FIRST_KEY,
    BEFORE_ITEM,
    BEFORE_KEY,
    BEFORE_VALUE,
    BOOLEAN,
    BROKEN,
    CLOSED,
    D_AFTER_ITEM,
    D_AFTER_MEMBER,
    D_BLANKS,
    D_BUFFER,
    D_COLON,
    D_DOCUMENT,
    D_KEY,
    D_KEY_OR_END,
    D_LITERAL,
    D_NONE,
    D_VALUE,
    D_VALUE_OR_END,
    IN_ENVELOPE,
    IN_LITERAL,
    IN_NUMBER,
    IN_STRING,
    IN_UNIT,
    LITERAL_FALSE,
    LITERAL_NULL,
    LITERAL_TRUE,
    NULL_TYPE,
    NUMERIC,
    OBJECT,
    STRING,
)
from ssop_codec._strings cimport begin_string, end_plain_text, read_plain_text, read_string
from ssop_codec._tokens cimport TOKEN_BYTES, read_tokens

cdef enum:
    # A shorter feed ends before letting the interpreter's lock go would pay (docs/benchmarks/codec.md).
    UNLOCKED_BYTES = 65536
    # No feed keeps others waiting for longer than this takes, some milliseconds.
    LOCKED_BYTES = 1048576


cdef int read(Reader reader, const uint8_t* start, Py_ssize_t size) except -1:
    """Read the next bytes of the input, until the first violation."""
    cdef Py_ssize_t allowed = size
    if reader.state == BROKEN:
        return 0
    if reader.offset + <uint64_t>size > reader.caps.document_bytes:
        allowed = <Py_ssize_t>(reader.caps.document_bytes - reader.offset)
    if reader.is_text:
        read_plain_text(reader, start, start + allowed, reader.offset)
    else:
        _read_json(reader, start, start + allowed)
    if reader.state != BROKEN:
        reader.offset += allowed
        # Blanks and prose after the document do not count.
        if allowed < size and not (reader.state == CLOSED and reader.is_envelope):
            reader.fail("limit", D_DOCUMENT, reader.offset, False)
    return 0


cdef int end_input(Reader reader, bint is_cut) except -1:
    """The input has ended: a number at the root, or plain text, ends with it unless the output was cut off."""
    if reader.is_text:
        return end_plain_text(reader, is_cut)
    if reader.state == IN_NUMBER and reader.depth == 0 and not is_cut and may_end(reader.number_state):
        return end_number(reader, reader.offset)
    return 0


cdef int _read_json(Reader reader, const uint8_t* start, const uint8_t* end) except -1:
    """Each state reads what it can; a byte that it does not take is read again in the state that follows."""
    cdef const uint8_t* p = start
    cdef const uint8_t* locked_from = start
    cdef const uint8_t* before
    cdef uint64_t base = reader.offset
    cdef bint may_unlock = end - start >= UNLOCKED_BYTES
    if reader.judge is not None:
        reader.judge.take_chunk(start, end - start, base)
    while p < end:
        if end - p >= TOKEN_BYTES and BEFORE_VALUE <= reader.state <= AFTER:
            before = p
            if may_unlock and end - p >= UNLOCKED_BYTES:
                with nogil:
                    p = read_tokens(reader, p, end, base + (p - start))
                locked_from = p
            elif end - p > UNLOCKED_BYTES:
                p = read_tokens(reader, p, p + UNLOCKED_BYTES, base + (p - start))
            else:
                p = read_tokens(reader, p, end, base + (p - start))
            if p == end:
                break
            # Where something stops the tokens often, to take the lock each time would cost more than it gives; but
            # others come in now and then.
            may_unlock = p - before >= UNLOCKED_BYTES // 2 or p - locked_from >= LOCKED_BYTES
        if IN_STRING <= reader.state <= IN_UNIT:
            p = read_string(reader, p, end, base + (p - start))
        elif reader.state <= CLOSED:
            if is_blank(p[0]) and reader.state != AT_START:
                p = _skip_blanks(reader, p, end, base + (p - start))
                continue
            reader.blanks = 0
            if reader.state == CLOSED and reader.is_envelope:
                return 0
            p += _read_structure(reader, p[0], base + (p - start))
        elif reader.state == IN_NUMBER:
            p = read_number(reader, p, end, base + (p - start))
        elif reader.state == IN_LITERAL:
            _read_literal(reader, p[0], base + (p - start))
            p += 1
        elif reader.state == IN_ENVELOPE:
            if is_before_document(&reader.envelope, reader.node.types, p[0]):
                p += 1
            else:
                reader.state = BEFORE_VALUE
        else:
            return 0
    if reader.state == IN_NUMBER:
        judge_prefix(reader)
    return 0


cdef const uint8_t* _skip_blanks(
    Reader reader, const uint8_t* start, const uint8_t* end, uint64_t offset
) except NULL:
    cdef const uint8_t* p = start + 1
    while p < end and is_blank(p[0]):
        p += 1
    if reader.state != CLOSED:
        reader.blanks += p - start
        if reader.blanks > reader.caps.blanks:
            reader.fail(
                "limit", D_BLANKS, offset + (p - start) - (reader.blanks - reader.caps.blanks),
                reader.state <= BEFORE_ITEM,
            )
    return p


cdef int _read_structure(Reader reader, uint8_t c, uint64_t offset) except -1:
    """A byte between tokens; 1 where it was taken, 0 where it is read again. After a violation nobody asks."""
    if reader.state == AFTER:
        return _read_after_member(reader, c, offset)
    if reader.state == BEFORE_KEY or reader.state == BEFORE_FIRST_KEY:
        return _read_before_key(reader, c, offset)
    if reader.state == BEFORE_COLON:
        if c != 0x3A:
            return reader.fail("syntax", D_COLON, offset, True)
        reader.state = BEFORE_VALUE
        return 1
    if reader.state == AT_START:
        return _read_mark(reader, c, offset)
    if reader.state == CLOSED:
        return reader.fail("trailing", D_NONE, offset, False)
    if reader.state == BEFORE_ITEM:
        if c == 0x5D:
            close_container(reader, offset)
            return 1
        if reader.levels[reader.depth - 1].node.max_items == 0:
            return reader.fail("maxItems", D_NONE, offset, False)
    _begin_value(reader, c, offset)
    return 1


cdef int _read_mark(Reader reader, uint8_t c, uint64_t offset) except -1:
    """One byte order mark, which may be cut anywhere."""
    if c == (0xEF, 0xBB, 0xBF)[reader.bom]:
        reader.bom += 1
        if reader.bom == 3:
            reader.state = BEFORE_VALUE
        return 1
    if reader.bom:
        return reader.fail("syntax", D_VALUE, offset, True)
    reader.state = BEFORE_VALUE
    return 0


cdef int _read_after_member(Reader reader, uint8_t c, uint64_t offset) except -1:
    """A comma, or the end of the container."""
    cdef Level* level = &reader.levels[reader.depth - 1]
    if c == 0x2C:
        if level.is_array:
            if level.count >= level.node.max_items:
                return reader.fail("maxItems", D_NONE, offset, False)
            reader.state = BEFORE_VALUE
            begin_item(reader, offset)
            if reader.state == BROKEN:
                return 0
            if reader.node is NULL:
                return reader.fail("items", D_NONE, offset, False)
            if not reader.node.types:
                return fail_empty(reader, offset)
        else:
            if level.count >= level.node.most_keys:
                return _fail_full(reader, level, offset)
            reader.state = BEFORE_KEY
        if reader.judge is not None and reader.judge.watches and judge_comma(reader.judge, reader.depth - 1):
            return reader.fail_judged(offset)
    elif c == (0x5D if level.is_array else 0x7D):
        close_container(reader, offset)
    else:
        return reader.fail("syntax", D_AFTER_ITEM if level.is_array else D_AFTER_MEMBER, offset, False)
    return 1


cdef int _fail_full(Reader reader, Level* level, uint64_t offset) except -1:
    """No key can stand here: there are as many as allowed, or all that have a name."""
    is_full = level.count >= level.node.max_properties
    return reader.fail("maxProperties" if is_full else "additionalProperties", D_NONE, offset, False)


cdef int _read_before_key(Reader reader, uint8_t c, uint64_t offset) except -1:
    cdef Level* level
    if c == 0x22:
        level = &reader.levels[reader.depth - 1]
        if level.count >= level.node.most_keys:
            return _fail_full(reader, level, offset)
        begin_key(reader, offset)
    elif c == 0x7D and reader.state == BEFORE_FIRST_KEY:
        close_container(reader, offset)
    else:
        return reader.fail("syntax", D_KEY if reader.state == BEFORE_KEY else D_KEY_OR_END, offset, False)
    return 1


cdef uint32_t _types_of(uint8_t c) noexcept nogil:
    """The types that a value with this first byte may have; 0 where no value begins so."""
    if c == 0x22:
        return STRING
    if c == 0x7B:
        return OBJECT
    if c == 0x5B:
        return ARRAY
    if is_digit(c) or c == 0x2D:
        return NUMERIC
    if c == 0x74 or c == 0x66:
        return BOOLEAN
    if c == 0x6E:
        return NULL_TYPE
    return 0


cdef int _begin_value(Reader reader, uint8_t c, uint64_t offset) except -1:
    """The first byte of a value decides its type."""
    cdef uint32_t wanted = _types_of(c)
    if not wanted:
        return reader.fail(
            "syntax", D_VALUE_OR_END if reader.state == BEFORE_ITEM else D_VALUE, offset, True
        )
    if reader.node is NULL:
        return reader.fail("items", D_NONE, offset, False)
    if not reader.node.types & wanted:
        if not reader.node.declared_types & wanted:
            return reader.fail("type", D_NONE, offset, True)
        return reader.fail_member(offset)
    reader.value_start = offset
    if reader.judge is not None and (
        reader.judge.watches or reader.node.root_count or wanted == OBJECT or wanted == ARRAY
    ):
        if judge_begin(reader.judge, reader.node, reader.depth, wanted, c, offset):
            return reader.fail_judged(offset)
    if wanted == STRING:
        return begin_string(reader, offset)
    if wanted == OBJECT or wanted == ARRAY:
        return open_container(reader, wanted == ARRAY, offset)
    if wanted == NUMERIC:
        return begin_number(reader, c, offset)
    return _begin_literal(reader, c, offset)


cdef int _begin_literal(Reader reader, uint8_t c, uint64_t offset) except -1:
    if (c == 0x74 and reader.node.flags & NO_TRUE) or (c == 0x66 and reader.node.flags & NO_FALSE):
        return reader.fail_member(offset)
    reader.state = IN_LITERAL
    if c == 0x74:
        reader.literal = "rue"
        reader.literal_kind = LITERAL_TRUE
    elif c == 0x66:
        reader.literal = "alse"
        reader.literal_kind = LITERAL_FALSE
    else:
        reader.literal = "ull"
        reader.literal_kind = LITERAL_NULL
    return 0


cdef int _read_literal(Reader reader, uint8_t c, uint64_t offset) except -1:
    cdef bint is_sent
    if c != <uint8_t>reader.literal[0]:
        return reader.fail("syntax", D_LITERAL, offset, True)
    reader.literal += 1
    if reader.literal[0]:
        return 0
    if reader.judge is not None and reader.judge.in_value and judge_literal(reader.judge, offset + 1):
        return reader.fail_judged(offset)
    if reader.literal_kind == LITERAL_NULL:
        is_sent = reader.writer.put_null(&reader.place)
    else:
        is_sent = reader.writer.put_bool(&reader.place, reader.literal_kind == LITERAL_TRUE)
    if not is_sent:
        return reader.fail("limit", D_BUFFER, offset, True)
    return end_scalar(reader, offset + 1)
