# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""A prompt read from its bytes in one pass; see the pure twin.

Asking a message of protobuf for each of its fields costs ten times as much, and serialising its parts again, for the
key of the answer, as much once more.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ssop_codec._wire cimport get_varint
from ssop_router.core._tuples cimport fill

from ssop.v1.content_pb2 import Role

from ssop_router.core._parts_py import MAX_PLAIN
from ssop_router.core.prompt import MAX_MESSAGES, MAX_TOOLS, PlainText, PromptParts

cdef enum:
    # content.proto
    MESSAGES = 1
    SCHEMA = 2
    SAMPLING = 3
    TOOLS = 4
    TOOL_CHOICE = 5
    BUFFER_BYTES = 6
    LOGPROBS = 7
    LINGER_MS = 8
    ROLE = 1
    PARTS = 2
    TOOL_CALL_ID = 4
    TEXT = 1
    FORMAT_ASSERTION = 2
    TEMPERATURE = 1
    TOP_P = 2
    MAX_OUTPUT_TOKENS = 5
    STOP = 6
    PRESENCE_PENALTY = 7
    FREQUENCY_PENALTY = 8
    # The wire types of protobuf's encoding.
    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    GROUP = 3
    GROUP_END = 4
    FIXED32 = 5

cdef Py_ssize_t MOST_PLAIN = MAX_PLAIN, MOST_MESSAGES = MAX_MESSAGES, MOST_TOOLS = MAX_TOOLS
cdef uint64_t SYSTEM = Role.ROLE_SYSTEM, USER = Role.ROLE_USER, ASSISTANT = Role.ROLE_ASSISTANT

cdef struct Field:
    # `value` is what a number says, `data` and `size` are where anything else is.
    uint64_t number, value, size
    uint32_t wire_type
    const uint8_t* data

cdef struct Options:
    # Sampling as a request has it.
    bint is_plain
    double temperature
    uint64_t max_output_tokens


cdef int read_varint(const uint8_t** at, const uint8_t* end, uint64_t* value) except -1:
    if get_varint(at, end, value):
        raise ValueError("a number that is cut or longer than 64 bits")
    return 0


cdef int skip_group(const uint8_t** at, const uint8_t* end) except -1:
    """Go behind the end of a group, with those in it: no field here is one, but protobuf keeps those of strangers."""
    cdef uint64_t tag, size, depth = 1
    cdef uint32_t wire_type
    while depth:
        read_varint(at, end, &tag)
        wire_type, size = tag & 7, 0
        if wire_type == VARINT:
            read_varint(at, end, &tag)
        elif wire_type == BYTES:
            read_varint(at, end, &size)
        elif wire_type == FIXED32:
            size = 4
        elif wire_type == FIXED64:
            size = 8
        elif wire_type == GROUP:
            depth += 1
        elif wire_type == GROUP_END:
            depth -= 1
        else:
            raise ValueError("a field of an unknown kind")
        if size > <uint64_t>(end - at[0]):
            raise ValueError("a field that is cut")
        at[0] += size
    return 0


cdef int read_field(const uint8_t** at, const uint8_t* end, Field* field) except -1:
    """Read a field and go behind it. Raises ValueError for what protobuf does not write."""
    cdef uint64_t tag
    read_varint(at, end, &tag)
    field.number, field.wire_type = tag >> 3, tag & 7
    field.value = field.size = 0
    if field.wire_type == VARINT:
        return read_varint(at, end, &field.value)
    if field.wire_type == BYTES:
        read_varint(at, end, &field.size)
    elif field.wire_type == FIXED32:
        field.size = 4
    elif field.wire_type == FIXED64:
        field.size = 8
    elif field.wire_type == GROUP:
        return skip_group(at, end)
    else:
        raise ValueError("a field of an unknown kind")
    if field.size > <uint64_t>(end - at[0]):
        raise ValueError("a field that is cut")
    field.data = at[0]
    at[0] += field.size
    return 0


cdef bytes copy(Field* field):
    return PyBytes_FromStringAndSize(<const char*>field.data, <Py_ssize_t>field.size)


cdef double number_of(Field* field) noexcept:
    cdef float value
    memcpy(&value, field.data, 4)
    return value


cdef int read_sampling(Field* sampling, Options* options) except -1:
    cdef const uint8_t* at = sampling.data
    cdef const uint8_t* end = at + sampling.size
    cdef Field field
    cdef double value
    while at < end:
        read_field(&at, end, &field)
        if field.wire_type == FIXED32:
            value = number_of(&field)
            # Written so that a NaN is not plain.
            if field.number == TEMPERATURE:
                options.temperature = value
                options.is_plain &= 0 <= value <= 2
            elif field.number == TOP_P:
                options.is_plain &= 0 < value <= 1
            elif field.number in (PRESENCE_PENALTY, FREQUENCY_PENALTY):
                options.is_plain &= -2 <= value <= 2
        elif field.number == MAX_OUTPUT_TOKENS and field.wire_type == VARINT:
            options.max_output_tokens = field.value
        elif field.number == STOP:
            options.is_plain = False
    return 0


