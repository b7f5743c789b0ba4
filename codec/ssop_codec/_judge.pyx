# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Judges schemas that the rules of one node can't say, over the events of the values.

Each check that applies to a value is run over it once, however many ways lead to it: a trial. A trial is open,
kept or failed, in the three-valued logic of Kleene: a union fails as soon as no branch can be kept any more, a
negation as soon as its schema is sure to be. Members report to the trials of their container. The first root that
fails is the violation; the keyword that is named is found from there (SPEC.md section 8).

Trials, links, kids and words are stacks: what a value needs stands above what its container needs.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

from ssop_codec._bounds cimport broken_number
from ssop_codec._pattern cimport DEAD, LOST, Pattern
from ssop_codec._program cimport (
    CHECK_ALWAYS,
    CHECK_NEVER,
    ENUM_STRINGS,
    G_ALL,
    G_ANY,
    G_IF,
    G_NOT,
    G_ONE,
    G_WHEN,
    HAS_FORMAT,
    IS_CONST,
    KEY_PROPERTY,
    KEY_REQUIRED,
    NO_FALSE,
    NO_TRUE,
    Check,
    Group,
    Key,
    Node,
    Program,
)
from ssop_codec._scan cimport narrow
from ssop_codec._states cimport (
    ARRAY,
    BOOLEAN,
    D_CHECKS,
    D_FORMAT_SIZE,
    D_HELD,
    D_PATTERN,
    D_UNIQUE,
    NUMERIC,
    OBJECT,
    STRING,
)

from .checks import keeps_format
from .frozen import freeze_text

cdef enum:
    # Positions in RULES.
    R_NONE, R_CHILD, R_TYPE, R_MEMBER, R_MAX_LENGTH, R_MIN_LENGTH, R_PATTERN, R_FORMAT, R_MINIMUM, R_MAXIMUM
    R_ABOVE, R_BELOW, R_MULTIPLE, R_ADDITIONAL, R_MAX_PROPERTIES, R_NAMES, R_REQUIRED, R_MIN_PROPERTIES
    R_DEPENDENT, R_MAX_ITEMS, R_MIN_ITEMS, R_UNIQUE, R_MAX_CONTAINS, R_MIN_CONTAINS

cdef tuple RULES = (
    "", "", "type", "enum", "maxLength", "minLength", "pattern", "format", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "additionalProperties", "maxProperties", "propertyNames",
    "required", "minProperties", "dependentRequired", "maxItems", "minItems", "uniqueItems", "maxContains", "contains",
)
cdef dict RULE_NUMBERS = {name: number for number, name in enumerate(RULES) if name}

assert RULES[R_MIN_CONTAINS] == "contains" and RULES[R_NAMES] == "propertyNames"


