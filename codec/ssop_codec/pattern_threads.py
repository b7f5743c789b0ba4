"""Runs the automaton of a pattern as a set of threads: slow, and able to look ahead.

A thread is a state and what it has promised: lookaheads that are still open, each with threads of its own.
Two uses: patterns with lookaheads become complete deterministic automata here, when they are compiled; and
tests compare the fast engine with this one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from .pattern_nfa import BEGIN, CHAR, EDGE, END, LOOK, MATCH, SPLIT, Nfa
from .pattern_syntax import PatternError

DEAD: Final = 0
"""State of an automaton: no continuation matches."""
ACCEPT_ALL: Final = 1
"""State of an automaton: every continuation matches."""
LOST: Final = 2
FIRST_STATE: Final = 3

Threads = frozenset[tuple[int, "Promises"]]
Promises = frozenset[tuple[int, Threads]]
"""Open lookaheads: the number of each and its threads."""

NO_THREADS: Final[Threads] = frozenset()
ALL_THREADS: Final[Threads] = frozenset(((-1, frozenset()),))
"""A match was found that nothing can take back."""


@dataclass(frozen=True, slots=True)
class State:
    """What is known of the text so far."""

    threads: Threads
    is_start: bool = False
    after_word: bool = False


@dataclass(frozen=True, slots=True)
class Dfa:
    """A complete automaton. `rows[i]` and `accepts[i]` are those of state FIRST_STATE + i."""

    start: int
    rows: list[list[int]]
    accepts: list[bool]


class Runner:
    """Runs one automaton. `max_work` bounds the threads that are followed in all; 0: no bound."""

    def __init__(self, nfa: Nfa, max_work: int = 0) -> None:
        self.nfa = nfa
        self.max_work = max_work
        self.work = 0

    def start(self) -> State:
        """The state before the text."""
        return State(self._closed([(self.nfa.start, frozenset())], is_start=True), is_start=True)

    def step(self, state: State, class_number: int) -> State:
        """The state after a code point of the class."""
        is_word = self._is_word(class_number)
        threads = self._moved(state.threads, class_number, state)
        return State(threads, after_word=is_word and threads not in (NO_THREADS, ALL_THREADS))

    def accepts(self, state: State) -> bool:
        """Whether the text may end here."""
        return self._accepts(state.threads, state)

    def _is_word(self, class_number: int) -> bool:
        nfa = self.nfa
        return nfa.has_edges and bool(nfa.class_sets[class_number] >> nfa.word_bit & 1)

    def _closed(  # noqa: C901  # one branch per kind of state
        self,
        seeds: Iterable[tuple[int, Promises]],
        *,
        is_start: bool = False,
        at_end: bool | None = None,
        is_edge: bool = False,
    ) -> Threads:
        """Follow threads up to states that wait for what comes next; where that is known (`at_end` is not None),
        through those that ask for it."""
        nfa = self.nfa
        stack = list(seeds)
        seen = set(stack)
        found: dict[int, list[Promises]] = {}
        while stack:
            self.work += 1
            if self.max_work and self.work > self.max_work:
                raise PatternError("lookaheads that need too many states", "max_pattern_states")
            state, promises = stack.pop()
            kind = nfa.kinds[state]
            following: list[tuple[int, Promises]] = []
            if kind == SPLIT:
                following = [(nfa.first[state], promises), (nfa.second[state], promises)]
            elif kind == BEGIN:
                following = [(nfa.first[state], promises)] if is_start else []
            elif kind == END and at_end is not None:
                following = [(nfa.first[state], promises)] if at_end else []
            elif kind == EDGE and at_end is not None:
                following = [(nfa.first[state], promises)] if is_edge != nfa.second[state] else []
            elif kind == LOOK:
                number = nfa.second[state]
                inner = self._closed([(nfa.looks[number][1], frozenset())], is_start=is_start)
                kept = self._promise(number, inner, promises)
                following = [] if kept is None else [(nfa.first[state], kept)]
            elif kind in (CHAR, END, EDGE, MATCH):
                found.setdefault(state, []).append(promises)
                if kind == MATCH and not promises:
                    return ALL_THREADS
            for thread in following:
                if thread not in seen:
                    seen.add(thread)
                    stack.append(thread)
        return frozenset((state, promises) for state, kept in found.items() for promises in _least(kept))

    def _promise(self, number: int, inner: Threads, promises: Promises) -> Promises | None:
        """The promises and one more; None where it is broken already."""
        negated = self.nfa.looks[number][0]
        if inner in (NO_THREADS, ALL_THREADS):
            return promises if (inner == ALL_THREADS) != negated else None
        return promises | {(number, inner)}

    def _moved(self, threads: Threads, class_number: int, state: State) -> Threads:
        if threads in (NO_THREADS, ALL_THREADS):
            return threads
        nfa = self.nfa
        if nfa.has_edges:
            is_edge = self._is_word(class_number) != state.after_word
            threads = self._closed(threads, is_start=state.is_start, at_end=False, is_edge=is_edge)
            if threads == ALL_THREADS:
                return threads
        seeds = []
        for at, promises in threads:
            kind = nfa.kinds[at]
            if kind == CHAR and nfa.class_sets[class_number] >> nfa.second[at] & 1:
                follow = nfa.first[at]
            elif kind == MATCH:
                follow = at
            else:
                continue
            kept = self._kept(promises, class_number, state)
            if kept is not None:
                seeds.append((follow, kept))
        return self._closed(seeds)

    def _kept(self, promises: Promises, class_number: int, state: State) -> Promises | None:
        kept: Promises = frozenset()
        for number, inner in promises:
            more = self._promise(number, self._moved(inner, class_number, state), kept)
            if more is None:
                return None
            kept = more
        return kept

    def _accepts(self, threads: Threads, state: State) -> bool:
        if threads in (NO_THREADS, ALL_THREADS):
            return threads == ALL_THREADS
        ended = self._closed(threads, is_start=state.is_start, at_end=True, is_edge=state.after_word)
        if ended == ALL_THREADS:
            return True
        looks = self.nfa.looks
        return any(
            self.nfa.kinds[at] == MATCH
            and all(self._accepts(inner, state) != looks[number][0] for number, inner in promises)
            for at, promises in ended
        )


def _least(kept: list[Promises]) -> list[Promises]:
    """Leave out those who promise all that another promises, and more."""
    if len(kept) == 1:
        return kept
    return [promises for promises in kept if not any(other < promises for other in kept)]


def complete(nfa: Nfa, *, max_states: int, max_work: int) -> Dfa:
    """The deterministic automaton of all of the pattern. Raises PatternError where it is too large."""
    runner = Runner(nfa, max_work)
    states = [runner.start()]
    numbers = {states[0]: FIRST_STATE}
    rows: list[list[int]] = []
    accepts: list[bool] = []
    for state in states:
        accepts.append(runner.accepts(state))
        row = []
        for class_number in range(nfa.class_count):
            follow = runner.step(state, class_number)
            if follow.threads == ALL_THREADS:
                row.append(ACCEPT_ALL)
            elif follow.threads == NO_THREADS:
                row.append(DEAD)
            else:
                number = numbers.get(follow)
                if number is None:
                    number = numbers[follow] = FIRST_STATE + len(states)
                    if len(states) >= max_states:
                        raise PatternError("lookaheads that need too many states", "max_pattern_states")
                    states.append(follow)
                row.append(number)
        rows.append(row)
    return _settled(Dfa(_ended(states[0]) or FIRST_STATE, rows, accepts))


def _ended(state: State) -> int:
    return ACCEPT_ALL if state.threads == ALL_THREADS else 0


def _settled(dfa: Dfa) -> Dfa:
    """Put DEAD and ACCEPT_ALL in the place of the states that can lead nowhere else."""
    count = FIRST_STATE + len(dfa.rows)
    sources: list[list[int]] = [[] for _ in range(count)]
    for i, row in enumerate(dfa.rows):
        for target in row:
            sources[target].append(FIRST_STATE + i)
    hopeful = _reached([ACCEPT_ALL, *(FIRST_STATE + i for i, yes in enumerate(dfa.accepts) if yes)], sources)
    doubtful = _reached([DEAD, *(FIRST_STATE + i for i, yes in enumerate(dfa.accepts) if not yes)], sources)
    settled = [
        DEAD if state not in hopeful else ACCEPT_ALL if state not in doubtful else state for state in range(count)
    ]
    rows = [[settled[target] for target in row] for row in dfa.rows]
    return Dfa(settled[dfa.start], rows, dfa.accepts)


def _reached(goals: list[int], sources: list[list[int]]) -> set[int]:
    reached = set(goals)
    stack = goals
    while stack:
        for source in sources[stack.pop()]:
            if source not in reached:
                reached.add(source)
                stack.append(source)
    return reached
