# cython: language_level=3
"""Schemas that are judged beside the rules of the nodes: branches of unions, and what no single rule can say."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from ssop_codec._program cimport Group, Node, Program


cdef enum:
    OPEN, KEPT, FAILED

cdef enum:
    # Positions in RULES.
    R_NONE, R_CHILD, R_TYPE, R_MEMBER, R_MAX_LENGTH, R_MIN_LENGTH, R_PATTERN, R_FORMAT, R_MINIMUM, R_MAXIMUM
    R_ABOVE, R_BELOW, R_MULTIPLE, R_ADDITIONAL, R_MAX_PROPERTIES, R_NAMES, R_REQUIRED, R_MIN_PROPERTIES
    R_DEPENDENT, R_MAX_ITEMS, R_MIN_ITEMS, R_UNIQUE, R_MAX_CONTAINS, R_MIN_CONTAINS
    R_NEVER             # no value of the member keeps its check

cdef enum:
    # What a check of a member is to a check of its container; ROLE_ROOT: the check of a node.
    ROLE_ROOT, ROLE_MEMBER, ROLE_NAME, ROLE_CONTAINS

cdef struct Trial:
    # A check that is run over one value.
    int32_t check
    uint8_t own             # OPEN, KEPT or FAILED: the keywords of the check itself
    uint8_t status          # with the groups
    uint8_t is_object
    uint8_t has_set         # items are kept to compare them
    uint8_t rule            # the keyword of its own that failed, a position in RULES
    int32_t failed_child    # trial of the member that failed, under R_CHILD; its check, under R_NEVER
    uint32_t stamp
    uint32_t kids           # first of its kids in `kids`
    uint32_t seen           # first word of the set of keys in `words`
    uint32_t missing        # required keys that did not come yet
    uint32_t low            # candidates among sorted members or keys
    uint32_t high
    int pattern_state
    uint64_t matched        # items that `contains` took

cdef struct Link:
    int32_t trial           # of the value; before it begins, its check
    int32_t parent          # trial of the container
    int role

cdef struct Stage:
    # The trials of one open value.
    uint32_t first
    uint32_t last
    uint32_t links
    uint32_t links_end
    uint32_t kids
    uint32_t words
    uint64_t count          # members so far, the open one left out
    uint64_t held_from
    bint is_array
    bint is_held
    bint has_ended
    bint has_text           # a format waits for the text
    uint32_t busy           # trials that want the bytes of a string


cdef class Judge:
    cdef Program program
    cdef bint watches           # the innermost open container has trials
    cdef bint in_value          # the open scalar has trials
    cdef Stage* stages          # of the open values, by depth
    cdef Trial* trials
    cdef uint32_t trial_count
    cdef uint32_t trial_room
    cdef Link* links
    cdef uint32_t link_count
    cdef uint32_t link_room
    cdef int32_t* kids
    cdef uint32_t kid_count
    cdef uint32_t kid_room
    cdef uint64_t* words
    cdef uint32_t word_count
    cdef uint32_t word_room
    cdef int32_t* places        # last trial of each check
    cdef uint32_t stamp
    cdef uint32_t max_trials
    # The string that is open.
    cdef uint32_t depth         # stage of the open scalar or key
    cdef uint64_t chars
    cdef uint32_t bytes_read
    cdef uint32_t key_depth     # stage of the value whose key is open
    cdef uint32_t key_bytes
    cdef uint32_t key_point
    cdef uint32_t key_need
    cdef uint32_t point
    cdef uint32_t point_need
    cdef bytearray text
    cdef uint64_t max_text_bytes
    # Values that are compared as a whole.
    cdef const uint8_t* chunk
    cdef uint64_t chunk_from
    cdef uint64_t chunk_end
    cdef bytearray held
    cdef uint64_t held_from
    cdef uint32_t holders
    cdef uint64_t max_held_bytes
    cdef uint64_t max_unique_items
    cdef dict sets              # trial -> items so far
    # What was broken.
    cdef int detail             # of a limit, a position in describe.DETAILS
    cdef str rule
    cdef int32_t broken_check
    cdef uint32_t broken_depth

    cdef uint8_t rule_number(self, str keyword) except 0
    cdef bint limit(self, int detail, uint32_t depth) except -1
    cdef int _grow(self) except -1
    cdef int32_t trial(self, int32_t check) except? -9
    cdef int link(self, int32_t check, int32_t parent, int role) except -1
    cdef bint has_trials(self, uint32_t depth) noexcept
    cdef bint settle(self, uint32_t depth) except -1
    cdef uint8_t resolve(self, uint32_t index, bint has_ended) noexcept
    cdef uint8_t _kid(self, Trial* trial, uint32_t slot, bint has_ended) noexcept
    cdef uint8_t _status_of(self, Trial* trial, Group* group, bint has_ended) noexcept
    cdef int blame(self, uint32_t index, uint32_t depth) except -1
    cdef int pop(self, uint32_t depth) except -1
    cdef int take_chunk(self, const uint8_t* chunk, Py_ssize_t size, uint64_t offset) except -1
    cdef int _keep(self, uint64_t offset) except -1
    cdef int hold(self, uint64_t offset) except -1
    cdef bytes text_of(self, uint64_t start, uint64_t end)
