"""A router process between scripted services, on unix sockets."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from helpers.scripted_mesh import SECRET, Keys, ScriptedCache, ScriptedNode, ScriptedRag
from helpers.scripted_stores import ScriptedKeyStore
from ssop.v1 import mesh_pb2, router_pb2, router_pb2_grpc
from ssop_chassis.api_keys import hash_key
from ssop_chassis.call import Service
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError, from_status
from ssop_chassis.grpc_server import GrpcServer, start_server


@dataclass
class Process:
    """A router process with its scripted surroundings."""

    process: "subprocess.Popen[bytes]"
    stub: Any
    channel: "grpc.aio.Channel"
    key: str
    keys_path: Path
    nodes: dict[str, ScriptedNode]
    node_servers: dict[str, GrpcServer]
    cache: ScriptedCache
    cache_server: GrpcServer
    rag: ScriptedRag
    is_stopping: bool = False
    code: int = 0
    """What it has to end with."""

    def terminate(self) -> None:
        """Tell the router to drain; a second signal might meet a process that no longer handles them."""
        self.is_stopping = True
        self.process.terminate()

    def kill(self) -> None:
        """End the router as a crash does."""
        self.is_stopping, self.code = True, -signal.SIGKILL
        self.process.kill()

    def metadata(self, key: str | None = None, **more: str) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {key or self.key}"), *more.items())

    async def generate(self, request: router_pb2.GenerateRequest, timeout_s: float = 60) -> tuple[list[Any], Any]:
        """Frames and trailers; raises the call's MeshError."""
        call = self.stub.Generate(request, timeout=timeout_s, metadata=self.metadata())
        try:
            frames = [frame async for chunk in call for frame in chunk.frames]
            return frames, dict(await call.trailing_metadata())
        except grpc.aio.AioRpcError as error:
            raise as_error(error) from None


def as_error(error: "grpc.aio.AioRpcError") -> MeshError:
    details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    return from_status(error.code().value[0], error.details() or "", details if isinstance(details, bytes) else None)


def keys_text(key: str, scopes: str = '["lite", "full", "rag", "ssop", "admin"]') -> str:
    head = f'[[keys]]\nid = "{key.split("_")[1]}"\ntenant = "acme"\nscopes = {scopes}\n'
    return f'{head}hmac = "{hash_key(key, SECRET).hex()}"\n'


@asynccontextmanager
async def run_process(folder: Path, **settings: Any) -> AsyncIterator[Process]:
    """Run `ssop_router.main` until the block ends; fail when it does not exit with 0."""
    nodes = {
        "full-1": ScriptedNode("full-1", [mesh_pb2.TIER_FULL]),
        "lite-1": ScriptedNode("lite-1", [mesh_pb2.TIER_LITE]),
    }
    cache, rag = ScriptedCache(), ScriptedRag()
    key = Keys().of()
    (folder / "secret").write_text(SECRET.hex())
    (folder / "keys.toml").write_text(keys_text(key))
    inner = inner_authenticate(SECRET)
    async with AsyncExitStack() as stack:

        async def serve(name: str, *services: Service) -> GrpcServer:
            server = await start_server(services, [f"unix:{folder}/{name}.sock"], authenticate=inner)
            stack.push_async_callback(server.stop, 0)
            return server

        node_servers = {name: await serve(name, node.service()) for name, node in nodes.items()}
        cache_server = await serve("cache", cache.service(), ScriptedKeyStore().service())
        await serve("rag", rag.service())
        values = {
            "listen": [f"unix:{folder}/router.sock"],
            "nodes": [f"unix:{folder}/{name}.sock" for name in nodes],
            "cache_address": f"unix:{folder}/cache.sock",
            "rag_address": f"unix:{folder}/rag.sock",
            "keys_file": str(folder / "keys.toml"),
            "keys_poll_ms": 50,
            # What shows a cache that is gone is that nobody listens, and not that a loaded machine is late.
            "admission_timeout_ms": 10_000,
            "settle_timeout_ms": 10_000,
            **settings,
        }
        lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
        (folder / "ssop.toml").write_text(
            f'[mesh]\nsecret_file = "{folder}/secret"\nlog_level = "info"\n[router]\n' + "\n".join(lines)
        )
        with (folder / "router.log").open("wb") as log:
            # uvloop's own way to start a process runs the fork handlers of gRPC, which block.
            process = subprocess.Popen(
                [sys.executable, "-m", "ssop_router.main", "--config", str(folder / "ssop.toml")], stderr=log
            )
        running: Process | None = None
        channel = grpc.aio.insecure_channel(f"unix:{folder}/router.sock")
        try:
            await wait_serving(channel)
            running = Process(
                process,
                router_pb2_grpc.RouterServiceStub(channel),
                channel,
                key,
                folder / "keys.toml",
                nodes,
                node_servers,
                cache,
                cache_server,
                rag,
            )
            yield running
        finally:
            await channel.close()
            if running is None or not running.is_stopping:
                process.terminate()
            code = await asyncio.to_thread(process.wait, 60)
        assert code == (running.code if running is not None else 0), (folder / "router.log").read_text()


async def wait_serving(channel: "grpc.aio.Channel") -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    deadline_s = time.monotonic() + 60
    while True:
        try:
            response = await stub.Check(health_pb2.HealthCheckRequest(), timeout=1, wait_for_ready=True)
            if response.status == health_pb2.HealthCheckResponse.SERVING:
                return
        except grpc.aio.AioRpcError:
            assert time.monotonic() < deadline_s, "the router does not serve"
        await asyncio.sleep(0.02)
