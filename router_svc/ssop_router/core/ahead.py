"""Whether a retrieval is worth starting before it is known that the request needs one.

A retrieval that runs along with admission and the look-up in the cache saves the shorter of the two; one whose request
is then answered from the cache, or refused, was work for nothing. Both are learnt for each tenant from its own
requests, so that a tenant that is refused a lot can't make the retrieval service work. Owned by the router's loop.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Literal

_WEIGHT: Final = 0.1
_MOSTLY: Final = 0.5
_TENANTS: Final = 1_000
_WORK_PER_WAIT: Final = 4
"""Milliseconds of work for nothing that weigh as much as one of waiting."""


@dataclass(slots=True)
class _Average:
    needed: float = 1.0
    saved_ms: float = 1.0
    cost_ms: float = 4.0


class AheadJudge:
    """What the tenants' requests have been like lately: exponential averages over about ten of them."""

    def __init__(self, mode: Literal["auto", "always", "never"]) -> None:
        self._mode = mode
        self._tenants: OrderedDict[str, _Average] = OrderedDict()

    def is_worth(self, tenant: str, *, is_wanted: bool = False) -> bool:
        """Whether to start now. Where a rule wants it, the passages of a tenant need only be needed mostly."""
        if self._mode != "auto":
            return self._mode == "always"
        seen = self._tenants.get(tenant, _Average())
        if is_wanted and seen.needed >= _MOSTLY:
            return True
        return seen.needed * seen.saved_ms * _WORK_PER_WAIT >= (1 - seen.needed) * seen.cost_ms

    def record(self, tenant: str, *, is_needed: bool, admission_ms: float, retrieval_ms: float | None = None) -> None:
        """A request is past admission. `retrieval_ms` is None where none was finished."""
        seen = self._tenants.setdefault(tenant, _Average())
        self._tenants.move_to_end(tenant)
        if len(self._tenants) > _TENANTS:
            self._tenants.popitem(last=False)
        seen.needed += _WEIGHT * (is_needed - seen.needed)
        if retrieval_ms is not None:
            seen.saved_ms += _WEIGHT * (min(admission_ms, retrieval_ms) - seen.saved_ms)
            seen.cost_ms += _WEIGHT * (retrieval_ms - seen.cost_ms)
