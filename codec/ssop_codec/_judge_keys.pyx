# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Runs the trials of objects over their keys, and says whether another member can follow."""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from ssop_codec._judge cimport (
    FAILED,
    KEPT,
    OPEN,
    ROLE_MEMBER,
    ROLE_NAME,
    R_ADDITIONAL,
    R_MAX_ITEMS,
    R_MAX_PROPERTIES,
    R_NEVER,
    Judge,
    Stage,
    Trial,
)
from ssop_codec._judge_texts cimport end_string_trial, judge_points, take_string_byte
from ssop_codec._judge_values cimport start_trials
from ssop_codec._pattern cimport DEAD, LOST, Pattern
from ssop_codec._program cimport CHECK_NEVER, KEY_PROPERTY, KEY_REQUIRED, Check
from ssop_codec._scan cimport Points, has_point, narrow, points_of
from ssop_codec._states cimport OBJECT, STRING


cdef bint judge_key_begin(Judge judge, uint32_t depth) except -1:
    """A key begins in the innermost object; its value will have `depth`."""
    cdef Stage* above = &judge.stages[depth - 1]
    cdef uint32_t i
    cdef Trial* trial
    judge.stages[depth].links = judge.link_count
    judge.key_depth = depth
    judge.key_bytes = 0
    judge.key_need = 0
    if _begin_keys(judge, above) and judge.settle(depth - 1):
        return True
    for i in range(above.first, above.last):
        trial = &judge.trials[i]
        if trial.own == OPEN and trial.status == OPEN:
            judge.link(judge.program.checks[trial.check].names, i, ROLE_NAME)
    return start_trials(judge, depth, STRING, 0x22, 0, False)


cdef bint _begin_keys(Judge judge, Stage* stage) except -1:
    """Let all keys be candidates; whether a trial has none left."""
    cdef uint32_t i, k
    cdef Check* it
    cdef Trial* trial
    cdef bint is_news = False
    for i in range(stage.first, stage.last):
        trial = &judge.trials[i]
        it = &judge.program.checks[trial.check]
        trial.low = 0
        trial.high = it.key_count
        if trial.own != OPEN or it.additional != CHECK_NEVER:
            continue
        for k in range(it.pattern_count):
            _key_states(judge, trial)[k] = <uint64_t>(<Pattern>judge.program.patterns[it.patterns[k]]).start()
        if not _has_key(judge, trial, NULL, 0, True):
            trial.own = FAILED
            trial.rule = R_ADDITIONAL
            is_news = True
    return is_news


cdef uint64_t* _key_states(Judge judge, Trial* trial) noexcept:
    """States of `patternProperties` over the open key; they stand behind the set of keys."""
    return judge.words + trial.seen + judge.program.checks[trial.check].words


cdef bint is_never(Judge judge, int32_t check) noexcept:
    """Whether no value keeps a check."""
    return check == CHECK_NEVER or (check >= 0 and not judge.program.checks[check].node.types)


cdef bint _has_key(Judge judge, Trial* trial, const Points* points, uint32_t count, bint has_bytes) except -1:
    """Whether a key that begins with what was read may stand in the object, where other keys may not. `points`: what
    its open code point can be, NULL where none is; `has_bytes`: the candidates know its bytes already."""
    cdef Check* it = &judge.program.checks[trial.check]
    cdef uint64_t* seen = judge.words + trial.seen
    cdef uint64_t* states = _key_states(judge, trial)
    cdef Pattern pattern
    cdef uint32_t i, k
    for i in range(trial.low, trial.high):
        if (
            it.key_flags[i] & KEY_PROPERTY
            and not seen[i >> 6] >> (i & 63) & 1
            and not is_never(judge, it.keys[i].node)
            and (points is NULL or has_bytes or has_point(&it.keys[i], judge.key_bytes, points, count))
        ):
            return True
    for k in range(it.pattern_count):
        if states[k] == DEAD or is_never(judge, it.pattern_checks[k]):
            continue
        if points is NULL or states[k] == LOST:
            return True
        pattern = <Pattern>judge.program.patterns[it.patterns[k]]
        for i in range(count):
            if pattern.can_take(<int>states[k], points[i].low, points[i].high):
                return True
    return False


cdef uint32_t judge_key_bytes(Judge judge, const uint8_t* data, uint32_t size) except? 0xFFFFFFFF:
    """Bytes of the open key; returns how many were taken before a violation."""
    cdef Stage* stage = &judge.stages[judge.depth] if judge.in_value else NULL
    cdef Stage* above
    cdef uint32_t depth = judge.key_depth
    cdef uint32_t i, k
    cdef bint is_news
    above = &judge.stages[depth - 1]
    if stage is not NULL and stage.has_text:
        judge.text += data[:size]
    for k in range(size):
        judge.key_bytes += 1
        if data[k] & 0xC0 != 0x80:
            judge.key_need = 0 if data[k] < 0x80 else 1 if data[k] < 0xE0 else 2 if data[k] < 0xF0 else 3
            judge.key_point = data[k] & (0x7F if data[k] < 0x80 else 0x3F >> judge.key_need)
        else:
            judge.key_point = judge.key_point << 6 | (data[k] & 0x3F)
            judge.key_need -= 1
        is_news = False
        for i in range(above.first, above.last):
            if judge.trials[i].status == OPEN and _take_key_byte(judge, &judge.trials[i], data[k]):
                is_news = True
        if stage is not NULL and stage.busy and take_string_byte(judge, stage, data[k]):
            return k
        if is_news and judge.settle(depth - 1):
            return k
    return size


