"""Nodes that join and leave at run time: reads the sources, and brings the nodes in line (`core/membership.py`)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ssop.v1.mesh_pb2 import Tier
from ssop.v1.router_pb2 import NodeSourceView
from ssop_chassis.call import Peer
from ssop_chassis.logs import describe
from ssop_router.core.membership import Membership, Place
from ssop_router.core.policy import TIER_OF_WORD
from ssop_router.core.success import Outcomes
from ssop_router.dependency import Dependency, InnerMetadata
from ssop_router.metrics import DiscoveryMetrics, RouterMetrics
from ssop_router.node_sources import LEASE, DnsName, Leases, SourceError, is_dns
from ssop_router.nodes import Node, Nodes
from ssop_router.proving import ProvingPeer
from ssop_router.settings import RouterSettings

_log = logging.getLogger(__name__)
_FIRST_LOOK_S: Final = 3.0

Read = Callable[[], Awaitable[Collection[Place]]]


@dataclass(frozen=True, slots=True)
class Reader:
    """How a source is read, and how often. `read` has its own deadline, and raises SourceError."""

    read: Read
    period_s: float
    is_final: bool


@dataclass(frozen=True, slots=True)
class Joining:
    """What a router needs to take nodes at run time. `secrets` are those that proofs may be made with.

    `open_peer` takes an address and the name that its certificate must carry; `close_peer` closes one when its calls
    have ended.
    """

    open_peer: Callable[[str, str], Peer]
    close_peer: Callable[[Peer], Awaitable[None]]
    secrets: Sequence[bytes]


class Discovery:
    """Owned by the event loop. `clock_ms` is monotonic."""

    def __init__(
        self,
        nodes: Nodes,
        static: Collection[Place],
        readers: Mapping[str, Reader],
        joining: Joining,
        *,
        linger_ms: int,
        max_nodes: int,
        new_outcomes: Callable[[], Outcomes],
        metrics: RouterMetrics,
        own_metrics: DiscoveryMetrics,
        clock_ms: Callable[[], int],
    ) -> None:
        self._nodes = nodes
        self._readers = readers
        self._joining = joining
        self._new_outcomes = new_outcomes
        self._metrics = metrics
        self._own = own_metrics
        self._clock_ms = clock_ms
        self._closing: set[asyncio.Future[None]] = set()
        self._opened: set[ProvingPeer] = set()
        self._failing: set[str] = set()
        self._refused = 0
        self.membership = Membership(
            static,
            {name: reader.is_final for name, reader in readers.items()},
            linger_ms=linger_ms,
            max_nodes=max_nodes,
            now_ms=clock_ms(),
        )
        for name, source in self.membership.sources.items():
            own_metrics.node_source_up.labels(name).set(0)
            own_metrics.node_source_age_seconds.labels(name).set_function(
                lambda source=source: source.age_ms(clock_ms()) / 1000  # type: ignore[misc]  # a default binds early
            )

    async def look(self) -> None:
        """Read every source once, all at the same time; what takes longer than its deadline counts as failed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LOOK_S):
                await asyncio.gather(*(self._read(name) for name in self._readers))

    async def run(self) -> None:
        """Follow the sources until cancelled, then close what was opened."""
        try:
            async with asyncio.TaskGroup() as group:
                for name in self._readers:
                    group.create_task(self._follow(name))
        finally:
            opened, self._opened = self._opened, set()
            for peer in opened:
                await peer.close()

    async def _follow(self, name: str) -> None:
        while True:
            await asyncio.sleep(self._readers[name].period_s)
            await self._read(name)

    async def _read(self, name: str) -> None:
        source = self.membership.sources[name]
        try:
            places = await self._readers[name].read()
        except SourceError as error:
            self.membership.fail(name)
            self._own.node_source_up.labels(name).set(0)
            if name not in self._failing:
                self._failing.add(name)
                extra = {"source": name, "cause": str(error), "nodes": source.listed}
                _log.warning("a source of nodes can't be read; its last list holds", extra=extra)
            return
        except Exception as error:  # noqa: BLE001 - one source's fault must not end the others
            self.membership.fail(name)
            self._own.node_source_up.labels(name).set(0)
            self._metrics.watch_faults.inc()
            _log.error("reading a source of nodes failed", extra={"source": name, "cause": describe(error)})
            return
        self.membership.take(name, places, self._clock_ms())
        self._own.node_source_up.labels(name).set(1)
        if name in self._failing:
            self._failing.discard(name)
            _log.info("a source of nodes can be read again", extra={"source": name})
        self._settle()

    def _settle(self) -> None:
        change = self.membership.settle(self._clock_ms(), self._is_alive)
        for address in change.left:
            _log.info("a node leaves", extra={"address": address})
            self._own.node_changes.labels("left").inc()
            self._leave(address)
        for place in change.joined:
            sources = self.membership.sources_of(place.address)
            _log.info("a node joins", extra={"address": place.address, "sources": sources})
            self._own.node_changes.labels("joined").inc()
            self._join(place)
        if change.refused > self._refused:
            _log.error("there are more nodes than a router takes", extra={"refused": change.refused})
        self._refused = change.refused
        self._own.nodes_refused.set(change.refused)

    def _is_alive(self, address: str) -> bool:
        node = self._nodes.find(address)
        return node is not None and node.is_alive

    def _join(self, place: Place) -> None:
        if self._nodes.find(place.address) is not None:
            self._nodes.stay(place.address)
            return
        peer = ProvingPeer(self._joining.open_peer(place.address, place.server_name), self._joining.secrets)
        self._opened.add(peer)
        node = Node(
            peer,
            frozenset(Tier.ValueType(tier) for tier in place.tiers),
            self._new_outcomes(),
            needs_status=True,
        )
        self._nodes.join(node)
        show_age(node, self._metrics, self._clock_ms)

    def _leave(self, address: str) -> None:
        node = self._nodes[address]

        def close() -> None:
            with suppress(KeyError):
                self._metrics.node_status_age_seconds.remove(address)
            peer = node.peer
            if isinstance(peer, ProvingPeer):
                closing = asyncio.ensure_future(self._close(peer))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

        self._nodes.leave(address, close)

    async def _close(self, peer: ProvingPeer) -> None:
        await self._joining.close_peer(peer.inner)
        self._opened.discard(peer)

    def views(self) -> list[NodeSourceView]:
        """The sources, for the mesh's status."""
        now_ms = self._clock_ms()
        return [
            NodeSourceView(
                name=name, is_available=source.is_available, age_ms=source.age_ms(now_ms), nodes=source.listed
            )
            for name, source in self.membership.sources.items()
        ]

    def origin(self, address: str) -> tuple[list[str], int]:
        """The sources of a node, and how long ago one said it, in milliseconds."""
        return self.membership.sources_of(address), self.membership.age_ms(address, self._clock_ms())


