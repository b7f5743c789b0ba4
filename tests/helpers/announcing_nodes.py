"""Nodes as processes of their own, without a model, that announce themselves; and what a router says of its nodes."""

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio

from helpers.router_fleet import FleetRouter, ServiceProcess
from helpers.router_process import wait_serving
from helpers.scripted_mesh import SECRET
from ssop.v1 import router_pb2

RECORDING = {"tokens": [[1, '{"mood":"'], [1, 'fine","score":3}']], "input_tokens": 2}


@dataclass
class AnnouncingNodes:
    """Starts nodes in a folder in which a cache service listens on `cache.sock`."""

    folder: Path
    stack: AsyncExitStack
    nodes: dict[str, ServiceProcess] = field(default_factory=dict)

    async def start(
        self, name: str, *, announce: bool = True, listen: str = "", wait_ms: int = 1, **settings: Any
    ) -> ServiceProcess:
        """Start a node and wait until it serves."""
        (self.folder / "secret").write_text(SECRET.hex())
        tokens = [[wait_ms, text] for _, text in RECORDING["tokens"]]  # type: ignore[attr-defined]
        recording = self.folder / f"{name}.jsonl"
        recording.write_text(json.dumps(RECORDING | {"tokens": tokens}) + "\n")
        address = listen or f"unix:{self.folder}/{name}.sock"
        values = {"node": name, "listen": [address], "announce": announce, **settings}
        if announce:
            values["cache_address"] = f"unix:{self.folder}/cache.sock"
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        config = (
            f'[mesh]\nsecret_file = "{self.folder}/secret"\nlame_duck_ms = 200\n[inference]\n'
            + "\n".join(lines)
            + f'\n[[inference.models]]\nname = "r"\nbackend = "replay"\npath = "{recording}"\n'
            'tiers = ["full"]\nslots = 64\n'
        )
        node = ServiceProcess(self.folder, name, "inference", config)
        self.nodes[name] = node
        self.stack.push_async_callback(node.stop)
        async with grpc.aio.insecure_channel(address) as channel:
            await wait_serving(channel)
        return node


async def mesh_status(router: FleetRouter) -> router_pb2.GetMeshStatusResponse:
    """What a router says."""
    response: router_pb2.GetMeshStatusResponse = await router.stub.GetMeshStatus(
        router_pb2.GetMeshStatusRequest(), timeout=20, metadata=router.metadata
    )
    return response


async def eventually_status(router: FleetRouter, holds: Any, timeout_s: float = 90) -> router_pb2.GetMeshStatusResponse:
    """The first status of which something holds; fails with the last one where it never does."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    while not holds(status := await mesh_status(router)):
        assert loop.time() < deadline_s, f"did not hold within {timeout_s} s: {status}"
        await asyncio.sleep(0.05)
    return status


def sources_of(status: router_pb2.GetMeshStatusResponse) -> dict[str, list[str]]:
    """Where nodes come from, by the last part of their address."""
    return {view.address.rpartition("/")[2].removesuffix(".sock"): list(view.sources) for view in status.nodes}


def is_ready(status: router_pb2.GetMeshStatusResponse, name: str) -> bool:
    """Whether a node has said its status."""
    return any(view.status.node == name for view in status.nodes)
