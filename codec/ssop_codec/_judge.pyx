# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Judges schemas that the rules of one node can't say, over the events of the values.

Each check that applies to a value is run over it once, however many ways lead to it: a trial. A trial is open,
kept or failed, in the three-valued logic of Kleene: a union fails as soon as no branch can be kept any more, a
negation as soon as its schema is sure to be. Members report to the trials of their container. The first root that
fails is the violation; the keyword that is named is found from there (SPEC.md section 8).

Trials, links, kids and words are stacks: what a value needs stands above what its container needs.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

from ssop_codec._program cimport (
    CHECK_ALWAYS,
    CHECK_NEVER,
    G_ALL,
    G_ANY,
    G_IF,
    G_NOT,
    G_WHEN,
    IS_CONST,
    Check,
    Group,
    Program,
)

cdef tuple RULES = (
    "", "", "type", "enum", "maxLength", "minLength", "pattern", "format", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "additionalProperties", "maxProperties", "propertyNames",
    "required", "minProperties", "dependentRequired", "maxItems", "minItems", "uniqueItems", "maxContains", "contains", "",
)
cdef dict RULE_NUMBERS = {name: number for number, name in enumerate(RULES) if name}

assert RULES[R_MIN_CONTAINS] == "contains" and RULES[R_NAMES] == "propertyNames"



