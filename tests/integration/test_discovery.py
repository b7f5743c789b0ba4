"""Nodes that join and leave while requests run: real router, cache service, Redis and node processes."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from helpers.announcing_nodes import AnnouncingNodes, eventually_status, is_ready, sources_of
from helpers.eventually import eventually
from helpers.redis_server import RedisServer, redis_pair
from helpers.router_fleet import FleetRouter, Reply, run_fleet
from helpers.scripted_mesh import SECRET, ask
from helpers.scripted_node import ScriptedNode, answering
from ssop.v1 import mesh_pb2, registry_pb2, router_pb2
from ssop.v1.frame_pb2 import FrameKind
from ssop_cache.core.keys import NODE_LEASES
from ssop_chassis.announcement import Announced, sign_announcement
from ssop_chassis.call import Arity, Call, Metadata, Method, Service
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.grpc_server import start_server
from ssop_chassis.identity import Principal
from ssop_chassis.serving import wall_clock_ms
from ssop_cli.embedded import free_port
from ssop_router.proving import PROVE

Servers = tuple[RedisServer, RedisServer]
LEASE_MS = 2_000


@dataclass
class Scene:
    """A router with one node of its settings, and what starts others."""

    router: FleetRouter
    fixed: ScriptedNode
    nodes: AnnouncingNodes
    servers: Servers
    log: list[dict[str, Any]] = field(default_factory=list)


@asynccontextmanager
async def scene(folder: Path, **discovery: Any) -> AsyncIterator[Scene]:
    fixed = {"fixed": ScriptedNode("fixed", [mesh_pb2.TIER_FULL], answering())}
    table = {"has_leases": True, "poll_ms": 100, "timeout_ms": 2_000, **discovery}
    cache = {"redis_timeout_ms": 1_000}
    with redis_pair() as servers:
        async with (
            run_fleet(folder, fixed, routers=1, servers=servers, cache=cache, discovery=table) as fleet,
            AsyncExitStack() as stack,
        ):
            yield Scene(fleet.routers[0], fixed["fixed"], AnnouncingNodes(folder, stack), servers)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def at(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """For tests that leave it with the nodes that it had."""
    async with scene(tmp_path_factory.mktemp("scene")) as running:
        yield running


# On the loop of the scene, whose node must go on saying its status meanwhile.
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def leaves(at: Scene, name: str) -> None:
    await eventually_status(at.router, lambda status: name not in sources_of(status))


async def joins(at: Scene, name: str) -> router_pb2.GetMeshStatusResponse:
    return await eventually_status(at.router, lambda status: is_ready(status, name))


def served_by(reply: Reply) -> str:
    assert reply.error is None, reply.error
    return next(frame.decision.node for frame in reply.frames if frame.kind == FrameKind.FRAME_KIND_DECISION)


async def ask_many(router: FleetRouter, count: int = 24) -> set[str]:
    """The nodes that so many requests at once were served by."""
    replies = await asyncio.gather(
        *(router.ask(ask(f"{number}", policy="full,no_cache"), timeout_s=60) for number in range(count))
    )
    return {served_by(reply) for reply in replies}


async def is_served_by(router: FleetRouter, *names: str) -> None:
    """Requests go to all of these, and to nobody else, as soon as the router has heard of them of late."""
    async with asyncio.timeout(120):
        while (found := await ask_many(router)) != set(names):
            assert found < set(names)


@dataclass
class Load:
    """Requests one after another, several at a time."""

    router: FleetRouter
    served: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    is_stopped: bool = False

    async def run(self) -> None:
        while not self.is_stopped:
            reply = await self.router.ask(ask(secrets.token_hex(4), policy="full,no_cache"), timeout_s=60)
            if reply.error is not None:
                self.failures.append(repr(reply.error))
                continue
            node = served_by(reply)
            self.served[node] = self.served.get(node, 0) + 1

    def count(self, node: str) -> int:
        return self.served.get(node, 0)


@asynccontextmanager
async def under_load(router: FleetRouter, width: int = 8) -> AsyncIterator[Load]:
    load = Load(router)
    workers = [asyncio.ensure_future(load.run()) for _ in range(width)]
    try:
        yield load
    finally:
        load.is_stopped = True
        await asyncio.gather(*workers)


async def test_node_that_announces_itself_is_sent_requests(at: Scene) -> None:
    assert await ask_many(at.router) == {"fixed"}
    node = await at.nodes.start("late")
    status = await joins(at, "late")
    assert sources_of(status) == {"fixed": ["static"], "late": ["lease"]}
    sources = [(source.name, source.is_available, source.nodes) for source in status.node_sources]
    assert sources == [("lease", True, 1)]
    await is_served_by(at.router, "fixed", "late")
    await node.stop()
    await leaves(at, "late")


async def test_node_that_is_killed_leaves_with_its_lease_and_no_request_fails(at: Scene) -> None:
    mortal = await at.nodes.start("mortal", announce_lease_ms=LEASE_MS, wait_ms=20)
    await joins(at, "mortal")
    async with under_load(at.router) as load:
        await eventually(lambda: load.count("mortal") > 10, 60)
        mortal.kill()
        await leaves(at, "mortal")
        before = load.count("fixed")
        await eventually(lambda: load.count("fixed") > before + 20, 60)
    assert load.failures == []


async def test_node_that_is_told_to_stop_leaves_at_once_and_no_request_fails(at: Scene) -> None:
    # Its lease would hold for ten minutes.
    polite = await at.nodes.start("polite", announce_lease_ms=600_000, wait_ms=100)
    await joins(at, "polite")
    async with under_load(at.router) as load:
        await eventually(lambda: load.count("polite") > 10, 60)
        await polite.stop()
        await leaves(at, "polite")
    assert load.failures == []


async def test_node_that_comes_back_at_its_address_is_served_by_again(at: Scene) -> None:
    first = await at.nodes.start("again", announce_lease_ms=LEASE_MS)
    await joins(at, "again")
    await first.stop()
    await leaves(at, "again")
    second = await at.nodes.start("again", announce_lease_ms=LEASE_MS)
    await joins(at, "again")
    await is_served_by(at.router, "fixed", "again")
    await second.stop()
    await leaves(at, "again")


async def test_without_redis_the_nodes_stay_and_that_is_flagged(tmp_path: Path) -> None:
    async with scene(tmp_path, linger_ms=60_000) as at:
        await at.nodes.start("late", announce_lease_ms=LEASE_MS)
        await joins(at, "late")
        at.servers[0].kill()
        both = {"fixed": ["static"], "late": ["lease"]}
        status = await eventually_status(at.router, lambda status: not status.node_sources[0].is_available)
        assert sources_of(status) == both
        # Its lease has lapsed by then.
        status = await eventually_status(at.router, lambda status: status.node_sources[0].age_ms > LEASE_MS + 500)
        assert sources_of(status) == both
        await is_served_by(at.router, "fixed", "late")
        at.servers[0].start()
        status = await eventually_status(at.router, lambda status: status.node_sources[0].is_available)
        assert sources_of(status) == both
        await is_served_by(at.router, "fixed", "late")


def put_lease(server: RedisServer, announced: Announced, secret: bytes) -> None:
    """Write an announcement as who reaches Redis can."""
    now_ms = wall_clock_ms()
    head = f"{now_ms + 600_000} {now_ms} {announced.instance} ".encode()
    server.ask("HSET", NODE_LEASES[0], announced.address, head + sign_announcement(announced, secret))


@pytest.mark.parametrize("secret", [b"x" * 32, SECRET], ids=["forged", "without a proof"])
async def test_stranger_is_sent_nothing(at: Scene, tmp_path: Path, secret: bytes) -> None:
    stranger = ScriptedNode("stranger", [mesh_pb2.TIER_FULL], answering())
    address = f"unix:{tmp_path}/stranger.sock"
    async with AsyncExitStack() as stack:
        asked = await serve_on(stack, stranger, address)
        put_lease(at.servers[0], Announced(address, "stranger", "0" * 32, wall_clock_ms(), 60_000), secret)
        if secret == SECRET:
            # Who listens there has not the secret, though the announcement was good.
            await eventually_status(at.router, lambda status: "stranger" in sources_of(status))
            await eventually(lambda: len(asked) > 1, 60)
        else:
            message = "an announcement of a node is not believed"
            await eventually(lambda: any(line["message"] == message for line in at.router.log), 60)
        assert await ask_many(at.router) == {"fixed"}
        at.servers[0].ask("HDEL", NODE_LEASES[0], address)
        await leaves(at, "stranger")
    # Neither a prompt nor a principal, who could be taken for the router with it.
    assert len(stranger.requests) == 0
    assert set(asked) <= {PROVE}


async def serve_on(stack: AsyncExitStack, node: ScriptedNode, address: str) -> list[str]:
    """Serve a node that answers every challenge, wrongly; returns the methods that it will be asked for."""
    asked: list[str] = []

    async def prove(call: Call) -> None:
        asked.append(call.method)
        await call.write(registry_pb2.ProveMembershipResponse(proof=bytes(32)).SerializeToString())

    def take(metadata: Metadata) -> Principal:
        asked.append("a call with a principal")
        return inner_authenticate(SECRET)(metadata)

    method = Method(PROVE, Arity.UNARY, prove, needs_principal=False)
    services = [node.service(), Service("ssop.v1.MembershipService", [method])]
    server = await start_server(services, [address], authenticate=take)
    stack.push_async_callback(server.stop, 0)
    return asked


async def test_name_is_looked_up_and_its_nodes_are_served_by(tmp_path: Path) -> None:
    port = free_port()
    name = f"dns:///localhost:{port}"
    async with AsyncExitStack() as stack:
        nodes = AnnouncingNodes(tmp_path, stack)
        await nodes.start("named", announce=False, listen=f"127.0.0.1:{port}")
        fleet = await stack.enter_async_context(run_fleet(tmp_path, {}, routers=1, addresses=[name]))
        router = fleet.routers[0]
        status = await eventually_status(router, lambda status: is_ready(status, "named"))
        assert [list(view.sources) for view in status.nodes if view.status.node == "named"] == [[name]]
        assert await ask_many(router, 4) == {"named"}
