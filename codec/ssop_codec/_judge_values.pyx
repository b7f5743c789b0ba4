# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Begins and ends the trials of values."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from ssop_codec._bounds cimport broken_number, broken_prefix
from ssop_codec._judge cimport (
    FAILED,
    KEPT,
    OPEN,
    ROLE_CONTAINS,
    ROLE_MEMBER,
    ROLE_ROOT,
    R_DEPENDENT,
    R_FORMAT,
    R_MAX_CONTAINS,
    R_MAX_ITEMS,
    R_MEMBER,
    R_MIN_CONTAINS,
    R_MIN_ITEMS,
    R_MIN_PROPERTIES,
    R_PATTERN,
    R_REQUIRED,
    R_TYPE,
    R_UNIQUE,
    Judge,
    Link,
    Stage,
    Trial,
)
from ssop_codec._pattern cimport DEAD, Pattern
from ssop_codec._program cimport CHECK_ALWAYS, HAS_FORMAT, HAS_PATTERN, IS_SHAPE, NO_FALSE, NO_TRUE, Check, Node
from ssop_codec._states cimport ARRAY, BOOLEAN, D_CHECKS, D_HELD, D_UNIQUE, OBJECT, STRING

from .frozen import freeze_text


cdef bint judge_begin(Judge judge, Node* node, uint32_t depth, uint32_t wanted, uint8_t c, uint64_t offset) except -1:
    """A value begins with `c`, and is of one of the types `wanted`."""
    cdef Stage* stage = &judge.stages[depth]
    cdef Stage* above
    cdef uint32_t i
    cdef bint is_item = False
    if not judge.has_trials(depth):
        stage.links = judge.link_count
    else:
        above = stage - 1
        is_item = above.is_array
        if is_item:
            stage.links = judge.link_count
            if _link_items(judge, depth):
                return True
    for i in range(node.root_count):
        if node.roots[i].types & wanted:
            judge.link(node.roots[i].check, -1, ROLE_ROOT)
    if start_trials(judge, depth, wanted, c, offset, is_item):
        return True
    if wanted & (OBJECT | ARRAY):
        judge.watches = stage.first != stage.last
        judge.in_value = False
    return False


cdef bint start_trials(
    Judge judge, uint32_t depth, uint32_t wanted, uint8_t c, uint64_t offset, bint is_item
) except -1:
    """Run the checks that are linked to the stage. `is_item`: of an array that has trials."""
    cdef Stage* stage = &judge.stages[depth]
    cdef uint32_t i
    cdef Check* it
    cdef Trial* trial
    stage.first = stage.last = judge.trial_count
    stage.kids = judge.kid_count
    stage.words = judge.word_count
    stage.links_end = judge.link_count
    stage.count = 0
    stage.busy = 0
    stage.is_array = wanted == ARRAY
    stage.is_held = stage.has_ended = stage.has_text = False
    judge.in_value = is_item or stage.links != stage.links_end
    if not judge.in_value:
        return False
    judge.depth = depth
    for i in range(stage.links, stage.links_end):
        judge.links[i].trial = judge.trial(judge.links[i].trial)
    stage.last = judge.trial_count
    if judge.trial_count > judge.max_trials:
        return judge.limit(D_CHECKS, depth)
    for i in range(stage.first, stage.last):
        trial = &judge.trials[i]
        _begin_trial(judge, trial, wanted, c)
        if trial.own != OPEN:
            continue
        it = &judge.program.checks[trial.check]
        if wanted == STRING:
            stage.busy += 1
            if it.node.flags & HAS_FORMAT:
                stage.has_text = True
        elif it.has_members:
            stage.is_held = True
    if is_item:
        for i in range((stage - 1).first, (stage - 1).last):
            if judge.trials[i].own == OPEN and judge.program.checks[judge.trials[i].check].is_unique:
                stage.is_held = True
    if stage.is_held:
        stage.held_from = offset
        judge.hold(offset)
    if wanted == STRING:
        judge.chars = 0
        judge.bytes_read = 0
        judge.point_need = 0
        del judge.text[:]
    return judge.settle(depth)


