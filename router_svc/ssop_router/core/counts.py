# cython: annotation_typing=False
"""How often things happened of late: counts by name in slots of a window. Pure: time is passed in.

`counts.pxd` gives the types with which this very file is compiled.
"""

from collections import Counter, deque
from collections.abc import Hashable
from typing import Any


class CountWindow:
    """Counts of the last `slots` times `slot_ms`. Times must not go back; one that does counts as the last one."""

    def __init__(self, *, slots: int = 60, slot_ms: int = 1_000) -> None:
        self._slots = slots
        self._slot_ms = slot_ms
        self._kept: deque[tuple[int, dict[Hashable, int]]] = deque()

    def add(self, name: Hashable, now_ms: int) -> None:
        """It happened once."""
        number = now_ms // self._slot_ms
        kept = self._kept
        if not kept or kept[-1][0] < number:
            self._expire(number)
            kept.append((number, {}))
        counts = kept[-1][1]
        counts[name] = counts.get(name, 0) + 1

    def totals(self, now_ms: int) -> Counter[Any]:
        """What happened within the window."""
        self._expire(now_ms // self._slot_ms)
        found: Counter[Any] = Counter()
        for _, counts in self._kept:
            found.update(counts)
        return found

    def _expire(self, number: int) -> None:
        while self._kept and self._kept[0][0] <= number - self._slots:
            self._kept.popleft()
