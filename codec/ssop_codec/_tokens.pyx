# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""Reads tokens that lie whole in the input and keep all rules.

What most documents are made of is read here in one go and without the interpreter's lock. A token that is cut, that
breaks a rule, or about which more has to be asked is left as if it had not been looked at: `_machine` reads it byte by
byte, and finds the same.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ssop_codec._containers cimport (
    STEP_BYTES,
    add_step,
    begin_key_step,
    enter,
    has_required,
    key_step_bytes,
    push_level,
)
from ssop_codec._frame_writer cimport write_close
from ssop_codec._program cimport NODE_FORBIDDEN, Key, Node
from ssop_codec._reader cimport Level, Reader, has_span_room, keep_span
from ssop_codec._scan cimport ssop_equal, ssop_likely, ssop_skip_blanks, ssop_unlikely
from ssop_codec._states cimport (
    AFTER,
    ARRAY,
    BEFORE_COLON,
    BEFORE_FIRST_KEY,
    BEFORE_ITEM,
    BEFORE_KEY,
    BEFORE_VALUE,
    CLOSED,
    NUMERIC,
    OBJECT,
    STRING,
)
from ssop_codec._token_numbers cimport take_literal, take_number
from ssop_codec._token_texts cimport Text, find_text, take_string, take_text

cdef enum:
    GUESSES = 3         # properties that are tried in the order of the schema


cdef const uint8_t* read_tokens(
    Reader reader, const uint8_t* start, const uint8_t* end, uint64_t offset
) noexcept nogil:
    """Read on between two tokens; returns the place behind those that were taken. `offset` is that of `start`."""
    cdef const uint8_t* p = start
    cdef const uint8_t* q
    cdef const uint8_t* after
    cdef int state = reader.state
    cdef Level* level = &reader.levels[reader.depth - 1] if reader.depth else NULL
    cdef bint has_judge = reader.judge is not None
    cdef uint32_t wanted
    cdef uint8_t c
    if reader.blanks or (has_judge and reader.judge.watches):
        # The run of blanks is judged as one.
        return start
    while True:
        if state == AFTER:
            q = _skip(reader, p, end)
            if q is NULL:
                break
            if q[0] == 0x2C:
                if level.is_array:
                    if level.count >= level.node.max_items or not _begin_item(reader, level):
                        break
                    if reader.node is NULL or not reader.node.types:
                        # No item can follow: told at the comma.
                        break
                    state = BEFORE_VALUE
                else:
                    if level.count >= level.node.most_keys:
                        break
                    state = BEFORE_KEY
                p = q + 1
            elif q[0] == (0x5D if level.is_array else 0x7D):
                if has_judge or not _close(reader, level):
                    break
                p = q + 1
                if ssop_unlikely(reader.depth == 0):
                    state = CLOSED
                    break
                level -= 1
                continue
            else:
                break
        if state == BEFORE_KEY or state == BEFORE_FIRST_KEY:
            q = _skip(reader, p, end)
            if q is NULL:
                break
            if ssop_likely(q[0] == 0x22):
                if level.count >= level.node.most_keys:
                    break
                q = _take_key(reader, level, q + 1, end)
                if q is NULL:
                    break
                p = q
                state = BEFORE_COLON
            elif q[0] == 0x7D and state == BEFORE_FIRST_KEY:
                if has_judge or not _close(reader, level):
                    break
                p = q + 1
                if reader.depth == 0:
                    state = CLOSED
                    break
                level -= 1
                state = AFTER
                continue
            else:
                break
        if state == BEFORE_COLON:
            q = _skip(reader, p, end)
            if q is NULL or q[0] != 0x3A:
                break
            p = q + 1
            state = BEFORE_VALUE
        q = _skip(reader, p, end)
        if q is NULL:
            break
        c = q[0]
        if state == BEFORE_ITEM:
            if c == 0x5D:
                if has_judge or not _close(reader, level):
                    break
                p = q + 1
                if reader.depth == 0:
                    state = CLOSED
                    break
                level -= 1
                state = AFTER
                continue
            if level.node.max_items == 0:
                break
        elif state != BEFORE_VALUE:
            break
        if reader.node is NULL or (has_judge and reader.node.root_count):
            break
        if reader.track_spans and not has_span_room(reader):
            break
        wanted = reader.node.types
        if c == 0x22:
            if not wanted & STRING:
                break
            after = take_string(reader, q + 1, end)
        elif c == 0x7B or c == 0x5B:
            if has_judge or not wanted & (OBJECT if c == 0x7B else ARRAY) or not _open(reader, c == 0x5B):
                break
            p = q + 1
            level = &reader.levels[reader.depth - 1]
            state = BEFORE_ITEM if c == 0x5B else BEFORE_FIRST_KEY
            continue
        elif c == 0x2D or 0x30 <= c <= 0x39:
            if not wanted & NUMERIC:
                break
            after = take_number(reader, q, end)
        else:
            after = take_literal(reader, q, end)
        if ssop_unlikely(after is NULL):
            break
        if reader.track_spans:
            keep_span(reader, offset + (q - start), offset + (after - start))
        p = after
        if ssop_unlikely(reader.depth == 0):
            state = CLOSED
            break
        level.count += 1
        state = AFTER
    reader.state = state
    return p


