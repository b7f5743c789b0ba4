# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Runs the trials of strings while their bytes come, and those of keys."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from ssop_codec._judge cimport (
    FAILED,
    KEPT,
    OPEN,
    ROLE_MEMBER,
    ROLE_NAME,
    R_ADDITIONAL,
    R_FORMAT,
    R_MAX_LENGTH,
    R_MAX_PROPERTIES,
    R_MEMBER,
    R_MIN_LENGTH,
    R_PATTERN,
    Judge,
    Stage,
    Trial,
)
from ssop_codec._judge_values cimport end_trials, start_trials
from ssop_codec._pattern cimport DEAD, LOST, Pattern
from ssop_codec._program cimport CHECK_NEVER, ENUM_STRINGS, HAS_FORMAT, KEY_PROPERTY, KEY_REQUIRED, Check, Node
from ssop_codec._scan cimport narrow
from ssop_codec._states cimport D_FORMAT_SIZE, D_PATTERN, OBJECT, STRING

from .checks import keeps_format


cdef uint32_t judge_string_bytes(Judge judge, const uint8_t* data, uint32_t size) except? 0xFFFFFFFF:
    """Bytes of the open string, whole code points or a part of one; returns how many were taken before a
    violation."""
    cdef Stage* stage = &judge.stages[judge.depth]
    cdef uint32_t i
    if stage.has_text:
        judge.text += data[:size]
    if not stage.busy:
        return size
    for i in range(size):
        if _take_byte(judge, stage, data[i]):
            return i
    if stage.has_text and <uint64_t>len(judge.text) > judge.max_text_bytes:
        judge.limit(D_FORMAT_SIZE, judge.depth)
        return 0
    return size


cdef bint _take_byte(Judge judge, Stage* stage, uint8_t c) except -1:
    cdef uint32_t i
    cdef Trial* trial
    cdef Check* it
    cdef bint is_first = c & 0xC0 != 0x80
    cdef bint is_news = False
    if is_first:
        judge.chars += 1
        judge.point_need = 0 if c < 0x80 else 1 if c < 0xE0 else 2 if c < 0xF0 else 3
        judge.point = c if c < 0x80 else c & (0x3F >> judge.point_need)
    else:
        judge.point = judge.point << 6 | (c & 0x3F)
        judge.point_need -= 1
    for i in range(stage.first, stage.last):
        trial = &judge.trials[i]
        if trial.own != OPEN:
            continue
        it = &judge.program.checks[trial.check]
        if it.node.flags & ENUM_STRINGS:
            narrow(it.node.strings, &trial.low, &trial.high, judge.bytes_read, c)
            if trial.low == trial.high:
                trial.own = FAILED
                trial.rule = R_MEMBER
        if trial.own == OPEN and is_first and judge.chars > it.node.max_length:
            trial.own = FAILED
            trial.rule = R_MAX_LENGTH
        if trial.own == OPEN and it.pattern >= 0 and not judge.point_need:
            trial.pattern_state = (<Pattern>judge.program.patterns[it.pattern]).step(trial.pattern_state, judge.point)
            if trial.pattern_state == LOST:
                return judge.limit(D_PATTERN, judge.depth)
            if trial.pattern_state == DEAD:
                trial.own = FAILED
                trial.rule = R_PATTERN
        is_news = is_news or trial.own == FAILED
    judge.bytes_read += 1
    return is_news and judge.settle(judge.depth)


cdef int _end_trial(Judge judge, Trial* trial) except -1:
    cdef Check* it = &judge.program.checks[trial.check]
    cdef Node* node = it.node
    trial.own = FAILED
    if node.flags & ENUM_STRINGS and (
        trial.low == trial.high or node.strings[trial.low].size != judge.bytes_read
    ):
        trial.rule = R_MEMBER
    elif judge.chars < node.min_length:
        trial.rule = R_MIN_LENGTH
    elif it.pattern >= 0 and not (<Pattern>judge.program.patterns[it.pattern]).accepts(trial.pattern_state):
        trial.rule = R_PATTERN
    elif node.flags & HAS_FORMAT and not keeps_format(
        judge.program.rules[node - judge.program.nodes], bytes(judge.text)
    ):
        trial.rule = R_FORMAT
    else:
        trial.own = KEPT
    return 0


cdef bint judge_string_end(Judge judge, uint64_t end) except -1:
    """The closing quote of the open string; `end` is the offset behind it."""
    cdef Stage* stage = &judge.stages[judge.depth]
    cdef uint32_t i
    for i in range(stage.first, stage.last):
        if judge.trials[i].own == OPEN:
            _end_trial(judge, &judge.trials[i])
    return end_trials(judge, judge.depth, end)


