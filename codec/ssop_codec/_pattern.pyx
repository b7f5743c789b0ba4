# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Matches patterns while the text comes, in time linear in its length.

A state of the deterministic automaton is a set of states of the nondeterministic one. It is made when a text
first needs it, and kept with a row of transitions while memory allows; beyond that states are made anew at each
step. Both cost at most one pass over the nondeterministic automaton a code point.
"""

from collections import OrderedDict

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, qsort
from libc.string cimport memset

from ssop_codec._claim cimport ssop_lock, ssop_unlock

from . import pattern_nfa

cdef enum:
    # As in pattern_nfa.
    CHAR, SPLIT, MATCH, BEGIN, END, EDGE, LOOK, FAIL

cdef enum:
    # What a closure knows of the next code point.
    NEXT_OPEN, NEXT_END, NEXT_WORD, NEXT_OTHER

cdef enum:
    KEPT_BYTES = 1048576    # rows and sets that one pattern keeps
    SPARE_BYTES = 1048576
    MIN_KEPT = 64
    MAX_KEPT = 16384
    MAX_SPARE = 65536
    LAST_SPARE = 2147483000

cdef extern from *:
    """
    /* A row is read while others are written: who finds a state there finds the row of that state, too. */
    static inline int32_t ssop_load(const int32_t *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
    static inline void ssop_store(int32_t *at, int32_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
    """
    int32_t _load "ssop_load"(const int32_t* at) noexcept nogil
    void _store "ssop_store"(int32_t* at, int32_t value) noexcept nogil

assert (pattern_nfa.CHAR, pattern_nfa.LOOK, pattern_nfa.FAIL) == (CHAR, LOOK, FAIL)


cdef int _compare(const void* left, const void* right) noexcept nogil:
    return (<int32_t*>left)[0] - (<int32_t*>right)[0]


cdef void* _array(size_t count, size_t size) except NULL:
    cdef void* block = calloc(count + 1, size)
    if block is NULL:
        raise MemoryError
    return block


cdef class Pattern:
    """One pattern. Threads and encoders may share it; states of one pattern mean nothing to another.

    A state is DEAD, ACCEPT_ALL, or a number to hand back. Where a text needs more states than are kept, one that
    was held while very many others were made is LOST; whoever meets it must give up the document.
    """

    def __cinit__(self, str text, nfa, dfa=None, kept_bytes=KEPT_BYTES):
        cdef uint32_t i, j
        self.text = text
        self.state_count = len(nfa.kinds)
        self.kinds = <uint8_t*>_array(self.state_count, 1)
        self.first = <int32_t*>_array(self.state_count, 4)
        self.second = <int32_t*>_array(self.state_count, 4)
        for i in range(self.state_count):
            self.kinds[i] = nfa.kinds[i]
            self.first[i] = nfa.first[i]
            self.second[i] = nfa.second[i]
        self.nfa_start = nfa.start
        self.has_edges = nfa.has_edges
        self._take_classes(nfa)
        self.marks = <uint32_t*>_array(self.state_count, 4)
        self.stack = <int32_t*>_array(self.state_count, 4)
        self.leaves = <int32_t*>_array(self.state_count, 4)
        self.keys = []
        self.numbers = {}
        self.spare = OrderedDict()
        while <uint32_t>1 << self.row_bits < self.class_count:
            self.row_bits += 1
        cdef uint32_t state_bytes = (<uint32_t>4 << self.row_bits) + 2 * self.state_count + 64
        self.kept_limit = min(<uint32_t>MAX_KEPT, max(<uint32_t>MIN_KEPT, <uint32_t>kept_bytes // state_bytes))
        self.spare_limit = min(<uint32_t>MAX_SPARE, max(<uint32_t>256, <uint32_t>SPARE_BYTES // (2 * self.state_count + 128)))
        if dfa is not None:
            self.kept_limit = max(self.kept_limit, <uint32_t>len(dfa.rows))
        self.rows = <int32_t*>malloc(<size_t>self.kept_limit << self.row_bits << 2)
        if self.rows is NULL:
            raise MemoryError
        self.accept_flags = <uint8_t*>_array(self.kept_limit, 1)
        self.next_spare = FIRST_STATE + self.kept_limit
        if dfa is not None:
            self.start_state = dfa.start
            for i in range(<uint32_t>len(dfa.rows)):
                self._add_row(b"", dfa.accepts[i])
                for j in range(self.class_count):
                    self._row(FIRST_STATE + i)[j] = dfa.rows[i][j]
            return
        self._forget_marks()
        if self._close(self.nfa_start, True, NEXT_OPEN):
            self.start_state = ACCEPT_ALL
        elif self.leaf_count:
            self.start_state = self._intern(True, False)
        else:
            self.start_state = DEAD

    def __dealloc__(self):
        free(self.rows)
        free(self.accept_flags)
        free(self.kinds)
        free(self.first)
        free(self.second)
        free(self.run_starts)
        free(self.run_classes)
        free(self.members)
        free(self.word_classes)
        free(self.marks)
        free(self.stack)
        free(self.leaves)

    def _take_classes(self, nfa):
        cdef uint32_t i, j
        self.class_count = nfa.class_count
        self.run_count = len(nfa.run_starts)
        self.run_starts = <uint32_t*>_array(self.run_count, 4)
        self.run_classes = <uint16_t*>_array(self.run_count, 2)
        for i in range(self.run_count):
            self.run_starts[i] = nfa.run_starts[i]
            self.run_classes[i] = nfa.run_classes[i]
        self.members = <uint8_t*>_array(nfa.word_bit * self.class_count, 1)
        self.word_classes = <uint8_t*>_array(self.class_count, 1)
        for j in range(self.class_count):
            sets = nfa.class_sets[j]
            for i in range(<uint32_t>nfa.word_bit):
                self.members[i * self.class_count + j] = sets >> i & 1
            self.word_classes[j] = sets >> nfa.word_bit & 1
        j = 0
        for i in range(128):
            while j + 1 < self.run_count and self.run_starts[j + 1] <= i:
                j += 1
            self.ascii_classes[i] = self.run_classes[j]

    def search(self, str text not None):
        """Whether a part of `text` matches."""
        cdef int state = self.start_state
        cdef Py_UCS4 c
        for c in text:
            state = self.step(state, c)
        if state == LOST:
            raise RuntimeError("the state was lost")
        return self.accepts(state)

    def __eq__(self, other):
        return isinstance(other, Pattern) and (<Pattern>other).text == self.text

    def __hash__(self):
        return hash(self.text)

    @property
    def kept_states(self):
        """States of the deterministic automaton that are kept now."""
        return self.kept_count

    # -- running ------------------------------------------------------------------------------------------

    cdef int start(self) noexcept:
        """The state before the text."""
        return self.start_state

    cdef int step(self, int state, unsigned int codepoint) except -1:
        """The state after one more code point."""
        if state < FIRST_STATE:
            return state
        return self.step_class(state, self.class_of(codepoint))

    cdef int step_class(self, int state, uint32_t class_number) except -1:
        """The state after a code point of the class; `state` is none of the fixed ones."""
        cdef int found
        if <uint32_t>state < FIRST_STATE + self.kept_count:
            found = self._row(state)[class_number]
            if found != UNKNOWN:
                return found
        return self._compute(state, class_number)

    cdef bint accepts(self, int state) except -1:
        """Whether the text may end here."""
        if state < FIRST_STATE:
            return state == ACCEPT_ALL
        if <uint32_t>state < FIRST_STATE + self.kept_count:
            return self.accept_flags[state - FIRST_STATE]
        ssop_lock(&self.lock)
        try:
            key = self._key_of(state)
            return key is not None and self._ends_well(key)
        finally:
            ssop_unlock(&self.lock)

    cdef bint can_take(self, int state, unsigned int low, unsigned int high) except -1:
        """Whether some code point from `low` to `high` does not lead to DEAD."""
        cdef uint32_t left, right, middle
        if state < FIRST_STATE:
            return state != DEAD
        left = 0
        right = self.run_count
        while right - left > 1:
            middle = (left + right) >> 1
            if self.run_starts[middle] <= low:
                left = middle
            else:
                right = middle
        while left < self.run_count and self.run_starts[left] <= high:
            if self.step_class(state, self.run_classes[left]) != DEAD:
                return True
            left += 1
        return False

    cdef size_t run(self, int* state, const uint8_t* data, size_t size) noexcept nogil:
        """Take code points of valid UTF-8 while the transitions are known; returns the bytes taken. It stops
        before a code point whose transition must be computed (or is cut off), and behind one that leads to a
        fixed state."""
        cdef size_t at = 0
        cdef int now = state[0]
        cdef int found
        cdef uint32_t length, point, i
        cdef const int32_t* row
        if now < FIRST_STATE or <uint32_t>now >= FIRST_STATE + self.kept_count:
            return size if now < FIRST_STATE else 0
        row = self._row(now)
        while at < size:
            length = 1
            if data[at] < 0x80:
                found = _load(&row[self.ascii_classes[data[at]]])
            else:
                length = 2 if data[at] < 0xE0 else 3 if data[at] < 0xF0 else 4
                if at + length > size:
                    break
                point = data[at] & (0x7F >> length)
                for i in range(1, length):
                    point = point << 6 | (data[at + i] & 0x3F)
                found = _load(&row[self.class_of(point)])
            if found < FIRST_STATE:
                # Not computed yet, or a fixed state.
                if found != UNKNOWN:
                    now = found
                    at += length
                break
            at += length
            if found != now:
                # A row never names a state without one.
                now = found
                row = self._row(now)
        state[0] = now
        return at

    cdef bint is_known_match(self, const uint8_t* data, size_t size) noexcept nogil:
        """Whether the text, valid UTF-8, matches; False, too, where states have to be made to know it."""
        cdef int state = self.start_state
        cdef size_t taken = self.run(&state, data, size)
        if state < FIRST_STATE:
            return state == ACCEPT_ALL
        if taken < size or <uint32_t>state >= FIRST_STATE + self.kept_count:
            return False
        return self.accept_flags[state - FIRST_STATE]

    cdef uint32_t class_of(self, unsigned int codepoint) noexcept nogil:
        cdef uint32_t left, right, middle
        if codepoint < 128:
            return self.ascii_classes[codepoint]
        left = 0
        right = self.run_count
        while right - left > 1:
            middle = (left + right) >> 1
            if self.run_starts[middle] <= codepoint:
                left = middle
            else:
                right = middle
        return self.run_classes[left]

    cdef int32_t* _row(self, int state) noexcept nogil:
        return self.rows + (<size_t>(state - FIRST_STATE) << self.row_bits)

    # -- making states ------------------------------------------------------------------------------------

    cdef bytes _key_of(self, int state):
        """The set of a state; None where it was dropped."""
        if <uint32_t>state < FIRST_STATE + self.kept_count:
            return self.keys[state - FIRST_STATE]
        return self.spare.get(state)

    cdef int _compute(self, int state, uint32_t class_number) except -1:
        """The state after `state`, and its entry in the row."""
        ssop_lock(&self.lock)
        try:
            return self._compute_locked(state, class_number)
        finally:
            ssop_unlock(&self.lock)

    cdef int _compute_locked(self, int state, uint32_t class_number) except -1:
        cdef bytes key = self._key_of(state)
        cdef const int32_t* set_states
        cdef uint32_t i, size
        cdef int32_t at
        cdef int found = DEAD
        cdef bint is_match = False
        if key is None:
            return LOST
        set_states = <const int32_t*>PyBytes_AS_STRING(key)
        size = <uint32_t>(PyBytes_GET_SIZE(key) // 4) - 1
        self._forget_marks()
        if self.has_edges:
            # What asks for the edge of a word is answered now that the next code point is known.
            is_match = self._resolve(key, NEXT_WORD if self.word_classes[class_number] else NEXT_OTHER)
            resolved = PyBytes_FromStringAndSize(<char*>self.leaves, 4 * <Py_ssize_t>self.leaf_count)
            set_states = <const int32_t*>PyBytes_AS_STRING(resolved)
            size = self.leaf_count
            self._forget_marks()
        for i in range(size):
            if is_match:
                break
            at = set_states[i]
            if self.kinds[at] == CHAR and self.members[self.second[at] * self.class_count + class_number]:
                is_match = self._close(self.first[at], False, NEXT_OPEN)
        self.work += size
        if is_match:
            found = ACCEPT_ALL
        elif self.leaf_count:
            found = self._intern(False, self.has_edges and self.word_classes[class_number])
        if <uint32_t>state < FIRST_STATE + self.kept_count:
            _store(
                &self._row(state)[class_number], found if <uint32_t>found < FIRST_STATE + self.kept_count else UNKNOWN
            )
        return found

    def _resolve(self, bytes key, int next):
        """Close the set again, now that `next` is known; whether a match is reached."""
        cdef const int32_t* set_states = <const int32_t*>PyBytes_AS_STRING(key)
        cdef uint32_t size = <uint32_t>(PyBytes_GET_SIZE(key) // 4) - 1
        cdef int flags = set_states[size]
        cdef uint32_t i
        for i in range(size):
            if self._close(set_states[i], flags & 1, next | (flags & 2) << 2):
                return True
        return False

    cdef bint _ends_well(self, bytes key) except -1:
        """Whether a match ends at the end of the text."""
        self._forget_marks()
        return self._resolve(key, NEXT_END)

    def _forget_marks(self):
        self.leaf_count = 0
        self.mark += 1
        if self.mark == 0xFFFFFFFF:
            memset(self.marks, 0, 4 * <size_t>self.state_count)
            self.mark = 1

    cdef int _close(self, int32_t state, bint is_start, int next) except -1:
        """Collect the states that are reached without a code point; 1 where a match is."""
        cdef uint32_t depth = 1
        cdef int32_t at
        cdef uint8_t kind
        cdef bint after_word = next >> 3 & 1
        cdef bint is_edge
        next &= 7
        if self.marks[state] == self.mark:
            return 0
        self.marks[state] = self.mark
        self.stack[0] = state
        while depth:
            depth -= 1
            at = self.stack[depth]
            self.work += 1
            kind = self.kinds[at]
            if kind == MATCH:
                return 1
            if kind == CHAR:
                self.leaves[self.leaf_count] = at
                self.leaf_count += 1
                continue
            if kind == FAIL or (kind == BEGIN and not is_start):
                continue
            if kind == END or kind == EDGE:
                if next == NEXT_OPEN:
                    self.leaves[self.leaf_count] = at
                    self.leaf_count += 1
                    continue
                if kind == END and next != NEXT_END:
                    continue
                is_edge = after_word != (next == NEXT_WORD)
                if kind == EDGE and is_edge == self.second[at]:
                    continue
            elif kind == SPLIT and self.marks[self.second[at]] != self.mark:
                self.marks[self.second[at]] = self.mark
                self.stack[depth] = self.second[at]
                depth += 1
            if self.marks[self.first[at]] != self.mark:
                self.marks[self.first[at]] = self.mark
                self.stack[depth] = self.first[at]
                depth += 1
        return 0

    cdef int _intern(self, bint is_start, bint after_word) except -1:
        """The number of the state whose set was collected."""
        cdef bytes key
        qsort(self.leaves, self.leaf_count, 4, _compare)
        # One more place was allocated than there are states.
        self.leaves[self.leaf_count] = is_start | after_word << 1
        key = PyBytes_FromStringAndSize(<char*>self.leaves, 4 * (<Py_ssize_t>self.leaf_count + 1))
        number = self.numbers.get(key)
        if number is not None:
            return number
        if self.kept_count < self.kept_limit:
            self._add_row(key, self._ends_well(key))
            number = FIRST_STATE + self.kept_count - 1
            self.numbers[key] = number
            return number
        if len(self.spare) >= self.spare_limit:
            self.numbers.pop(self.spare.popitem(last=False)[1])
        number = self.next_spare
        self.next_spare = number + 1 if number < LAST_SPARE else FIRST_STATE + self.kept_limit
        self.spare[number] = key
        self.numbers[key] = number
        return number

    def _add_row(self, bytes key, bint accepts):
        cdef uint32_t place = self.kept_count
        cdef int32_t* row
        cdef uint32_t i
        row = self._row(FIRST_STATE + place)
        for i in range(self.class_count):
            row[i] = UNKNOWN
        self.accept_flags[place] = accepts
        self.keys.append(key)
        self.kept_count = place + 1
