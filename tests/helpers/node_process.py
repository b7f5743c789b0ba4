"""A node without a model, as a process of its own: `python -m helpers.node_process JSON`. See `NodeOrder`."""

import asyncio
import json
import os
import random
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from helpers.scripted_node import GOOD, R, ScriptedNode, encode, node_status_chunk
from ssop.v1 import inference_pb2, mesh_pb2
from ssop_chassis.call import Call
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.grpc_server import start_server
from ssop_inference.resource import read_memory

FAST_S: Final = 0.005
SLOW_S: Final = (2.0, 2.4)
ERROR_RATIO: Final = 0.06
CALLS_TO_OOM: Final = 10
"""So many generations of one process are too much for its memory."""
_STATUS_S: Final = 0.25
_PIECE_BYTES: Final = 8_388_608


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """What a process does. `behaviour` is healthy, fails_fast, slow, errs or grows.

    Each generation adds a byte to the file `calls`, which outlives the process. `ooms` is what the node says of kills
    for memory before it began, where its cgroup (`cgroup`, empty: none) can't count them.
    """

    name: str
    address: str
    calls: str
    secret: str
    behaviour: str = "healthy"
    cgroup: str = ""
    ooms: int = 0
    seed: int = 0

    def to_json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))


class NodeProcess(ScriptedNode):
    """A node that behaves as it is told."""

    def __init__(self, order: NodeOrder) -> None:
        super().__init__(order.name, [mesh_pb2.TIER_FULL], self.behave)
        self.status.models[0].slots_total = 64
        self._order = order
        self._rng = random.Random(f"{order.seed} {order.name} {os.getpid()}")
        self._chunks = encode(GOOD)
        self._served = 0
        self._calls = Path(order.calls).open("ab", buffering=0)  # noqa: SIM115 - as long as the process

    async def behave(self, call: Call, _: Any) -> None:
        """One generation."""
        self.forget()
        self._calls.write(b".")
        self._served += 1
        await self._suffer()
        await call.write(node_status_chunk())
        for chunk in self._chunks:
            await call.write(chunk)

    async def warm_up(self, call: Call) -> None:
        """One generation that no client asked for; not in the file."""
        await self._suffer()
        await call.write(inference_pb2.WarmUpResponse().SerializeToString())

    async def watch_status(self, call: Call) -> None:
        """Say the status, with the kills for memory as a real node reads them."""
        while True:
            counted = read_memory().oom_count if self._order.cgroup else self._order.ooms
            self.status.oom_count = counted
            await call.write(self.status.SerializeToString())
            await asyncio.sleep(_STATUS_S)

    async def _suffer(self) -> None:
        behaviour = self._order.behaviour
        if behaviour == "fails_fast":
            await asyncio.sleep(FAST_S)
            raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "scripted")
        if behaviour == "slow":
            await asyncio.sleep(self._rng.uniform(*SLOW_S))
            return
        if behaviour == "errs" and self._rng.random() < ERROR_RATIO:
            raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "scripted")
        if behaviour == "grows" and self._served >= CALLS_TO_OOM:
            self._grow()
        await asyncio.sleep(self._rng.lognormvariate(-3.2, 0.4))

    def _grow(self) -> None:
        """Take memory until the kernel ends this; without a limit of its own, do what the kernel would."""
        if not self._order.cgroup:
            os.kill(os.getpid(), signal.SIGKILL)
        taken = []
        while True:
            taken.append(os.urandom(_PIECE_BYTES))


async def _serve(order: NodeOrder) -> None:
    if order.cgroup:
        (Path(order.cgroup) / "cgroup.procs").write_text(str(os.getpid()))
    node = NodeProcess(order)
    authenticate = inner_authenticate(bytes.fromhex(order.secret))
    # Kept, because a server that nobody holds stops.
    server = await start_server([node.service()], [order.address], authenticate=authenticate)
    await asyncio.Event().wait()
    await server.stop(0)


if __name__ == "__main__":
    asyncio.run(_serve(NodeOrder(**json.loads(sys.argv[1]))))
