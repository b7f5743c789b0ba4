# cython: language_level=3
"""The state of a document that is being read. One reader serves one document."""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from ssop_codec._envelope cimport Envelope
from ssop_codec._frame_writer cimport FrameWriter, Place
from ssop_codec._judge cimport Judge
from ssop_codec._program cimport Node, Program
from ssop_codec._scan cimport Utf8


cdef struct Level:
    Node* node              # rules of the container's structure
    Place place             # of the container itself
    uint32_t child_number   # table node that untyped children are addressed by
    uint32_t base_path      # path bytes that all children share
    uint32_t next_key       # property expected next, in the order of the schema
    int32_t child_key       # property that is open: index into the node's keys, -1 a key of the model
    uint32_t seen           # offset of the set of properties seen
    uint64_t count          # members so far, the open one left out
    bint is_array
    bint has_key_set

cdef struct Caps:
    uint32_t depth
    uint64_t document_bytes
    uint64_t blanks
    uint32_t key_bytes
    uint32_t number_bytes
    uint32_t format_bytes
    uint64_t object_keys


cdef struct Span:
    # Of a value that is no container: its frame, and its text in the input.
    uint64_t seq
    uint64_t start
    uint64_t end


cdef class Reader:
    cdef Program program
    cdef FrameWriter writer
    cdef Judge judge            # None where the rules of the nodes say all
    cdef Caps caps
    cdef bint is_text
    cdef bint is_raw
    cdef bint is_envelope
    # Where the document stands.
    cdef int state
    cdef uint64_t offset        # bytes of input before this feed
    cdef uint64_t blanks
    cdef Node* node             # rules of the value that is read or expected; NULL: none is allowed
    cdef Place place            # of that value
    cdef uint32_t depth
    cdef Level* levels
    cdef uint64_t* seen
    cdef list key_sets          # keys of the model in each open object, None where it has none yet; None before the first
    # Before the document.
    cdef Envelope envelope
    cdef int bom
    # The token that is being read.
    cdef uint8_t* text
    cdef uint32_t text_size
    cdef uint32_t text_room     # bytes of a string that fit one frame
    cdef bint in_key
    cdef uint32_t parts
    cdef uint64_t chars
    cdef Utf8 utf8
    cdef int pattern_state
    cdef uint32_t point         # code point being read, where a pattern asks for it
    cdef uint32_t unit          # \u escape being read
    cdef int unit_digits
    cdef uint32_t high          # first half of a surrogate pair
    cdef uint32_t low_key       # candidates among sorted keys or members
    cdef uint32_t high_key
    cdef int32_t guess          # property whose key is compared first
    cdef int number_state
    cdef const char* literal    # what is left of it
    cdef int literal_kind
    # The first violation.
    cdef str broken
    cdef int detail
    cdef uint64_t broken_at
    cdef bint in_child
    cdef bint is_judged         # the judge found it
    cdef object cached_violation
    # Spans of the values, where they are asked for.
    cdef bint track_spans
    cdef uint64_t value_start
    cdef Span* spans
    cdef uint32_t span_count
    cdef uint32_t span_room

    cdef int fail(self, str rule, int detail, uint64_t offset, bint in_child) except -1
    cdef int fail_member(self, uint64_t offset) except -1
    cdef int fail_judged(self, uint64_t offset) except -1
    cdef object violation(self)
    cdef str _pointer(self)
    cdef list take_spans(self)


cdef bint has_span_room(Reader reader) noexcept nogil


cdef inline void keep_span(Reader reader, uint64_t start, uint64_t end) noexcept nogil:
    """Keep the span of the value whose frame was made; `has_span_room` said yes."""
    cdef Span* span = &reader.spans[reader.span_count]
    span.seq = reader.writer.seq - 1
    span.start = start
    span.end = end
    reader.span_count += 1
