"""How often things happened of late: counts by name in slots of a window. Pure: time is passed in."""

from collections import Counter, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class CountWindow(Generic[K]):
    """Counts of the last `slots` times `slot_ms`. Times must not go back; one that does counts as the last one."""

    def __init__(self, *, slots: int = 60, slot_ms: int = 1_000) -> None:
        self._slots = slots
        self._slot_ms = slot_ms
        self._kept: deque[tuple[int, dict[K, int]]] = deque()

    def add(self, name: K, now_ms: int) -> None:
        """It happened once."""
        number = now_ms // self._slot_ms
        kept = self._kept
        if not kept or kept[-1][0] < number:
            self._expire(number)
            kept.append((number, {}))
        counts = kept[-1][1]
        counts[name] = counts.get(name, 0) + 1

    def totals(self, now_ms: int) -> Counter[K]:
        """What happened within the window."""
        self._expire(now_ms // self._slot_ms)
        found: Counter[K] = Counter()
        for _, counts in self._kept:
            found.update(counts)
        return found

    def _expire(self, number: int) -> None:
        while self._kept and self._kept[0][0] <= number - self._slots:
            self._kept.popleft()
