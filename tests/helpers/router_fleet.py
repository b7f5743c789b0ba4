"""Router processes that share a cache service, itself a process on real Redis, and nodes in the test's process."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from helpers.child_environ import child_environ
from helpers.ledger import Books
from helpers.log_lines import read_log
from helpers.machine import stretched
from helpers.redis_server import RedisServer
from helpers.router_process import as_error, keys_text, wait_serving
from helpers.scripted_mesh import SECRET, Keys, ScriptedNode
from ssop.v1 import router_pb2, router_pb2_grpc
from ssop.v1.frame_pb2 import Chunk, Frame, FrameKind
from ssop_cache.core.keys import Layout, TenantKeys
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.grpc_server import start_server
from ssop_chassis.identity import Secrets
from ssop_codec.constants import CODEC_VERSION, WIRE_VERSION

ADMISSION_MS: Final = 50
SETTLE_MS: Final = 1_000
PATIENCE_MS: Final = 10_000
"""For tests that don't ask whether the store answers in time: a busy machine holds it up for seconds."""
CROWD: Final = {"max_in_flight": 4_096}
"""What a router takes on here; every bound on time is the default, longer on a machine that has too much to do."""


class ServiceProcess:
    """A service's own process."""

    def __init__(self, folder: Path, name: str, service: str, config: str, without: str = "") -> None:
        self.address = f"unix:{folder}/{name}.sock"
        self._log = folder / f"{name}.log"
        path = folder / f"{name}.toml"
        path.write_text(config)
        environ = child_environ()
        module = f"ssop_{service}.main"
        if without:
            module, environ["SSOP_TEST_WITHOUT"] = "helpers.unguarded", without
        with self._log.open("wb") as log:
            # uvloop's own way to start a process runs the fork handlers of gRPC, which block.
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, "--config", str(path)], stderr=log, env=environ
            )
        self._is_frozen = False

    @property
    def log(self) -> list[dict[str, Any]]:
        """Its lines."""
        return read_log(self._log)

    @property
    def rss_bytes(self) -> int:
        """Memory that it holds."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))

    def freeze(self) -> None:
        """Stop it as a hung machine does."""
        self._process.send_signal(signal.SIGSTOP)
        self._is_frozen = True

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)
        self._is_frozen = False

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()

    async def stop(self) -> None:
        """Drain it; kill what does not end."""
        if self._is_frozen:
            self.thaw()
        if self._process.poll() is None:
            self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, 60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


@dataclass
class Reply:
    """What a client got of one call."""

    frames: list[Frame] = field(default_factory=list)
    error: MeshError | None = None

    @property
    def document(self) -> bytes:
        """The frames of the document, as bytes."""
        frames = [frame for frame in self.frames if frame.kind < FrameKind.FRAME_KIND_DECISION]
        return Chunk(frames=frames).SerializeToString(deterministic=True)

    @property
    def text(self) -> str:
        """The strings of the document, joined."""
        return "".join(frame.string_value for frame in self.frames)


class FleetRouter(ServiceProcess):
    """A router, and a client's connection to it."""

    def __init__(self, folder: Path, name: str, config: str, key: str, without: str = "") -> None:
        super().__init__(folder, name, "router", config, without)
        self.key = key
        self.key = key
        self.channel = self.connect()
        self.stub: Any = router_pb2_grpc.RouterServiceStub(self.channel)

    def connect(self) -> "grpc.aio.Channel":
        """One more connection, with small buffers."""
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.http2.lookahead_bytes", 16_384),
            ("grpc.http2.bdp_probe", 0),
        ]
        return grpc.aio.insecure_channel(self.address, options=options)

    def open(
        self, request: router_pb2.GenerateRequest, timeout_s: float = 60, channel: "grpc.aio.Channel | None" = None
    ) -> Any:
        """A call, to be read."""
        stub = self.stub if channel is None else router_pb2_grpc.RouterServiceStub(channel)
        return stub.Generate(request, timeout=timeout_s, metadata=self.metadata)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What calls with `key` carry."""
        return (("authorization", f"Bearer {self.key}"),)

    async def ask(self, request: router_pb2.GenerateRequest, timeout_s: float = 60) -> Reply:
        """Read a call to its end, good or bad."""
        reply = Reply()
        try:
            async for chunk in self.open(request, timeout_s):
                reply.frames.extend(chunk.frames)
        except grpc.aio.AioRpcError as error:
            reply.error = as_error(error)
        return reply


@dataclass
class Fleet:
    """Routers with what they share."""

    routers: list[FleetRouter]
    nodes: dict[str, ScriptedNode]
    cache: ServiceProcess | None
    servers: tuple[RedisServer, RedisServer] | None

    @property
    def keys(self) -> TenantKeys:
        """Names of the tenant's keys in Redis."""
        return Layout(WIRE_VERSION, CODEC_VERSION).of_tenant("acme")

    def books(self) -> Books:
        """What the state instance says of the tenant's tokens."""
        assert self.servers is not None
        state = self.servers[0]
        charged = state.ask("HGET", self.keys.used, "tokens")
        reserved = state.ask("HGET", self.keys.reserved, "/sum")
        return Books(int(charged or 0), int(reserved or 0))

    @property
    def calls(self) -> int:
        """Generations that nodes were asked for."""
        return sum(len(node.requests) for node in self.nodes.values())


