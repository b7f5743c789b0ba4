# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""The field table of a document and the paths that it gives to nodes and steps (SPEC.md section 5)."""

from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_GET_LENGTH
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from ssop_codec._fields cimport UINT32, Field, expect, next_field, text_of, uint_of
from ssop_codec._wire cimport get_varint

from .constants import FieldStep
from .errors import FrameError
from .wire import RefStep

cdef uint32_t PROPERTY = FieldStep.PROPERTY
cdef uint32_t PREFIX_ITEM = FieldStep.PREFIX_ITEM

cdef enum:
    KNOWN_KEYS = 256
    MAX_KNOWN_BYTES = 40


cdef class FieldTable:
    """Nodes by their number. Entries are added and never changed, so frames may keep the table."""

    def __cinit__(self, uint32_t max_tokens):
        self.max_tokens = max_tokens
        self.tokens = []
        self.chains = {}

    def __dealloc__(self):
        free(self.entries)

    cdef int add(self, uint32_t parent, uint32_t step, object key, uint32_t index, int64_t ref) except -1:
        """Append a node; its parent is in the table, unless it is the root."""
        cdef Entry* entry
        if self.count == self.room:
            room = max(16, 2 * self.room)
            entry = <Entry*>realloc(self.entries, room * sizeof(Entry))
            if entry is NULL:
                raise MemoryError
            self.entries = entry
            self.room = room
        entry = &self.entries[self.count]
        entry.is_key = step == PROPERTY
        entry.index = index
        entry.parent = parent
        entry.ref = ref
        token = key if entry.is_key else index if step == PREFIX_ITEM else None
        entry.token = NULL if token is None else <PyObject*>token
        if self.count == 0:
            entry.depth = entry.dynamic = 0
        else:
            entry.depth = self.entries[parent].depth + 1
            entry.dynamic = self.entries[parent].dynamic + (token is None)
        self.tokens.append(token)
        self.count += 1
        return 0

    cdef object key_of(self, const Step* step):
        """The key of a step. Objects of one kind repeat their keys, so those of few bytes are kept a while."""
        cdef uint64_t mixed
        cdef uint64_t last
        cdef Py_ssize_t slot
        cdef object known
        if step.size < 4 or step.size > <uint64_t>MAX_KNOWN_BYTES:
            return _text_of(step)
        if self.known_keys is None:
            self.known_keys = [None] * KNOWN_KEYS
        mixed = last = 0
        memcpy(&mixed, step.key, min(step.size, <uint64_t>8))
        memcpy(&last, step.key + step.size - 4, 4)
        mixed = (mixed ^ (last << 29) ^ step.size) * <uint64_t>0x9E3779B97F4A7C15
        slot = <Py_ssize_t>(mixed >> 56) & (KNOWN_KEYS - 1)
        known = self.known_keys[slot]
        if (
            known is not None
            and <uint64_t>PyUnicode_GET_LENGTH(known) == step.size
            and memcmp(PyUnicode_DATA(known), step.key, step.size) == 0
        ):
            return known
        known = _text_of(step)
        # Of ASCII alone the bytes in memory are those of the step.
        if PyUnicode_GET_LENGTH(known) == <Py_ssize_t>step.size:
            self.known_keys[slot] = known
        return known

    cdef tuple resolve(self, uint32_t node, list steps):
        """The path of a node of the table as keys and indexes."""
        cdef tuple chain
        cdef list tokens
        cdef Py_ssize_t position
        cdef Py_ssize_t first = 0
        cdef uint32_t start = 0
        if steps is None:
            chain = self._chain(0, node)
            if None in chain:
                raise FrameError("a path lacks steps")
            return chain
        tokens = []
        for position in range(len(steps)):
            step = steps[position]
            if type(step) is not RefStep:
                continue
            if step >= self.count:
                raise FrameError("a step follows a node that is not in the table")
            if self.entries[<uint32_t>step].ref < 0:
                raise FrameError("a step follows a node that is no reference")
            self._fill(tokens, self._chain(start, step), steps, first, position, False)
            start = <uint32_t>self.entries[<uint32_t>step].ref
            first = position + 1
        self._fill(tokens, self._chain(start, node), steps, first, len(steps), True)
        if <uint32_t>len(tokens) > self.max_tokens:
            raise FrameError("a path is too deep")
        return tuple(tokens)

    cdef tuple _chain(self, uint32_t start, uint32_t node):
        """Tokens from `start` down to `node`; None where a step says it."""
        cdef uint64_t place = <uint64_t>start << 32 | node
        known = self.chains.get(place)
        if known is not None:
            return known
        cdef list tokens = []
        cdef uint32_t at = node
        while at != start:
            if at == 0:
                raise FrameError("a node outside the subtree of the reference")
            tokens.append(self.tokens[at])
            at = self.entries[at].parent
        tokens.reverse()
        chain = tuple(tokens)
        self.chains[place] = chain
        return chain

    cdef int _fill(
        self, list out, tuple chain, list steps, Py_ssize_t first, Py_ssize_t last, bint is_last
    ) except -1:
        """Append the tokens of a chain, those without a name from steps[first:last]."""
        for token in chain:
            if token is None:
                if first == last:
                    raise FrameError("a path lacks steps")
                out.append(steps[first])
                first += 1
            else:
                out.append(token)
        if is_last:
            while first < last:
                out.append(steps[first])
                first += 1
        elif first != last:
            raise FrameError("a path has steps that its nodes do not take")
        return 0


