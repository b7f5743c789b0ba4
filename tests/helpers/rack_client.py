"""Clients on a host of their own: `python -m helpers.rack_client` does what a line of JSON on standard input says.

`do` is `ask` (`count` requests with `policy`, all at once), `begin` (`at_once` lines of requests, on connections of
their own where `is_fresh`) and `end`, answered by outcomes, or `view`, by the routers' nodes. `targets`, `ca` and
`name` say whom to call and whom to believe.
"""

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from helpers.front_load import SCHEMA
from ssop.v1 import router_pb2
from ssop_sdk import AsyncSsopClient, SsopError
from ssop_sdk.target import Tls

TIMEOUT_S: Final = 60.0
LOST: Final = "CONNECTION_LOST"
"""The client's own connection was lost when frames of the answer had come, which it may ask for again (`resume`)."""
_VIEW_TIMEOUT_S: Final = 20.0
_PAUSE_S: Final = 0.1
_POLICIES: Final = ("full,no_cache", "lite,no_cache")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a request. `reason` is that of the error, `detail` its text; `level` is that of the degradation."""

    request_id: str
    answer: Any
    reason: str
    detail: str
    level: int
    node: str
    took_s: float
    at_s: float


class _Clients:
    def __init__(self) -> None:
        self._key = os.environ["SSOP_TEST_KEY"]
        self._numbers = itertools.count()
        self._begun_s = time.monotonic()
        self._stop = asyncio.Event()
        self._outcomes: list[Outcome] = []
        self._asking: list[asyncio.Task[None]] = []

    def _open(self, told: Mapping[str, Any]) -> AsyncSsopClient:
        tls = Tls(root_certificates=Path(told["ca"]), server_name=told["name"])
        target = ",".join(f"ssops://{target}" for target in told["targets"])
        return AsyncSsopClient(self._key, target, tls=tls, timeout_s=TIMEOUT_S, allow_degraded=True)

    async def _one(self, client: AsyncSsopClient, policy: str) -> Outcome:
        name = f"r-{os.getpid()}-{next(self._numbers)}"
        started_s = time.monotonic()
        stream = client.generate(f"How is {name}?", output_schema=SCHEMA, policy=policy, request_id=name)
        answer, reason, detail = None, "", ""
        try:
            answer = await stream.result()
        except SsopError as error:
            reason, detail = error.reason or type(error).__name__, str(error)
            if not error.from_mesh and stream.frames_received:
                reason = LOST
        level = stream.status.degraded_level if stream.status is not None else 0
        node = stream.decision.node if stream.decision is not None else ""
        now_s = time.monotonic()
        return Outcome(name, answer, reason, detail, level, node, now_s - started_s, now_s - self._begun_s)

    async def ask(self, told: Mapping[str, Any]) -> Any:
        """So many, all at once."""
        async with self._open(told) as client:
            outcomes = await asyncio.gather(*(self._one(client, told["policy"]) for _ in range(told["count"])))
        return [asdict(outcome) for outcome in outcomes]

    async def begin(self, told: Mapping[str, Any]) -> Any:
        """Ask one after the other, in several lines, until `end`."""

        async def line(number: int) -> None:
            while not self._stop.is_set():
                async with self._open(told) as client:
                    while not self._stop.is_set():
                        self._outcomes.append(await self._one(client, _POLICIES[number % len(_POLICIES)]))
                        await asyncio.sleep(_PAUSE_S)
                        if told.get("is_fresh"):
                            break

        self._stop.clear()
        self._outcomes.clear()
        self._asking = [asyncio.create_task(line(number)) for number in range(told["at_once"])]
        return None

    async def end(self, _: Mapping[str, Any]) -> Any:
        """What came of it."""
        self._stop.set()
        await asyncio.gather(*self._asking)
        return [asdict(outcome) for outcome in self._outcomes]

    async def view(self, told: Mapping[str, Any]) -> Any:
        """By router: its nodes with where they are from and whether they are out; none where it does not answer."""
        found: dict[str, Any] = {}
        credentials = grpc.ssl_channel_credentials(Path(told["ca"]).read_bytes())
        options = [("grpc.ssl_target_name_override", told["name"])]
        for target in told["targets"]:
            async with grpc.aio.secure_channel(target, credentials, options=options) as channel:
                get = channel.unary_unary(
                    "/ssop.v1.RouterService/GetMeshStatus",
                    request_serializer=router_pb2.GetMeshStatusRequest.SerializeToString,
                    response_deserializer=router_pb2.GetMeshStatusResponse.FromString,
                )
                try:
                    status = await get(
                        router_pb2.GetMeshStatusRequest(),
                        timeout=_VIEW_TIMEOUT_S,
                        metadata=(("authorization", f"Bearer {self._key}"),),
                    )
                except grpc.aio.AioRpcError as error:
                    found[target] = error.code().name
                    continue
            found[target] = {
                view.address: {
                    "sources": list(view.sources),
                    "is_in": not view.is_ejected and not view.is_leaving,
                    "node": view.status.node,
                }
                for view in status.nodes
            }
        return found


async def main() -> None:
    """Until standard input ends."""
    clients = _Clients()
    work = {"ask": clients.ask, "begin": clients.begin, "end": clients.end, "view": clients.view}
    while line := await asyncio.to_thread(sys.stdin.readline):
        told = json.loads(line)
        print(json.dumps(await work[told["do"]](told)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
