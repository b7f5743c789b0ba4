# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""The values of a document so far, and its containers that are open.

Values are put where their paths say, in the order of the frames; nothing that was closed is opened again, so that
of equal keys the last one wins.

Most values belong into the container that is open innermost. Its address, a node and the bytes of the steps before it,
is kept, so that such a value needs no more than a comparison; paths are made of Python objects only where a container
is opened.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.dict cimport PyDict_SetItem
from cpython.list cimport PyList_Append
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from ssop_codec._fields cimport Field, next_field
from ssop_codec._frame cimport ARRAY_SIZE, Frame, tokens_of
from ssop_codec._table cimport KEY_STEP, REF_STEP, Entry, FieldTable, Step, read_step

from .errors import FrameError


cdef class Tree:
    """A document that grows at its end."""

    def __cinit__(self, FieldTable table not None, Py_ssize_t max_array_gap):
        self.table = table
        self.max_array_gap = max_array_gap
        self.containers = []
        self.tokens = []

    def __dealloc__(self):
        free(self.steps)
        free(self.walks)
        free(self.ways)
        free(self.levels)
        free(self.address)

    cdef int put(self, Frame frame, object value) except -1:
        """Put the scalar of a VALUE frame in its place."""
        cdef Walk walk
        cdef Token token
        cdef Step step
        cdef int64_t depth = self.level_count
        if not _is_member(self, frame, &token, &step):
            depth = _read_path(self, frame, &walk)
            if depth == 0:
                self.result = value
                _leave(self, 0)
                return 0
            _step_up(self, &walk, &token)
            _enter(self, &walk, &token, <uint32_t>depth)
        _put(self, &token, value)
        frame.completes = depth == 1 and token.is_key and not frame.document
        return 0

    cdef int close(self, Frame frame) except -1:
        """Close the container of a CLOSE frame."""
        cdef Walk walk
        cdef Token token
        cdef bint is_array = frame.content == ARRAY_SIZE
        cdef bint is_open = _is_innermost(self, frame)
        cdef uint32_t depth
        if is_open:
            depth = self.level_count - 1
        else:
            depth = <uint32_t>_read_path(self, frame, &walk)
            is_open = self.level_count > depth
            _canonical(self, &walk)
            if is_open and not _is_level(self, depth, &walk):
                is_open = self.tokens[:depth] == list(tokens_of(frame))
        if is_open:
            container = <object>self.levels[depth].container
            if isinstance(container, list) != is_array:
                raise FrameError("an object is closed as an array, or the reverse")
        else:
            container = [] if is_array else {}
            if depth:
                _step_up(self, &walk, &token)
                _enter(self, &walk, &token, depth)
                _put(self, &token, container)
            else:
                self.result = container
        if (is_array or self.counts_once) and not self.has_gaps and <uint64_t>len(container) != frame.count:
            raise FrameError("a container is closed with another size than it has")
        if depth == 1 and not frame.document and type(self.result) is dict:
            frame.whole = container
            frame.completes = True
        _leave(self, depth)
        return 0


# -- the innermost container ---------------------------------------------------------------------------------------


cdef inline bint _has_address(Frame frame, const Level* level, const uint8_t* address) noexcept:
    """Whether the path of the frame begins with the address of a container."""
    if level.path_size == 0:
        return True
    if <Py_ssize_t>(frame.path_end - frame.path_begin) < level.path_size:
        return False
    return memcmp(
        address, PyBytes_AS_STRING(frame.chunk) + frame.begin + frame.path_begin, level.path_size
    ) == 0


cdef inline bint _is_innermost(Tree self, Frame frame) noexcept:
    """Whether the frame is about the innermost container; False where that takes more to find out."""
    cdef Level* level
    if self.level_count == 0:
        return False
    level = &self.levels[self.level_count - 1]
    if level.node != frame.node or level.path_size != <Py_ssize_t>(frame.path_end - frame.path_begin):
        return False
    return _has_address(frame, level, self.address)


cdef inline bint _is_member(Tree self, Frame frame, Token* token, Step* step) except -1:
    """Whether the value belongs into the innermost container, by `token`; False where that takes more to find out."""
    cdef const uint8_t* start
    cdef const uint8_t* end
    cdef Level* level
    cdef Entry* entry
    if self.level_count == 0 or self.level_count > self.table.max_tokens:
        return False
    level = &self.levels[self.level_count - 1]
    if not _has_address(frame, level, self.address):
        return False
    entry = &self.table.entries[frame.node]
    start = <const uint8_t*>PyBytes_AS_STRING(frame.chunk) + frame.begin
    end = start + frame.path_end
    start += frame.path_begin + level.path_size
    if start == end:
        # A property of an object that has a node.
        if not level.is_typed or entry.parent != level.node or entry.token is NULL or frame.node == 0:
            return False
        token.is_key = entry.is_key
        token.index = entry.index
        token.key = entry.token
        return True
    if frame.node != level.node:
        if not level.is_typed or entry.parent != level.node or entry.token is not NULL or frame.node == 0:
            return False
    if start[0] != 0x22 or read_step(start, end, step) != end or step.kind == REF_STEP:
        return False
    token.is_key = step.kind == KEY_STEP
    token.index = step.number
    token.key = NULL
    token.step = step
    return True


