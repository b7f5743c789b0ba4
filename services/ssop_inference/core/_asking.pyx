# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Generate requests of the common kind, read from the wire in one pass; see the pure twin.

Whatever is not plain is None, what is malformed too: protobuf then says what it is.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ssop_codec._wire cimport get_varint

from ssop_inference.core.prompt import SPEAKERS, ChatMessage
from ssop_inference.core.request import DEFAULT_SAMPLING, Asked, SamplingOptions

cdef enum:
    ROLES = 5
    VARINT = 0
    BYTES = 2
    FLOAT = 5
    UINT32 = 0xFFFFFFFF

cdef struct Field:
    # A field of a message: a number where it is one, else where its bytes are.
    uint32_t number
    uint32_t wire
    uint64_t value
    const uint8_t* data
    uint64_t size

# The names of roles by their numbers; None: of a turn that is not plain.
cdef tuple roles = tuple([SPEAKERS.get(number) for number in range(ROLES)])
cdef object new_tuple = tuple.__new__


cdef int read_field(const uint8_t** at, const uint8_t* end, Field* field) noexcept:
    """0, and the place behind it; -1 where it is none that plain requests have."""
    cdef uint64_t tag
    if get_varint(at, end, &tag) or tag >> 3 > 15:
        return -1
    field.number = <uint32_t>(tag >> 3)
    field.wire = <uint32_t>(tag & 7)
    if field.wire == VARINT:
        return get_varint(at, end, &field.value)
    if field.wire == BYTES:
        if get_varint(at, end, &field.size):
            return -1
    elif field.wire == FLOAT:
        field.size = 4
    else:
        return -1
    if field.size > <uint64_t>(end - at[0]):
        return -1
    field.data = at[0]
    at[0] += field.size
    return 0


cdef str text_of(Field* field):
    """None where it is not UTF-8."""
    try:
        return PyUnicode_DecodeUTF8(<const char*>field.data, <Py_ssize_t>field.size, NULL)
    except UnicodeDecodeError:
        return None


cdef object turn_of(Field* message):
    cdef const uint8_t* at = message.data
    cdef const uint8_t* end = at + message.size
    cdef const uint8_t* part
    cdef const uint8_t* part_end
    cdef Field field, inner
    cdef uint64_t role = 0
    cdef str text = None
    while at < end:
        if read_field(&at, end, &field):
            return None
        if field.number == 1 and field.wire == VARINT:
            role = field.value
        elif field.number == 2 and field.wire == BYTES and text is None:
            part, part_end = field.data, field.data + field.size
            if read_field(&part, part_end, &inner) or part != part_end or inner.number != 1 or inner.wire != BYTES:
                return None
            text = text_of(&inner)
            if text is None:
                return None
        else:
            return None
    if text is None or role >= ROLES or roles[role] is None:
        return None
    return new_tuple(ChatMessage, (roles[role], text, (), (), ""))


cdef double float_of(Field* field) noexcept:
    cdef float value
    memcpy(&value, field.data, 4)
    return value


cdef object sampling_of(Field* sampling):
    cdef const uint8_t* at = sampling.data
    cdef const uint8_t* end = at + sampling.size
    cdef Field field
    cdef double temperature = 0, top_p = 1, presence = 0, frequency = 0
    cdef uint64_t top_k = 0, most_tokens = 0
    cdef object seed = None
    cdef list stops = []
    cdef str stop
    while at < end:
        if read_field(&at, end, &field):
            return None
        if field.number == 4 and field.wire == VARINT:
            seed = field.value
        elif field.wire == VARINT and field.value <= UINT32 and field.number == 3:
            top_k = field.value
        elif field.wire == VARINT and field.value <= UINT32 and field.number == 5:
            most_tokens = field.value
        elif field.wire == FLOAT and field.number == 1:
            temperature = float_of(&field)
        elif field.wire == FLOAT and field.number == 2:
            top_p = float_of(&field)
        elif field.wire == FLOAT and field.number == 7:
            presence = float_of(&field)
        elif field.wire == FLOAT and field.number == 8:
            frequency = float_of(&field)
        elif field.wire == BYTES and field.number == 6:
            stop = text_of(&field)
            if stop is None:
                return None
            stops.append(stop)
        else:
            return None
    return new_tuple(
        SamplingOptions, (temperature, top_p, top_k, seed, most_tokens, tuple(stops), presence, frequency))


cdef class Prompt:
    """What is read of one."""

    cdef list turns
    cdef str schema
    cdef object sampling, linger_ms
    cdef bint asserts_format, logprobs
    cdef uint64_t buffer_bytes

    cdef bint read(self, Field* prompt):
        """False where it is not plain."""
        cdef const uint8_t* at = prompt.data
        cdef const uint8_t* end = at + prompt.size
        cdef Field field
        self.turns = []
        self.asserts_format = True
        while at < end:
            if read_field(&at, end, &field):
                return False
            if field.number == 1 and field.wire == BYTES:
                turn = turn_of(&field)
                if turn is None:
                    return False
                self.turns.append(turn)
            elif field.number == 2 and field.wire == BYTES and self.schema is None:
                if not self.read_schema(&field):
                    return False
            elif field.number == 3 and field.wire == BYTES and self.sampling is None:
                self.sampling = sampling_of(&field)
                if self.sampling is None:
                    return False
            elif field.wire != VARINT or field.value > UINT32:
                return False
            elif field.number == 6:
                self.buffer_bytes = field.value
            elif field.number == 7:
                self.logprobs = field.value != 0
            elif field.number == 8:
                self.linger_ms = field.value
            else:
                return False
        return bool(self.turns)

    cdef bint read_schema(self, Field* schema):
        cdef const uint8_t* at = schema.data
        cdef const uint8_t* end = at + schema.size
        cdef Field field
        self.schema = ""
        while at < end:
            if read_field(&at, end, &field):
                return False
            if field.number == 1 and field.wire == BYTES:
                self.schema = text_of(&field)
                if self.schema is None:
                    return False
            elif field.number == 2 and field.wire == VARINT:
                self.asserts_format = field.value != 0
            else:
                return False
        return True


def read_plain(bytes data not None):
    """See the pure twin."""
    cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef const uint8_t* end = at + PyBytes_GET_SIZE(data)
    cdef Field field
    cdef Prompt prompt = None
    cdef str request_id = "", model = ""
    cdef uint64_t priority = 0, confidence_tokens = 0
    while at < end:
        if read_field(&at, end, &field):
            return None
        if field.number == 3 and field.wire == BYTES and prompt is None:
            prompt = Prompt.__new__(Prompt)
            if not prompt.read(&field):
                return None
        elif field.wire == BYTES and field.number == 1:
            request_id = text_of(&field)
            if request_id is None:
                return None
        elif field.wire == BYTES and field.number == 2:
            model = text_of(&field)
            if model is None:
                return None
        elif field.wire == VARINT and field.value <= UINT32 and field.number == 6:
            priority = field.value
        elif field.wire == VARINT and field.value <= UINT32 and field.number == 7:
            confidence_tokens = field.value
        else:
            return None
    if prompt is None:
        return None
    return new_tuple(Asked, (
        request_id, model, priority, confidence_tokens, prompt.schema, prompt.asserts_format, prompt.buffer_bytes,
        prompt.linger_ms, prompt.logprobs, DEFAULT_SAMPLING if prompt.sampling is None else prompt.sampling,
        tuple(prompt.turns), None))
