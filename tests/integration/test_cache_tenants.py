"""No tenant reads what another has, at no level, by no key and by no question: a short walk of many calls.

The walk of a million calls is in tests/drill. All that a tenant stores carries its mark, and every byte that it gets is
held against it.
"""

import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from helpers.cache_service import CacheClient, CacheUnderTest, answer, running_cache
from helpers.redis_server import redis_pair
from ssop.v1.mesh_pb2 import CacheLevel

TENANTS: Final = ("acme", "acme:answer", "{acme}", "ACME", "acm\u0435", "*", "\u5929\u6c14")
KEYS: Final = [bytes([number]) * 32 for number in range(6)]
QUESTIONS: Final = ["How far is it?", "please, how far is it", "Hi! How far is it?", "How near is it?", "\u591a\u8fdc"]
SCOPES: Final = [b"\7" * 32, b"\10" * 32]
OPERATIONS: Final = 1_200
SEED: Final = 20_261_129
_MARK: Final = re.compile(rb"owner(\d+)end")


class Walk:
    """Tenants that take turns on two hosts."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.crossings: list[str] = []
        self._number = 0

    async def step(self, hosts: list[CacheUnderTest]) -> None:
        """One call."""
        tenant = self.rng.randrange(len(TENANTS))
        client = self.rng.choice(hosts).client(TENANTS[tenant])
        operation: Callable[[int, CacheClient], Awaitable[None]] = self.rng.choices(
            (self._store, self._look_up, self._ask, self._flush), (4, 4, 4, 0.3)
        )[0]
        await operation(tenant, client)

    async def _store(self, tenant: int, client: CacheClient) -> None:
        key, scope = self.rng.choice(KEYS), self.rng.choice(SCOPES)
        self._number += 1
        admitted = await client.admit(f"w{self._number}", key, max_age_ms=self.rng.choice([0, 1]))
        self._judge(tenant, admitted.answer.chunk, "admit")
        if not admitted.fencing_token:
            return
        await client.commit(key, admitted.fencing_token, answer(f"owner{tenant}end"))
        await client.put_similar(self.rng.choice(QUESTIONS), key, scope_key=scope)
        self.counts["stored"] += 1

    async def _look_up(self, tenant: int, client: CacheClient) -> None:
        found = await client.lookup(self.rng.choice(KEYS))
        self._judge(tenant, found.answer.chunk, "look-up")
        self.counts[CacheLevel.Name(found.answer.level)] += 1

    async def _ask(self, tenant: int, client: CacheClient) -> None:
        found = await client.find_similar(self.rng.choice(QUESTIONS), scope_key=self.rng.choice(SCOPES))
        self._judge(tenant, found.answer.chunk, "similar")
        self.counts["similar"] += found.HasField("answer")

    async def _flush(self, tenant: int, client: CacheClient) -> None:
        await client.flush(self.rng.choice([b"", self.rng.choice(KEYS)]))
        self.counts["flushed"] += 1

    def _judge(self, tenant: int, chunk: bytes, what: str) -> None:
        owners = {int(number) for number in _MARK.findall(chunk)}
        if owners - {tenant}:
            self.crossings.append(f"{what}: tenant {tenant} got bytes of {owners}")


async def test_no_tenant_reads_what_another_has_at_any_level(tmp_path: Path) -> None:
    walk = Walk(SEED)
    with redis_pair() as servers:
        # Each host is restarted once, over what it left on disk.
        for _ in range(2):
            async with AsyncExitStack() as stack:
                hosts = [
                    await stack.enter_async_context(
                        running_cache(*servers, local_sync_ms=10, local_directory=tmp_path / name)
                    )
                    for name in ("here", "there")
                ]
                for _ in range(OPERATIONS // 2):
                    await walk.step(hosts)
    assert walk.crossings == []
    # Each way to read was really tried, and found something.
    found = [walk.counts[name] for name in ("CACHE_LEVEL_LOCAL", "CACHE_LEVEL_SHARED", "similar", "stored", "flushed")]
    assert min(found) > 20, walk.counts
