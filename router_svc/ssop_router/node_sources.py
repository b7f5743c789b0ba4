"""Where nodes are found at run time: DNS names, and leases of nodes that announce themselves."""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError

from ssop.v1 import registry_pb2
from ssop_chassis.announcement import AnnouncementError, Network, is_within, verify_announcement
from ssop_chassis.errors import MeshError
from ssop_router.core.membership import Place
from ssop_router.dependency import Dependency, InnerMetadata, Unavailable
from ssop_router.metrics import DiscoveryMetrics

LIST_METHOD: Final = "/ssop.v1.RegistryService/ListNodes"
LEASE: Final = "lease"
_DNS: Final = "dns:"
_WARN_AGAIN_MS: Final = 60_000
_log = logging.getLogger(__name__)

Resolve = Callable[[str, int], Sequence[tuple[Any, ...]]]


class SourceError(Exception):
    """A source can't be read now; the text says why."""


def is_dns(address: str) -> bool:
    """Whether an address of the settings is a name to look up again and again."""
    return address.startswith(_DNS)


def read_dns(address: str) -> tuple[str, int]:
    """Host and port of `dns:///host:port`. Raises ValueError."""
    host, _, digits = address.removeprefix(_DNS).lstrip("/").rpartition(":")
    if not host or "/" in host or not (digits.isascii() and digits.isdecimal() and 0 < int(digits) < 65_536):
        raise ValueError(f"{address}: a name to look up is dns:///host:port")
    return host.strip("[]"), int(digits)


def _look_up(host: str, port: int) -> Sequence[tuple[Any, ...]]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


class DnsName:
    """A name whose addresses are nodes. One look-up at a time, however long the resolver takes."""

    def __init__(self, address: str, tiers: frozenset[int], *, timeout_s: float, resolve: Resolve = _look_up) -> None:
        self._host, self._port = read_dns(address)
        self._tiers = tiers
        self._timeout_s = timeout_s
        self._resolve = resolve
        self._asking: asyncio.Future[Sequence[tuple[Any, ...]]] | None = None

    async def read(self) -> Collection[Place]:
        """Raises SourceError: no answer, or no address."""
        if self._asking is None or self._asking.done():
            self._asking = self._ask()
        try:
            async with asyncio.timeout(self._timeout_s):
                found = await asyncio.shield(self._asking)
        except TimeoutError:
            raise SourceError("the resolver does not answer in time") from None
        except (OSError, UnicodeError) as error:
            raise SourceError(f"the resolver says: {getattr(error, 'strerror', '') or 'no such name'}") from None
        addresses = sorted({_join(*entry[4][:2]) for entry in found if "%" not in str(entry[4][0])})
        if not addresses:
            raise SourceError("the name has no address")
        return [Place(address, self._tiers, self._host) for address in addresses]

    def _ask(self) -> "asyncio.Future[Sequence[tuple[Any, ...]]]":
        """In a thread that nobody waits for at the end of the process: a resolver may take minutes."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sequence[tuple[Any, ...]]] = loop.create_future()
        # Nobody may read it, when it comes late.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())

        def settle(found: Sequence[tuple[Any, ...]], error: Exception | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(found)

        def run() -> None:
            found: Sequence[tuple[Any, ...]] = ()
            fault: Exception | None = None
            try:
                found = self._resolve(self._host, self._port)
            except (OSError, UnicodeError) as error:
                fault = error
            try:
                loop.call_soon_threadsafe(settle, found, fault)
            except RuntimeError:
                # The loop has ended meanwhile.
                return

        threading.Thread(target=run, name=f"dns-{self._host}", daemon=True).start()
        return answer


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Leases:
    """Nodes that hold a lease, by way of the cache service. `wall_ms` is milliseconds since the epoch."""

    def __init__(
        self,
        store: Dependency,
        *,
        timeout_s: float,
        metadata: Callable[[], InnerMetadata],
        secrets: Sequence[bytes],
        networks: Sequence[Network | None],
        wall_ms: Callable[[], int],
        metrics: DiscoveryMetrics,
    ) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._metadata = metadata
        self._secrets = secrets
        self._networks = networks
        self._wall_ms = wall_ms
        self._metrics = metrics
        self._warned_ms: int | None = None

    async def read(self) -> Collection[Place]:
        """Raises SourceError where the store does not answer."""
        try:
            data = await self._store.unary(LIST_METHOD, b"", timeout_s=self._timeout_s, metadata=self._metadata())
            response = registry_pb2.ListNodesResponse.FromString(data)
        except MeshError as error:
            raise SourceError(error.reason_name) from None
        except Unavailable:
            raise SourceError("the cache service does not answer") from None
        except DecodeError:
            raise SourceError("the cache service's answer is malformed") from None
        now_ms = self._wall_ms()
        places = []
        for lease in response.leases:
            try:
                announced = verify_announcement(lease.announcement, self._secrets, now_ms=now_ms)
            except AnnouncementError as error:
                self._refuse("unbelieved", str(error), now_ms)
                continue
            if not is_within(announced.address, self._networks):
                self._refuse("network", f"{announced.address} is in none of the networks", now_ms)
                continue
            places.append(Place(announced.address))
        return places

    def _refuse(self, reason: str, detail: str, now_ms: int) -> None:
        self._metrics.announcements_refused.labels(reason).inc()
        if self._warned_ms is None or now_ms - self._warned_ms >= _WARN_AGAIN_MS:
            self._warned_ms = now_ms
            _log.warning("an announcement of a node is not believed", extra={"detail": detail})