cdef inline const uint8_t* _skip(Reader reader, const uint8_t* p, const uint8_t* end) noexcept nogil:
    """The first byte that is no blank; NULL where there is none, or too many blanks are before it."""
    cdef const uint8_t* q = p
    if ssop_likely(p < end and p[0] > 0x20):
        return p
    q = ssop_skip_blanks(p, end)
    if q == end or <uint64_t>(q - p) > reader.caps.blanks:
        return NULL
    return q


# -- containers -----------------------------------------------------------------------------------------


cdef inline bint _open(Reader reader, bint is_array) noexcept nogil:
    if reader.depth == reader.caps.depth or reader.place.path_size + 2 * STEP_BYTES > reader.writer.buffer_bytes:
        return False
    cdef Level* level = push_level(reader, is_array)
    return _begin_item(reader, level) if is_array else True


cdef inline bint _begin_item(Reader reader, Level* level) noexcept nogil:
    """Say what the next item may be, and where it stands."""
    cdef Node* node = level.node
    if ssop_unlikely(level.base_path + STEP_BYTES > reader.writer.buffer_bytes):
        return False
    reader.place.path_size = level.base_path
    if level.count < node.prefix_count:
        reader.node = &reader.program.nodes[node.prefix[level.count]]
        reader.place.number = <uint32_t>node.prefix[level.count]
    elif node.items == NODE_FORBIDDEN:
        reader.node = NULL
    else:
        enter(reader, level, node.items)
        add_step(reader, 0x08, level.count)
    return True


cdef inline bint _close(Reader reader, Level* level) noexcept nogil:
    """Send the end of the innermost container, where all is well with it."""
    if level.is_array:
        if level.count < level.node.min_items:
            return False
    elif level.has_key_set or level.count < level.node.min_properties or not has_required(reader, level):
        return False
    if not write_close(reader.writer, &level.place, level.is_array, level.count):
        return False
    reader.depth -= 1
    if reader.depth:
        (level - 1).count += 1
    return True


# -- keys -----------------------------------------------------------------------------------------------


cdef inline bint _is_key(const Key* key, const uint8_t* start, const uint8_t* end) noexcept nogil:
    """Whether the string from `start` on is the key."""
    return (
        key.is_plain
        and <uint64_t>(end - start) > key.size
        and start[key.size] == 0x22
        and ssop_equal(start, key.data, key.size)
    )


cdef inline const uint8_t* _take_key(
    Reader reader, Level* level, const uint8_t* start, const uint8_t* end
) noexcept nogil:
    """Read a key from behind its quote on: models mostly follow the order of the schema."""
    cdef Node* node = level.node
    cdef uint32_t position = level.next_key
    cdef uint32_t last = position + GUESSES if position + GUESSES < node.key_count else node.key_count
    cdef uint32_t at
    while position < last:
        at = node.order[position]
        if _is_key(&node.keys[at], start, end):
            if ssop_unlikely(node.keys[at].size > reader.caps.key_bytes or not _note_key(reader, level, at)):
                return NULL
            return start + node.keys[at].size + 1
        position += 1
    return _take_odd_key(reader, level, start, end)


cdef inline bint _note_key(Reader reader, Level* level, uint32_t at) noexcept nogil:
    """Go on with the property; False where it was there before."""
    cdef const Key* key = &level.node.keys[at]
    cdef uint64_t* seen = &reader.seen[level.seen + (key.position >> 6)]
    cdef uint64_t bit = <uint64_t>1 << (key.position & 63)
    if ssop_unlikely(seen[0] & bit or not reader.program.nodes[key.node].types):
        return False
    seen[0] |= bit
    level.next_key = key.position + 1
    level.child_key = <int>at
    reader.place.path_size = level.base_path
    reader.place.number = <uint32_t>key.node
    reader.node = &reader.program.nodes[key.node]
    return True


cdef const uint8_t* _take_odd_key(Reader reader, Level* level, const uint8_t* start, const uint8_t* end) noexcept nogil:
    """A key out of order, or one of the model."""
    cdef Node* node = level.node
    cdef Text text
    cdef const uint8_t* after = take_text(reader, start, end, reader.caps.key_bytes, &text)
    cdef int found
    if after is NULL:
        return NULL
    found = find_text(node.keys, node.key_count, &text)
    if found >= 0:
        return after if _note_key(reader, level, <uint32_t>found) else NULL
    # Under a schema, the keys of the model are kept to find duplicates.
    if node.additional == NODE_FORBIDDEN or not reader.is_raw:
        return NULL
    if level.base_path + key_step_bytes(text.size) > reader.writer.buffer_bytes:
        return NULL
    level.child_key = -1
    reader.place.path_size = level.base_path
    enter(reader, level, node.additional)
    memcpy(begin_key_step(reader, text.size), text.data, text.size)
    return after