cdef void _begin_trial(Judge judge, Trial* trial, uint32_t wanted, uint8_t c) noexcept:
    """Judge what the first byte of the value says."""
    cdef Check* it = &judge.program.checks[trial.check]
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
        if trial.own != OPEN:
            return
        trial.high = node.string_count
        if node.flags & HAS_PATTERN:
            trial.pattern_state = (<Pattern>node.pattern).start()
            if trial.pattern_state == DEAD:
                trial.own = FAILED
                trial.rule = R_FORMAT if node.flags & IS_SHAPE else R_PATTERN
    else:
        trial.missing = it.required_count


cdef bint _link_items(Judge judge, uint32_t depth) except -1:
    """Link the checks of the next item."""
    cdef Stage* above = &judge.stages[depth - 1]
    cdef uint32_t i
    cdef Check* it
    cdef bint has_failed = False
    for i in range(above.first, above.last):
        if judge.trials[i].own != OPEN or judge.trials[i].status != OPEN:
            continue
        it = &judge.program.checks[judge.trials[i].check]
        if above.count >= it.node.max_items:
            judge.trials[i].own = FAILED
            judge.trials[i].rule = R_MAX_ITEMS
            has_failed = True
            continue
        judge.link(it.prefix[above.count] if above.count < it.prefix_count else it.items, i, ROLE_MEMBER)
        judge.link(it.contains, i, ROLE_CONTAINS)
    return has_failed and judge.settle(depth - 1)

# -- the end of a value ----------------------------------------------------------------------------------


cdef uint32_t judge_open_number(
    Judge judge, const uint8_t* text, uint32_t size, int state, uint32_t before
) except? 0xFFFFFFFF:
    """Judge an open number by what it can still become; how many bytes of it break a root, 0: none do. Only what breaks
    sooner than `before` bytes counts, unless that is 0."""
    cdef Stage* stage = &judge.stages[judge.depth]
    cdef uint32_t i, broken
    cdef list found = []
    for i in range(stage.first, stage.last):
        if judge.trials[i].own != OPEN:
            continue
        one = broken_prefix(judge.program, judge.program.checks[judge.trials[i].check].node, text, size, state)
        if one is not None and (not before or one[0] < before):
            found.append((*one, i))
    # What one byte breaks is broken at once.
    found.sort()
    for at, (broken, keyword, i) in enumerate(found):
        judge.trials[i].own = FAILED
        judge.trials[i].rule = judge.rule_number(keyword)
        if at + 1 < len(found) and found[at + 1][0] == broken:
            continue
        if judge.settle(judge.depth):
            return broken
    return 0


cdef uint32_t judge_number(
    Judge judge,
    const uint8_t* text,
    uint32_t size,
    int state,
    bint is_integer_text,
    bint fits,
    int64_t value,
    uint64_t end,
) except? 0xFFFFFFFF:
    """The open number is whole; as for `_bounds.broken_number`. Returns 0, or NUMBER_END where a root is broken, or by
    how many bytes of the number it is."""
    cdef Stage* stage = &judge.stages[judge.depth]
    cdef uint32_t i, broken
    cdef str keyword
    cdef list found = []
    for i in range(stage.first, stage.last):
        if judge.trials[i].own != OPEN:
            continue
        keyword = broken_number(
            judge.program, judge.program.checks[judge.trials[i].check].node, text, size, is_integer_text, fits, value
        )
        if keyword is not None:
            found.append((i, keyword))
    if found:
        broken = judge_open_number(judge, text, size, state, 0)
        if broken:
            return broken
        for i, keyword in found:
            if judge.trials[i].own == OPEN:
                judge.trials[i].own = FAILED
                judge.trials[i].rule = judge.rule_number(keyword)
    for i in range(stage.first, stage.last):
        if judge.trials[i].own == OPEN:
            judge.trials[i].own = KEPT
    return NUMBER_END if end_trials(judge, judge.depth, end) else 0


