# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Tokens to vectors on one core, by the kernels of `ssop_encoder.h`. Safe on several threads: a run has its own memory.

Who makes an Encoder has checked that shapes agree with each other; what is said of each text is checked here.
"""

from libc.stdint cimport int8_t, int32_t, uint8_t, uint16_t
from libc.stdlib cimport calloc, free
from posix.stdlib cimport posix_memalign

import numpy as np


cdef extern from "ssop_encoder.h" nogil:
    enum:
        SSOP_BLOCK
        SSOP_HEAD
        SSOP_KEYS
        SSOP_QUERIES
        SSOP_INNER_ROWS

    ctypedef struct ssop_weights:
        const uint8_t* packed
        const uint16_t* scales
        const float* bias
        Py_ssize_t depth, columns

    ctypedef struct ssop_rows:
        int8_t* values
        float* scales
        int32_t* zeros

    ctypedef struct ssop_norm:
        const float* gain
        const float* shift

    ctypedef struct ssop_layer:
        ssop_weights mixing, merging, widening, narrowing
        ssop_norm attended, done

    ctypedef struct ssop_model:
        const uint8_t* words
        const float* positions
        ssop_norm norm
        const ssop_layer* layers
        Py_ssize_t layer_count, width, inner, most_tokens
        float epsilon

    ctypedef struct ssop_scratch:
        float* x
        float* mixed
        float* context
        float* wide
        float* keys
        float* values
        float* scores
        ssop_rows rounded

    bint ssop_has_vnni()
    void ssop_encode(const ssop_model*, const int32_t*, const int32_t*, Py_ssize_t, ssop_scratch*, float*)



def is_supported():
    """Whether this processor has the instructions."""
    return ssop_has_vnni()


cdef class Encoder:
    cdef ssop_model model
    cdef ssop_layer* layers
    cdef Py_ssize_t word_count
    cdef void* spare                    # memory of a run that ended, for the next; NULL: none
    cdef Py_ssize_t spare_bytes
    cdef list held                      # owns what the pointers point to

    def __cinit__(self, *, words, positions, norm, layers, Py_ssize_t width, Py_ssize_t inner, float epsilon):
        """See `e5_encoder.py` for what is packed how."""
        if not ssop_has_vnni():
            raise RuntimeError("this processor lacks AVX-512 VNNI")
        self.held = []
        self.layers = <ssop_layer*>calloc(len(layers), sizeof(ssop_layer))
        if self.layers is NULL:
            raise MemoryError
        self.word_count = len(words)
        self.model.words = <const uint8_t*>self.hold(words)
        self.model.positions = <const float*>self.hold(positions)
        self.model.most_tokens = len(positions)
        self.model.norm = self.read_norm(norm)
        self.model.width, self.model.inner, self.model.epsilon = width, inner, epsilon
        for number, layer in enumerate(layers):
            self.layers[number].mixing = self.read_weights(layer.mixing)
            self.layers[number].merging = self.read_weights(layer.merging)
            self.layers[number].widening = self.read_weights(layer.widening)
            self.layers[number].narrowing = self.read_weights(layer.narrowing)
            self.layers[number].attended = self.read_norm(layer.attended)
            self.layers[number].done = self.read_norm(layer.done)
        self.model.layers, self.model.layer_count = self.layers, len(layers)

    def __dealloc__(self):
        free(self.layers)
        free(self.spare)

    cdef const void* hold(self, array) except NULL:
        cdef const uint8_t[::1] view = array.reshape(-1).view(np.uint8)
        self.held.append(view)
        return &view[0]

    cdef ssop_norm read_norm(self, norm) except *:
        return ssop_norm(<const float*>self.hold(norm.gain), <const float*>self.hold(norm.shift))

    cdef ssop_weights read_weights(self, weights) except *:
        return ssop_weights(
            <const uint8_t*>self.hold(weights.packed), <const uint16_t*>self.hold(weights.scales),
            <const float*>self.hold(weights.bias), weights.depth, len(weights.bias),
        )

    def encode(self, const int32_t[::1] ids not None, const int32_t[::1] lengths not None):
        """(texts, width) float32: the mean over the tokens of each text; texts stand in `ids` one behind the other.

        Takes 15 KB of memory for each token. Raises ValueError for words and lengths that the model does not have.
        """
        cdef Py_ssize_t texts = lengths.shape[0], rows = 0, longest = 0, text, row
        for text in range(texts):
            if not 0 < lengths[text] <= self.model.most_tokens:
                raise ValueError(f"text {text} has {lengths[text]} tokens; 1 to {self.model.most_tokens} can be read")
            rows += lengths[text]
            longest = max(longest, lengths[text])
        if rows != ids.shape[0]:
            raise ValueError(f"{ids.shape[0]} tokens for texts of {rows}")
        for row in range(rows):
            if not 0 <= ids[row] < self.word_count:
                raise ValueError(f"there is no word {ids[row]}")
        found = np.empty((texts, self.model.width), dtype=np.float32)
        cdef float[:, ::1] out = found
        if texts:
            self.run(&ids[0], &lengths[0], texts, rows, longest, &out[0, 0])
        return found

    cdef int run(self, const int32_t* ids, const int32_t* lengths, Py_ssize_t texts, Py_ssize_t rows,
                 Py_ssize_t longest, float* out) except -1:
        cdef Py_ssize_t width = self.model.width, inner = self.model.inner
        cdef Py_ssize_t filled = (longest + SSOP_KEYS - 1) // SSOP_KEYS * SSOP_KEYS
        cdef Py_ssize_t together = min(rows, SSOP_INNER_ROWS)
        cdef Py_ssize_t rounded = max(rows * width, together * inner)
        cdef Py_ssize_t sizes[10]
        cdef uint8_t* places[10]
        cdef Py_ssize_t total = 0, part
        cdef void* memory = NULL
        cdef ssop_scratch scratch
        sizes[0], sizes[1], sizes[2], sizes[3] = rows * width * 4, rows * width * 12, rows * width * 4, together * inner * 4
        sizes[4], sizes[5], sizes[6] = filled * SSOP_HEAD * 4, filled * SSOP_HEAD * 4, filled * SSOP_QUERIES * 4
        sizes[7], sizes[8], sizes[9] = rounded, rounded // SSOP_BLOCK * 4, rounded // SSOP_BLOCK * 4
        for part in range(10):
            total += (sizes[part] + 63) // 64 * 64
        cdef Py_ssize_t held = total
        if self.spare_bytes >= total:   # fresh memory of a thread is pages that the kernel fills, each time
            memory, held = self.spare, self.spare_bytes
            self.spare, self.spare_bytes = NULL, 0
        elif posix_memalign(&memory, 64, total):
            raise MemoryError
        total = 0
        for part in range(10):
            places[part] = <uint8_t*>memory + total
            total += (sizes[part] + 63) // 64 * 64
        scratch.x, scratch.mixed, scratch.context = <float*>places[0], <float*>places[1], <float*>places[2]
        scratch.wide, scratch.keys, scratch.values = <float*>places[3], <float*>places[4], <float*>places[5]
        scratch.scores = <float*>places[6]
        scratch.rounded = ssop_rows(<int8_t*>places[7], <float*>places[8], <int32_t*>places[9])
        with nogil:
            ssop_encode(&self.model, ids, lengths, texts, &scratch, out)
        if held > self.spare_bytes:
            memory, self.spare = self.spare, memory
            self.spare_bytes = held
        free(memory)
        return 0