cdef object _text_of(const Step* step):
    cdef Field field
    field.wire = 2
    field.data = step.key
    field.size = step.size
    return text_of(&field)


cdef const uint8_t* read_step(const uint8_t* at, const uint8_t* end, Step* step) except NULL:
    """Read a step from its tag on; returns the place behind it. Keys are not decoded."""
    cdef Field field
    cdef Field inner
    cdef const uint8_t* p = at
    cdef const uint8_t* stop
    cdef uint64_t number
    # Steps as every writer makes them.
    if end - at > 3 and at[0] == 0x22 and at[1] < 0x80 and at[1] > 1 and at[1] <= end - at - 2:
        stop = at + 2 + at[1]
        p = at + 3
        if at[2] == 0x08 or at[2] == 0x18:
            if not get_varint(&p, stop, &number) and p == stop and number <= UINT32:
                step.kind = INDEX_STEP if at[2] == 0x08 else REF_STEP
                step.number = <uint32_t>number
                step.end = stop
                return stop
        elif at[2] == 0x12 and p[0] < 0x80 and p + 1 + p[0] == stop:
            step.kind = KEY_STEP
            step.key = p + 1
            step.size = p[0]
            step.end = stop
            return stop
        p = at
    next_field(&p, end, &field)
    expect(&field, 2)
    stop = field.data + field.size
    step.kind = -1
    at = field.data
    while at < stop:
        next_field(&at, stop, &inner)
        if inner.number == 1 or inner.number == 3:
            step.kind = INDEX_STEP if inner.number == 1 else REF_STEP
            step.number = <uint32_t>uint_of(&inner, UINT32)
        elif inner.number == 2:
            text_of(&inner)
            step.kind = KEY_STEP
            step.key = inner.data
            step.size = inner.size
    if step.kind < 0:
        raise FrameError("a path step is empty")
    step.end = p
    return p


cdef list steps_of(const uint8_t* at, const uint8_t* end):
    """The steps of a path: int, str or RefStep. Other fields may stand between them."""
    cdef const uint8_t* begin
    cdef Field field
    cdef Step step
    steps = []
    while at < end:
        begin = at
        next_field(&at, end, &field)
        if field.number != 4:
            continue
        read_step(begin, end, &step)
        if step.kind == KEY_STEP:
            steps.append(_text_of(&step))
        elif step.kind == REF_STEP:
            steps.append(RefStep(step.number))
        else:
            steps.append(step.number)
    return steps
