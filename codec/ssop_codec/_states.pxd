# cython: language_level=3
"""The names that the modules of the encoder share: states, types, kinds of frames, details of violations."""

cdef enum:
    # States from BEFORE_VALUE to AFTER skip blanks; those from IN_STRING to IN_UNIT are inside a string.
    AT_START, BEFORE_VALUE, BEFORE_ITEM, BEFORE_KEY, BEFORE_FIRST_KEY, BEFORE_COLON, AFTER, CLOSED
    IN_STRING, IN_ESCAPE, IN_UNIT, IN_NUMBER, IN_LITERAL, IN_ENVELOPE, BROKEN

cdef enum:
    STRING = 1
    INTEGER = 2
    NUMBER = 4
    NUMERIC = 6
    BOOLEAN = 8
    NULL_TYPE = 16
    OBJECT = 32
    ARRAY = 64

cdef enum:
    KIND_VALUE = 2
    KIND_PART = 3
    KIND_CLOSE = 4
    KIND_END = 5

cdef enum:
    # Positions in describe.DETAILS.
    D_NONE, D_VALUE, D_VALUE_OR_END, D_KEY, D_KEY_OR_END, D_COLON, D_AFTER_MEMBER, D_AFTER_ITEM, D_DIGIT
    D_LITERAL, D_ESCAPE, D_HEX, D_LOW_HALF, D_CONTROL, D_LONE_HALF, D_DEPTH, D_DOCUMENT, D_BLANKS, D_KEY_SIZE
    D_NUMBER_SIZE, D_FORMAT_SIZE, D_OBJECT_KEYS, D_BUFFER, D_NUMBER_END, D_CHECKS, D_HELD, D_UNIQUE
    D_PATTERN

cdef enum:
    # Number states: after a minus, a leading zero, whole digits, the point, ...
    N_MINUS, N_ZERO, N_WHOLE, N_POINT, N_FRACTION, N_E, N_SIGN, N_EXPONENT

cdef enum:
    LITERAL_FALSE, LITERAL_TRUE, LITERAL_NULL
