"""Nodes that join and leave a router: what runs on them, what is closed, what is shown."""

import asyncio
import random
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from helpers.eventually import eventually
from helpers.scripted_mesh import SECRET, Mesh, ask, run_router
from helpers.scripted_node import ScriptedNode, answering, hanging
from ssop.v1 import mesh_pb2, registry_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.announcement import prove
from ssop_chassis.call import Call, Metadata, OnMessage, Peer, bind
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.memory import MemoryPeer
from ssop_inference.membership import MembershipServicer
from ssop_router.core.membership import Place
from ssop_router.core.success import Outcomes
from ssop_router.discovery import Discovery, Joining, Reader
from ssop_router.metrics import DiscoveryMetrics
from ssop_router.node_sources import SourceError
from ssop_router.proving import PROVE, ProvingPeer


@dataclass
class Town:
    """A router whose source says what the test says, and the nodes that there are."""

    mesh: Mesh
    nodes: dict[str, ScriptedNode] = field(default_factory=dict)
    listed: set[str] = field(default_factory=set)
    is_broken: bool = False
    closed: list[str] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    metrics: CollectorRegistry = field(default_factory=CollectorRegistry)

    def open(self, address: str, _: str) -> Peer:
        self.opened.append(address)
        services = [self.nodes[address].service(), MembershipServicer(SECRET).service()]
        return MemoryPeer(services, inner_authenticate(SECRET), address=address)

    async def close(self, peer: Peer) -> None:
        self.closed.append(peer.address)

    async def read(self) -> Collection[Place]:
        if self.is_broken:
            raise SourceError("scripted")
        return [Place(address) for address in self.listed]

    def add(self, address: str) -> ScriptedNode:
        node = self.nodes[address] = ScriptedNode(address, [mesh_pb2.TIER_FULL], answering())
        self.listed.add(address)
        return node


@asynccontextmanager
async def town() -> AsyncIterator[tuple[Town, Discovery]]:
    fixed = {"fixed": ScriptedNode("fixed", [mesh_pb2.TIER_FULL], answering())}
    async with run_router(fixed, has_rag=False) as mesh:
        there = Town(mesh)
        discovery = Discovery(
            mesh.router.nodes,
            [Place("fixed")],
            {"dns": Reader(there.read, 0.01, is_final=True)},
            Joining(there.open, there.close, (SECRET,)),
            linger_ms=1_000,
            max_nodes=3,
            new_outcomes=lambda: Outcomes(half_life_ms=1_000, window_ms=1_000),
            metrics=mesh.router.metrics,
            own_metrics=DiscoveryMetrics(there.metrics),
            clock_ms=lambda: 0,
        )
        running = asyncio.ensure_future(discovery.run())
        try:
            yield there, discovery
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


def addresses(there: Town) -> set[str]:
    return {view.address for view in there.mesh.router.nodes.snapshot().nodes}


async def served_by_all(there: Town, *names: str) -> None:
    """Requests at once, which spread."""
    async with asyncio.timeout(60):
        served: set[str] = set()
        while served != set(names):
            crowd = [there.mesh.generate(ask(f"{n}", policy="full,no_cache"), timeout_s=60) for n in range(16)]
            answers = await asyncio.gather(*crowd)
            assert [answer.error for answer in answers] == [None] * 16
            served |= {answer.decision.node for answer in answers}
            assert served <= set(names)


async def test_node_that_joins_is_served_by_once_its_status_is_known() -> None:
    async with town() as (there, _):
        there.add("new")
        await eventually(lambda: "new" in addresses(there), 60)
        await served_by_all(there, "fixed", "new")


async def test_request_on_a_node_that_leaves_runs_to_its_end_and_then_its_peer_is_closed() -> None:
    async with town() as (there, _):
        new, go_on = there.add("new"), asyncio.Event()

        async def slow(call: Call, request: Any) -> None:
            await go_on.wait()
            await answering()(call, request)

        new.script = slow
        await eventually(lambda: "new" in addresses(there), 60)
        calls = [
            asyncio.ensure_future(there.mesh.generate(ask(f"{n}", policy="full,no_cache"), timeout_s=60))
            for n in range(8)
        ]
        await eventually(lambda: new.running > 0, 60)
        there.listed.discard("new")
        await eventually(lambda: "new" not in addresses(there), 60)
        node = there.mesh.router.nodes.find("new")
        assert node is not None
        assert node.is_leaving
        assert there.closed == []
        await served_by_all(there, "fixed")
        go_on.set()
        answers = await asyncio.gather(*calls)
        assert [answer.error for answer in answers] == [None] * 8
        assert "new" in {answer.decision.node for answer in answers}
        await eventually(lambda: there.closed == ["new"], 60)
        assert there.mesh.router.nodes.find("new") is None


