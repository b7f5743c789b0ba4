# cython: language_level=3
"""The state of an encoder. One encoder serves one document and is used by one thread at a time."""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from ssop_codec._program cimport Node, Program


cdef struct Level:
    Node* node              # rules of the container's structure
    uint32_t self_node      # table node of the container itself
    uint32_t child_node     # table node that untyped children are addressed by
    uint32_t self_path      # path bytes of the container
    uint32_t base_path      # path bytes that all children share
    uint32_t next_key       # property expected next, in the order of the schema
    int32_t child_key       # property that is open: index into the node's keys, -1 a key of the model
    uint32_t seen           # offset of the set of properties seen
    uint64_t count          # members so far, the open one left out
    bint is_array
    bint has_key_set


cdef class Encoder:
    cdef Program program
    cdef Node* cur              # rules of the value that is read or expected; NULL: none is allowed
    cdef uint32_t cur_node      # its table node
    cdef uint32_t path_size     # its path bytes
    cdef uint8_t* path
    cdef Level* levels
    cdef uint64_t* seen
    cdef uint32_t seen_size
    cdef list key_sets
    cdef uint32_t depth
    cdef uint32_t max_depth
    # Output.
    cdef uint8_t* out
    cdef uint32_t out_size
    cdef uint32_t buffer_bytes
    cdef uint32_t length_size   # bytes of a varint that holds any length within the buffer
    cdef list sealed
    cdef Py_ssize_t taken
    cdef uint64_t seq
    cdef uint64_t first_seq
    cdef uint32_t document
    cdef bint has_field_frame
    # The token that is being read.
    cdef int state
    cdef bint in_key
    cdef uint8_t* text
    cdef uint32_t text_size
    cdef uint32_t text_room     # bytes of a string that fit one frame
    cdef uint32_t parts
    cdef uint64_t chars
    cdef uint32_t need          # bytes that the open code point still lacks
    cdef uint8_t need_low
    cdef uint8_t need_high
    cdef uint32_t unit          # \u escape being read
    cdef int unit_digits
    cdef uint32_t high          # first half of a surrogate pair
    cdef int number_state
    cdef const char* literal
    cdef int literal_kind
    cdef uint32_t low_key       # candidates among sorted keys or members
    cdef uint32_t high_key
    cdef int32_t guess          # property whose key is compared first
    cdef uint64_t blanks
    cdef uint64_t offset        # bytes of input before this feed
    # Before the document.
    cdef int envelope_state
    cdef int tag_match
    cdef int ticks
    cdef bint after_prose
    cdef int bom
    # Caps.
    cdef uint64_t max_document_bytes
    cdef uint64_t max_blanks
    cdef uint32_t max_key_bytes
    cdef uint32_t max_number_bytes
    cdef uint32_t max_format_bytes
    cdef uint64_t max_object_keys
    cdef bint is_text
    cdef bint is_raw
    cdef bint is_envelope
    cdef bint is_finished
    # The first violation.
    cdef str broken
    cdef int detail
    cdef uint64_t broken_at
    cdef bint in_child
    cdef object cached_violation
    cdef int final_verdict
    cdef bint track_spans
    cdef uint64_t value_start
    cdef list spans

    cdef int _feed(self, const uint8_t* start, Py_ssize_t size) except -1
    cdef int _flags(self) noexcept
    cdef int _scalar_done(self, uint64_t end) except -1
    cdef bint _is_between(self) except? -1
    cdef int _push(self, bytes frame) except -1
    cdef int _seal(self) except -1
    cdef uint8_t* _head(
        self, int kind, uint32_t node, uint32_t path_size, uint32_t parts, uint64_t content, uint64_t offset
    ) except? NULL
    cdef int _sent_field(self) except -1
    cdef uint32_t _room(self) noexcept
    cdef int _put_string(self, int kind, const uint8_t* data, uint32_t size, uint64_t offset) except -1
    cdef int _fail(self, str rule, int detail, uint64_t offset, bint in_child) except -1
    cdef int _run(self, const uint8_t* start, Py_ssize_t size) except -1
    cdef int _begin_value(self, uint8_t c, uint64_t offset) except -1
    cdef int _open(self, bint is_array, uint64_t offset) except -1
    cdef int _close(self, uint64_t offset) except -1
    cdef int _next_item(self, Level* level, uint64_t offset) except -1
    cdef int _value_done(self, uint64_t end) except -1
    cdef int _begin_key(self) except -1
    cdef int _end_key(self, uint64_t offset) except -1
    cdef int _key_bytes(self, const uint8_t* data, uint32_t size, uint64_t offset, int step) except -1
    cdef int _text_bytes(self, const uint8_t* data, uint32_t size, uint64_t offset, int step) except -1
    cdef int _append(self, const uint8_t* data, uint32_t size, uint64_t offset) except -1
    cdef int _cut_part(self, uint64_t offset) except -1
    cdef int _end_string(self, uint64_t offset) except -1
    cdef int _lead(self, uint8_t c, uint64_t offset) except -1
    cdef int _code_point(self, uint32_t point, uint64_t offset) except -1
    cdef int _escape(self, uint8_t c, uint64_t offset) except -1
    cdef int _unit(self, uint8_t c, uint64_t offset) except -1
    cdef int _number_byte(self, uint8_t c, uint64_t offset) except -1
    cdef int _end_number(self, uint64_t offset) except -1
    cdef int _put_number(self, bint is_integer_text, bint fits, long long value, uint64_t offset) except -1
    cdef int _put_json(self, uint64_t offset) except -1
    cdef int _put_int(self, long long value, uint64_t offset) except -1
    cdef int _put_double(self, double value, uint64_t offset) except -1
    cdef int _end_literal(self, uint64_t offset) except -1
    cdef bint _envelope_byte(self, uint8_t c)
    cdef int _feed_text(self, const uint8_t* start, Py_ssize_t size) except -1
    cdef str _pointer(self)
