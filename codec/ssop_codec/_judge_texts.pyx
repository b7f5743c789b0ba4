# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Runs the trials of strings while their bytes come."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from ssop_codec._judge cimport (
    FAILED,
    KEPT,
    OPEN,
    R_FORMAT,
    R_MAX_LENGTH,
    R_MEMBER,
    R_MIN_LENGTH,
    R_PATTERN,
    Judge,
    Stage,
    Trial,
)
from ssop_codec._judge_values cimport end_trials
from ssop_codec._pattern cimport DEAD, LOST, Pattern
from ssop_codec._program cimport ENUM_STRINGS, HAS_FORMAT, HAS_PATTERN, IS_SHAPE, Node
from ssop_codec._scan cimport Points, has_point, narrow, points_of
from ssop_codec._states cimport D_FORMAT_SIZE, D_PATTERN

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
        if take_string_byte(judge, stage, data[i]):
            return i
    if stage.has_text and <uint64_t>len(judge.text) > judge.max_text_bytes:
        judge.limit(D_FORMAT_SIZE, judge.depth)
        return 0
    return size


cdef bint take_string_byte(Judge judge, Stage* stage, uint8_t c) except -1:
    """A byte of the open string or key, unescaped."""
    cdef uint32_t i
    cdef Trial* trial
    cdef Node* node
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
        node = judge.program.checks[trial.check].node
        if node.flags & ENUM_STRINGS:
            narrow(node.strings, &trial.low, &trial.high, judge.bytes_read, c)
            if trial.low == trial.high:
                trial.own = FAILED
                trial.rule = R_MEMBER
        if trial.own == OPEN and is_first and judge.chars > node.max_length:
            trial.own = FAILED
            trial.rule = R_MAX_LENGTH
        if trial.own == OPEN and node.flags & HAS_PATTERN:
            _take_point(judge, trial, node)
            if judge.rule is not None:
                return True
        is_news = is_news or trial.own == FAILED
    judge.bytes_read += 1
    return is_news and judge.settle(judge.depth)


cdef int _take_point(Judge judge, Trial* trial, Node* node) except -1:
    """Judge by the pattern the code point that is open, or has just ended."""
    cdef Pattern pattern = <Pattern>node.pattern
    cdef Points points
    if judge.point_need:
        points = points_of(judge.point, judge.point_need)
        if pattern.can_take(trial.pattern_state, points.low, points.high):
            return 0
    else:
        trial.pattern_state = pattern.step(trial.pattern_state, judge.point)
        if trial.pattern_state == LOST:
            judge.limit(D_PATTERN, judge.depth)
        if trial.pattern_state != DEAD:
            return 0
    trial.own = FAILED
    trial.rule = R_FORMAT if node.flags & IS_SHAPE else R_PATTERN
    return 0


cdef bint judge_points(Judge judge, const Points* points, uint32_t count) except -1:
    """An escape of the open string or key was read in part: its code point is among `points`."""
    cdef Stage* stage = &judge.stages[judge.depth]
    cdef uint32_t i
    cdef Trial* trial
    cdef bint is_news = False
    for i in range(stage.first, stage.last):
        trial = &judge.trials[i]
        if trial.own == OPEN:
            _try_points(judge, trial, points, count)
            is_news = is_news or trial.own == FAILED
    return is_news and judge.settle(judge.depth)


cdef int _try_points(Judge judge, Trial* trial, const Points* points, uint32_t count) except -1:
    """Fail a trial that can take none of the code points."""
    cdef Node* node = judge.program.checks[trial.check].node
    cdef uint32_t i
    trial.own = FAILED
    if node.flags & ENUM_STRINGS:
        trial.rule = R_MEMBER
        for i in range(trial.low, trial.high):
            if has_point(&node.strings[i], judge.bytes_read, points, count):
                break
        else:
            return 0
    if judge.chars >= node.max_length:
        trial.rule = R_MAX_LENGTH
        return 0
    if node.flags & HAS_PATTERN:
        trial.rule = R_FORMAT if node.flags & IS_SHAPE else R_PATTERN
        for i in range(count):
            if (<Pattern>node.pattern).can_take(trial.pattern_state, points[i].low, points[i].high):
                break
        else:
            return 0
    trial.own = OPEN
    return 0


cdef int end_string_trial(Judge judge, Trial* trial) except -1:
    cdef Node* node = judge.program.checks[trial.check].node
    trial.own = FAILED
    if node.flags & ENUM_STRINGS and (
        trial.low == trial.high or node.strings[trial.low].size != judge.bytes_read
    ):
        trial.rule = R_MEMBER
    elif judge.chars < node.min_length:
        trial.rule = R_MIN_LENGTH
    elif node.flags & HAS_PATTERN and not (<Pattern>node.pattern).accepts(trial.pattern_state):
        trial.rule = R_FORMAT if node.flags & IS_SHAPE else R_PATTERN
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
            end_string_trial(judge, &judge.trials[i])
    return end_trials(judge, judge.depth, end)
