# cython: annotation_typing=False
"""The signs of life of what is generated here: its leases, and the tokens that are reserved for it.

A router that is killed gives none any more, so that others take over as soon as its leases lapse. Reservations last
longer, and do not need a lease: a generation that gave its lease up keeps its tokens until it settles.

`renewals.pxd` gives the types with which this very file is compiled.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from ssop.v1.cache_pb2 import LeaseName, RenewRequest, RenewResponse
from ssop_chassis.errors import MeshError
from ssop_router.background import Background
from ssop_router.dependency import Dependency, Unavailable
from ssop_router.job import Job
from ssop_router.metrics import RouterMetrics
from ssop_router.settings import RouterSettings

if TYPE_CHECKING:
    from ssop_router.lease import Lease

_RENEW: Final = "/ssop.v1.CacheService/Renew"
_PER_LEASE: Final = 5
"""Signs of life within each of the two times, at least: four may be late or lost."""
_MOST_TOGETHER: Final = 256
_log = logging.getLogger(__name__)
T = TypeVar("T")


class _Held:
    """What one request holds."""

    def __init__(self, job: Job, lease: "Lease | None") -> None:
        self.job = job
        self.is_reserved = True
        self.lease = lease


class Renewals:
    """Requests that hold something, by tenant. Bounded as requests in flight are; owned by the event loop."""

    def __init__(
        self, cache: Dependency, settings: RouterSettings, background: Background, metrics: RouterMetrics
    ) -> None:
        self._cache = cache
        self._settings = settings
        self._background = background
        self._metrics = metrics
        self._held: dict[str, dict[str, _Held]] = {}
        self._renewing: set[str] = set()
        sign_ms = min(settings.lease_ms, settings.reservation_ms) / _PER_LEASE
        # The same calls hear of followers.
        self._interval_s = min(sign_ms, settings.append_interval_ms) / 1000
        self._timer: asyncio.TimerHandle | None = None
        self._reserve_s = 0.0
        """When reservations are renewed next. They last longer than leases, and each renewal is a write."""

    def hold(self, job: Job, lease: "Lease | None", age_s: float = 0.0) -> None:
        """A request was admitted that generates, `age_s` seconds ago at most: much of its lease may be over."""
        of_tenant = self._held.get(job.tenant)
        if of_tenant is None:
            of_tenant = self._held[job.tenant] = {}
        of_tenant[job.request_id] = _Held(job, lease)
        if age_s > self._interval_s and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._reserve_s = 0.0
        if self._timer is None:
            self._schedule(0.0 if age_s > self._interval_s else self._interval_s)

    def drop_lease(self, job: Job) -> None:
        """Its lease is over."""
        if (held := self._find(job)) is not None:
            held.lease = None
            self._forget(held)

    def drop_reservation(self, job: Job) -> None:
        """It settles."""
        if (held := self._find(job)) is not None:
            held.is_reserved = False
            self._forget(held)

    def _find(self, job: Job) -> _Held | None:
        of_tenant = self._held.get(job.tenant)
        return of_tenant.get(job.request_id) if of_tenant is not None else None

    def _forget(self, held: _Held) -> None:
        if held.is_reserved or held.lease is not None:
            return
        of_tenant = self._held[held.job.tenant]
        del of_tenant[held.job.request_id]
        if not of_tenant:
            del self._held[held.job.tenant]

    def _schedule(self, delay_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._held:
            return
        self._schedule(self._interval_s)
        now_s = asyncio.get_running_loop().time()
        is_reserving = now_s >= self._reserve_s
        if is_reserving:
            # One interval early, so that ticks that are late do not add up.
            self._reserve_s = now_s + self._settings.reservation_ms / 1000 / _PER_LEASE - self._interval_s
        for tenant, held in self._held.items():
            if tenant not in self._renewing:
                self._renewing.add(tenant)
                self._background.start(self._renew(tenant, list(held.values()), is_reserving=is_reserving))
            elif is_reserving:
                self._reserve_s = 0.0

    async def _renew(self, tenant: str, held: Sequence[_Held], *, is_reserving: bool) -> None:
        try:
            for some in _split(held, _MOST_TOGETHER // 2):
                await self._renew_some(some, is_reserving=is_reserving)
        finally:
            self._renewing.discard(tenant)

    async def _renew_some(self, held: Sequence[_Held], *, is_reserving: bool) -> None:
        leases = [one.lease for one in held if one.lease is not None]
        settings = self._settings
        request = RenewRequest(
            request_ids=[one.job.request_id for one in held if is_reserving and one.is_reserved],
            reservation_ms=settings.reservation_ms,
            leases=[LeaseName(cache_key=lease.key, fencing_token=lease.fencing_token) for lease in leases],
            lease_ms=settings.lease_ms,
        )
        if not request.request_ids and not leases:
            return
        try:
            message = await self._cache.unary(
                _RENEW,
                request.SerializeToString(),
                # Later than that it would come too late for some.
                timeout_s=min(settings.lease_ms, settings.reservation_ms) / 2000,
                metadata=held[0].job.inner_metadata,
            )
        except (Unavailable, MeshError) as error:
            self._metrics.renewal_failures.inc()
            if is_reserving:
                self._reserve_s = 0.0
            _log.debug("leases and reservations could not be renewed", extra={"cause": str(error)})
            return
        for lease, state in zip(leases, RenewResponse.FromString(message).leases, strict=True):
            lease.hear(state)


def _split(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]
