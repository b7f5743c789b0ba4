# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Opens and closes objects and arrays, judges their keys, and says where each member stands.

The place of a member is a table node and path bytes: a step for each index, each key of the model and each
reference that is followed (SPEC.md section 5). Containers share one path buffer; a level keeps how much of
it is its own.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from ssop_codec._judge_keys cimport judge_key_begin, judge_key_bytes, judge_key_end, judge_key_points
from ssop_codec._judge_values cimport judge_close
from ssop_codec._program cimport NODE_FORBIDDEN, Key, Node
from ssop_codec._reader cimport Level, Reader, has_span_room, keep_span
from ssop_codec._scan cimport Points, has_point, narrow
from ssop_codec._states cimport (
    AFTER,
    BEFORE_COLON,
    BEFORE_FIRST_KEY,
    BEFORE_ITEM,
    CLOSED,
    D_BUFFER,
    D_DEPTH,
    D_KEY_SIZE,
    D_NONE,
    D_OBJECT_KEYS,
    IN_STRING,
)
from ssop_codec._wire cimport varint_size


cdef int open_container(Reader reader, bint is_array, uint64_t offset) except -1:
    """Begin the object or array that the value at hand is."""
    if reader.depth == reader.caps.depth:
        return reader.fail("limit", D_DEPTH, offset, True)
    if reader.place.path_size + STEP_BYTES > reader.writer.buffer_bytes and _has_long_path(reader, is_array):
        return reader.fail("limit", D_BUFFER, offset, True)
    push_level(reader, is_array)
    if is_array:
        reader.state = BEFORE_ITEM
        return begin_item(reader, offset)
    reader.state = BEFORE_FIRST_KEY
    return 0


cdef bint _has_long_path(Reader reader, bint is_array) noexcept:
    """Whether no chunk holds the path of the children, where a reference leads to them."""
    cdef int32_t at = reader.node.array_at if is_array else reader.node.object_at
    if &reader.program.nodes[at] == reader.node:
        return False
    return reader.place.path_size + 3 + varint_size(reader.place.number) > reader.writer.buffer_bytes


cdef int begin_item(Reader reader, uint64_t offset) except -1:
    """Say what the next item of the open array may be, and where it stands."""
    cdef Level* level = &reader.levels[reader.depth - 1]
    cdef Node* node = level.node
    cdef int32_t child
    reader.place.path_size = level.base_path
    if level.count < node.prefix_count:
        child = node.prefix[level.count]
        reader.node = &reader.program.nodes[child]
        reader.place.number = <uint32_t>child
        return 0
    if node.items == NODE_FORBIDDEN:
        reader.node = NULL
        return 0
    enter(reader, level, node.items)
    add_step(reader, 0x08, level.count)
    if reader.place.path_size > reader.writer.buffer_bytes:
        return reader.fail("limit", D_BUFFER, offset, True)
    return 0


cdef int close_container(Reader reader, uint64_t offset) except -1:
    """Judge the open container as a whole, and send its end."""
    cdef Level* level = &reader.levels[reader.depth - 1]
    cdef Node* node = level.node
    if level.is_array:
        if level.count < node.min_items:
            return reader.fail("minItems", D_NONE, offset, False)
    else:
        if not has_required(reader, level):
            return reader.fail("required", D_NONE, offset, False)
        if level.count < node.min_properties:
            return reader.fail("minProperties", D_NONE, offset, False)
        if level.has_key_set:
            reader.key_sets[reader.depth - 1] = None
    if reader.judge is not None and judge_close(reader.judge, reader.depth - 1, offset + 1):
        return reader.fail_judged(offset)
    if not reader.writer.put_close(&level.place, level.is_array, level.count):
        return reader.fail("limit", D_BUFFER, offset, False)
    reader.depth -= 1
    _end_value(reader)
    return 0


cdef void _end_value(Reader reader) noexcept:
    if reader.depth:
        reader.levels[reader.depth - 1].count += 1
        reader.state = AFTER
    else:
        reader.state = CLOSED
    reader.blanks = 0