cdef Py_ssize_t read_message(Field* message, bint* is_user) except -2:
    """The bytes of its texts; -1 where it is of another kind."""
    cdef const uint8_t* at = message.data
    cdef const uint8_t* end = at + message.size
    cdef Field field
    cdef uint64_t role = 0
    cdef Py_ssize_t parts = 0, total = 0
    while at < end:
        read_field(&at, end, &field)
        if field.number == ROLE and field.wire_type == VARINT:
            role = field.value
        elif field.number == PARTS and field.wire_type == BYTES:
            parts += 1
            if not read_text(&field):
                return -1
            total += <Py_ssize_t>field.size
        elif field.number != TOOL_CALL_ID:
            return -1
    is_user[0] = role == USER
    return total if 0 < parts <= MOST_PLAIN and role in (SYSTEM, USER, ASSISTANT) else -1


cdef bint read_text(Field* part) except -1:
    """Make a part the text that it is; False where it is something else, or more."""
    cdef const uint8_t* at = part.data
    cdef const uint8_t* end = at + part.size
    if at == end:
        return False
    read_field(&at, end, part)
    return at == end and part.number == TEXT and part.wire_type == BYTES


cdef str join_texts(Field* message):
    """The text of a message of texts."""
    cdef const uint8_t* at = message.data
    cdef const uint8_t* end = at + message.size
    cdef Field field
    cdef list texts = []
    while at < end:
        read_field(&at, end, &field)
        if field.number == PARTS:
            read_text(&field)
            texts.append(PyUnicode_DecodeUTF8(<const char*>field.data, <Py_ssize_t>field.size, NULL))
    return texts[0] if len(texts) == 1 else "\n".join(texts)


cdef bint read_assertion(Field* schema) except -1:
    cdef const uint8_t* at = schema.data
    cdef const uint8_t* end = at + schema.size
    cdef Field field
    cdef bint is_asserted = True
    while at < end:
        read_field(&at, end, &field)
        if field.number == FORMAT_ASSERTION and field.wire_type == VARINT:
            is_asserted = field.value != 0
    return is_asserted


def read_parts(prompt, bytes wire not None):
    """See the pure twin. Raises ValueError where `wire` is not what protobuf writes."""
    cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(wire)
    cdef const uint8_t* end = at + PyBytes_GET_SIZE(wire)
    cdef Field field, user
    cdef Options options
    cdef list messages = [], tools = []
    cdef bytes tool_choice = b"", sampling = b"", schema = None
    cdef bint is_asserted = True, is_user = False
    cdef uint64_t buffer_bytes = 0, linger_ms = 0, logprobs = 0
    cdef Py_ssize_t size, text_bytes = 0
    options.is_plain, options.temperature, options.max_output_tokens = True, 0, 0
    user.data, user.size = NULL, 0
    while at < end:
        read_field(&at, end, &field)
        if field.wire_type == VARINT:
            if field.number == BUFFER_BYTES:
                buffer_bytes = field.value
            elif field.number == LOGPROBS:
                logprobs = field.value
            elif field.number == LINGER_MS:
                linger_ms = field.value
        elif field.wire_type != BYTES:
            continue
        elif field.number == MESSAGES:
            if len(messages) < MOST_MESSAGES:
                messages.append(copy(&field))
            size = read_message(&field, &is_user) if options.is_plain else -1
            if size < 0:
                options.is_plain = False
                continue
            text_bytes += size
            if is_user:
                user = field
        elif field.number == SCHEMA:
            schema = copy(&field)
            is_asserted = read_assertion(&field)
        elif field.number == SAMPLING:
            sampling = copy(&field)
            read_sampling(&field, &options)
        elif field.number == TOOLS:
            if len(tools) < MOST_TOOLS:
                tools.append(copy(&field))
            options.is_plain = False
        elif field.number == TOOL_CHOICE:
            tool_choice = copy(&field)
            options.is_plain = False
    plain = None
    if options.is_plain and 0 < len(messages) <= MOST_PLAIN:
        plain = fill(PlainText, ("" if user.data == NULL else join_texts(&user), text_bytes))
    return fill(PromptParts, (
        wire,
        plain,
        tuple(messages),
        tuple(tools),
        tool_choice,
        sampling,
        schema,
        is_asserted,
        buffer_bytes,
        linger_ms,
        logprobs != 0,
        options.temperature,
        options.max_output_tokens,
    ))
