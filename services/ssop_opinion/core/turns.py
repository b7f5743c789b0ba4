"""Whose post is next: tenants take turns, and none holds more than its share of what all share. Pure.

A tenant may take a place while it holds less than SHARE times what is free. Alone it comes to 8 of 9 places; two that
want all come to 8 of 17 each; and there is always something left for one that holds nothing (Choudhury and Hahne,
"Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM Transactions on Networking 6(2), 1998).
"""

from collections import deque
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

SHARE: Final = 8
T = TypeVar("T")


def may_take(held: int, free: int, *, is_shared: bool) -> bool:
    """Whether who holds so many places may take one of the free ones. `is_shared`: there are others who may want it."""
    return free > 0 and (not is_shared or held < SHARE * free)


@dataclass(slots=True)
class _Pause:
    """A tenant that is left alone until then; from then on one of its posts looks whether it still has to be."""

    until_s: float
    failures: int
    is_tried: bool = False

    def may_look(self, now_s: float) -> bool:
        """Whether an item may look now."""
        return not self.is_tried and now_s >= self.until_s


class Turns(Generic[T]):
    """What waits for one of `slots`, by tenant. Each post is of equal worth: all are cut at the same length."""

    def __init__(self, slots: int) -> None:
        self.is_shared = False
        self._slots = slots
        self._ring: dict[str, None] = {}
        self._waiting: dict[str, deque[T]] = {}
        self._refused: dict[str, deque[T]] = {}
        self._running: dict[str, int] = {}
        self._paused: dict[str, _Pause] = {}
        self._total = 0

    @property
    def free(self) -> int:
        """Slots that nothing runs in."""
        return self._slots - self._total

    @property
    def waiting(self) -> frozenset[str]:
        """Tenants of whom something waits."""
        return frozenset(self._ring)

    def well_stocked(self, now_s: float) -> frozenset[str]:
        """Tenants of whom no more items are wanted now: some have not begun, or none may, or too many were refused."""
        refused = (tenant for tenant, items in self._refused.items() if len(items) >= self._slots)
        paused = (tenant for tenant, pause in self._paused.items() if not pause.may_look(now_s))
        return frozenset((*self._waiting, *refused, *paused))

    @property
    def paused(self) -> int:
        """How many tenants are left alone."""
        return len(self._paused)

    def add(self, tenant: str, item: T) -> None:
        """Let an item wait, behind the others of its tenant."""
        self._waiting.setdefault(tenant, deque()).append(item)
        self._ring.setdefault(tenant)

    def put_back(self, tenant: str, item: T) -> None:
        """Let an item that was refused wait for another try. Its slot is given back by `end`."""
        self._refused.setdefault(tenant, deque()).append(item)
        self._ring.setdefault(tenant)

    def begin(self, now_s: float) -> T | None:
        """The next item, which takes a slot until `end`; None: nothing may begin now."""
        tenant = self._next(now_s)
        if tenant is None:
            return None
        # What was refused is older; but what looks is another, where there is one: it may be that item alone.
        kinds = (self._refused, self._waiting)
        source = next(kind for kind in (kinds[::-1] if tenant in self._paused else kinds) if tenant in kind)
        item = source[tenant].popleft()
        if not source[tenant]:
            del source[tenant]
        del self._ring[tenant]
        if tenant in self._waiting or tenant in self._refused:
            # Behind all others: who waits is passed once by each of them at most.
            self._ring[tenant] = None
        if tenant in self._paused:
            self._paused[tenant].is_tried = True
        self._running[tenant] = self._running.get(tenant, 0) + 1
        self._total += 1
        return item

    def has_next(self, now_s: float) -> bool:
        """Whether something may begin now."""
        return self._next(now_s) is not None

    def end(self, tenant: str) -> None:
        """An item of a tenant runs no more."""
        left = self._running[tenant] - 1
        self._total -= 1
        if tenant in self._paused:
            # Whatever became of it: where it says nothing of the pause, the next one looks.
            self._paused[tenant].is_tried = False
        if left:
            self._running[tenant] = left
        else:
            del self._running[tenant]

    def failures(self, tenant: str, now_s: float) -> int | None:
        """How often in a row a tenant had to be left alone; None: it is already, and this is no news of it."""
        pause = self._paused.get(tenant)
        if pause is None:
            return 0
        return None if now_s < pause.until_s else pause.failures

    def pause(self, tenant: str, until_s: float) -> None:
        """Begin nothing of a tenant until then, and then one item until it is paused again or resumed."""
        pause = self._paused.get(tenant)
        self._paused[tenant] = _Pause(until_s, pause.failures + 1 if pause is not None else 1)

    def resume(self, tenant: str) -> None:
        """A tenant need not be left alone."""
        self._paused.pop(tenant, None)

    def _next(self, now_s: float) -> str | None:
        free = self._slots - self._total
        for tenant in self._ring:
            pause = self._paused.get(tenant)
            if pause is not None and not pause.may_look(now_s):
                continue
            if may_take(self._running.get(tenant, 0), free, is_shared=self.is_shared):
                return tenant
        return None
