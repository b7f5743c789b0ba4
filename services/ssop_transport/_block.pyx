# cython: language_level=3, boundscheck=False, wraparound=False
"""Blocks of headers, each taken apart once however often it comes on a connection.

Calls of one client say nearly the same: who asks, what of, and in which form. A block is taken down as libnghttp2 hands
its fields over; where the same bytes came before on this connection, what was made of them then is what they mean.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

# What a connection remembers, in bytes, before anyone has said who it is; the oldest go first. A call's block has some
# 300.
cdef size_t KNOWN_BYTES = 32_768
# What one takes besides its bytes: a stranger may send thousands that have next to none.
cdef size_t BLOCK_BYTES = 256
# Before the bytes of each field: the lengths of its name and of its value.
cdef size_t LENGTHS_BYTES = 2 * sizeof(uint32_t)


cdef class Block:
    """Headers or trailers. `meaning` is what the shells made of it: theirs to set, None at first."""

    @property
    def pairs(self):
        """Names and values in the order of the wire, pseudo-headers included."""
        cdef const char *at = PyBytes_AS_STRING(self._taken)
        cdef const char *end = at + PyBytes_GET_SIZE(self._taken)
        cdef uint32_t lengths[2]
        cdef list found = []
        while at < end:
            memcpy(lengths, at, LENGTHS_BYTES)
            at += LENGTHS_BYTES
            found.append((PyBytes_FromStringAndSize(at, lengths[0]),
                          PyBytes_FromStringAndSize(at + lengths[0], lengths[1])))
            at += lengths[0] + lengths[1]
        return found

    cdef bint is_informational(self) noexcept:
        """Whether it is a 1xx response, which another one follows."""
        cdef const char *at = PyBytes_AS_STRING(self._taken)
        return (<size_t>PyBytes_GET_SIZE(self._taken) > LENGTHS_BYTES + 7
                and memcmp(at + LENGTHS_BYTES, b":status1", 8) == 0)


cdef class Blocks:
    """Those of one connection, on which one comes at a time (RFC 9113, 4.3)."""

    def __cinit__(self):
        self._known = {}

    def __dealloc__(self):
        PyMem_Free(self._taken)

    cdef void begin(self) noexcept:
        """The next one comes."""
        self._taken_bytes = 0

    cdef int add(self, const uint8_t *name, size_t name_length, const uint8_t *value, size_t value_length) except -1:
        """Take a field down. Callers bound a block."""
        cdef size_t wanted = self._taken_bytes + LENGTHS_BYTES + name_length + value_length
        cdef uint32_t lengths[2]
        cdef char *at
        if wanted > self._room_bytes:
            at = <char *>PyMem_Realloc(self._taken, 2 * wanted)
            if at == NULL:
                raise MemoryError
            self._taken, self._room_bytes = at, 2 * wanted
        at = self._taken + self._taken_bytes
        lengths[0], lengths[1] = <uint32_t>name_length, <uint32_t>value_length
        memcpy(at, lengths, LENGTHS_BYTES)
        memcpy(at + LENGTHS_BYTES, name, name_length)
        memcpy(at + LENGTHS_BYTES + name_length, value, value_length)
        self._taken_bytes = wanted
        return 0

    cdef Block end(self):
        """What came is whole."""
        cdef bytes taken
        cdef Block block
        if self._is_again(self._latest):
            return self._latest
        # Of a server's answers one is the head and the other the trailers.
        if self._is_again(self._other):
            self._latest, self._other = self._other, self._latest
            return self._latest
        taken = PyBytes_FromStringAndSize(self._taken, self._taken_bytes)
        block = self._known.get(taken)
        if block is None:
            block = Block()
            block._taken = taken
            self._known[taken] = block
            self._known_bytes += self._taken_bytes + BLOCK_BYTES
            while self._known_bytes > KNOWN_BYTES:
                oldest = next(iter(self._known))
                del self._known[oldest]
                self._known_bytes -= PyBytes_GET_SIZE(oldest) + BLOCK_BYTES
                self._latest = None
        self._latest, self._other = block, self._latest
        return block

    cdef bint _is_again(self, Block block) noexcept:
        return (block is not None and <size_t>PyBytes_GET_SIZE(block._taken) == self._taken_bytes
                and memcmp(PyBytes_AS_STRING(block._taken), self._taken, self._taken_bytes) == 0)
