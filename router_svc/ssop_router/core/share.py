"""The rate limit of every tenant as one router holds it while the shared one can't be asked. Pure.

A leaky bucket as a meter, which is the generic cell rate algorithm of ITU-T I.371 in its other form: a rate that
changes between two requests drains what the last one left. Times are in microseconds of a monotonic clock.
"""

import math
from typing import Final, NamedTuple

_MOST_TENANTS: Final = 10_000


class TenantLimits(NamedTuple):
    """What every tenant may do, mesh-wide. `max_rps` is requests per second, 0 no limit.

    Where `is_dynamic`, load moves the rate between `min_rps` and `max_rps`.
    """

    max_rps: float = 0.0
    burst: int = 1
    min_rps: float = 0.0
    is_dynamic: bool = False
    has_budget: bool = False

    def rate(self, share: float) -> float:
        """Requests per second for each tenant while the nodes bear this share of the full rate; 0 is no limit."""
        if not self.is_dynamic:
            return self.max_rps
        return min(self.max_rps, max(self.min_rps, share * self.max_rps))


class LocalMeter:
    """Meters by tenant. Over any time t a tenant gets at most `burst` + `rps` x t requests."""

    def __init__(self, most_tenants: int = _MOST_TENANTS) -> None:
        self._most = most_tenants
        # Level in requests, and when it was that.
        self._levels: dict[str, tuple[float, int]] = {}

    def __len__(self) -> int:
        return len(self._levels)

    def admit(self, tenant: str, rps: float, burst: float, now_us: int) -> int:
        """0 where a request may come; else the milliseconds to wait. `rps` is above 0, `burst` at least 1."""
        level, at_us = self._levels.get(tenant, (0.0, now_us))
        level = max(0.0, level - max(0, now_us - at_us) * rps / 1_000_000)
        if level + 1 > burst + 1e-9:
            return max(1, math.ceil((level + 1 - burst) * 1000 / rps))
        if tenant not in self._levels and len(self._levels) >= self._most:
            self._make_room(rps, now_us)
        self._levels[tenant] = (level + 1, max(at_us, now_us))
        return 0

    def _make_room(self, rps: float, now_us: int) -> None:
        """Forget the tenants that owe nothing any more; if there is none, the one that owes least."""
        owed = {tenant: level - (now_us - at_us) * rps / 1_000_000 for tenant, (level, at_us) in self._levels.items()}
        gone = [tenant for tenant, level in owed.items() if level <= 0]
        for tenant in gone or [min(owed, key=lambda name: owed[name])]:
            del self._levels[tenant]