cdef bint judge_key_begin(Judge judge, uint32_t depth) except -1:
    """A key begins in the innermost object; its value will have `depth`."""
    cdef Stage* above = &judge.stages[depth - 1]
    cdef uint32_t i
    cdef Check* it
    cdef Trial* trial
    judge.stages[depth].links = judge.link_count
    for i in range(above.first, above.last):
        trial = &judge.trials[i]
        it = &judge.program.checks[trial.check]
        trial.low = 0
        trial.high = it.key_count
        if trial.own == OPEN and trial.status == OPEN:
            judge.link(it.names, i, ROLE_NAME)
    judge.key_depth = depth
    judge.key_bytes = 0
    return start_trials(judge, depth, STRING, 0x22, 0, False)


cdef uint32_t judge_key_bytes(Judge judge, const uint8_t* data, uint32_t size) except? 0xFFFFFFFF:
    """Bytes of the open key; returns how many were taken before a violation."""
    cdef Stage* stage = &judge.stages[judge.depth] if judge.in_value else NULL
    cdef Stage* above
    cdef uint32_t depth = judge.key_depth
    cdef uint32_t i, k
    cdef Check* it
    cdef Trial* trial
    cdef bint is_news
    above = &judge.stages[depth - 1]
    if stage is not NULL and stage.has_text:
        judge.text += data[:size]
    for k in range(size):
        is_news = False
        for i in range(above.first, above.last):
            trial = &judge.trials[i]
            if trial.status != OPEN or trial.low == trial.high:
                continue
            it = &judge.program.checks[trial.check]
            narrow(it.keys, &trial.low, &trial.high, judge.key_bytes, data[k])
            if (
                trial.low == trial.high
                and it.additional == CHECK_NEVER
                and not it.pattern_count
                and trial.own == OPEN
            ):
                trial.own = FAILED
                trial.rule = R_ADDITIONAL
                is_news = True
        judge.key_bytes += 1
        if stage is not NULL and stage.busy and _take_byte(judge, stage, data[k]):
            return k
        if is_news and judge.settle(depth - 1):
            return k
    return size


cdef bint judge_key_end(Judge judge, const uint8_t* key, uint32_t size) except -1:
    """The closing quote of the open key; afterwards the checks of its value are linked."""
    cdef uint32_t depth = judge.key_depth
    cdef Stage* stage = &judge.stages[depth]
    cdef Stage* above = &judge.stages[depth - 1]
    cdef uint32_t i
    cdef bint is_news = False
    if judge.in_value:
        for i in range(stage.first, stage.last):
            if judge.trials[i].own == OPEN:
                _end_trial(judge, &judge.trials[i])
        stage.has_ended = True
        if judge.settle(depth):
            return True
        judge.pop(depth)
    judge.in_value = False
    above.count += 1
    stage.links = judge.link_count
    for i in range(above.first, above.last):
        if judge.trials[i].status == OPEN and _link_key(judge, i, key, size, above):
            is_news = True
    if judge.rule is not None:
        return True
    return is_news and judge.settle(depth - 1)


cdef bint _link_key(Judge judge, uint32_t index, const uint8_t* key, uint32_t size, Stage* stage) except -1:
    """Note the key for one trial of its object, and link the checks of the value; whether anything became known."""
    cdef Trial* trial = &judge.trials[index]
    cdef Check* it = &judge.program.checks[trial.check]
    cdef bint is_found = trial.low < trial.high and it.keys[trial.low].size == size
    cdef bint is_known = False
    cdef bint was_open = trial.own == OPEN
    cdef uint32_t i
    if is_found:
        judge.words[trial.seen + (trial.low >> 6)] |= <uint64_t>1 << (trial.low & 63)
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
        judge.link(it.keys[trial.low].node, index, ROLE_MEMBER)
    for i in range(it.pattern_count):
        if _matches(judge, it.patterns[i], key, size):
            is_known = True
            judge.link(it.pattern_checks[i], index, ROLE_MEMBER)
    if not is_known:
        if it.additional == CHECK_NEVER:
            trial.own = FAILED
            trial.rule = R_ADDITIONAL
            return True
        judge.link(it.additional, index, ROLE_MEMBER)
    return is_found


cdef bint _matches(Judge judge, uint32_t pattern, const uint8_t* data, uint32_t size) except -1:
    """Whether a key matches. The states of a text that is at hand are never lost."""
    return (<Pattern>judge.program.patterns[pattern]).search(data[:size].decode())
