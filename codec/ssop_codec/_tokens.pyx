# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, freethreading_compatible=True
"""Reads tokens that lie whole in the input and keep all rules.

What most documents are made of is read here in one go and without the interpreter's lock. A token that is cut, that
breaks a rule, or about which more has to be asked is left as if it had not been looked at: `_machine` reads it byte by
byte, and finds the same.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from ssop_codec._containers cimport (
    STEP_BYTES,
    add_step,
    begin_key_step,
    enter,
    has_required,
    key_step_bytes,
    push_level,
)
from ssop_codec._frame_writer cimport (
    BLOCK_BYTES,
    room_of,
    write_bool,
    write_close,
    write_double,
    write_int,
    write_null,
    write_string,
)
from ssop_codec._pattern cimport Pattern
from ssop_codec._program cimport (
    ENUM_NUMBERS,
    ENUM_STRINGS,
    HAS_ABOVE,
    HAS_BELOW,
    HAS_BOUNDS,
    HAS_FORMAT,
    HAS_MULTIPLE,
    HAS_PATTERN,
    INT_BOUNDS,
    IS_DOUBLE,
    NO_FALSE,
    NO_TRUE,
    NODE_FORBIDDEN,
    Key,
    Node,
)
from ssop_codec._reader cimport Level, Reader, has_span_room, keep_span
from ssop_codec._scan cimport (
    put_utf8,
    ssop_equal,
    ssop_likely,
    ssop_skip_blanks,
    ssop_skip_plain,
    ssop_skip_text,
    ssop_unlikely,
    take_escape,
)
from ssop_codec._states cimport (
    AFTER,
    ARRAY,
    BEFORE_COLON,
    BEFORE_FIRST_KEY,
    BEFORE_ITEM,
    BEFORE_KEY,
    BEFORE_VALUE,
    BOOLEAN,
    CLOSED,
    KIND_VALUE,
    NULL_TYPE,
    NUMBER,
    NUMERIC,
    OBJECT,
    STRING,
)

cdef enum:
    GUESSES = 3         # properties that are tried in the order of the schema
    MANY = 1 << 30      # code points; no text within a chunk has as many

cdef uint64_t EXACT = 1000000000000000      # 10**15: doubles hold what is less, and powers of ten up to 22, exactly
cdef double[23] POWERS

cdef int _i
POWERS[0] = 1.0
for _i in range(22):
    POWERS[_i + 1] = POWERS[_i] * 10.0

cdef struct Text:
    # A string, unescaped.
    const uint8_t* data
    uint32_t size
    bint has_slack      # a block from `data` on may be read
    uint64_t chars


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
            after = _take_string(reader, q + 1, end)
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
            after = _take_number(reader, q, end)
        else:
            after = _take_literal(reader, q, end)
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
    if ssop_unlikely(seen[0] & bit):
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
    cdef const uint8_t* after = _take_text(reader, start, end, reader.caps.key_bytes, &text)
    cdef int found
    if after is NULL:
        return NULL
    found = _find(node.keys, node.key_count, &text)
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


cdef int _find(const Key* keys, uint32_t count, const Text* text) noexcept nogil:
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


# -- strings --------------------------------------------------------------------------------------------


cdef inline const uint8_t* _take_text(
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
    return _take_odd_text(reader, q, end, room, text)


cdef const uint8_t* _take_odd_text(
    Reader reader, const uint8_t* start, const uint8_t* end, uint32_t room, Text* text
) noexcept nogil:
    """Read on in a string that is not all plain; `text` has what is before `start`. It is copied from the first escape on."""
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


cdef inline const uint8_t* _take_string(Reader reader, const uint8_t* start, const uint8_t* end) noexcept nogil:
    """Read and send a string from behind its quote on."""
    cdef Node* node = reader.node
    cdef uint32_t room = room_of(reader.writer, &reader.place, 0)
    cdef Text text
    if ssop_unlikely(room < 4):
        return NULL
    cdef const uint8_t* after = _take_text(reader, start, end, room, &text)
    if ssop_unlikely(after is NULL or text.chars > node.max_length):
        return NULL
    if node.flags & (ENUM_STRINGS | HAS_FORMAT | HAS_PATTERN):
        if not _keeps_rules(node, &text):
            return NULL
    elif text.chars < node.min_length:
        return NULL
    if not write_string(reader.writer, KIND_VALUE, &reader.place, 0, text.data, text.size, text.has_slack):
        return NULL
    return after


cdef bint _keeps_rules(Node* node, const Text* text) noexcept nogil:
    """Whether the string is surely a member of its enumeration, and matches."""
    if node.flags & HAS_FORMAT:
        return False
    if node.flags & ENUM_STRINGS:
        if _find(node.strings, node.string_count, text) < 0:
            return False
    elif text.chars < node.min_length:
        return False
    if node.flags & HAS_PATTERN:
        return (<Pattern>node.pattern).is_known_match(text.data, text.size)
    return True


# -- numbers and literals -------------------------------------------------------------------------------


cdef inline bint _ends_value(uint8_t c) noexcept nogil:
    return c == 0x2C or c == 0x7D or c == 0x5D or c == 0x20 or c == 0x0A or c == 0x0D or c == 0x09


cdef inline const uint8_t* _take_number(Reader reader, const uint8_t* start, const uint8_t* end) noexcept nogil:
    """Read and send a number of few digits without an exponent, with the byte behind it in sight."""
    cdef Node* node = reader.node
    cdef const uint8_t* p = start
    cdef const uint8_t* first
    cdef const uint8_t* point
    cdef bint is_negative = p[0] == 0x2D
    cdef uint64_t digits = 0
    cdef int64_t value
    cdef double number
    p += is_negative
    first = p
    while p < end and <uint8_t>(p[0] - 0x30) < 10:
        digits = digits * 10 + <uint8_t>(p[0] - 0x30)
        p += 1
    if ssop_unlikely(p == end or p == first or p - first > 18 or (first[0] == 0x30 and p - first > 1)):
        return NULL
    if p[0] == 0x2E:
        point = p
        p += 1
        while p < end and <uint8_t>(p[0] - 0x30) < 10:
            digits = digits * 10 + <uint8_t>(p[0] - 0x30)
            p += 1
        if p == end or p == point + 1 or p - first > 19 or digits >= EXACT or not node.types & NUMBER:
            return NULL
        number = <double>digits / POWERS[p - point - 1]
        if is_negative:
            number = -number
        if node.flags & (ENUM_NUMBERS | HAS_BOUNDS | HAS_MULTIPLE):
            if node.flags & (ENUM_NUMBERS | HAS_MULTIPLE) or not node.low < number < node.high:
                return NULL
        if not _ends_value(p[0]) or <uint64_t>(p - start) > reader.caps.number_bytes:
            return NULL
        return p if write_double(reader.writer, &reader.place, number) else NULL
    if not _ends_value(p[0]) or <uint64_t>(p - start) > reader.caps.number_bytes or (is_negative and not digits):
        return NULL
    value = -<int64_t>digits if is_negative else <int64_t>digits
    if node.flags & (ENUM_NUMBERS | HAS_BOUNDS | HAS_MULTIPLE) and not _keeps_bounds(node, value):
        return NULL
    if node.flags & IS_DOUBLE:
        if digits >= EXACT:
            return NULL
        return p if write_double(reader.writer, &reader.place, <double>value) else NULL
    return p if write_int(reader.writer, &reader.place, value) else NULL


cdef inline bint _keeps_bounds(const Node* node, int64_t value) noexcept nogil:
    """Whether an integer is surely within its bounds."""
    cdef uint32_t flags = node.flags
    if flags & ENUM_NUMBERS:
        return False
    if flags & INT_BOUNDS:
        return (
            node.minimum <= value <= node.maximum
            and not (flags & HAS_ABOVE and value <= node.exclusive_minimum)
            and not (flags & HAS_BELOW and value >= node.exclusive_maximum)
            and not (flags & HAS_MULTIPLE and value % node.multiple_of)
        )
    return not flags & HAS_MULTIPLE and node.low < <double>value < node.high


cdef const uint8_t* _take_literal(Reader reader, const uint8_t* start, const uint8_t* end) noexcept nogil:
    cdef Node* node = reader.node
    if end - start < 5:
        return NULL
    if start[0] == 0x74 and start[1] == 0x72 and start[2] == 0x75 and start[3] == 0x65:
        if not node.types & BOOLEAN or node.flags & NO_TRUE:
            return NULL
        return start + 4 if write_bool(reader.writer, &reader.place, True) else NULL
    if start[0] == 0x66 and start[1] == 0x61 and start[2] == 0x6C and start[3] == 0x73 and start[4] == 0x65:
        if not node.types & BOOLEAN or node.flags & NO_FALSE:
            return NULL
        return start + 5 if write_bool(reader.writer, &reader.place, False) else NULL
    if start[0] == 0x6E and start[1] == 0x75 and start[2] == 0x6C and start[3] == 0x6C:
        if not node.types & NULL_TYPE:
            return NULL
        return start + 4 if write_null(reader.writer, &reader.place) else NULL
    return NULL