# -- paths -------------------------------------------------------------------------------------------------------


cdef int64_t _read_path(Tree self, Frame frame, Walk* walk) except -1:
    """Read the steps of a frame and set out at its node; returns the number of tokens.

    What lies above the last stretch is checked here, the stretch itself where it is walked.
    """
    cdef FieldTable table = self.table
    cdef Entry* entries = table.entries
    cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(frame.chunk) + frame.begin
    cdef const uint8_t* at = start + frame.path_begin
    cdef const uint8_t* end = start + frame.path_end
    cdef const uint8_t* before
    cdef Field field
    cdef Step* step
    cdef int64_t depth = 0
    cdef int64_t left
    walk.node = frame.node
    walk.first = walk.start = 0
    self.path = at
    self.step_count = 0
    if frame.path_end == 0:
        walk.steps = 0
        if entries[walk.node].dynamic:
            raise FrameError("a path lacks steps")
        return entries[walk.node].depth
    while at < end:
        if at[0] != 0x22:
            before = at
            next_field(&at, end, &field)
            if field.number != 4:
                continue
            at = before
        if self.step_count == self.step_room:
            _grow_steps(self)
        step = &self.steps[self.step_count]
        at = read_step(at, end, step)
        self.step_count += 1
        if step.kind != REF_STEP:
            continue
        if step.number >= table.count:
            raise FrameError("a step follows a node that is not in the table")
        if entries[step.number].ref < 0:
            raise FrameError("a step follows a node that is no reference")
        depth += _stretch(self, walk.start, step.number, self.step_count - 1 - walk.first, &left)
        if left:
            raise FrameError("a path has steps that its nodes do not take")
        walk.start = <uint32_t>entries[step.number].ref
        walk.first = self.step_count
    walk.steps = self.step_count
    depth += _stretch(self, walk.start, walk.node, walk.steps - walk.first, &left) + left
    if depth > table.max_tokens:
        raise FrameError("a path is too deep")
    return depth


cdef int64_t _stretch(Tree self, uint32_t start, uint32_t node, uint32_t steps, int64_t* left) except -1:
    """Tokens between two nodes; `left` gets how many of the steps they do not take."""
    cdef Entry* entries = self.table.entries
    cdef uint32_t at = node
    while at > start and start:
        at = entries[at].parent
    if start and at != start:
        raise FrameError("a node outside the subtree of the reference")
    left[0] = <int64_t>steps + entries[start].dynamic - entries[node].dynamic
    if left[0] < 0:
        raise FrameError("a path lacks steps")
    return <int64_t>entries[node].depth - entries[start].depth


cdef int _grow_steps(Tree self) except -1:
    cdef uint32_t room = max(16, 2 * self.step_room)
    cdef void* block = realloc(self.steps, room * sizeof(Step))
    if block is NULL:
        raise MemoryError
    self.steps = <Step*>block
    self.step_room = room
    return 0


cdef inline void _canonical(Tree self, Walk* walk) noexcept:
    """What stands at the target of a reference is addressed at the reference."""
    cdef uint32_t position
    while walk.steps and walk.steps == walk.first and walk.node == walk.start:
        walk.steps -= 1
        walk.node = self.steps[walk.steps].number
        position = walk.steps
        while position and self.steps[position - 1].kind != REF_STEP:
            position -= 1
        walk.first = position
        walk.start = <uint32_t>self.table.entries[self.steps[position - 1].number].ref if position else 0


cdef inline void _step_up(Tree self, Walk* walk, Token* token) noexcept:
    """Go from a value to the container that it is in, by `token`. The root is in none."""
    cdef Entry* entry
    cdef const Step* step
    _canonical(self, walk)
    cdef int64_t wanted = (
        <int64_t>self.table.entries[walk.node].dynamic - self.table.entries[walk.start].dynamic
    )
    cdef bint is_below = <int64_t>walk.steps - walk.first > wanted
    entry = &self.table.entries[walk.node]
    if is_below or entry.token is NULL:
        walk.steps -= 1
        step = &self.steps[walk.steps]
        token.is_key = step.kind == KEY_STEP
        token.index = step.number
        token.key = NULL
        token.step = step
    else:
        token.is_key = entry.is_key
        token.index = entry.index
        token.key = entry.token
    if not is_below:
        walk.node = entry.parent
    if walk.steps == walk.first:
        _canonical(self, walk)


cdef inline Py_ssize_t _path_size(Tree self, Walk* walk) noexcept:
    """Bytes of the steps of an address."""
    return self.steps[walk.steps - 1].end - self.path if walk.steps else 0


cdef inline bint _is_typed(Tree self, Walk* walk) noexcept:
    """Whether the address is that of a node, and not of something below it."""
    cdef Entry* entries = self.table.entries
    return <int64_t>walk.steps - walk.first == <int64_t>entries[walk.node].dynamic - entries[walk.start].dynamic


