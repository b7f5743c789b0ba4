# cython: annotation_typing=False
"""The limits of tenants on this router: how busy the nodes are, and what holds while the shared ones can't be asked.

`limits.pxd` gives the types with which this very file is compiled.
"""

import logging
from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError

from ssop.v1 import cache_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.router_pb2 import RateLimitView
from ssop_chassis.errors import MeshError
from ssop_router.core.share import LocalMeter, TenantLimits
from ssop_router.core.throttle import Throttle, ThrottleSettings
from ssop_router.metrics import RouterMetrics
from ssop_router.settings import RouterSettings

R = ErrorReason
RATE_LIMIT: Final = "rate_limit"
TOKEN_BUDGET: Final = "token_budget"  # noqa: S105 - the name of a limit
_log = logging.getLogger(__name__)


class Wait:
    """A request that waits for its first field. One of `end`, `refuse` and `drop` must follow; the first one counts."""

    def __init__(self, limits: "Limits") -> None:
        self._limits = limits
        self._number = limits.throttle.begin(limits.clock_ms())

    def end(self) -> None:
        """The first field came."""
        self._limits.throttle.end(self._number, self._limits.clock_ms())

    def refuse(self) -> None:
        """A full node turned it away."""
        self._limits.throttle.end(self._number, self._limits.clock_ms(), is_refused=True)

    def drop(self) -> None:
        """It says nothing about load."""
        self._limits.throttle.drop(self._number)


class Limits:
    """`clock_ms` is monotonic. Owned by the event loop of its process."""

    def __init__(self, settings: RouterSettings, metrics: RouterMetrics, clock_ms: Callable[[], int]) -> None:
        self.clock_ms = clock_ms
        self.throttle = Throttle(ThrottleSettings(target_ms=settings.first_field_target_ms), clock_ms())
        self._settings = settings
        self._metrics = metrics
        self._limits: TenantLimits | None = None
        self._told: bytes | None = None
        self._meter = LocalMeter()
        self._is_local = False
        self.has_budget = False
        """Tenants have a token budget, as far as is known."""
        metrics.rate_share.set_function(self.share)
        metrics.rate_limit_rps.set_function(lambda: -1.0 if self._limits is None else self._limits.rate(self.share()))

    def share(self) -> float:
        """The share of the full rate that the nodes can bear now, above 0 and at most 1."""
        return self.throttle.share(self.clock_ms())

    def waiting(self) -> Wait:
        """Count a request as waiting."""
        return Wait(self)

    def learn(self, told: bytes) -> None:
        """The cache service has admitted a request, and says its limits: TenantLimits."""
        if told != self._told:
            self._read(told)
            self._told = told
        self.hear_answer()

    def hear_answer(self) -> None:
        """The cache service has judged a request by the shared limits."""
        if self._is_local:
            self._is_local = False
            self._metrics.limits_local.set(0)
            _log.warning("the shared limits hold again")

    def hear_failure(self, error: BaseException | None) -> None:
        """The cache service failed; what it says in failing may hold the limits."""
        text = error.metadata.get("limits", "") if isinstance(error, MeshError) else ""
        if text:
            try:
                self._read(bytes.fromhex(text))
            except ValueError:
                _log.warning("the cache service says limits that can't be read")

    def _read(self, told: bytes) -> None:
        try:
            self._take(cache_pb2.TenantLimits.FromString(told))
        except DecodeError:
            _log.warning("the cache service says limits that can't be read")

    def admit(self, tenant: str, *, is_generating: bool = True) -> tuple[str, ...]:
        """Hold a request to this router's share, since nobody else can; returns the names of what is not whole.

        Raises RATE_LIMITED, and STORE_UNAVAILABLE for what would use tokens that nobody counts.
        """
        limits = self._now()
        if not self._is_local:
            self._is_local = True
            self._metrics.limits_local.set(1)
            _log.warning(
                "the shared limits can't be asked; this router holds its share",
                extra={"local_rps": self._local_rps(limits), "is_known": self._limits is not None},
            )
            if limits.has_budget:
                _log.error(
                    "token budgets can't be checked until the shared limits hold again",
                    extra={"unchecked_budget": self._settings.unchecked_budget},
                )
        if limits.has_budget and is_generating and self._settings.unchecked_budget == "refuse":
            self._metrics.local_admissions.labels("refused_budget").inc()
            raise MeshError(
                R.ERROR_REASON_STORE_UNAVAILABLE,
                "the tenant's token budget can't be checked: the store of limits does not answer",
                metadata={"limit": TOKEN_BUDGET},
                retry_after_ms=self._settings.skip_ms,
            )
        rps = self._local_rps(limits)
        wait_ms = 0
        if rps > 0:
            burst = max(1.0, limits.burst * rps / limits.max_rps)
            wait_ms = self._meter.admit(tenant, rps, burst, self.clock_ms() * 1000)
        self._metrics.local_admissions.labels("refused" if wait_ms else "admitted").inc()
        if wait_ms:
            raise MeshError(
                R.ERROR_REASON_RATE_LIMITED,
                "the tenant's rate of requests is used up on this router, which can't ask for the shared one",
                quotas=[(f"tenant:{tenant}", f"{rps:g} requests per second on this router")],
                retry_after_ms=wait_ms,
            )
        is_unchecked = limits.has_budget and is_generating
        if is_unchecked:
            self._metrics.budgets_unchecked.inc()
        return (RATE_LIMIT,) * (rps > 0) + (TOKEN_BUDGET,) * is_unchecked

    def view(self) -> RateLimitView:
        """For people."""
        limits = self._now()
        return RateLimitView(
            is_known=self._limits is not None,
            is_dynamic=limits.is_dynamic,
            max_rps=limits.max_rps,
            rps=limits.rate(self.share()),
            is_local=self._is_local,
            local_rps=self._local_rps(limits) if self._is_local else 0.0,
            is_budget_unchecked=self._is_local and limits.has_budget,
        )

    def _now(self) -> TenantLimits:
        if self._limits is not None:
            return self._limits
        rps = self._settings.unknown_limit_rps
        return TenantLimits(rps, max(1, round(rps)))

    def _local_rps(self, limits: TenantLimits) -> float:
        return limits.rate(self.share()) / self._settings.routers

    def _take(self, told: cache_pb2.TenantLimits) -> None:
        self._told = None
        self._limits = TenantLimits(
            told.max_rps, max(1, told.burst), told.min_rps, is_dynamic=told.is_dynamic, has_budget=told.has_budget
        )
        self.has_budget = told.has_budget
        if told.is_dynamic and told.max_rps > 0:
            self.throttle.set_smallest(told.min_rps / told.max_rps)
