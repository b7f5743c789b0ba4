# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Batches of requests and commands of Redis as bytes, read and written in one pass without an object for each message.

What is unusual (an unknown field, one that comes twice, a name that is not ASCII, what is cut) is left to the twin, so
that every message means what protobuf says it means.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from ssop_codec._wire cimport get_varint, put_varint

from ssop_cache import _messages_py
from ssop_cache.core.asked import AdmitAsked, CommitAsked, EntryAsked, Settlement

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    object PyType_GenericAlloc(PyTypeObject* kind, Py_ssize_t items)

cdef extern from *:
    """
    /* From 3.14 on a tuple remembers its hash, and fresh memory says that it is 0. */
    #if PY_VERSION_HEX >= 0x030E0000
    #define SSOP_FORGET_HASH(made) (((PyTupleObject *)(made))->ob_hash = -1)
    #else
    #define SSOP_FORGET_HASH(made) ((void)0)
    #endif
    """
    void forget_hash "SSOP_FORGET_HASH"(object made)

cdef enum:
    MAX_VARINT = 10
    MAX_SHORT = 5       # of a tag, and of a length
    MAX_DIGITS = 21     # of an int64 with its sign
    FRAMING = 25        # "$", a length, and two ends of lines

cdef tuple NAMES = tuple(
    [
        tuple([f"{tier}.{name}" for name in ("requests", "input_tokens", "output_tokens", "cached_input_tokens")])
        for tier in ("none", "lite", "full")
    ]
)


cdef struct Bytes:
    const uint8_t* at
    const uint8_t* end


cdef struct Settled:
    uint64_t[3] used        # input, output and cached tokens
    uint64_t[8] counts      # by number of the field
    bint has_counts


cdef object new(type kind, tuple fields):
    """A named tuple of the fields, without a call of its class."""
    cdef Py_ssize_t place
    cdef object field, made = PyType_GenericAlloc(<PyTypeObject*>kind, len(fields))
    forget_hash(made)
    for place, field in enumerate(fields):
        Py_INCREF(field)
        PyTuple_SET_ITEM(made, place, field)
    return made


# --- reading: each function says False where the twin is to read


cdef bint take_short(Bytes* data, uint64_t* value) noexcept:
    cdef const uint8_t* start = data.at
    return not get_varint(&data.at, data.end, value) and data.at - start <= MAX_SHORT


cdef bint take_part(Bytes* data, Bytes* part) noexcept:
    cdef uint64_t size
    if not take_short(data, &size) or size > <uint64_t>(data.end - data.at):
        return False
    part.at = data.at
    part.end = data.at = data.at + size
    return True


cdef inline object bytes_of(Bytes* part):
    return PyBytes_FromStringAndSize(<const char*>part.at, part.end - part.at)


cdef inline bint is_same(Bytes* part, bytes other) noexcept:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(other)
    return part.end - part.at == size and not memcmp(part.at, PyBytes_AS_STRING(other), size)


cdef object text_of(Bytes* part):
    """None where it is no ASCII."""
    cdef const uint8_t* at = part.at
    while at < part.end:
        if at[0] > 0x7F:
            return None
        at += 1
    return PyUnicode_DecodeASCII(<const char*>part.at, part.end - part.at, NULL)


cdef inline bint is_small(uint64_t value) noexcept:
    # A literal of this size is an object, where it doesn't say that it is none.
    return value <= <uint64_t>0xFFFFFFFFU


cdef object read_admit(Bytes data):
    cdef Bytes part
    cdef uint64_t tag, value, reserve_tokens = 0, lease_ms = 0, max_age_ms = 0, no_lease = 0, reservation_ms = 0
    cdef double rate_share = 0
    cdef object request_id = "", cache_key = b""
    while data.at < data.end:
        if not take_short(&data, &tag):
            return None
        if tag == 0x0A or tag == 0x12:
            if not take_part(&data, &part):
                return None
            if tag == 0x12:
                cache_key = bytes_of(&part)
            else:
                request_id = text_of(&part)
                if request_id is None:
                    return None
            continue
        if tag == 0x39:
            if data.end - data.at < 8:
                return None
            memcpy(&rate_share, data.at, 8)
            data.at += 8
            continue
        if get_varint(&data.at, data.end, &value):
            return None
        if tag == 0x18 and is_small(value):
            reserve_tokens = value
        elif tag == 0x20 and is_small(value):
            lease_ms = value
        elif tag == 0x28:
            max_age_ms = value
        elif tag == 0x30 and value <= 1:
            no_lease = value
        elif tag == 0x40 and is_small(value):
            reservation_ms = value
        else:
            return None
    return new(
        AdmitAsked,
        (request_id, cache_key, reserve_tokens, lease_ms, max_age_ms, no_lease != 0, rate_share, reservation_ms),
    )


cdef bint read_numbers(Bytes data, uint64_t* numbers, int most) noexcept:
    """Fields that are numbers; those of the first are counted from 1."""
    cdef uint64_t tag, value
    while data.at < data.end:
        if not take_short(&data, &tag) or get_varint(&data.at, data.end, &value):
            return False
        if tag & 7 or tag < 8 or tag >> 3 > <uint64_t>most or not is_small(value):
            return False
        numbers[(tag >> 3) - 1] = value
    return True