cdef class Judge:
    """Runs the checks of one document."""

    def __cinit__(self, Program program not None, limits):
        cdef uint32_t depth = limits.max_depth + 2
        self.program = program
        self.max_trials = limits.max_live_checks
        self.max_text_bytes = limits.max_format_bytes
        self.max_held_bytes = limits.max_held_bytes
        self.max_unique_items = limits.max_unique_items
        self.trial_room = self.link_room = self.kid_room = self.word_room = 64
        self.stages = <Stage*>calloc(depth, sizeof(Stage))
        self.trials = <Trial*>malloc(self.trial_room * sizeof(Trial))
        self.links = <Link*>malloc(self.link_room * sizeof(Link))
        self.kids = <int32_t*>malloc(self.kid_room * sizeof(int32_t))
        self.words = <uint64_t*>malloc(self.word_room * sizeof(uint64_t))
        self.places = <int32_t*>calloc(program.check_count + 1, sizeof(int32_t))
        if not (self.stages and self.trials and self.links and self.kids and self.words and self.places):
            raise MemoryError
        self.held = bytearray()
        self.text = bytearray()
        self.sets = {}

    def __dealloc__(self):
        free(self.stages)
        free(self.trials)
        free(self.links)
        free(self.kids)
        free(self.words)
        free(self.places)

    cdef uint8_t rule_number(self, str keyword) except 0:
        """Position in RULES of a keyword about numbers."""
        return RULE_NUMBERS.get(keyword, R_MEMBER)

    cdef bint limit(self, int detail, uint32_t depth) except -1:
        self.rule = "limit"
        self.detail = detail
        self.broken_depth = depth
        return True

    # -- trials of a value ------------------------------------------------------------------------------------

    cdef int _grow(self) except -1:
        """Make room for one more trial."""
        cdef void* block
        if self.trial_count == self.trial_room:
            block = realloc(self.trials, 2 * self.trial_room * sizeof(Trial))
            if block is NULL:
                raise MemoryError
            self.trials = <Trial*>block
            self.trial_room *= 2
        return 0

    cdef int32_t trial(self, int32_t check) except? -9:
        """The trial of a check of the value that begins, made if need be; CHECK_ALWAYS and CHECK_NEVER stay."""
        cdef int32_t index
        cdef uint32_t kids, words, i
        cdef Check* it
        cdef Trial* trial
        cdef Stage* stage = &self.stages[self.depth]
        cdef void* block
        if check < 0:
            return check
        index = self.places[check]
        if <uint32_t>index >= stage.first and <uint32_t>index < self.trial_count and self.trials[index].check == check:
            return index
        self._grow()
        it = &self.program.checks[check]
        index = self.places[check] = <int32_t>self.trial_count
        self.trial_count += 1
        kids = self.kid_count
        while self.kid_room < kids + it.kid_count:
            block = realloc(self.kids, 2 * self.kid_room * sizeof(int32_t))
            if block is NULL:
                raise MemoryError
            self.kids = <int32_t*>block
            self.kid_room *= 2
        self.kid_count += it.kid_count
        words = self.word_count
        while self.word_room < words + it.words + it.pattern_count:
            block = realloc(self.words, 2 * self.word_room * sizeof(uint64_t))
            if block is NULL:
                raise MemoryError
            self.words = <uint64_t*>block
            self.word_room *= 2
        memset(self.words + words, 0, it.words * sizeof(uint64_t))
        # The states of `patternProperties` stand behind the set of keys.
        self.word_count += it.words + it.pattern_count
        trial = &self.trials[index]
        memset(trial, 0, sizeof(Trial))
        trial.check = check
        trial.kids = kids
        trial.seen = words
        for i in range(it.kid_count):
            # Making a kid may move all the stacks.
            index = self.trial(it.kids[i])
            self.kids[kids + i] = index
        return self.places[check]

    cdef int link(self, int32_t check, int32_t parent, int role) except -1:
        cdef Link* link
        cdef void* block
        if check == CHECK_ALWAYS:
            return 0
        if self.link_count == self.link_room:
            block = realloc(self.links, 2 * self.link_room * sizeof(Link))
            if block is NULL:
                raise MemoryError
            self.links = <Link*>block
            self.link_room *= 2
        link = &self.links[self.link_count]
        self.link_count += 1
        link.trial = <int32_t>self.program.check_count if check == CHECK_NEVER else check
        link.parent = parent
        link.role = role
        return 0

    cdef bint has_trials(self, uint32_t depth) noexcept:
        """Whether the container of a value at `depth` has trials."""
        return depth != 0 and self.stages[depth - 1].first != self.stages[depth - 1].last

    # -- what is known ---------------------------------------------------------------------------------------

    cdef bint settle(self, uint32_t depth) except -1:
        """Tell the containers what the trials of a value have become; True where a root has failed."""
        cdef Stage* stage = &self.stages[depth]
        cdef Link* link
        cdef Trial* parent
        cdef uint32_t i
        cdef bint is_news = False
        self.stamp += 1
        for i in range(stage.links, stage.links_end):
            link = &self.links[i]
            if link.role == ROLE_CONTAINS or self.resolve(link.trial, stage.has_ended) != FAILED:
                continue
            if link.parent < 0:
                self.blame(link.trial, depth)
                return True
            parent = &self.trials[link.parent]
            if parent.own == OPEN:
                parent.own = FAILED
                parent.rule = R_NAMES if link.role == ROLE_NAME else R_CHILD
                parent.failed_child = link.trial
                is_news = True
        return is_news and self.settle(depth - 1)

    cdef uint8_t resolve(self, uint32_t index, bint has_ended) noexcept:
        """What a trial is, from its own keywords and its kids."""
        cdef Trial* trial = &self.trials[index]
        cdef Check* it
        cdef uint32_t i
        cdef uint8_t status
        if trial.status != OPEN or trial.stamp == self.stamp:
            return trial.status
        trial.stamp = self.stamp
        status = trial.own
        if status != FAILED:
            it = &self.program.checks[trial.check]
            for i in range(it.group_count):
                if status == FAILED:
                    break
                if status == KEPT:
                    status = self._status_of(trial, &it.groups[i], has_ended)
                elif self._status_of(trial, &it.groups[i], has_ended) == FAILED:
                    status = FAILED
        trial.status = status
        return status

    cdef uint8_t _kid(self, Trial* trial, uint32_t slot, bint has_ended) noexcept:
        cdef int32_t index = self.kids[trial.kids + slot]
        if index < 0:
            return KEPT if index == CHECK_ALWAYS else FAILED
        return self.resolve(<uint32_t>index, has_ended)

    cdef uint8_t _status_of(self, Trial* trial, Group* group, bint has_ended) noexcept:
        cdef uint32_t i
        cdef uint32_t kept = 0
        cdef uint32_t failed = 0
        cdef uint8_t status, other
        if group.kind == G_IF:
            status = self._kid(trial, group.first, has_ended)
            if status == KEPT:
                return self._kid(trial, group.first + 1, has_ended)
            other = self._kid(trial, group.first + 2, has_ended)
            if status == FAILED:
                return other
            return other if other == self._kid(trial, group.first + 1, has_ended) else OPEN
        if group.kind == G_NOT:
            status = self._kid(trial, group.first, has_ended)
            return OPEN if status == OPEN else KEPT if status == FAILED else FAILED
        if group.kind == G_WHEN:
            if not trial.is_object:
                return KEPT
            status = self._kid(trial, group.first, has_ended)
            if self.words[trial.seen + (group.key >> 6)] >> (group.key & 63) & 1:
                return status
            return KEPT if has_ended or status == KEPT else OPEN
        for i in range(group.first, group.first + group.count):
            status = self._kid(trial, i, has_ended)
            kept += status == KEPT
            failed += status == FAILED
        if group.kind == G_ALL:
            return FAILED if failed else KEPT if kept == group.count else OPEN
        if failed == group.count:
            return FAILED
        if group.kind == G_ANY:
            return KEPT if kept else OPEN
        if kept > 1:
            return FAILED
        return KEPT if kept and failed == group.count - 1 else OPEN

    cdef int blame(self, uint32_t index, uint32_t depth) except -1:
        """Name the keyword that a failed trial failed by: in it, in a member, in a schema that it has to keep."""
        cdef Trial* trial = &self.trials[index]
        cdef Check* it = &self.program.checks[trial.check]
        cdef Group* group
        cdef uint32_t i, k
        cdef int32_t kid
        cdef bint has_ended = self.stages[depth].has_ended
        if trial.own == FAILED and trial.rule == R_CHILD:
            return self.blame(trial.failed_child, depth + 1)
        if trial.own == FAILED and trial.rule == R_NEVER:
            self.broken_check = trial.failed_child if trial.failed_child >= 0 else <int32_t>self.program.check_count
            self.broken_depth = depth + 1
            it = &self.program.checks[self.broken_check]
            self.rule = "type" if not it.node.declared_types else "const" if it.node.flags & IS_CONST else "enum"
            return 0
        self.broken_check = trial.check
        self.broken_depth = depth
        if trial.own == FAILED:
            self.rule = RULES[trial.rule]
            if trial.rule == R_MEMBER and it.node.flags & IS_CONST:
                self.rule = "const"
            elif trial.rule == R_MIN_CONTAINS:
                self.rule = self.program.schema.checks[trial.check].contains_keyword
            return 0
        for i in range(it.group_count):
            group = &it.groups[i]
            if self._status_of(trial, group, has_ended) != FAILED:
                continue
            if group.kind == G_ALL:
                for k in range(group.first, group.first + group.count):
                    if self._kid(trial, k, has_ended) == FAILED:
                        kid = self.kids[trial.kids + k]
                        if kid < 0:
                            break
                        return self.blame(kid, depth)
            self.rule = self.program.schema.checks[trial.check].groups[i].keyword
            if group.kind == G_IF and self._kid(trial, group.first, has_ended) != OPEN:
                self.rule = "then" if self._kid(trial, group.first, has_ended) == KEPT else "else"
            return 0
        return 0

    cdef int pop(self, uint32_t depth) except -1:
        cdef Stage* stage = &self.stages[depth]
        cdef uint32_t i
        if self.sets:
            for i in range(stage.first, stage.last):
                if self.trials[i].has_set:
                    del self.sets[i]
        self.trial_count = stage.first
        self.link_count = stage.links
        self.kid_count = stage.kids
        self.word_count = stage.words
        stage.last = stage.first
        return 0

    # -- values as a whole -----------------------------------------------------------------------------------

    cdef int take_chunk(self, const uint8_t* chunk, Py_ssize_t size, uint64_t offset) except -1:
        """The next bytes of the document; those of held values are kept."""
        self.chunk = chunk
        self.chunk_from = offset
        self.chunk_end = offset + <uint64_t>size
        if self.holders:
            self._keep(offset)
        return 0

    cdef int _keep(self, uint64_t offset) except -1:
        cdef uint64_t size = self.chunk_end - offset
        # One more byte than may be held is enough to know.
        cdef uint64_t room = self.max_held_bytes + 1 - <uint64_t>len(self.held)
        if size > room:
            size = room
        self.held += self.chunk[offset - self.chunk_from : offset - self.chunk_from + size]
        return 0

    cdef int hold(self, uint64_t offset) except -1:
        """Keep the bytes from `offset` on, until the value ends."""
        if not self.holders:
            self.held_from = offset
            self._keep(offset)
        self.holders += 1
        return 0

    cdef bytes text_of(self, uint64_t start, uint64_t end):
        """The text of a held value; None where the outermost held value has become too long."""
        if end - self.held_from > self.max_held_bytes:
            return None
        return bytes(self.held[start - self.held_from : end - self.held_from])
