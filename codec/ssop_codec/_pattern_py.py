"""Patterns for the slow encoder: a set of threads, stepped one code point at a time. Product code never imports it."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache

from .pattern_nfa import build
from .pattern_syntax import parse
from .pattern_threads import ALL_THREADS, FIRST_STATE, NO_THREADS, Dfa, Runner, State, complete


class SlowPattern:
    """What `Pattern` does, with states that are values."""

    def __init__(self, text: str) -> None:
        self.nfa = build(parse(text, max_depth=100), max_states=1_000_000)
        self.runner = Runner(self.nfa)
        # Only the complete automaton knows of lookaheads that exclude each other.
        self.dfa: Dfa | None = complete(self.nfa, max_states=1_000_000, max_work=0) if self.nfa.looks else None

    def start(self) -> State | int:
        """The state before the text."""
        return self.runner.start() if self.dfa is None else self.dfa.start

    def step(self, state: State | int, point: int) -> State | int:
        """The state after one more code point."""
        return self._step(state, self.nfa.run_classes[bisect_right(self.nfa.run_starts, point) - 1])

    def _step(self, state: State | int, class_number: int) -> State | int:
        if isinstance(state, State):
            return self.runner.step(state, class_number)
        return state if self.dfa is None or state < FIRST_STATE else self.dfa.rows[state - FIRST_STATE][class_number]

    def is_dead(self, state: State | int) -> bool:
        """Whether no continuation matches."""
        return state.threads == NO_THREADS if isinstance(state, State) else state == 0

    def is_sure(self, state: State | int) -> bool:
        """Whether every continuation matches."""
        return state.threads == ALL_THREADS if isinstance(state, State) else state == 1

    def accepts(self, state: State | int) -> bool:
        """Whether the text may end here."""
        if isinstance(state, State):
            return self.runner.accepts(state)
        return state == 1 or (state >= FIRST_STATE and self.dfa is not None and self.dfa.accepts[state - FIRST_STATE])

    def can_take(self, state: State | int, low: int, high: int) -> bool:
        """Whether some code point of the range does not lead to a dead state."""
        nfa = self.nfa
        ends = [*(start - 1 for start in nfa.run_starts[1:]), 0x10FFFF]
        return any(
            not self.is_dead(self._step(state, number))
            for first, last, number in zip(nfa.run_starts, ends, nfa.run_classes, strict=True)
            if first <= high and last >= low
        )

    def search(self, text: str) -> bool:
        """Whether a part of `text` matches."""
        state = self.start()
        for c in text:
            state = self.step(state, ord(c))
        return self.accepts(state)


@lru_cache(maxsize=64)
def slow_pattern(text: str) -> SlowPattern:
    """The pattern, made at its first use."""
    return SlowPattern(text)


def open_points(begun: bytes) -> tuple[tuple[int, int], ...]:
    """The code points that begin with bytes of UTF-8 that lack some; none where there are no bytes."""
    if not begun:
        return ()
    size = 2 if begun[0] < 0xE0 else 3 if begun[0] < 0xF0 else 4
    point = begun[0] & (0x7F >> size)
    for byte in begun[1:]:
        point = point << 6 | (byte & 0x3F)
    bits = 6 * (size - len(begun))
    # Shorter forms of less are no UTF-8.
    low = max(point << bits, {2: 0x80, 3: 0x800, 4: 0x10000}[size])
    return ((low, min((point + 1 << bits) - 1, 0x10FFFF)),)