cdef inline bint _is_level(Tree self, uint32_t depth, Walk* walk) noexcept:
    """Whether the walk stands at the container that is open at a depth."""
    cdef Level* level = &self.levels[depth]
    cdef Py_ssize_t size = _path_size(self, walk)
    if level.node != walk.node or level.path_size != size:
        return False
    return size == 0 or memcmp(self.address, self.path, size) == 0


# -- containers --------------------------------------------------------------------------------------------------


cdef int _enter(Tree self, Walk* walk, Token* token, uint32_t depth) except -1:
    """Make the container at `walk` the innermost one; it is opened where it is not. `token` leads into it."""
    cdef uint32_t k = depth - 1
    cdef Py_ssize_t size
    if self.level_count == depth and _is_level(self, k, walk):
        return 0
    if depth > self.walk_room:
        _grow_walks(self, depth)
    self.walks[k] = walk[0]
    self.ways[k] = token[0]
    while k and not (k < self.level_count and _is_level(self, k, &self.walks[k])):
        self.walks[k - 1] = self.walks[k]
        _step_up(self, &self.walks[k - 1], &self.ways[k - 1])
        k -= 1
    if self.level_count == 0:
        self.result = {} if self.ways[0].is_key else []
        _open(self, self.result, &self.walks[0])
    for k in range(k + 1, depth):
        way = _object_of(self, &self.ways[k - 1])
        if k < self.level_count:
            if self.tokens[k - 1] == way:
                # The same place under another address.
                self.levels[k].node = self.walks[k].node
                self.levels[k].path_size = _path_size(self, &self.walks[k])
                self.levels[k].is_typed = _is_typed(self, &self.walks[k])
                continue
            _leave(self, k)
        inner = {} if self.ways[k].is_key else []
        _put(self, &self.ways[k - 1], inner)
        self.tokens.append(way)
        _open(self, inner, &self.walks[k])
    _leave(self, depth)
    size = _path_size(self, walk)
    if size > self.address_room:
        _grow_address(self, size)
    if size:
        memcpy(self.address, self.path, size)
    return 0


cdef int _open(Tree self, object container, Walk* walk) except -1:
    """Add a level; the container is in its own already."""
    cdef uint32_t room
    cdef void* block
    cdef Level* level
    if self.level_count == self.level_room:
        room = max(8, 2 * self.level_room)
        block = realloc(self.levels, room * sizeof(Level))
        if block is NULL:
            raise MemoryError
        self.levels = <Level*>block
        self.level_room = room
    self.containers.append(container)
    level = &self.levels[self.level_count]
    level.container = <PyObject*>container
    level.node = walk.node
    level.path_size = _path_size(self, walk)
    level.is_typed = _is_typed(self, walk)
    self.level_count += 1
    return 0


cdef int _leave(Tree self, uint32_t depth) except -1:
    """Only the outermost `depth` containers stay open."""
    while self.level_count > depth:
        self.level_count -= 1
        self.containers.pop()
        if self.level_count:
            self.tokens.pop()
    return 0


cdef int _grow_walks(Tree self, uint32_t depth) except -1:
    cdef uint32_t room = max(16, 2 * depth)
    cdef void* walks = realloc(self.walks, room * sizeof(Walk))
    if walks is NULL:
        raise MemoryError
    self.walks = <Walk*>walks
    cdef void* ways = realloc(self.ways, room * sizeof(Token))
    if ways is NULL:
        raise MemoryError
    self.ways = <Token*>ways
    self.walk_room = room
    return 0


cdef int _grow_address(Tree self, Py_ssize_t size) except -1:
    cdef void* block = realloc(self.address, 2 * size)
    if block is NULL:
        raise MemoryError
    self.address = <uint8_t*>block
    self.address_room = 2 * size
    return 0


cdef object _object_of(Tree self, Token* token):
    """The token as a Python object; one that comes from a step is made."""
    if not token.is_key:
        return token.index
    return self.table.key_of(token.step) if token.key is NULL else <object>token.key


cdef int _put(Tree self, Token* token, object value) except -1:
    """Put a member into the innermost container."""
    cdef object container = <object>self.levels[self.level_count - 1].container
    cdef Py_ssize_t gap
    if type(container) is dict:
        if not token.is_key:
            raise FrameError("an index into an object")
        if token.key is NULL:
            PyDict_SetItem(container, self.table.key_of(token.step), value)
        else:
            PyDict_SetItem(container, <object>token.key, value)
        return 0
    if token.is_key:
        raise FrameError("a key of an array")
    gap = <Py_ssize_t>token.index - len(<list>container)
    if gap:
        if gap < 0:
            raise FrameError("an item of an array comes twice")
        if not self.has_gaps or gap > self.max_array_gap:
            raise FrameError("an array leaves out items")
        self.max_array_gap -= gap
        (<list>container).extend([None] * gap)
    PyList_Append(container, value)
    return 0
