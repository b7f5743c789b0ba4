"""The HTTP edge on a free port of this process, with real sockets, in front of a router that a test scripts."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from helpers.answers import PERSON, delivery, document_chunks
from helpers.scripted_router import ScriptedRouter, as_script, serve
from ssop_chassis.grpc_peer import connect
from ssop_chassis.http_server import bind_sockets, make_server
from ssop_gateway.app import make_app
from ssop_gateway.exchange import Edge
from ssop_gateway.metrics import GatewayMetrics
from ssop_gateway.ops import Readiness
from ssop_gateway.settings import GatewaySettings
from ssop_gateway.upstream import Router

KEY = "ssop_test_key"
GOOD = delivery(document_chunks(PERSON))
SSOP = "application/x-ssop+json"


@dataclass
class Gateway:
    """A running edge."""

    port: int
    registry: CollectorRegistry
    readiness: Readiness

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def metric(self, name: str, **labels: str) -> float:
        """A sample of its metrics; 0 where there is none."""
        return self.registry.get_sample_value(name, labels) or 0.0

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A bare connection."""
        return await asyncio.open_connection("127.0.0.1", self.port)


@asynccontextmanager
async def run_gateway(router_address: str, **settings: Any) -> AsyncIterator[Gateway]:
    """Run an edge until the block ends."""
    parsed = GatewaySettings.model_validate({
        "listen": ["127.0.0.1:0"], "router_address": router_address, "ready_cache_ms": 0, **settings,
    })  # fmt: skip
    registry = CollectorRegistry()
    peer = connect(router_address)
    router = Router(
        peer, ready_timeout_ms=parsed.ready_timeout_ms, ready_cache_ms=parsed.ready_cache_ms, clock=time.monotonic
    )
    readiness = Readiness()
    app = make_app(Edge(parsed, router, GatewayMetrics(registry)), registry, readiness)
    server = make_server(app, parsed, drain_ms=1_000)
    sockets, addresses = bind_sockets(parsed.listen)
    # Without uvicorn's main loop and its graceful end, whose fixed sleeps would take most of the time of these tests;
    # those of a whole mesh have them.
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets=sockets)
    try:
        yield Gateway(int(addresses[0].rpartition(":")[2]), registry, readiness)
    finally:
        for listener in server.servers:
            listener.close()
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        if tasks := set(server.server_state.tasks):
            _, pending = await asyncio.wait(tasks, timeout=5)
            assert not pending
        await peer.close()


@pytest.fixture
def router_address() -> Iterator[str]:
    # Unix socket paths end at 107 bytes, which pytest's own folders come near to.
    with tempfile.TemporaryDirectory(prefix="edge") as folder:
        yield f"unix:{folder}/r.sock"


@pytest.fixture
async def scripted(router_address: str) -> AsyncIterator[ScriptedRouter]:
    router = ScriptedRouter(as_script(GOOD))
    async with serve(router, router_address):
        yield router


@pytest.fixture
async def gateway(scripted: ScriptedRouter, router_address: str) -> AsyncIterator[Gateway]:
    async with run_gateway(router_address) as gateway:
        yield gateway


@pytest.fixture
async def http(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(gateway) as client:
        yield client


def open_client(gateway: Gateway, key: str = KEY) -> httpx.AsyncClient:
    """A client with a key."""
    return httpx.AsyncClient(base_url=gateway.url, headers={"authorization": f"Bearer {key}"}, timeout=10)


def read_sse(text: str) -> list[tuple[str, str]]:
    """Events of a stream as (name, data); comments are left out."""
    events: list[tuple[str, str]] = []
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith(":")]
        if lines:
            fields = dict(line.split(": ", 1) for line in lines)
            events.append((fields.get("event", ""), fields["data"]))
    return events