def show_age(node: Node, metrics: RouterMetrics, clock_ms: Callable[[], int]) -> None:
    """Show the age of a node's status as a metric, until it leaves."""

    def age_s() -> float:
        age_ms = node.view().age_ms(clock_ms())
        return -1.0 if age_ms is None else age_ms / 1000

    metrics.node_status_age_seconds.labels(node.peer.address).set_function(age_s)
    metrics.ejected.labels(node.peer.address)


def make_discovery(
    settings: RouterSettings,
    nodes: Nodes,
    joining: Joining,
    *,
    leases: Dependency | None,
    metadata: Callable[[], InnerMetadata],
    new_outcomes: Callable[[], Outcomes],
    metrics: RouterMetrics,
    own_metrics: DiscoveryMetrics,
    clock_ms: Callable[[], int],
    wall_ms: Callable[[], int],
) -> Discovery | None:
    """What the settings ask for; None where all nodes stay. `leases` is the cache service."""
    table = settings.discovery
    readers = {}
    for node in settings.nodes:
        if is_dns(node.address):
            tiers = frozenset(TIER_OF_WORD[word] for word in node.tiers)
            name = DnsName(node.address, tiers, timeout_s=table.dns_timeout_ms / 1000)
            readers[node.address] = Reader(name.read, table.dns_refresh_ms / 1000, is_final=True)
    if table.has_leases and leases is not None:
        lease_reader = Leases(
            leases,
            timeout_s=table.timeout_ms / 1000,
            metadata=metadata,
            secrets=joining.secrets,
            networks=table.allowed,
            wall_ms=wall_ms,
            metrics=own_metrics,
        )
        readers[LEASE] = Reader(lease_reader.read, table.poll_ms / 1000, is_final=False)
    if not readers:
        return None
    return Discovery(
        nodes,
        [Place(node.address) for node in settings.static_nodes],
        readers,
        joining,
        linger_ms=table.linger_ms,
        max_nodes=table.max_nodes,
        new_outcomes=new_outcomes,
        metrics=metrics,
        own_metrics=own_metrics,
        clock_ms=clock_ms,
    )
