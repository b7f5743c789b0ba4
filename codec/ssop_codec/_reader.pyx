# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""What is known of a document while it is read, and how its first violation is told.

`_machine` says which module reads the next byte; `_containers`, `_strings` and `_numbers` are the readers
of each kind of value.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc

from ssop_codec._frame_writer cimport FrameWriter
from ssop_codec._judge cimport Judge
from ssop_codec._program cimport IS_CONST, Program
from ssop_codec._states cimport AT_START, BROKEN, D_NONE, IN_ENVELOPE

from . import describe
from .errors import Violation
from .rules import Rule


cdef class Reader:
    """The state of a document that is being read."""

    def __cinit__(
        self, Program program not None, FrameWriter writer not None, limits, bint is_envelope, bint track_spans
    ):
        schema = program.schema
        self.program = program
        self.writer = writer
        self.is_text = schema.is_text
        self.is_raw = schema.is_raw
        self.is_envelope = is_envelope and not self.is_text
        self.track_spans = track_spans
        if program.check_count:
            self.judge = Judge(program, limits)
        self.caps.depth = limits.max_depth
        self.caps.document_bytes = limits.max_document_bytes
        self.caps.blanks = limits.max_whitespace_run_bytes
        self.caps.key_bytes = limits.max_key_bytes
        self.caps.number_bytes = limits.max_number_bytes
        self.caps.format_bytes = limits.max_format_bytes
        self.caps.object_keys = limits.max_object_keys
        cdef uint64_t text_bytes = max(
            writer.buffer_bytes, self.caps.key_bytes, self.caps.number_bytes, self.caps.format_bytes,
            program.max_member_bytes,
        )
        self.text = <uint8_t*>malloc(text_bytes + 16)
        self.place.path = <uint8_t*>malloc(<uint64_t>writer.buffer_bytes + 32)
        self.levels = <Level*>malloc((self.caps.depth + 1) * sizeof(Level))
        self.seen = <uint64_t*>malloc((<uint64_t>self.caps.depth * program.max_words + 1) * 8)
        if not (self.text and self.place.path and self.levels and self.seen):
            raise MemoryError
        self.node = &program.nodes[0]
        self.state = IN_ENVELOPE if self.is_envelope else AT_START

    def __dealloc__(self):
        free(self.text)
        free(self.place.path)
        free(self.levels)
        free(self.seen)
        free(self.spans)

    cdef int fail(self, str rule, int detail, uint64_t offset, bint in_child) except -1:
        """Record the first violation; `in_child`: it concerns the open value and not its container."""
        if self.state != BROKEN:
            self.state = BROKEN
            self.broken = rule
            self.detail = detail
            self.broken_at = offset
            self.in_child = in_child
        return 0

    cdef int fail_member(self, uint64_t offset) except -1:
        """The value is none of its enumeration."""
        return self.fail("const" if self.node.flags & IS_CONST else "enum", D_NONE, offset, True)

    cdef int fail_judged(self, uint64_t offset) except -1:
        """Record the violation that the judge found."""
        if self.state == BROKEN:
            return 0
        self.is_judged = True
        return self.fail(self.judge.rule, self.judge.detail, offset, True)

    cdef object violation(self):
        """The first violation, or None."""
        if self.state != BROKEN:
            return None
        if self.cached_violation is None:
            self.cached_violation = _violation(self)
        return self.cached_violation

    cdef str _pointer(self):
        """Pointer of the place of the violation, as far as the schema or an index names it."""
        cdef uint32_t i
        cdef Level* level
        tokens = []
        cdef uint32_t depth = self.judge.broken_depth if self.is_judged else self.depth
        for i in range(depth):
            if i + 1 == depth and not self.in_child:
                break
            level = &self.levels[i]
            if level.is_array:
                tokens.append(str(level.count))
            elif level.child_key >= 0:
                key = level.node.keys[level.child_key]
                name = key.data[:key.size].decode()
                tokens.append(name.replace("~", "~0").replace("/", "~1"))
            else:
                break
        return "".join("/" + token for token in tokens)


    cdef list take_spans(self):
        """The spans since the last call."""
        cdef uint32_t i
        spans = [(self.spans[i].seq, self.spans[i].start, self.spans[i].end) for i in range(self.span_count)]
        self.span_count = 0
        return spans


cdef bint has_span_room(Reader reader) noexcept nogil:
    """Make room for one more span; False where there is no memory for it."""
    cdef uint32_t room
    cdef void* block
    if reader.span_count == reader.span_room:
        room = 2 * reader.span_room if reader.span_room else 16
        block = realloc(reader.spans, room * sizeof(Span))
        if block is NULL:
            return False
        reader.spans = <Span*>block
        reader.span_room = room
    return True


cdef object _violation(Reader reader):
    """Put the violation into words."""
    cdef Judge judge = reader.judge
    if reader.is_judged:
        if reader.detail:
            return Violation(reader.broken, reader._pointer(), reader.broken_at, describe.DETAILS[reader.detail])
        rule = reader.program.rules[reader.program.node_count + 1 + judge.broken_check]
        text = describe.expected(reader.broken, rule, rule, rule.required)
        return Violation(reader.broken, reader._pointer(), reader.broken_at, text)
    rules = reader.program.schema.rules
    cdef Level* level = &reader.levels[reader.depth - 1] if reader.depth else NULL
    cdef Py_ssize_t number
    rule = structure = Rule()
    if reader.node is not NULL:
        number = reader.node - reader.program.nodes
        if number < <Py_ssize_t>reader.program.node_count:
            rule = rules[number]
    missing = []
    if level is not NULL:
        number = level.node - reader.program.nodes
        if number < <Py_ssize_t>reader.program.node_count:
            structure = rules[number]
            if reader.broken == "required":
                for position, name in enumerate(structure.properties):
                    if name in structure.required and not (
                        reader.seen[level.seen + position // 64] >> (position % 64) & 1
                    ):
                        missing.append(name)
    if reader.detail:
        text = describe.DETAILS[reader.detail]
    else:
        text = describe.expected(reader.broken, rule, structure, tuple(missing))
    return Violation(reader.broken, reader._pointer(), reader.broken_at, text)