cdef int end_scalar(Reader reader, uint64_t end) except -1:
    """The frame of a value that is no container was made; its text ends before `end`."""
    if reader.track_spans:
        if not has_span_room(reader):
            raise MemoryError
        keep_span(reader, reader.value_start, end)
    _end_value(reader)
    return 0


# -- keys -----------------------------------------------------------------------------------------------


cdef int begin_key(Reader reader, uint64_t offset) except -1:
    """The quote of a key was read. Models mostly follow the order of the schema: the next property is guessed."""
    cdef Level* level = &reader.levels[reader.depth - 1]
    reader.state = IN_STRING
    reader.in_key = True
    reader.text_size = 0
    level.child_key = -1
    if reader.judge is not None and reader.judge.watches and judge_key_begin(reader.judge, reader.depth):
        return reader.fail_judged(offset)
    if level.next_key < level.node.key_count and _can_come(reader, level, level.node.order[level.next_key]):
        reader.guess = <int32_t>level.node.order[level.next_key]
    else:
        reader.guess = -1
        reader.low_key = 0
        reader.high_key = level.node.key_count
    return 0


cdef inline bint _can_come(Reader reader, Level* level, uint32_t number) noexcept:
    """Whether a property that has a value can still come."""
    cdef Key* key = &level.node.keys[number]
    if reader.seen[level.seen + (key.position >> 6)] >> (key.position & 63) & 1:
        return False
    return reader.program.nodes[key.node].types != 0


cdef bint _has_key(Reader reader, Level* level, const Points* points, uint32_t count) noexcept:
    """Whether a property that begins with what was read can still come; its next code point is among `points`, unless
    these are NULL."""
    cdef uint32_t i
    for i in range(reader.low_key, reader.high_key):
        if _can_come(reader, level, i) and (
            points is NULL or has_point(&level.node.keys[i], reader.text_size, points, count)
        ):
            return True
    return False


cdef int judge_points_of_key(Reader reader, const Points* points, uint32_t count, uint64_t offset) except -1:
    """An escape of the open key was read in part: its code point is among `points`."""
    cdef Level* level = &reader.levels[reader.depth - 1]
    if level.node.additional == NODE_FORBIDDEN:
        _drop_guess(reader, level.node)
        if not _has_key(reader, level, points, count):
            return reader.fail("additionalProperties", D_NONE, offset, False)
    if reader.judge is not None and reader.judge.watches and judge_key_points(reader.judge, points, count):
        return reader.fail_judged(offset)
    return 0


cdef void _drop_guess(Reader reader, Node* node) noexcept:
    """Find the candidates among all keys."""
    cdef uint32_t i
    if reader.guess < 0:
        return
    reader.guess = -1
    reader.low_key = 0
    reader.high_key = node.key_count
    for i in range(reader.text_size):
        narrow(node.keys, &reader.low_key, &reader.high_key, i, reader.text[i])


cdef int read_key(Reader reader, const uint8_t* data, uint32_t size, uint64_t offset, int step) except -1:
    """Bytes of a key, unescaped. `step` 1: plain bytes, each a code point, the first at `offset`; 0: bytes of
    one code point, all known at `offset`."""
    cdef Level* level = &reader.levels[reader.depth - 1]
    cdef Node* node = level.node
    cdef Key* key
    cdef uint32_t room = reader.caps.key_bytes - reader.text_size
    cdef uint32_t take = size if size < room else room
    cdef uint32_t i, from_
    memcpy(reader.text + reader.text_size, data, take)
    if reader.guess >= 0:
        key = &node.keys[reader.guess]
        if key.size < reader.text_size + take or memcmp(key.data + reader.text_size, data, take):
            reader.guess = -1
            reader.low_key = 0
            reader.high_key = node.key_count
            from_ = 0
        else:
            from_ = reader.text_size + take
    else:
        from_ = reader.text_size
    for i in range(from_, reader.text_size + take):
        narrow(node.keys, &reader.low_key, &reader.high_key, i, reader.text[i])
        if node.additional == NODE_FORBIDDEN:
            if not _has_key(reader, level, NULL, 0):
                i -= reader.text_size
                if _judge_key(reader, data, i, offset, step):
                    return 0
                return reader.fail("additionalProperties", D_NONE, offset + step * i, False)
        elif reader.low_key == reader.high_key:
            break
    reader.text_size += take
    if _judge_key(reader, data, take, offset, step):
        return 0
    if take < size:
        return reader.fail("limit", D_KEY_SIZE, offset + step * take, False)
    return 0