cdef object read_settle(Bytes data):
    cdef Bytes part
    cdef Settled settled
    cdef uint64_t tag
    cdef int number
    cdef bint has_usage = False
    cdef object request_id = ""
    cdef dict counts = None
    cdef tuple names
    for number in range(3):
        settled.used[number] = 0
    for number in range(8):
        settled.counts[number] = 0
    settled.has_counts = False
    while data.at < data.end:
        if not take_short(&data, &tag) or not take_part(&data, &part):
            return None
        if tag == 0x0A:
            request_id = text_of(&part)
            if request_id is None:
                return None
        elif tag == 0x12 and not has_usage:
            has_usage = True
            if not read_numbers(part, settled.used, 3):
                return None
        elif tag == 0x1A and not settled.has_counts:
            settled.has_counts = True
            # What a cascade discarded is the eighth.
            if not read_numbers(part, settled.counts, 7) or settled.counts[0] > 2:
                return None
            if settled.counts[1] > 1 or settled.counts[2] > 1 or settled.counts[3] > 1:
                return None
        else:
            return None
    if settled.has_counts:
        names = <tuple>NAMES[settled.counts[0]]
        counts = {names[0]: 1}
        for number in range(3):
            if settled.used[number]:
                counts[names[1 + number]] = settled.used[number]
        if settled.counts[1]:
            counts["cached"] = 1
        if settled.counts[2]:
            counts["degraded"] = 1
        if settled.counts[3]:
            counts["failed"] = 1
        if settled.counts[4]:
            counts["prefetches"] = settled.counts[4]
        if settled.counts[5]:
            counts["prefetch_hits"] = settled.counts[5]
        if settled.counts[6]:
            counts["prefetch_tokens"] = settled.counts[6]
    return new(Settlement, (request_id, settled.used[0] + settled.used[1], counts))


cdef object read_commit(Bytes data):
    cdef Bytes part
    cdef uint64_t tag, value, fencing_token = 0, is_complete = 0, ttl_ms = 0, is_all = 0
    cdef object cache_key = b"", chunk = b"", model = ""
    while data.at < data.end:
        if not take_short(&data, &tag):
            return None
        if tag & 7 == 2:
            if not take_part(&data, &part):
                return None
            if tag == 0x0A:
                cache_key = bytes_of(&part)
            elif tag == 0x1A:
                chunk = bytes_of(&part)
            elif tag == 0x32:
                model = text_of(&part)
                if model is None:
                    return None
            else:
                return None
            continue
        if get_varint(&data.at, data.end, &value):
            return None
        if tag == 0x10:
            fencing_token = value
        elif tag == 0x20 and value <= 1:
            is_complete = value
        elif tag == 0x28:
            ttl_ms = value
        elif tag == 0x38 and value <= 1:
            is_all = value
        else:
            return None
    return new(CommitAsked, (cache_key, fencing_token, chunk, is_complete != 0, ttl_ms, model, is_all != 0))


cdef object read_entry(Bytes data, bytes last):
    """`last`: the principal of the entry before."""
    cdef Bytes part
    cdef uint64_t tag
    cdef object principal = b"", admit = None, settle = None, commit = None
    while data.at < data.end:
        if not take_short(&data, &tag) or not take_part(&data, &part):
            return None
        if tag == 0x0A:
            # Those of a tenant are one and the same, and its hash is known.
            principal = last if is_same(&part, last) else bytes_of(&part)
        elif tag == 0x12 and admit is None and settle is None:
            admit = read_admit(part)
            if admit is None:
                return None
        elif tag == 0x1A and admit is None and settle is None:
            settle = read_settle(part)
            if settle is None:
                return None
        elif tag == 0x22 and commit is None:
            commit = read_commit(part)
            if commit is None:
                return None
        else:
            return None
    return new(EntryAsked, (principal, admit, settle, commit))


def read_batch(bytes message not None):
    """See the twin."""
    cdef Bytes data, part
    cdef uint64_t tag
    cdef list entries = []
    cdef object entry
    cdef bytes principal = b""
    data.at = <const uint8_t*>PyBytes_AS_STRING(message)
    data.end = data.at + PyBytes_GET_SIZE(message)
    while data.at < data.end:
        if not take_short(&data, &tag) or tag != 0x0A or not take_part(&data, &part):
            return _messages_py.read_batch(message)
        entry = read_entry(part, principal)
        if entry is None:
            return _messages_py.read_batch(message)
        principal = <bytes>PyTuple_GET_ITEM(entry, 0)
        entries.append(entry)
    return entries


# --- writing