def _toml(section: str, values: Mapping[str, Any]) -> str:
    plain = "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items() if not isinstance(value, dict))
    tables = [_toml(f"{section}.{name}", value) for name, value in values.items() if isinstance(value, dict)]
    return f"[{section}]\n{plain}{''.join(tables)}"


def _mesh(folder: Path, name: str, secrets: Secrets) -> str:
    values: dict[str, Any] = {"max_concurrent_calls": 8_192, "drain_ms": 2_000}
    for field_, secret in (("", secrets.own), ("old_", secrets.old), ("next_", secrets.next)):
        if secret:
            path = folder / f"{name}.{field_}secret"
            path.write_text(secret.hex())
            values[f"{field_}secret_file"] = str(path)
    return _toml("mesh", values)


@asynccontextmanager
async def run_fleet(
    folder: Path,
    nodes: dict[str, ScriptedNode],
    *,
    routers: int = 4,
    servers: tuple[RedisServer, RedisServer] | None = None,
    cache: Mapping[str, Any] | None = None,
    without: str = "",
    addresses: Sequence[str] = (),
    secrets: Secrets = Secrets(SECRET),  # noqa: B008 - immutable
    cache_secrets: Secrets | None = None,
    store_ms: int | None = None,
    **settings: Any,
) -> AsyncIterator[Fleet]:
    """Run the processes until the block ends. `servers`: the state and the cache instance; None: no cache service.

    `addresses` are nodes that run elsewhere; `secrets` those of the routers, and of the cache service unless it has
    its own.
    `store_ms` is how long the cache service and Redis are waited for; None: as long as the defaults say.
    `without` switches a guard off, in cache and routers: see `helpers.unguarded`.
    """
    key = Keys().of()
    (folder / "keys.toml").write_text(keys_text(key))
    mesh = _mesh(folder, "routers", secrets)
    listen = '[mesh.metrics_listen]\nrouter = "127.0.0.1:0"\n'
    async with AsyncExitStack() as stack:
        for name, node in nodes.items():
            server = await start_server(
                [node.service()],
                [f"unix:{folder}/{name}.sock"],
                authenticate=inner_authenticate(*secrets.accepted),
                max_concurrent_calls=8_192,
            )
            stack.push_async_callback(server.stop, 0)
        service: ServiceProcess | None = None
        values = {
            "nodes": [*(f"unix:{folder}/{name}.sock" for name in nodes), *addresses],
            "keys_file": f"{folder}/keys.toml",
            **CROWD,
            "admission_timeout_ms": store_ms or round(stretched(ADMISSION_MS)),
            "settle_timeout_ms": store_ms or round(stretched(SETTLE_MS)),
            **settings,
        }
        if servers is not None:
            values["cache_address"] = f"unix:{folder}/cache.sock"
            told = {
                "listen": [f"unix:{folder}/cache.sock"],
                "state_url": servers[0].url,
                "cache_url": servers[1].url,
                "redis_timeout_ms": store_ms or round(stretched(ADMISSION_MS)),
                **(cache or {}),
            }
            cache_mesh = _mesh(folder, "cache", cache_secrets or secrets)
            service = ServiceProcess(folder, "cache", "cache", cache_mesh + _toml("cache", told), without)
            stack.push_async_callback(service.stop)
            async with grpc.aio.insecure_channel(service.address) as channel:
                await wait_serving(channel)
        running = []
        for number in range(routers):
            name = f"router-{number}"
            config = mesh + listen + _toml("router", {"listen": [f"unix:{folder}/{name}.sock"], **values})
            router = FleetRouter(folder, name, config, key, without)
            stack.push_async_callback(router.stop)
            stack.push_async_callback(router.channel.close)
            running.append(router)
        await asyncio.gather(*(wait_serving(router.channel) for router in running))
        yield Fleet(running, nodes, service, servers)


async def measure_s(until: Any, timeout_s: float) -> float:
    """Seconds until an awaited predicate holds."""
    started_s = time.monotonic()
    while not await until():
        assert time.monotonic() - started_s < timeout_s, f"did not hold within {timeout_s} s"
        await asyncio.sleep(0.02)
    return time.monotonic() - started_s
