"""Turns the tree of a pattern into a nondeterministic automaton over classes of code points.

The construction is Thompson's, made from the end to the begin, so that each part knows what follows it. The
automaton searches: it has reached MATCH when the text so far holds a match.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from .pattern_sets import ANYTHING, NOTHING, WORD, Intervals
from .pattern_syntax import Begin, Chars, Choice, End, Look, Node, PatternError, Repeat, Sequence, WordEdge

CHAR: Final = 0
"""`first` follows a code point of the set `second`."""
SPLIT: Final = 1
"""`first` or `second`."""
MATCH: Final = 2
BEGIN: Final = 3
"""`first` at the begin of the text."""
END: Final = 4
EDGE: Final = 5
"""`first` where a word begins or ends; `second` 1: where none does."""
LOOK: Final = 6
"""`first` where the lookahead `second` holds."""
FAIL: Final = 7
"""No match is reached from here."""


@dataclass(slots=True)
class Nfa:
    """A state is a position in `kinds`, `first` and `second`."""

    kinds: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    second: list[int] = field(default_factory=list)
    start: int = 0
    looks: list[tuple[bool, int]] = field(default_factory=list)
    """Each lookahead: whether it is negated, and its first state."""
    has_edges: bool = False
    run_starts: list[int] = field(default_factory=list)
    """First code point of each run of code points of one class; the first is 0."""
    run_classes: list[int] = field(default_factory=list)
    class_count: int = 0
    class_sets: list[int] = field(default_factory=list)
    """For each class the sets that it is in, as bits."""
    word_bit: int = 0
    """The bit of `class_sets` that says the class is of word characters."""


def build(tree: Node, *, max_states: int) -> Nfa:
    """The automaton of a pattern. Raises PatternError where it has more states than allowed."""
    builder = _Builder(max_states)
    nfa = builder.nfa
    match = builder.add(MATCH)
    search = builder.add(SPLIT)
    nfa.second[search] = builder.add(CHAR, search, builder.set_of(ANYTHING))
    nfa.first[search] = builder.build(tree, match)
    nfa.start = search
    _part_beginning(nfa, max_states)
    _mark_useless(nfa, builder.sets.get(NOTHING, -1))
    _divide(nfa, list(builder.sets))
    return nfa


class _Builder:
    def __init__(self, max_states: int) -> None:
        self.nfa = Nfa()
        self.max_states = max_states
        self.sets: dict[Intervals, int] = {}

    def add(self, kind: int, first: int = 0, second: int = 0) -> int:
        nfa = self.nfa
        if len(nfa.kinds) >= self.max_states:
            raise PatternError(f"more than {self.max_states} states", "max_pattern_states")
        nfa.kinds.append(kind)
        nfa.first.append(first)
        nfa.second.append(second)
        return len(nfa.kinds) - 1

    def set_of(self, intervals: Intervals) -> int:
        return self.sets.setdefault(intervals, len(self.sets))

    def build(self, node: Node, follow: int) -> int:  # noqa: C901, PLR0911  # one branch per kind of node
        """The state where `node` begins, whose end is `follow`."""
        match node:
            case Chars(intervals):
                return self.add(CHAR, follow, self.set_of(intervals))
            case Sequence(items):
                for item in reversed(items):
                    follow = self.build(item, follow)
                return follow
            case Choice(items):
                at = self.build(items[-1], follow)
                for item in reversed(items[:-1]):
                    at = self.add(SPLIT, self.build(item, follow), at)
                return at
            case Repeat(item, least, most):
                return self.repeat(item, least, most, follow)
            case Begin():
                return self.add(BEGIN, follow)
            case End():
                return self.add(END, follow)
            case WordEdge(negated):
                self.nfa.has_edges = True
                return self.add(EDGE, follow, negated)
            case Look(item, negated):
                begin = self.build(item, self.add(MATCH))
                self.nfa.looks.append((negated, begin))
                return self.add(LOOK, follow, len(self.nfa.looks) - 1)

    def repeat(self, item: Node, least: int, most: int | None, follow: int) -> int:
        if most is None:
            loop = self.add(SPLIT, 0, follow)
            at = self.nfa.first[loop] = self.build(item, loop)
            # The last of the copies that must come may be the body of the loop.
            at = loop if least == 0 else at
            least = max(least - 1, 0)
        else:
            at = follow
            for _ in range(most - least):
                body = self.build(item, at)
                if body == at:
                    break
                at = self.add(SPLIT, body, follow)
        for _ in range(least):
            body = self.build(item, at)
            if body == at:
                break
            at = body
        return at


def _part_beginning(nfa: Nfa, max_states: int) -> None:
    """Where the begin of the text is asked for behind its end (`$^`), give the empty text states of its own.

    A code point leads out of them for good, and what is left has no begin: so it is seen to lead nowhere at the first
    one. Lookaheads are completed, and need no help; a pattern that is too large for it is given up at the end only.
    """
    count = len(nfa.kinds)
    # Nearly always nothing stands behind an end.
    ends = [at for kind, at in zip(nfa.kinds, nfa.first, strict=True) if kind == END and nfa.kinds[at] != MATCH]
    if not ends or nfa.looks or 2 * count > max_states:
        return
    empty, later = (_useful(nfa, [False] * count, None, begins=begins) for begins in (True, False))
    if all(empty[at] == later[at] for at in ends):
        return
    for state in range(count):
        kind, first, second = nfa.kinds[state], nfa.first[state], nfa.second[state]
        nfa.kinds.append(kind)
        nfa.first.append(first if kind == CHAR else first + count)
        nfa.second.append(second + count if kind == SPLIT else second)
        if kind == BEGIN:
            nfa.kinds[state] = FAIL
    nfa.start += count


def _mark_useless(nfa: Nfa, empty: int) -> None:
    """Make FAIL of the states from which no text leads to a match, so that a dead end is seen at once.
    `empty` is the number of the empty set."""
    count = len(nfa.kinds)
    at_end = _useful(nfa, [False] * count, None, begins=True)
    fits = [kind == CHAR and second != empty for kind, second in zip(nfa.kinds, nfa.second, strict=True)]
    later = _useful(nfa, fits, at_end, begins=False)
    # Where nothing was read yet; what follows a code point has the begin of the text behind it.
    moves = [fit and later[follow] for fit, follow in zip(fits, nfa.first, strict=True)]
    early = _useful(nfa, moves, at_end, begins=True)
    for state, kind in enumerate(nfa.kinds):
        if not (later if kind in (CHAR, END) else early)[state]:
            nfa.kinds[state] = FAIL


def _useful(nfa: Nfa, fits: list[bool], at_end: list[bool] | None, *, begins: bool) -> list[bool]:
    """The states after which a match can come. `fits`: the CHAR states that a code point passes; `at_end`: the
    states that match without one, None while they are sought; `begins`: whether BEGIN is passed."""
    useful = [False] * len(nfa.kinds)
    changed = True
    while changed:
        changed = False
        for state, kind in enumerate(nfa.kinds):
            if useful[state]:
                continue
            first = nfa.first[state]
            if kind == CHAR:
                found = fits[state] and useful[first]
            elif kind == SPLIT:
                found = useful[first] or useful[nfa.second[state]]
            elif kind == BEGIN:
                found = begins and useful[first]
            elif kind == END and at_end is not None:
                found = at_end[first]
            elif kind == FAIL:
                found = False
            else:
                found = kind == MATCH or useful[first]
            if found:
                useful[state] = changed = True
    return useful


def _divide(nfa: Nfa, sets: list[Intervals]) -> None:
    """Divide the code points into classes that no set of the pattern tells apart."""
    nfa.word_bit = len(sets)
    events: dict[int, int] = {0: 0}
    for bit, intervals in enumerate([*sets, WORD] if nfa.has_edges else sets):
        for low, high in intervals:
            events[low] = events.get(low, 0) ^ (1 << bit)
            events[high + 1] = events.get(high + 1, 0) ^ (1 << bit)
    events.pop(0x110000, None)
    classes: dict[int, int] = {}
    members = 0
    for point in sorted(events):
        members ^= events[point]
        number = classes.setdefault(members, len(classes))
        if not nfa.run_classes or nfa.run_classes[-1] != number:
            nfa.run_starts.append(point)
            nfa.run_classes.append(number)
    nfa.class_sets = list(classes)
    nfa.class_count = len(classes)