def write_admitted(unsigned int outcome, uint64_t fence, int64_t budget_left, bytes limits not None):
    """See the twin."""
    cdef uint8_t[4 * (MAX_VARINT + 1)] head
    cdef uint8_t[MAX_VARINT + 1] start
    cdef uint8_t* at = head
    cdef Py_ssize_t before, size, rest = PyBytes_GET_SIZE(limits)
    cdef bytes written
    if outcome:
        at[0] = 0x08
        at = put_varint(at + 1, outcome)
    if fence:
        at[0] = 0x18
        at = put_varint(at + 1, fence)
    if budget_left >= 0:
        at[0] = 0x20
        at = put_varint(at + 1, <uint64_t>budget_left)
    at[0] = 0x2A
    at = put_varint(at + 1, rest)
    size = at - head
    start[0] = 0x0A
    before = put_varint(start + 1, size + rest) - start
    written = PyBytes_FromStringAndSize(NULL, before + size + rest)
    at = <uint8_t*>PyBytes_AS_STRING(written)
    memcpy(at, start, before)
    memcpy(at + before, head, size)
    memcpy(at + before + size, PyBytes_AS_STRING(limits), rest)
    return written


def write_concluded(unsigned int charged_tokens, *, bint is_committed):
    """See the twin."""
    cdef uint8_t[MAX_VARINT + 6] head
    cdef uint8_t* at = head + 2
    if charged_tokens:
        at[0] = 0x08
        at = put_varint(at + 1, charged_tokens)
    head[0] = 0x12
    head[1] = at - head - 2
    if is_committed:
        at[0], at[1] = 0x2A, 0
        at += 2
    return <bytes>head[: at - head]


def write_batch(list outcomes not None):
    """See the twin."""
    cdef Py_ssize_t most = 0
    cdef bytes one
    cdef uint8_t* buffer
    cdef uint8_t* at
    for one in outcomes:
        most += PyBytes_GET_SIZE(one) + MAX_VARINT + 1
    buffer = at = <uint8_t*>PyMem_Malloc(most + 1)
    if buffer is NULL:
        raise MemoryError
    try:
        for one in outcomes:
            at[0] = 0x0A
            at = put_varint(at + 1, PyBytes_GET_SIZE(one))
            memcpy(at, PyBytes_AS_STRING(one), PyBytes_GET_SIZE(one))
            at += PyBytes_GET_SIZE(one)
        return PyBytes_FromStringAndSize(<const char*>buffer, at - buffer)
    finally:
        PyMem_Free(buffer)


cdef Py_ssize_t put_digits(uint8_t* at, int64_t value) noexcept:
    """How many bytes it has in decimal."""
    cdef uint8_t[MAX_DIGITS] digits
    if 0 <= value < 10:
        at[0] = 0x30 + <uint8_t>value
        return 1
    if 0 <= value < 100:
        at[0], at[1] = 0x30 + <uint8_t>(value // 10), 0x30 + <uint8_t>(value % 10)
        return 2
    cdef uint64_t left = <uint64_t>value if value >= 0 else 0 - <uint64_t>value
    cdef Py_ssize_t first = MAX_DIGITS
    while True:
        first -= 1
        digits[first] = 0x30 + left % 10
        left //= 10
        if not left:
            break
    if value < 0:
        first -= 1
        digits[first] = 0x2D
    memcpy(at, &digits[first], MAX_DIGITS - first)
    return MAX_DIGITS - first


cdef inline uint8_t* put_line(uint8_t* at, uint8_t kind, Py_ssize_t value) noexcept:
    at[0] = kind
    at += 1
    at += put_digits(at, value)
    at[0], at[1] = 0x0D, 0x0A
    return at + 2


def pack(tuple words not None):
    """See the twin. Raises TypeError for what is no word."""
    cdef Py_ssize_t most = FRAMING, size
    cdef int overflow = 0
    cdef object word
    cdef const char* text
    cdef uint8_t* buffer
    cdef uint8_t* at
    cdef uint8_t[MAX_DIGITS] digits
    for word in words:
        if isinstance(word, bytes):
            most += PyBytes_GET_SIZE(word) + FRAMING
        elif isinstance(word, str):
            PyUnicode_AsUTF8AndSize(word, &size)
            most += size + FRAMING
        elif isinstance(word, int):
            PyLong_AsLongLongAndOverflow(word, &overflow)
            if overflow:
                # Wider than what is written here: a stranger's number goes on as it came, and Redis judges it.
                return pack(tuple([str(one) if isinstance(one, int) else one for one in words]))
            most += MAX_DIGITS + FRAMING
        else:
            raise TypeError("a word of a command is text, bytes or a whole number")
    buffer = <uint8_t*>PyMem_Malloc(most)
    if buffer is NULL:
        raise MemoryError
    try:
        at = put_line(buffer, 0x2A, len(words))
        for word in words:
            if isinstance(word, bytes):
                text, size = PyBytes_AS_STRING(word), PyBytes_GET_SIZE(word)
            elif isinstance(word, str):
                text = PyUnicode_AsUTF8AndSize(word, &size)
            else:
                size = put_digits(digits, word)
                text = <const char*>digits
            at = put_line(at, 0x24, size)
            memcpy(at, text, size)
            at += size
            at[0], at[1] = 0x0D, 0x0A
            at += 2
        return PyBytes_FromStringAndSize(<const char*>buffer, at - buffer)
    finally:
        PyMem_Free(buffer)
