# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The features of a text in one pass over its code points; `_extract_py` says the same at length.

What is borrowed lives inside one call: the text is held by the caller, scratch memory is freed on every path.
"""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.math cimport log1p
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memset

import numpy as np

from ssop_router.classification._extract_py import BASE_FEATURES, FAR_QUESTION, OF, PAST, QUESTION, ROLES, THAT, THE

cdef extern from "Python.h":
    int PyUnicode_KIND(object)
    void* PyUnicode_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    Py_UCS4 PyUnicode_READ(int, void*, Py_ssize_t) nogil
    bint PyUnicode_IS_ASCII(object)
    int Py_UNICODE_ISSPACE(Py_UCS4) nogil
    Py_UCS4 Py_UNICODE_TOLOWER(Py_UCS4) nogil

cdef enum:
    FNV_PRIME = 0x01000193
    SPACE = 0x20
    IDEOGRAPHS = 0x2E80
    ROLE_SLOTS = 64
    IS_QUESTION = 1
    IS_PAST = 2
    IS_OF = 3
    IS_THE = 4
    IS_THAT = 5
    FARTHEST = 20
    FEW = 256       # most of what is counted is less
    # Marks of a code point below 128 or among the few above it that count.
    IS_MATH = 1
    IS_CODE = 2
    IS_QUOTE = 4
    IS_END = 8

cdef uint32_t FNV_BASIS = 0x811C9DC5
cdef double LOGS[FEW]
cdef unsigned char MARKS[128]
# Open addressing, as in the table of words.
cdef uint32_t ROLE_HASHES[ROLE_SLOTS]
cdef int ROLE_VALUES[ROLE_SLOTS]


cdef void set_marks() noexcept:
    cdef bytes chars
    cdef int mark
    memset(MARKS, 0, sizeof(MARKS))
    for chars, mark in (
        (b"=+*/^<>\\$%", IS_MATH), (b"{}[]();_`#|&~", IS_CODE), (b"\"'", IS_QUOTE), (b".!?", IS_END),
    ):
        for char in chars:
            MARKS[<int>char] |= mark


cdef void set_logs() noexcept:
    cdef int count
    for count in range(FEW):
        LOGS[count] = log1p(count)


cdef inline double log_of(Py_ssize_t count) noexcept nogil:
    """ln(1 + count)."""
    return LOGS[count] if count < FEW else log1p(count)


set_marks()
set_logs()
assert len(BASE_FEATURES) == BASE


cdef inline int marks_of(uint32_t code) noexcept nogil:
    if code < 128:
        return MARKS[code]
    if code == 0x3002:
        return IS_END
    if code in (0x2264, 0x2265, 0x2211, 0x222B, 0x221A, 0x3C0, 0xD7, 0xF7):
        return IS_MATH
    if code in (0x201C, 0x201D, 0x2018, 0x2019, 0x300C, 0x300D, 0x300A, 0x300B):
        return IS_QUOTE
    return 0


cdef inline uint32_t add(uint32_t state, uint32_t code) noexcept nogil:
    return (state ^ code) * <uint32_t>FNV_PRIME


cdef inline uint32_t finish(uint32_t state) noexcept nogil:
    state ^= state >> 16
    state *= <uint32_t>0x85EBCA6B
    state ^= state >> 13
    state *= <uint32_t>0xC2B2AE35
    return state ^ (state >> 16)


cdef void set_roles():
    cdef uint32_t state
    cdef Py_ssize_t slot
    memset(ROLE_VALUES, 0, sizeof(ROLE_VALUES))
    for word, role in ROLES.items():
        state = FNV_BASIS
        for char in word:
            state = add(state, ord(char))
        slot = finish(state) & (ROLE_SLOTS - 1)
        while ROLE_VALUES[slot]:
            slot = (slot + 1) & (ROLE_SLOTS - 1)
        ROLE_HASHES[slot], ROLE_VALUES[slot] = state, role


set_roles()
assert (QUESTION, PAST, OF, THE, THAT) == (IS_QUESTION, IS_PAST, IS_OF, IS_THE, IS_THAT)
assert FAR_QUESTION == FARTHEST and len(ROLES) < ROLE_SLOTS


cdef inline int role_of(uint32_t state) noexcept nogil:
    cdef Py_ssize_t slot = finish(state) & (ROLE_SLOTS - 1)
    while ROLE_VALUES[slot]:
        if ROLE_HASHES[slot] == state:
            return ROLE_VALUES[slot]
        slot = (slot + 1) & (ROLE_SLOTS - 1)
    return 0


cdef inline bint is_ideograph(uint32_t code) noexcept nogil:
    return 0x3400 <= code <= 0x9FFF or 0x20000 <= code <= 0x323AF


cdef inline bint is_white(uint32_t code) noexcept nogil:
    if code < 128:
        return code == 32 or 9 <= code <= 13 or 28 <= code <= 31
    return Py_UNICODE_ISSPACE(code)


cdef inline uint32_t lower_ascii(uint32_t code) noexcept nogil:
    return code + 32 if 0x41 <= code <= 0x5A else code


cdef inline uint32_t lower(uint32_t code) noexcept nogil:
    return lower_ascii(code) if code < 128 else Py_UNICODE_TOLOWER(code)


cdef inline void read_ascii(const uint8_t* data, Py_ssize_t size, uint32_t* raw, uint32_t* low) noexcept nogil:
    """What most texts are, in a loop of which the compiler takes several rounds at once."""
    cdef Py_ssize_t at
    for at in range(size):
        raw[at] = data[at]
        low[at] = lower_ascii(data[at])


cdef inline Py_ssize_t power_above(Py_ssize_t number) noexcept nogil:
    cdef Py_ssize_t size = 64
    while size < number:
        size *= 2
    return size


@cython.final
cdef class Extractor:
    """Reads features from texts. Deterministic; raises nothing for any text; holds no state of a text."""

    def __cinit__(self, dict words, Py_ssize_t categories, int bits, Py_ssize_t head_chars, Py_ssize_t tail_chars):
        if not 0 < categories <= MAX_CATEGORIES:
            raise ValueError(f"between 1 and {MAX_CATEGORIES} categories can be counted")
        if not 0 <= bits <= 24 or not 0 <= head_chars <= 1 << 20 or not 0 <= tail_chars <= 1 << 20:
            raise ValueError("bits or window out of range")
        self.categories = categories
        self.width = BASE + categories
        self.head_chars, self.tail_chars = head_chars, tail_chars
        self.bucket_mask = (<uint32_t>1 << bits) - 1
        self.word_slots = power_above(4 * len(words))
        self.word_hashes = <uint32_t*>PyMem_Malloc(self.word_slots * sizeof(uint32_t))
        self.word_values = <int32_t*>PyMem_Malloc(self.word_slots * sizeof(int32_t))
        if self.word_hashes == NULL or self.word_values == NULL:
            raise MemoryError
        memset(self.word_values, 0, self.word_slots * sizeof(int32_t))
        cdef uint32_t state
        cdef Py_ssize_t slot
        for word, category in words.items():
            if not 0 <= category < categories:
                raise ValueError("a word of no category")
            state = FNV_BASIS
            for char in word:
                state = add(state, ord(char))
            slot = finish(state) & (self.word_slots - 1)
            while self.word_values[slot] and self.word_hashes[slot] != state:
                slot = (slot + 1) & (self.word_slots - 1)
            self.word_hashes[slot] = state
            self.word_values[slot] = category + 1

    def __dealloc__(self):
        PyMem_Free(self.word_hashes)
        PyMem_Free(self.word_values)

    cdef void count_word(self, uint32_t state, int32_t* found) noexcept nogil:
        cdef Py_ssize_t slot = finish(state) & (self.word_slots - 1)
        while self.word_values[slot]:
            if self.word_hashes[slot] == state:
                found[self.word_values[slot] - 1] += 1
                return
            slot = (slot + 1) & (self.word_slots - 1)

    cdef int read(self, str text, Reading* found) except -1:
        """Read a text. What `found` points to is the caller's to free, by `release`, unless this raises."""
        cdef Py_ssize_t chars = PyUnicode_GET_LENGTH(text)
        cdef Py_ssize_t size = chars
        cdef Py_ssize_t skip = 0
        if chars > self.head_chars + self.tail_chars:
            size = self.head_chars + self.tail_chars
            skip = chars - size
        # Behind the head so many are left out.
        cdef Py_ssize_t head = self.head_chars if skip else size
        cdef int kind = PyUnicode_KIND(text)
        cdef void* data = PyUnicode_DATA(text)
        cdef Py_ssize_t slots = power_above(8 * (size + 2)) if self.bucket_mask else 0
        # raw, low, codes; slots in order of appearance; then counts and keys of the table of buckets.
        cdef Py_ssize_t words = 3 * (size + 2) + 2 * slots + 4 * (size + 2)
        cdef uint32_t* scratch = <uint32_t*>PyMem_Malloc(words * sizeof(uint32_t))
        if scratch == NULL:
            raise MemoryError
        cdef uint32_t* raw = scratch
        cdef uint32_t* low = raw + size + 2
        cdef uint32_t* codes = low + size + 2
        cdef Py_ssize_t at, grams = 0
        cdef uint32_t code
        found.scratch = scratch
        found.order = codes + size + 2
        found.counts = <int32_t*>(found.order + 4 * (size + 2))
        found.keys = <uint32_t*>(found.counts + slots)
        found.distinct = 0
        memset(found.counts, 0, slots * sizeof(int32_t))
        if PyUnicode_IS_ASCII(text):
            read_ascii(<const uint8_t*>data, head, raw, low)
            read_ascii(<const uint8_t*>data + head + skip, size - head, raw + head, low + head)
        else:
            for at in range(size):
                code = PyUnicode_READ(kind, data, at if at < head else at + skip)
                if 0xFF01 <= code <= 0xFF5E:
                    code -= 0xFEE0
                raw[at] = code
                low[at] = lower(code)
        if self.bucket_mask:
            found.distinct = self.count_grams(
                low, size, codes, found.counts, found.keys, slots, found.order, &grams
            )
        self.read_dense(chars, size, raw, low, found.distinct, grams, found.dense)
        return 0

    def extract(self, str text not None):
        """Bucket of each n-gram in order of appearance, its weight 1 + ln(count), and the dense features.

        Without buckets (0 bits) no n-grams are counted, and their distinct share is 0.
        """
        cdef Reading found
        cdef Py_ssize_t at
        cdef int32_t[:] ids_view
        cdef float[:] weights_view
        cdef float[:] dense_view
        self.read(text, &found)
        try:
            ids = np.empty(found.distinct, np.int32)
            weights = np.empty(found.distinct, np.float32)
            dense = np.empty(self.width, np.float32)
            if found.distinct:
                ids_view, weights_view = ids, weights
                for at in range(found.distinct):
                    ids_view[at] = <int32_t>found.keys[found.order[at]]
                    weights_view[at] = weigh(found.counts[found.order[at]])
            dense_view = dense
            for at in range(self.width):
                dense_view[at] = found.dense[at]
            return ids, weights, dense
        finally:
            release(&found)

    cdef Py_ssize_t count_grams(
        self, uint32_t* low, Py_ssize_t size, uint32_t* codes, int32_t* counts, uint32_t* keys, Py_ssize_t slots,
        uint32_t* order, Py_ssize_t* grams,
    ) noexcept nogil:
        """Fill the table of buckets and their order; the number of distinct ones."""
        cdef Py_ssize_t at, length, distinct = 0, total = 0, slot
        cdef Py_ssize_t filled = 1
        cdef uint32_t code, state, bucket
        cdef bint is_wide
        codes[0] = SPACE
        for at in range(size):
            code = low[at]
            if is_white(code):
                if codes[filled - 1] != SPACE:
                    codes[filled] = SPACE
                    filled += 1
            else:
                codes[filled] = 0x30 if 0x30 <= code <= 0x39 else code
                filled += 1
        if codes[filled - 1] != SPACE:
            codes[filled] = SPACE
            filled += 1
        for at in range(filled):
            is_wide = codes[at] >= IDEOGRAPHS
            state = FNV_BASIS
            for length in range(1, 4 if is_wide else 5):
                if at + length > filled or (length >= 3 and codes[at + length - 2] == SPACE):
                    break
                state = add(state, codes[at + length - 1])
                if length == 1 and not is_wide:
                    continue
                bucket = finish(state) & self.bucket_mask
                # Buckets are well mixed already; the table is a window on them.
                slot = bucket & (slots - 1)
                while counts[slot] and keys[slot] != bucket:
                    slot = (slot + 1) & (slots - 1)
                if not counts[slot]:
                    keys[slot] = bucket
                    order[distinct] = <uint32_t>slot
                    distinct += 1
                counts[slot] += 1
                total += 1
        grams[0] = total
        return distinct

    cdef void read_dense(
        self, Py_ssize_t chars, Py_ssize_t size, uint32_t* raw, uint32_t* low, Py_ssize_t distinct, Py_ssize_t grams,
        float* dense,
    ) noexcept nogil:
        cdef int32_t found[MAX_CATEGORIES]
        cdef Py_ssize_t latin_words = 0, latin_letters = 0, longest = 0, numbers = 0, ideographs = 0, sentences = 0
        cdef Py_ssize_t capitals = 0, long_words = 0, lines = 0, questions = 0, commas = 0, math_chars = 0
        cdef Py_ssize_t code_chars = 0, uppers = 0, options = 0, blanks = 0, commands = 0, quotes = 0, colons = 0
        cdef Py_ssize_t brackets = 0, foreign = 0, digits = 0, at, end, length, position = 0
        cdef uint32_t code, letter, single, pair, after, previous = 0
        cdef Py_ssize_t names = 0, relatives = 0, question_at = 0, possessives = 0, degrees = 0, past = 0
        cdef Py_ssize_t of_count = 0, the_count = 0
        cdef uint32_t last, before
        cdef bint is_start = True, has_previous = False, is_name = False, white
        cdef int marks, role
        memset(found, 0, sizeof(found))
        while position < size:
            code, letter = raw[position], low[position]
            if 0x61 <= letter <= 0x7A:
                end = position
                single, pair = FNV_BASIS, previous
                while end < size and (0x61 <= low[end] <= 0x7A or low[end] == 0x27):
                    uppers += 0x41 <= raw[end] <= 0x5A
                    single = add(single, low[end])
                    pair = add(pair, low[end])
                    end += 1
                length = end - position
                latin_words += 1
                latin_letters += length
                longest = max(longest, length)
                long_words += length >= 9
                if 0x41 <= code <= 0x5A and not is_start:
                    capitals += 1
                    names += not is_name
                    is_name = True
                else:
                    is_name = False
                role = role_of(single)
                if role == IS_QUESTION and not question_at:
                    question_at = latin_words
                relatives += role == IS_THAT or (role == IS_QUESTION and latin_words > 3)
                past += role == IS_PAST
                of_count += role == IS_OF
                the_count += role == IS_THE
                if length > 1:
                    last, before = low[end - 1], low[end - 2]
                    possessives += (before == 0x27 and last == 0x73) or (before == 0x73 and last == 0x27)
                    if length > 4 and (before == 0x65 and last == 0x72 or (
                        before == 0x73 and last == 0x74 and low[end - 3] == 0x65
                    )):
                        degrees += 1
                self.count_word(single, found)
                if has_previous:
                    self.count_word(pair, found)
                previous = add(single, SPACE)
                has_previous = True
                is_start = False
                position = end
                continue
            if code == SPACE:
                # Of no kind that is counted, and words on both sides of it are a pair.
                position += 1
                continue
            if 0x30 <= code <= 0x39:
                end = position
                while end < size and (
                    0x30 <= raw[end] <= 0x39
                    or (raw[end] == 0x2E and end + 1 < size and 0x30 <= raw[end + 1] <= 0x39)
                ):
                    digits += raw[end] != 0x2E
                    end += 1
                numbers += 1
                has_previous = False
                is_start = is_name = False
                position = end
                continue
            if is_ideograph(code):
                ideographs += 1
                single = FNV_BASIS
                for end in range(position, min(position + 4, size)):
                    if not is_ideograph(raw[end]):
                        break
                    single = add(single, raw[end])
                    self.count_word(single, found)
                has_previous = False
                is_start = is_name = False
                position += 1
                continue
            white = is_white(code)
            marks = marks_of(code)
            if not white:
                has_previous = False
                is_name = False
            if code == 0x0A:
                lines += 1
                is_start = True
                at = position + 1
                if at < size and raw[at] == 0x28:
                    at += 1
                if at + 1 < size and 0x41 <= raw[at] <= 0x4A and (raw[at + 1] == 0x2E or raw[at + 1] == 0x29):
                    options += 1
            elif marks & IS_END:
                after = raw[position + 1] if position + 1 < size else <uint32_t>SPACE
                questions += code == 0x3F
                if code == 0x3002 or is_white(after) or is_ideograph(after) or marks_of(after) & IS_QUOTE:
                    sentences += 1
                    is_start = True
            elif code == 0x2C or code == 0x3001:
                commas += 1
            elif code == 0x3A or code == 0x3B:
                colons += 1
            if marks & IS_MATH:
                math_chars += 1
                if code == 0x5C and position + 1 < size and 0x61 <= low[position + 1] <= 0x7A:
                    commands += 1
            if marks & IS_CODE:
                code_chars += 1
                brackets += code == 0x28
                if code == 0x5F and position + 1 < size and raw[position + 1] == 0x5F:
                    blanks += 1
            if marks & IS_QUOTE:
                quotes += 1
            elif code > 0x7F and not white and not marks:
                foreign += 1
            position += 1
        cdef Py_ssize_t total = latin_words + numbers + ideographs
        at = size - 1
        while at >= 0 and is_white(raw[at]):
            at -= 1
        cdef double shown = max(size, 1)
        cdef double wordy = max(total, 1)
        cdef double[BASE] base = [
            log_of(chars), log_of(total), latin_letters / <double>max(latin_words, 1), numbers / wordy, log_of(numbers),
            log_of(lines), log_of(questions), log_of(commas), log_of(sentences), math_chars / shown, code_chars / shown,
            ideographs / shown, uppers / shown, distinct / <double>max(grams, 1), log_of(longest), log_of(options),
            log1p(total / <double>max(sentences, 1)), log_of(blanks), log_of(capitals),
            capitals / <double>max(latin_words, 1), log_of(commands), log_of(quotes), log_of(colons), log_of(brackets),
            1.0 if at >= 0 and raw[at] == 0x3F else 0.0, 1.0 if size > 0 and 0x61 <= raw[0] <= 0x7A else 0.0,
            foreign / shown, log_of(long_words), log_of(digits), 1.0 if chars > size else 0.0,
            log_of(names), log_of(relatives), min(question_at, FARTHEST) / <double>FARTHEST, log_of(possessives),
            log_of(degrees), log_of(of_count), log_of(the_count), past / <double>max(latin_words, 1),
        ]
        for at in range(BASE):
            dense[at] = <float>base[at]
        for at in range(self.categories):
            dense[BASE + at] = <float>log_of(found[at])
