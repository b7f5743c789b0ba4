# cython: language_level=3
"""A schema as C structures. All pointers are owned by the Program and live as long as it does."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef enum:
    NODE_FORBIDDEN = -1
    NODE_UNTYPED = -2

cdef enum:
    HAS_BOUNDS = 1      # a keyword about the size of numbers
    INT_BOUNDS = 2      # all of them are integers that int64 holds
    IS_DOUBLE = 4       # integers, too, travel as doubles
    ENUM_STRINGS = 8
    ENUM_NUMBERS = 16
    HAS_FORMAT = 32
    NO_TRUE = 64
    NO_FALSE = 128
    IS_CONST = 256      # the enumeration is a `const`
    HAS_MULTIPLE = 512
    HAS_ABOVE = 1024    # exclusiveMinimum
    HAS_BELOW = 2048    # exclusiveMaximum
    HAS_PATTERN = 4096
    IS_SHAPE = 8192     # the pattern is that of the format
    IS_STRICT = 16384   # an integer has neither point nor exponent

cdef struct Key:
    const uint8_t* data
    uint32_t size
    bint is_plain       # stands between quotes as it is
    int32_t node        # properties: the child's node
    uint32_t position   # properties: place in the order of the schema

cdef enum:
    # In place of a check.
    CHECK_ALWAYS = -3
    CHECK_NEVER = -4

cdef enum:
    # Flags of a check's keys.
    KEY_REQUIRED = 1
    KEY_PROPERTY = 2

cdef enum:
    # Kinds of groups; in G_IF the kids are the condition, then and else.
    G_ALL, G_ANY, G_ONE, G_NOT, G_IF, G_WHEN

cdef struct Root:
    uint32_t types      # of values that the check is for
    int32_t check

cdef struct Node:
    uint32_t types
    uint32_t declared_types
    uint32_t flags
    int32_t object_at
    int32_t array_at
    # Properties, sorted by key bytes; `order` lists them in the order of the schema.
    Key* keys
    uint32_t* order
    uint32_t key_count
    uint32_t words          # 64-bit words of a set of properties
    uint64_t* required
    int32_t additional
    uint64_t min_properties
    uint64_t max_properties
    uint64_t most_keys      # the least of that and of the names that can have a value, where no others may stand
    int32_t* prefix
    uint32_t prefix_count
    int32_t items
    uint64_t min_items
    uint64_t max_items
    uint64_t min_length     # in code points
    uint64_t max_length
    Key* strings            # members of the enumeration, sorted
    uint32_t string_count
    void* pattern           # a Pattern that the Program keeps alive
    # Doubles decide when they differ from the value; equality is decided exactly.
    double low
    double high
    int64_t minimum
    int64_t maximum
    int64_t exclusive_minimum
    int64_t exclusive_maximum
    int64_t multiple_of
    Root* roots             # what the judge runs beside these rules
    uint32_t root_count

cdef struct Dependent:
    uint32_t key            # position among the check's keys
    uint32_t* needed
    uint32_t needed_count

cdef struct Group:
    int kind
    uint32_t first          # its kids among those of the check
    uint32_t count
    uint32_t key            # G_WHEN: position among the check's keys

cdef struct Check:
    Node* node              # scalars, counts and types
    uint32_t settled
    Key* keys               # sorted; `node` is the check of the value, or CHECK_ALWAYS
    uint8_t* key_flags
    uint32_t key_count
    uint32_t words
    uint32_t required_count
    int32_t additional
    uint32_t pattern_count
    uint32_t* patterns      # positions in Program.patterns
    int32_t* pattern_checks
    uint32_t dependent_count
    Dependent* dependents
    uint32_t prefix_count
    int32_t* prefix
    int32_t items
    int32_t contains
    uint64_t min_contains
    uint64_t max_contains
    int32_t names
    bint is_unique
    bint has_members
    uint32_t kid_count
    int32_t* kids           # checks of the same value
    uint32_t group_count
    Group* groups


cdef class Program:
    cdef Node* nodes
    cdef uint32_t node_count
    cdef uint32_t max_words
    cdef uint32_t max_member_bytes
    cdef readonly object schema
    cdef list rules             # of each node: those of the table, the untyped one, those of the checks
    # One more check than the schema has: the last takes no value.
    cdef Check* checks
    cdef uint32_t check_count
    cdef list patterns          # Pattern objects
    cdef list blocks            # bytearrays that own the arrays
    cdef list owned             # bytes that own the keys, and patterns

    cdef void* _block(self, size_t size) except NULL
    cdef Key* _keys(self, list texts) except? NULL
    cdef int _fill(self, uint32_t number, object rule) except -1
    cdef int _count_keys(self, Node* node) except -1
    cdef int _fill_number(self, Node* node, object rule) except -1
    cdef int _fill_check(self, uint32_t number, object check, dict places) except -1
    cdef int32_t* _numbers(self, object numbers) except NULL
