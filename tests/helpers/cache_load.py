"""Requests that come all the time while Redis fails over: what each of them saw, and when."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from helpers.cache_service import LEASE, CacheClient, answer
from helpers.eventually import eventually
from ssop_chassis.errors import MeshError

LEASE_MS = 60_000


@dataclass
class Seen:
    """A call, and how it ended; `reason` is empty where it went well."""

    started_s: float
    cost_s: float
    reason: str


@dataclass
class CacheLoad:
    """One requester for each client; requests are admitted, generated, committed and settled."""

    clients: Sequence[CacheClient]
    seen: list[Seen] = field(default_factory=list)
    admitted_s: dict[tuple[int, str], float] = field(default_factory=dict)
    """When a request that is not settled yet was admitted, by requester and id."""
    forgotten: list[float] = field(default_factory=list)
    """When those were admitted that the store did not know any more as they were settled."""
    wrong: list[str] = field(default_factory=list)

    async def run(self, number: int) -> None:
        """Ask until cancelled."""
        client, turn = self.clients[number], 0
        while True:
            turn += 1
            request_id, key = f"r{number}-{turn}", bytes([number]) + turn.to_bytes(31, "big")
            if not await self._try(self._generate(client, number, request_id, key)):
                # A caller that is served without admission does not come again at once.
                await asyncio.sleep(0.01)

    async def _generate(self, client: CacheClient, number: int, request_id: str, key: bytes) -> None:
        admission = await client.admit(request_id, key, tokens=10, lease_ms=LEASE_MS)
        admitted_s = time.monotonic()
        self.admitted_s[number, request_id] = admitted_s
        if admission.outcome != LEASE:
            self.wrong.append(f"{request_id} got outcome {admission.outcome}")
            return
        try:
            await client.commit(key, admission.fencing_token, answer(request_id))
        except MeshError as error:
            if error.reason_name != "LEASE_LOST":
                raise
            self.forgotten.append(admitted_s)
        charged = await client.settle(request_id, 3)
        del self.admitted_s[number, request_id]
        if charged == 0:
            self.forgotten.append(admitted_s)
        elif charged != 3:
            self.wrong.append(f"{request_id} was charged {charged}")

    async def _try(self, call: "asyncio.Future[None] | object") -> bool:
        started_s = time.monotonic()
        reason = ""
        try:
            await call  # type: ignore[misc]
        except MeshError as error:
            reason = error.reason_name
        self.seen.append(Seen(started_s, time.monotonic() - started_s, reason))
        return not reason

    @property
    def reasons(self) -> set[str]:
        """What went wrong, by name."""
        return {seen.reason for seen in self.seen} - {""}

    def served_since(self, at_s: float) -> int:
        """Requests that began after that and went well."""
        return sum(seen.started_s > at_s and not seen.reason for seen in self.seen)

    async def back_after_s(self, since_s: float, least: int = 20) -> float:
        """Seconds until the first of `least` requests that go well began."""
        await eventually(lambda: self.served_since(since_s + 0.3) >= least)
        return min(seen.started_s for seen in self.seen if seen.started_s > since_s + 0.3 and not seen.reason) - since_s


@asynccontextmanager
async def under_load(clients: Sequence[CacheClient]) -> AsyncIterator[CacheLoad]:
    """Load from these clients until the block ends; it has begun to be served."""
    load = CacheLoad(clients)
    tasks = [asyncio.ensure_future(load.run(number)) for number in range(len(clients))]
    try:
        await eventually(lambda: load.served_since(0) >= 5 * len(clients))
        yield load
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
