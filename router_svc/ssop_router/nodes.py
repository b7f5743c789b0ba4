# cython: annotation_typing=False
"""The nodes: a status stream to each, its age, and the immutable snapshot that decisions read.

`nodes.pxd` gives the types with which this very file is compiled.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final

from google.protobuf.message import DecodeError

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.inference_pb2 import ModelState, ModelStatus, WatchStatusRequest, WatchStatusResponse
from ssop.v1.mesh_pb2 import Tier
from ssop_chassis.call import Peer
from ssop_chassis.deadline import Deadline
from ssop_chassis.errors import MeshError
from ssop_chassis.logs import describe
from ssop_router.core.snapshot import ModelView, NodeView, Snapshot
from ssop_router.core.success import Outcome, Outcomes
from ssop_router.core.tuples import make
from ssop_router.rotation import Rotation, Standing

_WATCH: Final = "/ssop.v1.InferenceService/WatchStatus"
# Memory changes slowly, and a node that can't read it any more goes on saying the last value.
_MEMORY_STALE_MS: Final = 60_000
# A KV cache fills and empties with each request.
_KV_STALE_MS: Final = 5_000
_EXPECTED: Final = (MeshError, TimeoutError, DecodeError)
_log = logging.getLogger(__name__)


class Node:
    """A node and what is known of it. Owned by the event loop of its process.

    With `needs_status` it is sent no request before it has said its status.
    """

    def __init__(
        self,
        peer: Peer,
        expected_tiers: frozenset[Tier.ValueType],
        outcomes: Outcomes,
        *,
        needs_status: bool = False,
    ) -> None:
        self.peer = peer
        self.in_flight = 0
        self.is_leaving = False
        self._needs_status = needs_status
        self.status: WatchStatusResponse | None = None
        self.name = peer.address
        """As the node calls itself; its address before it has."""
        self.seen_at_ms: int | None = None
        self.is_connected = False
        self.standing = Standing()
        self._expected_tiers = expected_tiers
        # What the last status says, read when a decision first asks: more statuses come than decisions look at.
        self._models: tuple[ModelView, ...] | None = ()
        self._memory_free_ratio: float | None = None
        self.started_at_ms = 0
        """When its process was started, in milliseconds since the epoch: another value is a restart. 0: not known."""
        self.tiers: list[Tier.ValueType] | None = None
        """Those that its last status named, as the rotation was told them."""
        self._outcomes = outcomes
        self._view: NodeView | None = None
        self._is_back = asyncio.Event()

    def take(self, status: WatchStatusResponse, now_ms: int) -> None:
        """A status has arrived."""
        self._view = self._models = None
        self.status = status
        self.name = status.node or self.peer.address
        self.started_at_ms = status.started_at_ms
        self.seen_at_ms = now_ms
        self.is_connected = True

    def lose(self) -> None:
        """Its status stream has ended."""
        self._view = None
        self.is_connected = False

    @property
    def is_known(self) -> bool:
        """It may be sent requests, for all that can be said without its status."""
        return not self.is_leaving and (self.status is not None or not self._needs_status)

    @property
    def is_alive(self) -> bool:
        """It says its status, and that it takes requests or will."""
        models = self.status.models if self.status is not None else ()
        return self.is_connected and any(model.state != ModelState.MODEL_STATE_DRAINING for model in models)

    def occupy(self, requests: int) -> None:
        """So many more requests of this router run on it."""
        self._view = None
        self.in_flight += requests

    def record(self, outcome: Outcome, now_ms: int) -> None:
        """An attempt at it has ended."""
        self._view = None
        self._outcomes.record(outcome, now_ms)

    def stand(self, standing: Standing) -> None:
        """Its place in the rotation is another."""
        self._view = None
        if standing.weight > 0 and self.standing.weight == 0:
            # It has shown that it is well; a share that grows is all the caution that is left.
            self._outcomes.forget()
            self._is_back.set()
        self.standing = standing

    async def pause(self, duration_s: float) -> None:
        """Wait before its status is asked for again, or until a probe has found it well."""
        self._is_back.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(duration_s):
                await self._is_back.wait()

    def view(self) -> NodeView:
        """What decisions read; the same object until something changes."""
        if self._view is None:
            models = self._models
            if models is None:
                models = self._read()
            weight, limit, reason = self.standing
            self._view = make(
                NodeView,
                (
                    self.peer.address,
                    self.name,
                    models,
                    self.seen_at_ms,
                    self.is_connected,
                    self.in_flight,
                    self._memory_free_ratio,
                    self._expected_tiers,
                    weight == 0,
                    reason,
                    self._outcomes.view(),
                    weight,
                    limit,
                ),
            )
        return self._view

    def _read(self) -> tuple[ModelView, ...]:
        status = self.status
        if status is None:
            return ()
        self._memory_free_ratio = _free_ratio(status)
        self._models = tuple([_view(model) for model in status.models])
        return self._models


def _free_ratio(status: WatchStatusResponse) -> float | None:
    """The least of what is free of its memory and of its models' KV caches; None while nothing fresh is known."""
    total = status.memory_total_bytes.value
    is_known = total > 0 and status.memory_free_bytes.age_ms <= _MEMORY_STALE_MS
    free_ratios = [status.memory_free_bytes.value / total] if is_known else []
    free_ratios += [
        1 - model.kv_used_ratio.value
        for model in status.models
        if model.HasField("kv_used_ratio") and model.kv_used_ratio.age_ms <= _KV_STALE_MS
    ]
    return min(free_ratios, default=None)


