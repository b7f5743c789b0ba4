"""Nodes with the real small model, each a process that a test kills and starts again."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio

from helpers.models import models_dir
from helpers.router_fleet import ServiceProcess
from helpers.router_process import wait_serving


@dataclass
class MortalNodes:
    """Nodes of both tiers, by name."""

    folder: Path
    nodes: dict[str, ServiceProcess] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start a node; it serves a few seconds later."""
        config = (
            f'[mesh]\nsecret_file = "{self.folder}/secret"\ndrain_ms = 500\n'
            f'[mesh.metrics_listen]\ninference = "127.0.0.1:0"\n'
            f'[inference]\nnode = "{name}"\nlisten = ["unix:{self.folder}/{name}.sock"]\n'
            f'models_dir = "{models_dir()}"\n'
            "threads = 1\n[inference.limits]\nmax_string_chars = 80\n"
        )
        self.nodes[name] = ServiceProcess(self.folder, name, "inference", config)

    async def serves(self, name: str) -> None:
        """Wait until a node serves."""
        async with grpc.aio.insecure_channel(self.nodes[name].address) as channel:
            await wait_serving(channel)

    def kill(self, name: str) -> None:
        """kill -9."""
        self.nodes[name].kill()


@asynccontextmanager
async def mortal_nodes(folder: Path, secret: bytes, *names: str) -> AsyncIterator[MortalNodes]:
    """Run nodes until the block ends."""
    (folder / "secret").write_text(secret.hex())
    found = MortalNodes(folder)
    async with AsyncExitStack() as stack:
        for name in names:
            found.start(name)
            stack.push_async_callback(_stop, found, name)
        for name in names:
            await found.serves(name)
        yield found


async def _stop(found: MortalNodes, name: str) -> None:
    await found.nodes[name].stop()
