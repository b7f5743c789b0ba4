# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The graph of `training/graph.py` for one text: features in, score and spread out, no arrays between.

ONNX Runtime's walk through its 47 small nodes costs ten times the arithmetic. Sums over what the graph multiplies are
taken in its order and precision, so that the two differ by roundings alone.
"""

cimport cython
from libc.math cimport sqrt
from libc.stdint cimport int64_t
from libc.string cimport memset

from ssop_router.classification._extract cimport BASE, MAX_CATEGORIES, Extractor, Reading, release, weigh
from ssop_router.core._tuples cimport fill

from ssop_router.core.complexity import Complexity

cdef enum:
    HEADS = 4       # length, gain, need, n-grams
    BLENDED = 2     # gain and need: the models of the dense features that are blended


@cython.final
cdef class Evaluator:
    """Safe on several threads: it holds no state of a text."""

    cdef Extractor extractor
    cdef Py_ssize_t width, knots, score_knots, ideographs, length, foreign, words
    cdef float chinese_share, foreign_share, least, most
    cdef const float* mean
    cdef const float* scale
    cdef Py_ssize_t pairs[BLENDED]      # how many features a head has in pairs
    cdef const int64_t* paired[BLENDED] # [pair]
    cdef const float* linear            # [language, head, feature]
    cdef const float* bias              # [language, head]
    cdef const float* crossed[BLENDED]  # [pair, pair]
    cdef const float* low               # [language, head, knot]
    cdef const float* slope
    cdef const float* blend             # [language, head]
    cdef const float* score_low         # [language, knot]
    cdef const float* score_slope
    cdef const float* gram_weights      # [bucket]; NULL: no n-grams
    cdef const float* gram_idf
    cdef list held                      # owns what the pointers point to
    cdef object empty, foreigner

    def __cinit__(self, Extractor extractor not None, weights, *, Py_ssize_t words, Py_ssize_t foreign,
                  float foreign_share):
        """`weights` is checked by who made it: shapes agree with each other, and places are inside the features."""
        cdef Py_ssize_t head
        self.extractor = extractor
        self.width = extractor.width
        self.words, self.foreign, self.foreign_share = words, foreign, foreign_share
        self.held = []
        self.mean, self.scale = self.hold(weights.mean), self.hold(weights.scale)
        self.least, self.most = weights.clip
        self.ideographs, self.length = weights.ideographs, weights.length
        self.chinese_share = weights.chinese_share
        self.linear, self.bias = self.hold(weights.linear), self.hold(weights.bias)
        for head in range(BLENDED):
            self.pairs[head] = len(weights.pairs[head])
            self.paired[head] = <const int64_t*>self.hold(weights.pairs[head])
            self.crossed[head] = self.hold(weights.crossed[head])
        self.low, self.slope = self.hold(weights.low), self.hold(weights.slope)
        self.knots = weights.low.shape[2]
        self.blend = self.hold(weights.blend)
        self.score_low, self.score_slope = self.hold(weights.score_low), self.hold(weights.score_slope)
        self.score_knots = weights.score_low.shape[1]
        self.gram_weights = self.gram_idf = NULL
        if len(weights.gram_weights) != (<Py_ssize_t>extractor.bucket_mask + 1 if extractor.bucket_mask else 0):
            raise ValueError("its n-grams have other buckets than its features")
        if extractor.bucket_mask:
            self.gram_weights, self.gram_idf = self.hold(weights.gram_weights), self.hold(weights.gram_idf)
        self.empty, self.foreigner = Complexity(abstention="empty"), Complexity(abstention="language")

    cdef const float* hold(self, array) except NULL:
        cdef bytes content = array.tobytes()
        self.held.append(content)
        return <const float*><const char*>content

    def score(self, str text not None):
        """The complexity of a text."""
        cdef Reading found
        cdef double score, spread
        self.extractor.read(text, &found)
        try:
            if found.dense[self.foreign] > self.foreign_share:
                return self.foreigner
            if not found.dense[self.words] and not found.dense[self.foreign]:
                return self.empty
            self.evaluate(&found, &score, &spread)
        finally:
            release(&found)
        return fill(Complexity, (score, spread, ""))

    cdef void evaluate(self, Reading* found, double* score, double* spread) noexcept nogil:
        cdef float dense[BASE + MAX_CATEGORIES]
        cdef float values[HEADS]
        cdef float ranks[HEADS]
        cdef Py_ssize_t at, head
        cdef int language = found.dense[self.ideographs] > self.chinese_share
        cdef float one, blended = 0, variance = 0
        for at in range(self.width):
            one = (found.dense[at] - self.mean[at]) * self.scale[at]
            dense[at] = self.least if one < self.least else self.most if one > self.most else one
        values[0] = found.dense[self.length]
        for head in range(BLENDED):
            values[1 + head] = self.foresee(head, language, dense)
        values[3] = self.count_grams(found)
        for head in range(HEADS):
            at = (language * HEADS + head) * self.knots
            ranks[head] = rank(values[head], self.low + at, self.slope + at, self.knots)
            blended += ranks[head] * self.blend[language * HEADS + head]
        for head in range(HEADS):
            one = ranks[head] - blended
            variance += one * one * self.blend[language * HEADS + head]
        spread[0] = <float>sqrt(variance) if variance > 0 else 0.0
        at = language * self.score_knots
        score[0] = rank(blended, self.score_low + at, self.score_slope + at, self.score_knots)

    cdef float foresee(self, Py_ssize_t head, int language, float* dense) noexcept nogil:
        """What a model of the dense features says: linear, and in pairs."""
        cdef float chosen[BASE + MAX_CATEGORIES]
        cdef float products[BASE + MAX_CATEGORIES]
        cdef Py_ssize_t at, other, pairs = self.pairs[head], model = language * BLENDED + head
        cdef const int64_t* places = self.paired[head]
        cdef float value = self.bias[model], paired = 0, one
        cdef const float* row = self.linear + model * self.width
        for at in range(self.width):
            value += dense[at] * row[at]
        for at in range(pairs):
            chosen[at] = dense[places[at]]
        memset(products, 0, sizeof(products))
        for at in range(pairs):
            # Row by row, so that the compiler takes several columns at once.
            one, row = chosen[at], self.crossed[head] + at * pairs
            for other in range(pairs):
                products[other] += one * row[other]
        for at in range(pairs):
            paired += products[at] * chosen[at]
        return value + paired

    cdef float count_grams(self, Reading* found) noexcept nogil:
        """The cosine of the text's weighted counts with the weights, times the length of those; 0 without n-grams."""
        cdef float sums = 0, squares = 0, weight, scaled
        cdef Py_ssize_t at, slot, bucket
        if self.gram_weights == NULL:
            return 0
        for at in range(found.distinct):
            slot = found.order[at]
            bucket = found.keys[slot]
            weight = weigh(found.counts[slot])
            sums += weight * self.gram_weights[bucket]
            scaled = weight * self.gram_idf[bucket]
            squares += scaled * scaled
        return sums / <float>sqrt(squares + <float>1e-9)


cdef float rank(float value, const float* low, const float* slope, Py_ssize_t knots) noexcept nogil:
    """The share of knots below a value, straight lines between them."""
    cdef float total = 0, share
    cdef Py_ssize_t at
    for at in range(knots):
        share = (value - low[at]) * slope[at]
        total += 0 if share < 0 else 1 if share > 1 else share
    return total / knots