cdef bint _take_key_byte(Judge judge, Trial* trial, uint8_t c) except -1:
    """Narrow the candidates of a trial; whether it fails."""
    cdef Check* it = &judge.program.checks[trial.check]
    cdef Points points
    cdef uint64_t* states
    cdef uint32_t k
    cdef int state
    if trial.low < trial.high:
        narrow(it.keys, &trial.low, &trial.high, judge.key_bytes - 1, c)
    if trial.own != OPEN or it.additional != CHECK_NEVER:
        return False
    if judge.key_need:
        points = points_of(judge.key_point, judge.key_need)
    else:
        for k in range(it.pattern_count):
            states = _key_states(judge, trial)
            if states[k] != LOST:
                state = (<Pattern>judge.program.patterns[it.patterns[k]]).step(<int>states[k], judge.key_point)
                states[k] = <uint64_t>state
    return _fail_key(judge, trial, &points if judge.key_need else NULL, 1, True)


cdef bint _fail_key(Judge judge, Trial* trial, const Points* points, uint32_t count, bint has_bytes) except -1:
    """Fail the trial if no key that begins so may stand in its object; whether it did."""
    if _has_key(judge, trial, points, count, has_bytes):
        return False
    trial.own = FAILED
    trial.rule = R_ADDITIONAL
    return True


cdef bint judge_key_points(Judge judge, const Points* points, uint32_t count) except -1:
    """An escape of the open key was read in part: its code point is among `points`."""
    cdef Stage* stage = &judge.stages[judge.depth] if judge.in_value else NULL
    cdef Stage* above = &judge.stages[judge.key_depth - 1]
    cdef Trial* trial
    cdef uint32_t i
    cdef bint is_news = False
    for i in range(above.first, above.last):
        trial = &judge.trials[i]
        if trial.own == OPEN and trial.status == OPEN and judge.program.checks[trial.check].additional == CHECK_NEVER:
            is_news = _fail_key(judge, trial, points, count, False) or is_news
    if stage is not NULL and stage.busy and judge_points(judge, points, count):
        return True
    return is_news and judge.settle(judge.key_depth - 1)


cdef bint judge_comma(Judge judge, uint32_t depth) except -1:
    """A comma in the container at `depth`: another member has to follow."""
    cdef Stage* stage = &judge.stages[depth]
    cdef Trial* trial
    cdef Check* it
    cdef int32_t next_check
    cdef uint32_t i
    cdef bint is_news = False
    if not stage.is_array:
        # Counted before the names, as the twin does.
        for i in range(stage.first, stage.last):
            trial = &judge.trials[i]
            if trial.own == OPEN and stage.count >= judge.program.checks[trial.check].node.max_properties:
                trial.own = FAILED
                trial.rule = R_MAX_PROPERTIES
                is_news = True
        judge.key_bytes = 0
        is_news = _begin_keys(judge, stage) or is_news
        return is_news and judge.settle(depth)
    for i in range(stage.first, stage.last):
        trial = &judge.trials[i]
        if trial.own != OPEN:
            continue
        it = &judge.program.checks[trial.check]
        next_check = it.prefix[stage.count] if stage.count < it.prefix_count else it.items
        if stage.count >= it.node.max_items:
            trial.rule = R_MAX_ITEMS
        elif is_never(judge, next_check):
            trial.rule = R_NEVER
            trial.failed_child = next_check
        else:
            continue
        trial.own = FAILED
        is_news = True
    return is_news and judge.settle(depth)


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
                end_string_trial(judge, &judge.trials[i])
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
    if is_known and _link_member(judge, index, it.keys[trial.low].node):
        return True
    for i in range(it.pattern_count):
        if _matches(judge, it.patterns[i], key, size):
            is_known = True
            if _link_member(judge, index, it.pattern_checks[i]):
                return True
    if not is_known:
        if it.additional == CHECK_NEVER:
            trial.own = FAILED
            trial.rule = R_ADDITIONAL
            return True
        return _link_member(judge, index, it.additional) or is_found
    return is_found


cdef bint _link_member(Judge judge, uint32_t index, int32_t check) except -1:
    """Link a check of the value whose key was read; whether no value keeps it."""
    if not is_never(judge, check):
        judge.link(check, index, ROLE_MEMBER)
        return False
    judge.trials[index].own = FAILED
    judge.trials[index].rule = R_NEVER
    judge.trials[index].failed_child = check
    return True


cdef bint _matches(Judge judge, uint32_t pattern, const uint8_t* data, uint32_t size) except -1:
    """Whether a key matches. The states of a text that is at hand are never lost."""
    return (<Pattern>judge.program.patterns[pattern]).search(data[:size].decode())