async def test_node_that_is_wanted_again_while_it_leaves_stays() -> None:
    async with town() as (there, _):
        new = there.add("new")
        new.script = hanging()
        await eventually(lambda: "new" in addresses(there), 60)
        call = asyncio.ensure_future(there.mesh.generate(ask(policy="full,no_cache"), timeout_s=60))
        others = [
            asyncio.ensure_future(there.mesh.generate(ask(f"{n}", policy="full,no_cache"), timeout_s=60))
            for n in range(8)
        ]
        await eventually(lambda: new.running > 0, 60)
        there.listed.discard("new")
        await eventually(lambda: "new" not in addresses(there), 60)
        there.listed.add("new")
        await eventually(lambda: "new" in addresses(there), 60)
        assert there.opened == ["new"]
        assert there.closed == []
        for task in (call, *others):
            task.cancel()
        await asyncio.gather(call, *others, return_exceptions=True)


async def test_metrics_of_a_node_go_with_it() -> None:
    async with town() as (there, _):
        there.add("new")
        await eventually(lambda: "new" in addresses(there), 60)
        name = "ssop_router_node_status_age_seconds"
        assert there.mesh.registry.get_sample_value(name, {"address": "new"}) is not None
        there.listed.discard("new")
        await eventually(lambda: there.closed == ["new"], 60)
        assert there.mesh.registry.get_sample_value(name, {"address": "new"}) is None
        assert there.mesh.registry.get_sample_value("ssop_router_node_ejected", {"address": "new"}) is None


async def test_source_that_fails_keeps_its_nodes_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with town() as (there, discovery):
        there.add("new")
        await eventually(lambda: "new" in addresses(there), 60)
        there.is_broken = True
        up = "ssop_router_node_source_up"
        await eventually(lambda: there.metrics.get_sample_value(up, {"source": "dns"}) == 0, 60)
        there.listed.clear()
        await served_by_all(there, "fixed", "new")
        assert [(view.is_available, view.nodes) for view in discovery.views()] == [(False, 1)]
        assert caplog.text.count("can't be read") == 1
        there.is_broken = False
        await eventually(lambda: "new" not in addresses(there), 60)


async def test_too_many_nodes_are_refused_and_counted() -> None:
    async with town() as (there, _):
        for number in range(5):
            there.add(f"n{number}")
        await eventually(lambda: there.metrics.get_sample_value("ssop_router_nodes_refused") == 3, 60)
        assert len(list(there.mesh.router.nodes)) == 3


async def test_node_that_left_between_decision_and_attempt_is_a_failure_like_others() -> None:
    async with town() as (there, _):
        there.add("new")
        await eventually(lambda: "new" in addresses(there), 60)
        nodes = there.mesh.router.nodes
        there.listed.discard("new")
        await eventually(lambda: nodes.find("new") is None, 60)
        with pytest.raises(MeshError) as caught, nodes.occupy("new"):
            pass
        assert caught.value.reason == ErrorReason.ERROR_REASON_BACKEND_NOT_READY
        assert nodes.process("new") == 0


async def test_coming_and_going_fails_no_request_and_leaves_nothing_behind() -> None:
    async with town() as (there, discovery):
        rng, is_over = random.Random(7), False
        await eventually(lambda: discovery.membership.sources["dns"].is_available, 60)
        tasks = len(asyncio.all_tasks())

        async def ask_on() -> list[Any]:
            failures = []
            while not is_over:
                answer = await there.mesh.generate(ask(f"{rng.random()}", policy="full,no_cache"), timeout_s=60)
                if answer.error is not None:
                    failures.append(answer.error)
            return failures

        clients = [asyncio.ensure_future(ask_on()) for _ in range(6)]
        for _ in range(80):
            address = f"n{rng.randrange(4)}"
            if address in there.listed:
                there.listed.discard(address)
            else:
                there.nodes.pop(address, None)
                there.add(address)
            await asyncio.sleep(rng.uniform(0, 0.02))  # the pace of the changes, which nothing waits for
        there.listed.clear()
        await eventually(lambda: addresses(there) == {"fixed"}, 60)
        is_over = True
        assert await asyncio.gather(*clients) == [[]] * 6
        await eventually(lambda: len(there.closed) == len(there.opened), 60)
        await eventually(lambda: len(asyncio.all_tasks()) <= tasks, 60)
        assert len(there.opened) > 10
        assert len(list(there.mesh.router.nodes)) == 1