cdef bint judge_literal(Judge judge, uint64_t end) except -1:
    """The open literal is whole; it was judged at its first byte."""
    return end_trials(judge, judge.depth, end)


cdef bint judge_close(Judge judge, uint32_t depth, uint64_t end) except -1:
    """The container at `depth` is closed."""
    cdef Stage* stage = &judge.stages[depth]
    cdef uint32_t i
    for i in range(stage.first, stage.last):
        if judge.trials[i].own == OPEN:
            _close_trial(judge, &judge.trials[i], stage, end)
    if judge.rule is not None or end_trials(judge, depth, end):
        return True
    judge.watches = judge.has_trials(depth)
    return False


cdef int _close_trial(Judge judge, Trial* trial, Stage* stage, uint64_t end) except -1:
    """Judge a container as a whole."""
    cdef Check* it = &judge.program.checks[trial.check]
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
    elif _lacks_dependents(judge, trial):
        trial.rule = R_DEPENDENT
        return 0
    if it.has_members:
        text = judge.text_of(stage.held_from, end)
        if text is None:
            judge.limit(D_HELD, <uint32_t>(stage - judge.stages))
        elif freeze_text(text) not in judge.program.schema.checks[trial.check].members:
            trial.rule = R_MEMBER
            return 0
    trial.own = KEPT
    return 0


cdef bint _lacks_dependents(Judge judge, Trial* trial) noexcept:
    cdef Check* it = &judge.program.checks[trial.check]
    cdef uint64_t* seen = judge.words + trial.seen
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


cdef bint end_trials(Judge judge, uint32_t depth, uint64_t end) except -1:
    """A value is whole: all its trials are decided, and its container hears of them."""
    cdef Stage* stage = &judge.stages[depth]
    stage.has_ended = True
    judge.in_value = False
    if judge.settle(depth):
        return True
    if judge.has_trials(depth) and (stage - 1).is_array and _deliver(judge, depth, end):
        return True
    if stage.is_held:
        judge.holders -= 1
        if not judge.holders:
            del judge.held[:]
    judge.pop(depth)
    return False


cdef bint _deliver(Judge judge, uint32_t depth, uint64_t end) except -1:
    """Count an item that has ended, and compare it with those before."""
    cdef Stage* stage = &judge.stages[depth]
    cdef Stage* above = stage - 1
    cdef Trial* trial
    cdef Check* it
    cdef uint32_t i
    cdef bint is_news = False
    above.count += 1
    for i in range(stage.links, stage.links_end):
        if judge.links[i].role == ROLE_CONTAINS and judge.resolve(judge.links[i].trial, True) == KEPT:
            judge.trials[judge.links[i].parent].matched += 1
    item = None
    for i in range(above.first, above.last):
        trial = &judge.trials[i]
        if trial.own != OPEN:
            continue
        it = &judge.program.checks[trial.check]
        if it.contains == CHECK_ALWAYS:
            trial.matched += 1
        if trial.matched > it.max_contains:
            trial.own = FAILED
            trial.rule = R_MAX_CONTAINS
            is_news = True
        elif it.is_unique and stage.is_held:
            if item is None:
                text = judge.text_of(stage.held_from, end)
                if text is None:
                    return judge.limit(D_HELD, depth)
                item = freeze_text(text)
            items = judge.sets.get(i)
            if items is None:
                trial.has_set = True
                items = judge.sets[i] = set()
            if item in items:
                trial.own = FAILED
                trial.rule = R_UNIQUE
                is_news = True
            elif <uint64_t>len(items) == judge.max_unique_items:
                return judge.limit(D_UNIQUE, depth)
            else:
                items.add(item)
    return is_news and judge.settle(depth - 1)
