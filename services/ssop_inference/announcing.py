"""The lease by which routers find this node: begun when it is ready, renewed while it lives, given back at the end."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from ssop.v1 import registry_pb2
from ssop_chassis.announcement import Announced, sign_announcement
from ssop_chassis.call import Peer
from ssop_chassis.errors import MeshError
from ssop_chassis.logs import describe

ANNOUNCE: Final = "/ssop.v1.RegistryService/AnnounceNode"
WITHDRAW: Final = "/ssop.v1.RegistryService/WithdrawNode"
_RENEWALS: Final = 3
_MOST_TIMEOUT_S: Final = 1.0
_log = logging.getLogger(__name__)


class AnnouncingMetrics:
    """Of a node that announces itself."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.is_announced = Gauge(
            "ssop_inference_announced", "1 while the last renewal of the lease was good.", registry=registry
        )
        self.failures = Counter(
            "ssop_inference_announcement_failures", "Renewals of the lease that failed.", registry=registry
        )


class Announcer:
    """Owned by the event loop. `wall_ms` is milliseconds since the epoch; `metadata` makes the node's own principal."""

    def __init__(
        self,
        registry: Peer,
        metrics: AnnouncingMetrics,
        *,
        node: str,
        instance: str,
        secret: bytes,
        lease_ms: int,
        metadata: Callable[[], Mapping[str, str | bytes]],
        wall_ms: Callable[[], int],
    ) -> None:
        self._registry = registry
        self._metrics = metrics
        self._node = node
        self._instance = instance
        self._secret = secret
        self._lease_ms = lease_ms
        self._metadata = metadata
        self._wall_ms = wall_ms
        self._period_s = lease_ms / _RENEWALS / 1000
        self._address = ""
        self._renewing: asyncio.Task[None] | None = None
        self._withdrawing: asyncio.Task[None] | None = None
        self._is_failing: bool | None = None
        """Whether the last renewal failed; None before the first."""

    def begin(self, address: str) -> None:
        """Announce the node at an address, and go on with it. Idempotent."""
        if self._renewing is None and self._withdrawing is None:
            self._address = address
            self._renewing = asyncio.create_task(self._renew(), name="announce")

    def withdraw(self) -> None:
        """Give the lease back, in the background. Idempotent."""
        if self._withdrawing is None:
            self._withdrawing = asyncio.create_task(self._withdraw(), name="withdraw")

    async def close(self) -> None:
        """Wait until the lease is given back, or its store does not take it."""
        self.withdraw()
        if self._withdrawing is not None:
            await self._withdrawing

    async def _renew(self) -> None:
        while True:
            announced = Announced(self._address, self._node, self._instance, self._wall_ms(), self._lease_ms)
            request = registry_pb2.AnnounceNodeRequest(
                address=self._address,
                instance=self._instance,
                lease_ms=self._lease_ms,
                announcement=sign_announcement(announced, self._secret),
            )
            try:
                await self._call(ANNOUNCE, request.SerializeToString())
            except MeshError as error:
                self._fail(error.reason_name)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next renewal must be tried
                self._fail(describe(error))
            else:
                if self._is_failing is not False:
                    _log.info("the node is announced", extra={"address": self._address})
                self._is_failing = False
                self._metrics.is_announced.set(1)
            await asyncio.sleep(self._period_s)

    def _fail(self, reason: str) -> None:
        self._metrics.is_announced.set(0)
        self._metrics.failures.inc()
        if not self._is_failing:
            # The lease lapses, but routers keep a node that they reach for some time.
            _log.warning("the node can't announce itself", extra={"reason": reason})
        self._is_failing = True

    async def _withdraw(self) -> None:
        if self._renewing is None:
            return
        self._renewing.cancel()
        with suppress(asyncio.CancelledError):
            # One that is under way might arrive behind the withdrawal.
            await self._renewing
        self._metrics.is_announced.set(0)
        request = registry_pb2.WithdrawNodeRequest(address=self._address, instance=self._instance)
        try:
            await self._call(WITHDRAW, request.SerializeToString())
        except MeshError as error:
            _log.warning("the node could not withdraw; its lease lapses", extra={"reason": error.reason_name})
        else:
            _log.info("the node has withdrawn")

    async def _call(self, method: str, request: bytes) -> None:
        timeout_s = min(_MOST_TIMEOUT_S, self._period_s)
        await self._registry.unary(method, request, timeout_s=timeout_s, metadata=self._metadata())