class Prover:
    """A peer that proves what it is told to, and remembers what it was sent."""

    address = "n"

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self.sent: list[tuple[str, Metadata | None]] = []
        self.fault: MeshError | None = None

    async def unary(self, method: str, request: bytes, *, timeout_s: float, metadata: Metadata | None = None) -> bytes:
        self.sent.append((method, metadata))
        if method != PROVE:
            if self.fault is not None:
                raise self.fault
            return request
        challenge = registry_pb2.ProveMembershipRequest.FromString(request).challenge
        return registry_pb2.ProveMembershipResponse(proof=prove(self.secret, challenge)).SerializeToString()

    async def stream(
        self, method: str, request: bytes, on_message: OnMessage, *, timeout_s: float, metadata: Metadata | None = None
    ) -> Metadata:
        await self.unary(method, request, timeout_s=timeout_s, metadata=metadata)
        return {}

    async def close(self) -> None:
        pass

    @property
    def methods(self) -> list[str]:
        return [method for method, _ in self.sent]


TOKEN = {"x-ssop-principal-bin": b"token"}


async def call(peer: ProvingPeer) -> bytes:
    return await peer.unary("/m", b"x", timeout_s=5, metadata=TOKEN)


async def test_peer_proves_itself_once_before_it_is_told_anything() -> None:
    prover = Prover(SECRET)
    peer = ProvingPeer(prover, (b"z" * 32, SECRET))
    assert await asyncio.gather(*(call(peer) for _ in range(5))) == [b"x"] * 5
    assert prover.sent[0] == (PROVE, None)
    assert prover.methods == [PROVE, *["/m"] * 5]


@pytest.mark.parametrize("is_stream", [False, True])
async def test_peer_that_can_not_prove_itself_is_told_nothing(is_stream: bool) -> None:
    prover = Prover(b"x" * 32)
    peer = ProvingPeer(prover, (SECRET,))
    with pytest.raises(MeshError) as caught:
        await (peer.stream("/m", b"x", lambda _: None, timeout_s=5, metadata=TOKEN) if is_stream else call(peer))
    assert caught.value.reason == ErrorReason.ERROR_REASON_BACKEND_FAILED
    assert prover.sent == [(PROVE, None)]


@pytest.mark.parametrize(
    ("reason", "proofs"),
    [
        (ErrorReason.ERROR_REASON_BACKEND_FAILED, 2),
        (ErrorReason.ERROR_REASON_OVERLOADED, 1),
        (ErrorReason.ERROR_REASON_REQUEST_INVALID, 1),
    ],
)
async def test_proof_is_asked_for_again_when_the_connection_may_be_another(
    reason: ErrorReason.ValueType, proofs: int
) -> None:
    prover = Prover(SECRET)
    peer = ProvingPeer(prover, (SECRET,))
    prover.fault = MeshError(reason, "scripted")
    with pytest.raises(MeshError):
        await call(peer)
    prover.fault = None
    await call(peer)
    assert prover.methods.count(PROVE) == proofs


@pytest.mark.parametrize("length", [0, 15, 65])
async def test_challenge_of_another_length_is_refused(length: int) -> None:
    service = bind(
        registry_pb2.DESCRIPTOR.services_by_name["MembershipService"], MembershipServicer(SECRET), needs_principal=False
    )
    peer = MemoryPeer([service], inner_authenticate(SECRET))
    request = registry_pb2.ProveMembershipRequest(challenge=bytes(length)).SerializeToString()
    with pytest.raises(MeshError) as caught:
        await peer.unary(PROVE, request, timeout_s=5)
    assert caught.value.reason == ErrorReason.ERROR_REASON_REQUEST_INVALID