def _view(status: ModelStatus) -> ModelView:
    busy, queue = status.slots_busy, status.queue_length
    return ModelView(
        name=status.model,
        state=status.state,
        tiers=frozenset(status.tiers),
        context_tokens=status.context_tokens,
        slots_total=status.slots_total,
        slots_busy=busy.value,
        queue_length=queue.value,
        capabilities=frozenset(status.capabilities),
        has_logprobs=status.has_logprobs,
        constraint_mode=status.constraint_mode,
        load_age_ms=max(busy.age_ms, queue.age_ms),
    )


class Occupation:
    """A place on a node, from the beginning of a block to its end."""

    def __init__(self, nodes: "Nodes", address: str) -> None:
        self._nodes = nodes
        self._address = address
        self._node: Node | None = None

    def __enter__(self) -> Node:
        node = self._node = self._nodes.begin(self._address)
        return node

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._node is not None:
            self._nodes.end(self._node)


class Nodes:
    """All nodes. `clock_ms` is monotonic; `metadata` makes the router's own principal.

    Nodes may join and leave while requests run. One that leaves gets no more of them, and goes with the last of them.
    `outcomes` takes those of all nodes together. `rotation` makes the rotation, given what hears of its changes.
    `on_fault` counts errors of watching that nobody foresaw.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        outcomes: Outcomes,
        rotation: Callable[[Callable[[str], None]], Rotation],
        clock_ms: Callable[[], int],
        rng: random.Random,
        metadata: Callable[[], Mapping[str, str | bytes]],
        stale_ms: int,
        restart_ms: int,
        reconnect_ms: tuple[int, int],
        on_fault: Callable[[], None] = lambda: None,
    ) -> None:
        self.outcomes = outcomes
        self._nodes = {node.peer.address: node for node in nodes}
        self._clock_ms = clock_ms
        self._rng = rng
        self._metadata = metadata
        self._stale_ms = stale_ms
        self._restart_ms = restart_ms
        self._reconnect_ms = reconnect_ms
        self._on_fault = on_fault
        self._snapshot: Snapshot | None = None
        self._heard = asyncio.Event()
        self._rotation = rotation(self._stand)
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._is_watching = False
        self._on_gone: dict[str, Callable[[], None]] = {}

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def __getitem__(self, address: str) -> Node:
        return self._nodes[address]

    def find(self, address: str) -> Node | None:
        """The node at an address, unless it has gone."""
        return self._nodes.get(address)

    def join(self, node: Node) -> None:
        """A node is new. One that is there already, and leaves, must have gone first: see `stay`."""
        address = node.peer.address
        self._nodes[address] = node
        self._snapshot = node.tiers = None
        self._rotation.add(address, node.peer)
        if self._is_watching:
            self._watches[address] = asyncio.ensure_future(self._watch(node))

    def stay(self, address: str) -> None:
        """A node that was leaving is wanted again."""
        node = self._nodes[address]
        node.is_leaving = False
        self._on_gone.pop(address, None)
        self.join(node)

    def leave(self, address: str, on_gone: Callable[[], None]) -> None:
        """A node gets no more requests. `on_gone` is called when those that run on it have ended."""
        node = self._nodes[address]
        node.is_leaving = True
        node.lose()
        self._snapshot = None
        self._rotation.remove(address)
        if (watch := self._watches.pop(address, None)) is not None:
            watch.cancel()
        self._on_gone[address] = on_gone
        self._let_go(node)

    def _let_go(self, node: Node) -> None:
        address = node.peer.address
        if node.is_leaving and node.in_flight == 0 and (on_gone := self._on_gone.pop(address, None)) is not None:
            del self._nodes[address]
            on_gone()

    def process(self, address: str) -> int:
        """When the process of a node was started, as it says; 0 where that is not known."""
        node = self._nodes.get(address)
        return node.started_at_ms if node is not None else 0

    @property
    def rotation(self) -> Rotation:
        """Who is in and who is out."""
        return self._rotation

    def snapshot(self) -> Snapshot:
        """The nodes as they are known now."""
        if self._snapshot is None:
            views = []
            for node in self._nodes.values():
                if node.is_known:
                    views.append(node.view())  # noqa: PERF401 - a comprehension has no types of its own
            self._snapshot = make(Snapshot, (tuple(views),))
        return self._snapshot

    def occupy(self, address: str) -> "Occupation":
        """Count an attempt as in flight on its node, in a `with`.

        Entering it raises BACKEND_NOT_READY where the node has gone meanwhile.
        """
        return Occupation(self, address)

    def begin(self, address: str) -> Node:
        """An attempt begins; `end` must follow. Raises BACKEND_NOT_READY."""
        node = self._nodes.get(address)
        if node is None or not node.is_known:
            raise MeshError(ErrorReason.ERROR_REASON_BACKEND_NOT_READY, "the node has left")
        node.occupy(1)
        self._snapshot = None
        return node

    def end(self, node: Node) -> None:
        """An attempt that had begun has ended."""
        node.occupy(-1)
        self._snapshot = None
        if node.is_leaving:
            self._let_go(node)

    def finish(self, node: Node, outcome: Outcome, latency_ms: float) -> None:
        """As `end`, of an attempt that counts for its node: it ended, or gave its first field, after so long."""
        now_ms = self._clock_ms()
        self.outcomes.record(outcome, now_ms)
        if not node.is_leaving:
            node.record(outcome, now_ms)
            # Counted while it still is in flight.
            self._place(node, self._rotation.record(node.peer.address, outcome, latency_ms, node.in_flight))
        self.end(node)

    def _stand(self, address: str) -> None:
        self._place(self._nodes[address], self._rotation.standing(address))

    def _place(self, node: Node, standing: Standing) -> None:
        if standing != node.standing:
            node.stand(standing)
        self._snapshot = None

    async def hear_all(self) -> None:
        """Return when every node has said its status once."""
        await self._heard.wait()

    async def watch(self) -> None:
        """Follow the status of every node; runs until cancelled."""
        self._is_watching = True
        self._watches = {address: asyncio.ensure_future(self._watch(node)) for address, node in self._nodes.items()}
        try:
            await self._rotation.watch()
        finally:
            self._is_watching = False
            watches = list(self._watches.values())
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    async def _watch(self, node: Node) -> None:
        least_ms, most_ms = self._reconnect_ms
        backoff_ms = least_ms
        while True:
            before_ms = node.seen_at_ms
            try:
                await self._follow(node)
            except Exception as error:  # noqa: BLE001 - one node's fault must not end the watch of the others
                if self._is_renewal(node, error):
                    continue
                if not isinstance(error, _EXPECTED):
                    self._on_fault()
                    _log.error("watching a node failed", extra={"address": node.peer.address, "cause": describe(error)})
                elif node.is_connected:
                    reason = error.reason_name if isinstance(error, MeshError) else type(error).__name__
                    _log.warning("a node's status is lost", extra={"address": node.peer.address, "reason": reason})
            is_gone = not node.is_connected and node.seen_at_ms is not None
            node.lose()
            if is_gone:
                # It had been seen, and could not be reached again at once.
                self._rotation.lose(node.peer.address)
            self._stand(node.peer.address)
            backoff_ms = least_ms if node.seen_at_ms != before_ms else min(most_ms, backoff_ms * 2)
            # Jitter keeps routers that lost the same node from returning in step.
            await node.pause(backoff_ms * self._rng.uniform(0.8, 1.2) / 1000)

    def _is_renewal(self, node: Node, error: Exception) -> bool:
        """Whether a stream only reached its own length, so that nothing is lost."""
        is_deadline = isinstance(error, MeshError) and error.reason == ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED
        age_ms = None if node.seen_at_ms is None else self._clock_ms() - node.seen_at_ms
        return is_deadline and age_ms is not None and age_ms < self._stale_ms

    async def _follow(self, node: Node) -> None:
        """One status stream. Raises TimeoutError when the node falls silent, since a node speaks every second."""
        stale_s = self._stale_ms / 1000
        with Deadline(stale_s) as silence:

            def take(message: bytes) -> None:
                silence.set(stale_s)
                is_new = not node.is_connected
                before = node.status
                status = WatchStatusResponse.FromString(message)
                node.take(status, self._clock_ms())
                self._snapshot = None
                tiers = [tier for model in status.models for tier in model.tiers]
                if tiers != node.tiers:
                    self._rotation.serve_tiers(node.peer.address, tiers)
                    node.tiers = tiers
                if before is not None and status.oom_count > before.oom_count:
                    self._rotation.take_ooms(node.peer.address, status.oom_count - before.oom_count)
                if is_new:
                    _log.info("a node says its status", extra={"address": node.peer.address, "node": node.name})
                    if all(one.status is not None for one in self):
                        self._heard.set()

            await node.peer.stream(
                _WATCH,
                WatchStatusRequest().SerializeToString(),
                take,
                timeout_s=self._restart_ms / 1000,
                metadata=self._metadata(),
            )
