"""How many prefetches a tenant may start in a window: a token bucket. Pure; time is passed in, in milliseconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """`prefetches` in each `window_ms`, refilled evenly; 0 is no limit."""

    prefetches: int = 600
    window_ms: int = 60_000


class Budget:
    """One tenant's. Full at first."""

    def __init__(self, limits: BudgetLimits, now_ms: int) -> None:
        self._limits = limits
        self._left = float(limits.prefetches)
        self._at_ms = now_ms

    def left(self, now_ms: int) -> int:
        """Prefetches that may start now; 0 without a limit."""
        self._refill(now_ms)
        return int(self._left)

    def has(self, now_ms: int) -> bool:
        """Whether one may start."""
        return self._limits.prefetches == 0 or self.left(now_ms) >= 1

    def take(self, now_ms: int) -> None:
        """Spend one."""
        self._refill(now_ms)
        self._left = max(0.0, self._left - 1)

    def change(self, limits: BudgetLimits, now_ms: int) -> None:
        """Go on under other limits; what was spent stays spent."""
        if limits == self._limits:
            return
        self._refill(now_ms)
        spent = self._limits.prefetches - self._left
        self._limits = limits
        self._left = max(0.0, limits.prefetches - spent)

    def _refill(self, now_ms: int) -> None:
        gained = self._limits.prefetches * max(0, now_ms - self._at_ms) / self._limits.window_ms
        self._left = min(float(self._limits.prefetches), self._left + gained)
        self._at_ms = max(self._at_ms, now_ms)
