"""What a text was read as, for code that evaluates it without arrays between."""

cimport cython
from cpython.mem cimport PyMem_Free
from libc.math cimport log
from libc.stdint cimport int32_t, uint32_t

cdef enum:
    MAX_CATEGORIES = 64
    BASE = 38


cdef struct Reading:
    uint32_t* scratch              # owns all that the others point to
    uint32_t* order                # slots of the distinct n-grams, in order of appearance
    int32_t* counts                # by slot
    uint32_t* keys                 # buckets, by slot
    Py_ssize_t distinct
    float dense[BASE + MAX_CATEGORIES]


cdef inline void release(Reading* found) noexcept:
    PyMem_Free(found.scratch)
    found.scratch = NULL


cdef inline float weigh(int32_t count) noexcept nogil:
    """The weight of an n-gram that stands so often in a text."""
    return 1.0 if count == 1 else <float>(1.0 + log(count))


@cython.final
cdef class Extractor:
    cdef readonly Py_ssize_t width
    cdef Py_ssize_t categories, head_chars, tail_chars, word_slots
    cdef uint32_t bucket_mask      # 0: no n-grams
    # Open addressing: the hash of a word, and its category + 1 (0: free).
    cdef uint32_t* word_hashes
    cdef int32_t* word_values

    cdef void count_word(self, uint32_t state, int32_t* found) noexcept nogil
    cdef int read(self, str text, Reading* found) except -1
    cdef Py_ssize_t count_grams(
        self, uint32_t* low, Py_ssize_t size, uint32_t* codes, int32_t* counts, uint32_t* keys, Py_ssize_t slots,
        uint32_t* order, Py_ssize_t* grams,
    ) noexcept nogil
    cdef void read_dense(
        self, Py_ssize_t chars, Py_ssize_t size, uint32_t* raw, uint32_t* low, Py_ssize_t distinct, Py_ssize_t grams,
        float* dense,
    ) noexcept nogil