cdef bint _judge_key(Reader reader, const uint8_t* data, uint32_t size, uint64_t offset, int step) except -1:
    """Whether the judge finds a violation in these bytes of a key."""
    cdef uint32_t taken
    if reader.judge is None or not reader.judge.watches:
        return False
    taken = judge_key_bytes(reader.judge, data, size)
    if taken < size:
        reader.fail_judged(offset + step * taken)
    return taken < size


cdef int32_t _found_key(Reader reader, Node* node) noexcept:
    """The property whose key was read, -1 where the schema names none."""
    if reader.guess >= 0:
        if node.keys[reader.guess].size == reader.text_size:
            return reader.guess
        _drop_guess(reader, node)
    if reader.low_key < reader.high_key and node.keys[reader.low_key].size == reader.text_size:
        return <int32_t>reader.low_key
    return -1


cdef int end_key(Reader reader, uint64_t offset) except -1:
    """The closing quote of a key was read: which member is it, and may it stand here?"""
    cdef Level* level = &reader.levels[reader.depth - 1]
    cdef Node* node = level.node
    cdef int32_t found = _found_key(reader, node)
    cdef Key* key
    cdef uint64_t bit
    reader.place.path_size = level.base_path
    if found < 0:
        return _end_model_key(reader, level, offset)
    key = &node.keys[found]
    bit = <uint64_t>1 << (key.position & 63)
    if reader.seen[level.seen + (key.position >> 6)] & bit:
        return reader.fail("duplicateKey", D_NONE, offset, False)
    reader.seen[level.seen + (key.position >> 6)] |= bit
    level.next_key = key.position + 1
    level.child_key = found
    reader.node = &reader.program.nodes[key.node]
    reader.place.number = <uint32_t>key.node
    reader.state = BEFORE_COLON
    if not reader.node.types:
        return fail_empty(reader, offset)
    if reader.judge is not None and reader.judge.watches and judge_key_end(reader.judge, reader.text, reader.text_size):
        return reader.fail_judged(offset)
    return 0


cdef int fail_empty(Reader reader, uint64_t offset) except -1:
    """A value has to come that no schema allows."""
    if reader.node.declared_types:
        return reader.fail_member(offset)
    return reader.fail("type", D_NONE, offset, True)


cdef int _end_model_key(Reader reader, Level* level, uint64_t offset) except -1:
    """A key that the schema does not name: the path carries it."""
    cdef Node* node = level.node
    if node.additional == NODE_FORBIDDEN:
        return reader.fail("additionalProperties", D_NONE, offset, False)
    if not reader.is_raw:
        name = PyBytes_FromStringAndSize(<char*>reader.text, reader.text_size)
        if not level.has_key_set:
            level.has_key_set = True
            if reader.key_sets is None:
                reader.key_sets = [None] * reader.caps.depth
            reader.key_sets[reader.depth - 1] = set()
        names = <set>reader.key_sets[reader.depth - 1]
        if name in names:
            return reader.fail("duplicateKey", D_NONE, offset, False)
        if <uint64_t>len(names) >= reader.caps.object_keys:
            return reader.fail("limit", D_OBJECT_KEYS, offset, False)
        names.add(name)
    enter(reader, level, node.additional)
    if reader.place.path_size + key_step_bytes(reader.text_size) > reader.writer.buffer_bytes:
        return reader.fail("limit", D_BUFFER, offset, False)
    memcpy(begin_key_step(reader, reader.text_size), reader.text, reader.text_size)
    reader.state = BEFORE_COLON
    if not reader.node.types:
        return fail_empty(reader, offset)
    if reader.judge is not None and reader.judge.watches and judge_key_end(reader.judge, reader.text, reader.text_size):
        return reader.fail_judged(offset)
    return 0