def pattern_state(Pattern pattern, str text):
    """0 where no text that begins so matches, 1 where every one does, else another number."""
    cdef int state = pattern.start()
    for c in text:
        state = pattern.step(state, ord(c))
    return state


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

    cdef bint _limit(self, int detail, uint32_t depth) except -1:
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

    cdef int32_t _trial(self, int32_t check) except? -9:
        """The trial of a check of the value that begins, made where there is none; CHECK_ALWAYS and CHECK_NEVER stay."""
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
        while self.word_room < words + it.words:
            block = realloc(self.words, 2 * self.word_room * sizeof(uint64_t))
            if block is NULL:
                raise MemoryError
            self.words = <uint64_t*>block
            self.word_room *= 2
        memset(self.words + words, 0, it.words * sizeof(uint64_t))
        self.word_count += it.words
        trial = &self.trials[index]
        memset(trial, 0, sizeof(Trial))
        trial.check = check
        trial.kids = kids
        trial.seen = words
        for i in range(it.kid_count):
            # Making a kid may move all the stacks.
            index = self._trial(it.kids[i])
            self.kids[kids + i] = index
        return self.places[check]

    cdef int _link(self, int32_t check, int32_t parent, int role) except -1:
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

    cdef bint begin(self, Node* node, uint32_t depth, uint32_t wanted, uint8_t c, uint64_t offset) except -1:
        """A value begins with `c`, and is of one of the types `wanted`."""
        cdef Stage* stage = &self.stages[depth]
        cdef Stage* above
        cdef uint32_t i
        cdef bint is_item = False
        if not self._has_trials(depth):
            stage.links = self.link_count
        else:
            above = stage - 1
            is_item = above.is_array
            if is_item:
                stage.links = self.link_count
                if self._link_items(depth):
                    return True
        for i in range(node.root_count):
            if node.roots[i].types & wanted:
                self._link(node.roots[i].check, -1, ROLE_ROOT)
        if self._start(depth, wanted, c, offset, is_item):
            return True
        if wanted & (OBJECT | ARRAY):
            self.watches = stage.first != stage.last
            self.in_value = False
        return False

    cdef bint _has_trials(self, uint32_t depth) noexcept:
        """Whether the container of a value at `depth` has trials."""
        return depth != 0 and self.stages[depth - 1].first != self.stages[depth - 1].last

    cdef bint _start(self, uint32_t depth, uint32_t wanted, uint8_t c, uint64_t offset, bint is_item) except -1:
        """Run the checks that are linked to the stage. `is_item`: of an array that has trials."""
        cdef Stage* stage = &self.stages[depth]
        cdef uint32_t i
        cdef Check* it
        cdef Trial* trial
        stage.first = stage.last = self.trial_count
        stage.kids = self.kid_count
        stage.words = self.word_count
        stage.links_end = self.link_count
        stage.count = 0
        stage.busy = 0
        stage.is_array = wanted == ARRAY
        stage.is_held = stage.has_ended = stage.has_text = False
        self.in_value = is_item or stage.links != stage.links_end
        if not self.in_value:
            return False
        self.depth = depth
        for i in range(stage.links, stage.links_end):
            self.links[i].trial = self._trial(self.links[i].trial)
        stage.last = self.trial_count
        if self.trial_count > self.max_trials:
            return self._limit(D_CHECKS, depth)
        for i in range(stage.first, stage.last):
            trial = &self.trials[i]
            self._begin_trial(trial, wanted, c)
            if trial.own != OPEN:
                continue
            it = &self.program.checks[trial.check]
            if wanted == STRING:
                stage.busy += 1
                if it.node.flags & HAS_FORMAT:
                    stage.has_text = True
            elif it.has_members:
                stage.is_held = True
        if is_item:
            for i in range((stage - 1).first, (stage - 1).last):
                if self.trials[i].own == OPEN and self.program.checks[self.trials[i].check].is_unique:
                    stage.is_held = True
        if stage.is_held:
            stage.held_from = offset
            self._hold(offset)
        if wanted == STRING:
            self.chars = 0
            self.bytes_read = 0
            self.point_need = 0
            del self.text[:]
        return self._settle(depth)

    cdef void _begin_trial(self, Trial* trial, uint32_t wanted, uint8_t c) noexcept:
        """Judge what the first byte of the value says."""
        cdef Check* it = &self.program.checks[trial.check]
        cdef Node* node = it.node
        trial.is_object = wanted == OBJECT
        if not node.types & wanted:
            trial.own = FAILED
            trial.rule = R_MEMBER if node.declared_types & wanted else R_TYPE
        elif wanted == BOOLEAN and node.flags & (NO_TRUE if c == 0x74 else NO_FALSE):
            trial.own = FAILED
            trial.rule = R_MEMBER
        elif it.settled & wanted:
            trial.own = OPEN if wanted == OBJECT and it.required_count else KEPT
        if wanted == STRING:
            trial.high = node.string_count
            if it.pattern >= 0:
                trial.pattern_state = (<Pattern>self.program.patterns[it.pattern]).start()
        else:
            trial.missing = it.required_count

    cdef bint _link_items(self, uint32_t depth) except -1:
        """Link the checks of the next item."""
        cdef Stage* above = &self.stages[depth - 1]
        cdef uint32_t i
        cdef Check* it
        cdef bint has_failed = False
        for i in range(above.first, above.last):
            if self.trials[i].own != OPEN or self.trials[i].status != OPEN:
                continue
            it = &self.program.checks[self.trials[i].check]
            if above.count >= it.node.max_items:
                self.trials[i].own = FAILED
                self.trials[i].rule = R_MAX_ITEMS
                has_failed = True
                continue
            self._link(it.prefix[above.count] if above.count < it.prefix_count else it.items, i, ROLE_MEMBER)
            self._link(it.contains, i, ROLE_CONTAINS)
        return has_failed and self._settle(depth - 1)

    # -- what is known ---------------------------------------------------------------------------------------

    cdef bint _settle(self, uint32_t depth) except -1:
        """Tell the containers what the trials of a value have become; True where a root has failed."""
        cdef Stage* stage = &self.stages[depth]
        cdef Link* link
        cdef Trial* parent
        cdef uint32_t i
        cdef bint is_news = False
        self.stamp += 1
        for i in range(stage.links, stage.links_end):
            link = &self.links[i]
            if link.role == ROLE_CONTAINS or self._resolve(link.trial, stage.has_ended) != FAILED:
                continue
            if link.parent < 0:
                self._blame(link.trial, depth)
                return True
            parent = &self.trials[link.parent]
            if parent.own == OPEN:
                parent.own = FAILED
                parent.rule = R_NAMES if link.role == ROLE_NAME else R_CHILD
                parent.failed_child = link.trial
                is_news = True
        return is_news and self._settle(depth - 1)

    cdef uint8_t _resolve(self, uint32_t index, bint has_ended) noexcept:
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
        return self._resolve(<uint32_t>index, has_ended)

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

    cdef int _blame(self, uint32_t index, uint32_t depth) except -1:
        """Name the keyword that a failed trial failed by: in it, in a member, in a schema that it has to keep."""
        cdef Trial* trial = &self.trials[index]
        cdef Check* it = &self.program.checks[trial.check]
        cdef Group* group
        cdef uint32_t i, k
        cdef int32_t kid
        cdef bint has_ended = self.stages[depth].has_ended
        if trial.own == FAILED and trial.rule == R_CHILD:
            return self._blame(trial.failed_child, depth + 1)
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
            if group.kind == G_ALL or group.kind == G_WHEN:
                for k in range(group.first, group.first + group.count):
                    if self._kid(trial, k, has_ended) == FAILED:
                        kid = self.kids[trial.kids + k]
                        if kid < 0:
                            break
                        return self._blame(kid, depth)
            self.rule = self.program.schema.checks[trial.check].groups[i].keyword
            if group.kind == G_IF and self._kid(trial, group.first, has_ended) != OPEN:
                self.rule = "then" if self._kid(trial, group.first, has_ended) == KEPT else "else"
            return 0
        return 0

    # -- strings and keys ------------------------------------------------------------------------------------

    cdef uint32_t take_string(self, const uint8_t* data, uint32_t size) except? 0xFFFFFFFF:
        """Bytes of the open string, whole code points or a part of one; returns how many were taken before a
        violation."""
        cdef Stage* stage = &self.stages[self.depth]
        cdef uint32_t i
        if stage.has_text:
            self.text += data[:size]
        if not stage.busy:
            return size
        for i in range(size):
            if self._take_byte(stage, data[i]):
                return i
        if stage.has_text and <uint64_t>len(self.text) > self.max_text_bytes:
            self._limit(D_FORMAT_SIZE, self.depth)
            return 0
        return size

    cdef bint _take_byte(self, Stage* stage, uint8_t c) except -1:
        cdef uint32_t i
        cdef Trial* trial
        cdef Check* it
        cdef bint is_first = c & 0xC0 != 0x80
        cdef bint is_news = False
        if is_first:
            self.chars += 1
            self.point_need = 0 if c < 0x80 else 1 if c < 0xE0 else 2 if c < 0xF0 else 3
            self.point = c if c < 0x80 else c & (0x3F >> self.point_need)
        else:
            self.point = self.point << 6 | (c & 0x3F)
            self.point_need -= 1
        for i in range(stage.first, stage.last):
            trial = &self.trials[i]
            if trial.own != OPEN:
                continue
            it = &self.program.checks[trial.check]
            if it.node.flags & ENUM_STRINGS:
                narrow(it.node.strings, &trial.low, &trial.high, self.bytes_read, c)
                if trial.low == trial.high:
                    trial.own = FAILED
                    trial.rule = R_MEMBER
            if trial.own == OPEN and is_first and self.chars > it.node.max_length:
                trial.own = FAILED
                trial.rule = R_MAX_LENGTH
            if trial.own == OPEN and it.pattern >= 0 and not self.point_need:
                trial.pattern_state = (<Pattern>self.program.patterns[it.pattern]).step(trial.pattern_state, self.point)
                if trial.pattern_state == LOST:
                    return self._limit(D_PATTERN, self.depth)
                if trial.pattern_state == DEAD:
                    trial.own = FAILED
                    trial.rule = R_PATTERN
            is_news = is_news or trial.own == FAILED
        self.bytes_read += 1
        return is_news and self._settle(self.depth)

    cdef int _end_string(self, Trial* trial) except -1:
        cdef Check* it = &self.program.checks[trial.check]
        cdef Node* node = it.node
        trial.own = FAILED
        if node.flags & ENUM_STRINGS and (
            trial.low == trial.high or node.strings[trial.low].size != self.bytes_read
        ):
            trial.rule = R_MEMBER
        elif self.chars < node.min_length:
            trial.rule = R_MIN_LENGTH
        elif it.pattern >= 0 and not (<Pattern>self.program.patterns[it.pattern]).accepts(trial.pattern_state):
            trial.rule = R_PATTERN
        elif node.flags & HAS_FORMAT and not keeps_format(
            self.program.rules[node - self.program.nodes], bytes(self.text)
        ):
            trial.rule = R_FORMAT
        else:
            trial.own = KEPT
        return 0

    cdef bint end_string(self, uint64_t end) except -1:
        """The closing quote of the open string; `end` is the offset behind it."""
        cdef Stage* stage = &self.stages[self.depth]
        cdef uint32_t i
        for i in range(stage.first, stage.last):
            if self.trials[i].own == OPEN:
                self._end_string(&self.trials[i])
        return self._end(self.depth, end)

    cdef bint begin_key(self, uint32_t depth) except -1:
        """A key begins in the innermost object; its value will have `depth`."""
        cdef Stage* above = &self.stages[depth - 1]
        cdef uint32_t i
        cdef Check* it
        cdef Trial* trial
        self.stages[depth].links = self.link_count
        for i in range(above.first, above.last):
            trial = &self.trials[i]
            it = &self.program.checks[trial.check]
            trial.low = 0
            trial.high = it.key_count
            if trial.own == OPEN and trial.status == OPEN:
                self._link(it.names, i, ROLE_NAME)
        self.key_depth = depth
        self.key_bytes = 0
        return self._start(depth, STRING, 0x22, 0, False)

    cdef uint32_t take_key(self, const uint8_t* data, uint32_t size) except? 0xFFFFFFFF:
        """Bytes of the open key; returns how many were taken before a violation."""
        cdef Stage* stage = &self.stages[self.depth] if self.in_value else NULL
        cdef Stage* above
        cdef uint32_t depth = self.key_depth
        cdef uint32_t i, k
        cdef Check* it
        cdef Trial* trial
        cdef bint is_news
        above = &self.stages[depth - 1]
        if stage is not NULL and stage.has_text:
            self.text += data[:size]
        for k in range(size):
            is_news = False
            for i in range(above.first, above.last):
                trial = &self.trials[i]
                if trial.status != OPEN or trial.low == trial.high:
                    continue
                it = &self.program.checks[trial.check]
                narrow(it.keys, &trial.low, &trial.high, self.key_bytes, data[k])
                if (
                    trial.low == trial.high
                    and it.additional == CHECK_NEVER
                    and not it.pattern_count
                    and trial.own == OPEN
                ):
                    trial.own = FAILED
                    trial.rule = R_ADDITIONAL
                    is_news = True
            self.key_bytes += 1
            if stage is not NULL and stage.busy and self._take_byte(stage, data[k]):
                return k
            if is_news and self._settle(depth - 1):
                return k
        return size

    cdef bint end_key(self, const uint8_t* key, uint32_t size) except -1:
        """The closing quote of the open key; afterwards the checks of its value are linked."""
        cdef uint32_t depth = self.key_depth
        cdef Stage* stage = &self.stages[depth]
        cdef Stage* above = &self.stages[depth - 1]
        cdef uint32_t i
        cdef bint is_news = False
        if self.in_value:
            for i in range(stage.first, stage.last):
                if self.trials[i].own == OPEN:
                    self._end_string(&self.trials[i])
            stage.has_ended = True
            if self._settle(depth):
                return True
            self._pop(depth)
        self.in_value = False
        above.count += 1
        stage.links = self.link_count
        for i in range(above.first, above.last):
            if self.trials[i].status == OPEN and self._link_key(i, key, size, above):
                is_news = True
        if self.rule is not None:
            return True
        return is_news and self._settle(depth - 1)

    cdef bint _link_key(self, uint32_t index, const uint8_t* key, uint32_t size, Stage* stage) except -1:
        """Note the key for one trial of its object, and link the checks of the value; whether anything became known."""
        cdef Trial* trial = &self.trials[index]
        cdef Check* it = &self.program.checks[trial.check]
        cdef bint is_found = trial.low < trial.high and it.keys[trial.low].size == size
        cdef bint is_known = False
        cdef bint was_open = trial.own == OPEN
        cdef uint32_t i
        if is_found:
            self.words[trial.seen + (trial.low >> 6)] |= <uint64_t>1 << (trial.low & 63)
            if it.key_flags[trial.low] & KEY_REQUIRED:
                trial.missing -= 1
                if not trial.missing and it.settled & OBJECT and was_open:
                    trial.own = KEPT
            is_known = it.key_flags[trial.low] & KEY_PROPERTY != 0
        if not was_open:
            return is_found
        if stage.count > it.node.max_properties:
            trial.own = FAILED
            trial.rule = R_MAX_PROPERTIES
            return True
        if is_known:
            self._link(it.keys[trial.low].node, index, ROLE_MEMBER)
        for i in range(it.pattern_count):
            if self._matches(it.patterns[i], key, size):
                is_known = True
                self._link(it.pattern_checks[i], index, ROLE_MEMBER)
        if not is_known:
            if it.additional == CHECK_NEVER:
                trial.own = FAILED
                trial.rule = R_ADDITIONAL
                return True
            self._link(it.additional, index, ROLE_MEMBER)
        return is_found

    cdef bint _matches(self, uint32_t pattern, const uint8_t* data, uint32_t size) except -1:
        """Whether a key matches. The states of a text that is at hand are never lost."""
        return (<Pattern>self.program.patterns[pattern]).search(data[:size].decode())

    # -- the end of a value ----------------------------------------------------------------------------------

    cdef bint end_number(
        self, const uint8_t* text, uint32_t size, bint is_integer_text, bint fits, int64_t value, uint64_t end
    ) except -1:
        """The open number is whole; as for `_bounds.broken_number`."""
        cdef Stage* stage = &self.stages[self.depth]
        cdef uint32_t i
        cdef Trial* trial
        cdef str keyword
        for i in range(stage.first, stage.last):
            trial = &self.trials[i]
            if trial.own != OPEN:
                continue
            keyword = broken_number(
                self.program, self.program.checks[trial.check].node, text, size, is_integer_text, fits, value
            )
            trial.own = KEPT if keyword is None else FAILED
            if keyword is not None:
                trial.rule = RULE_NUMBERS.get(keyword, R_MEMBER)
        return self._end(self.depth, end)

    cdef bint end_literal(self, uint64_t end) except -1:
        """The open literal is whole; it was judged at its first byte."""
        return self._end(self.depth, end)

    cdef bint close(self, uint32_t depth, uint64_t end) except -1:
        """The container at `depth` is closed."""
        cdef Stage* stage = &self.stages[depth]
        cdef uint32_t i
        for i in range(stage.first, stage.last):
            if self.trials[i].own == OPEN:
                self._close(&self.trials[i], stage, end)
        if self.rule is not None or self._end(depth, end):
            return True
        self.watches = self._has_trials(depth)
        return False

    cdef int _close(self, Trial* trial, Stage* stage, uint64_t end) except -1:
        """Judge a container as a whole."""
        cdef Check* it = &self.program.checks[trial.check]
        trial.own = FAILED
        if stage.is_array:
            if stage.count < it.node.min_items:
                trial.rule = R_MIN_ITEMS
                return 0
            if trial.matched < it.min_contains:
                trial.rule = R_MIN_CONTAINS
                return 0
        elif trial.missing:
            trial.rule = R_REQUIRED
            return 0
        elif stage.count < it.node.min_properties:
            trial.rule = R_MIN_PROPERTIES
            return 0
        elif self._lacks_dependents(trial):
            trial.rule = R_DEPENDENT
            return 0
        if it.has_members:
            text = self._text_of(stage.held_from, end)
            if text is None:
                self._limit(D_HELD, <uint32_t>(stage - self.stages))
            elif freeze_text(text) not in self.program.schema.checks[trial.check].members:
                trial.rule = R_MEMBER
                return 0
        trial.own = KEPT
        return 0

    cdef bint _lacks_dependents(self, Trial* trial) noexcept:
        cdef Check* it = &self.program.checks[trial.check]
        cdef uint64_t* seen = self.words + trial.seen
        cdef uint32_t i, k, at
        for i in range(it.dependent_count):
            at = it.dependents[i].key
            if not seen[at >> 6] >> (at & 63) & 1:
                continue
            for k in range(it.dependents[i].needed_count):
                at = it.dependents[i].needed[k]
                if not seen[at >> 6] >> (at & 63) & 1:
                    return True
        return False

    cdef bint _end(self, uint32_t depth, uint64_t end) except -1:
        """A value is whole: all its trials are decided, and its container hears of them."""
        cdef Stage* stage = &self.stages[depth]
        stage.has_ended = True
        self.in_value = False
        if self._settle(depth):
            return True
        if self._has_trials(depth) and (stage - 1).is_array and self._deliver(depth, end):
            return True
        if stage.is_held:
            self.holders -= 1
            if not self.holders:
                del self.held[:]
        self._pop(depth)
        return False

    cdef int _pop(self, uint32_t depth) except -1:
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

    cdef bint _deliver(self, uint32_t depth, uint64_t end) except -1:
        """Count an item that has ended, and compare it with those before."""
        cdef Stage* stage = &self.stages[depth]
        cdef Stage* above = stage - 1
        cdef Trial* trial
        cdef Check* it
        cdef uint32_t i
        cdef bint is_news = False
        above.count += 1
        for i in range(stage.links, stage.links_end):
            if self.links[i].role == ROLE_CONTAINS and self._resolve(self.links[i].trial, True) == KEPT:
                self.trials[self.links[i].parent].matched += 1
        item = None
        for i in range(above.first, above.last):
            trial = &self.trials[i]
            if trial.own != OPEN:
                continue
            it = &self.program.checks[trial.check]
            if it.contains == CHECK_ALWAYS:
                trial.matched += 1
            if trial.matched > it.max_contains:
                trial.own = FAILED
                trial.rule = R_MAX_CONTAINS
                is_news = True
            elif it.is_unique and stage.is_held:
                if item is None:
                    text = self._text_of(stage.held_from, end)
                    if text is None:
                        return self._limit(D_HELD, depth)
                    item = freeze_text(text)
                items = self.sets.get(i)
                if items is None:
                    trial.has_set = True
                    items = self.sets[i] = set()
                if item in items:
                    trial.own = FAILED
                    trial.rule = R_UNIQUE
                    is_news = True
                elif <uint64_t>len(items) == self.max_unique_items:
                    return self._limit(D_UNIQUE, depth)
                else:
                    items.add(item)
        return is_news and self._settle(depth - 1)

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

    cdef int _hold(self, uint64_t offset) except -1:
        """Keep the bytes from `offset` on, until the value ends."""
        if not self.holders:
            self.held_from = offset
            self._keep(offset)
        self.holders += 1
        return 0

    cdef bytes _text_of(self, uint64_t start, uint64_t end):
        """The text of a held value; None where the outermost held value has become too long."""
        if end - self.held_from > self.max_held_bytes:
            return None
        return bytes(self.held[start - self.held_from : end - self.held_from])
