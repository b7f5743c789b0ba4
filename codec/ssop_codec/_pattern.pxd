# cython: language_level=3
"""A pattern as a deterministic automaton over classes of code points, made while it is used."""

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t

from ssop_codec._claim cimport ssop_mutex


cdef enum:
    DEAD = 0            # no continuation matches
    ACCEPT_ALL = 1      # every continuation matches
    LOST = 2            # the state was dropped; it can't be known any more whether the text matches
    FIRST_STATE = 3
    UNKNOWN = -1        # in a row: not computed yet


cdef class Pattern:
    cdef readonly str text
    cdef readonly uint64_t work         # states of the automaton followed so far
    cdef uint32_t state_count           # of the nondeterministic automaton
    cdef uint8_t* kinds
    cdef int32_t* first
    cdef int32_t* second
    cdef int32_t nfa_start
    cdef bint has_edges
    # Classes of code points.
    cdef uint32_t class_count
    cdef uint32_t run_count
    cdef uint32_t* run_starts
    cdef uint16_t* run_classes
    cdef uint16_t[128] ascii_classes
    cdef uint8_t* members               # of each set: whether it has the class
    cdef uint8_t* word_classes
    # The deterministic automaton, states from FIRST_STATE. Rows are written under the lock and read without any.
    # They never move: their place is set aside whole, and costs memory where it is written.
    cdef int32_t* rows
    cdef uint32_t row_bits              # a row has 2**row_bits places, one for each class
    cdef uint32_t kept_limit            # states that have rows
    cdef uint32_t kept_count
    cdef uint8_t* accept_flags
    cdef list keys                      # of each state with a row: its set, packed
    cdef dict numbers                   # packed set -> state
    cdef int32_t start_state
    # States beyond those: number -> packed set; the oldest are dropped.
    cdef object spare
    cdef uint32_t spare_limit
    cdef int32_t next_spare
    cdef ssop_mutex lock                # of all that grows, and of what follows
    # Scratch of one step.
    cdef uint32_t* marks
    cdef uint32_t mark
    cdef int32_t* stack
    cdef int32_t* leaves
    cdef uint32_t leaf_count

    cdef int start(self) noexcept
    cdef int step(self, int state, unsigned int codepoint) except -1
    cdef bint accepts(self, int state) except -1
    cdef bint can_take(self, int state, unsigned int low, unsigned int high) except -1
    cdef size_t run(self, int* state, const uint8_t* data, size_t size) noexcept nogil
    cdef bint is_known_match(self, const uint8_t* data, size_t size) noexcept nogil
    cdef uint32_t class_of(self, unsigned int codepoint) noexcept nogil
    cdef int step_class(self, int state, uint32_t class_number) except -1
    cdef int32_t* _row(self, int state) noexcept nogil
    cdef int _compute(self, int state, uint32_t class_number) except -1
    cdef int _compute_locked(self, int state, uint32_t class_number) except -1
    cdef int _intern(self, bint is_start, bint after_word) except -1
    cdef int _close(self, int32_t state, bint is_start, int next) except -1
    cdef bint _ends_well(self, bytes key) except -1
    cdef bytes _key_of(self, int state)
