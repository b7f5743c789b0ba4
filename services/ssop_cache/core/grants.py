# cython: annotation_typing=False
"""Leases that this service gave, so that it need not ask whether one is held that nobody can have taken yet. Pure.

A lease lasts by the clock of the state instance; the time from before it was asked for is no later than that. What the
state forgets, at a failover, is seen when the lease is ended, which is always checked.
"""

from typing import Final

MOST: Final = 16_384
"""Beyond this the oldest are asked about."""


class Grants:
    """Fence and end of each lease by tenant and key. Times in seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._grants: dict[tuple[str, bytes], tuple[int, float]] = {}

    def give(self, tenant: str, cache_key: bytes, fence: int, until_s: float) -> None:
        """A lease was given; it lasts until then, at least."""
        grants, name = self._grants, (tenant, cache_key)
        grants.pop(name, None)
        grants[name] = fence, until_s
        if len(grants) > MOST:
            del grants[next(iter(grants))]

    def take(self, tenant: str, cache_key: bytes, fence: int, now_s: float) -> bool:
        """Whether it is held still, for all that is known here. It is said once: who asks is about to end it."""
        name = tenant, cache_key
        grant = self._grants.pop(name, None)
        if grant is None:
            return False
        if grant[0] != fence:
            # Whose it is has yet to ask.
            self._grants[name] = grant
            return False
        return now_s < grant[1]
