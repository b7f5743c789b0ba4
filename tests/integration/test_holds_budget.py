"""A token budget over four router processes: not one token over, and what a killed router had reserved comes back."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from helpers.eventually import eventually
from helpers.ledger import Books, LedgerFault, check_budget, check_charges
from helpers.machine import stretched
from helpers.redis_server import RedisServer, redis_pair
from helpers.router_fleet import PATIENCE_MS, Fleet, Reply, run_fleet
from helpers.scripted_mesh import SECRET, R, ask
from helpers.scripted_node import ScriptedNode, answering, hanging
from ssop.v1 import cache_pb2, mesh_pb2
from ssop.v1.content_pb2 import Sampling
from ssop_chassis.grpc_peer import connect
from ssop_chassis.identity import Principal, Signer
from ssop_chassis.serving import wall_clock_ms

USED_TOKENS = 10
"""What an answer of a scripted node takes."""
OUTPUT_TOKENS = 32
LEASE_MS = 4_000
"""A router renews its leases many times within it, also where it gets nothing of the machine for seconds."""
MONTH_MS = 2_678_400_000
Servers = tuple[RedisServer, RedisServer]


@pytest.fixture
def servers() -> Iterator[Servers]:
    with redis_pair() as pair:
        yield pair


def question(number: int = 0) -> Any:
    request = ask(f"How is the mood of {number:04}?", policy="full,no_cache")
    request.request_id = f"r-{number}"
    request.prompt.sampling.CopyFrom(Sampling(max_output_tokens=OUTPUT_TOKENS))
    return request


def full_node() -> dict[str, ScriptedNode]:
    return {"full-1": ScriptedNode("full-1", [mesh_pb2.TIER_FULL])}


@asynccontextmanager
async def watching(fleet: Fleet) -> AsyncIterator[list[Books]]:
    """The books, read over and over until the block ends."""
    seen: list[Books] = []

    async def watch() -> None:
        while True:
            seen.append(await asyncio.to_thread(fleet.books))
            await asyncio.sleep(0.02)

    task = asyncio.ensure_future(watch())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def answered(replies: list[Reply]) -> list[int]:
    """The tokens of each generation; every other request was refused for want of tokens, and nothing else."""
    for reply in replies:
        if reply.error is not None:
            assert reply.error.reason == R.ERROR_REASON_QUOTA_EXHAUSTED, Counter(str(other.error) for other in replies)
    return [USED_TOKENS for reply in replies if reply.error is None]


async def test_four_routers_with_1000_requests_each_use_not_one_token_too_many(
    servers: Servers, tmp_path: Path
) -> None:
    budget = 20_000
    limits = {"budget_tokens": budget, "budget_window_ms": MONTH_MS}
    async with run_fleet(tmp_path, full_node(), servers=servers, cache=limits, store_ms=PATIENCE_MS) as fleet:
        async with watching(fleet) as seen:
            requests = [(fleet.routers[number % 4], question(number)) for number in range(4_000)]
            replies = list(await asyncio.gather(*(router.ask(request) for router, request in requests)))
            # Settlements outlive their calls.
            await eventually(lambda: seen[-1].reserved == 0)
        generated = answered(replies)
        rest = fleet.books()
        calls = fleet.calls
    assert len(seen) > 10
    check_budget([*seen, rest], budget)
    check_charges(rest, generated)
    assert calls == len(generated)
    # The budget is what stopped the others: most of it was promised to somebody at some time.
    print(f"{len(generated)} of 4000 served, {rest.charged} of {budget} tokens charged")
    assert 0 < len(generated) < 4_000
    assert max(books.charged + books.reserved for books in seen) > budget * 0.9


async def test_what_a_killed_router_had_reserved_is_back_within_its_lease(servers: Servers, tmp_path: Path) -> None:
    nodes = full_node()
    nodes["full-1"].script = hanging(after=2)
    limits = {"budget_tokens": 60, "budget_window_ms": MONTH_MS}
    lasts: dict[str, Any] = {"lease_ms": LEASE_MS, "reservation_ms": LEASE_MS}
    async with run_fleet(
        tmp_path, nodes, servers=servers, routers=2, cache=limits, store_ms=PATIENCE_MS, **lasts
    ) as fleet:
        first, second = fleet.routers
        call = first.open(ask_cached())
        assert await call.read() is not grpc.aio.EOF
        held = fleet.books().reserved
        assert held > 60 / 2
        refused = await second.ask(question(1))
        assert refused.error is not None
        assert refused.error.reason == R.ERROR_REASON_QUOTA_EXHAUSTED
        # The stream is alive: signs of life have kept the reservation for longer than a lease by now.
        await asyncio.sleep(1.5 * LEASE_MS / 1000)
        assert fleet.books().reserved == held
        nodes["full-1"].script = answering()
        first.kill()
        killed_s = time.monotonic()
        number = 2
        while (reply := await second.ask(question(number))).error is not None:
            assert reply.error.reason == R.ERROR_REASON_QUOTA_EXHAUSTED
            number += 1
            await asyncio.sleep(0.05)
        back_s = time.monotonic() - killed_s
        await eventually(lambda: fleet.books() == Books(USED_TOKENS, 0))
    print(f"reservation back {back_s:.2f} s after the kill; lease {LEASE_MS / 1000} s")
    # The rest is for a request and two shared cores.
    assert back_s < stretched(LEASE_MS / 1000 + 0.5)


def ask_cached() -> Any:
    request = question()
    request.policy = "full"
    return request


async def test_generation_longer_than_a_lease_stays_reserved(servers: Servers, tmp_path: Path) -> None:
    nodes = full_node()
    nodes["full-1"].script = hanging(after=2)
    limits = {"budget_tokens": 60, "budget_window_ms": MONTH_MS}
    async with run_fleet(
        tmp_path, nodes, servers=servers, routers=2, cache=limits, store_ms=PATIENCE_MS, reservation_ms=LEASE_MS
    ) as fleet:
        call = fleet.routers[0].open(question(), timeout_s=60)
        assert await call.read() is not grpc.aio.EOF
        # Its signs of life have kept the reservation for longer than it lasts by itself.
        await asyncio.sleep(1.5 * LEASE_MS / 1000)
        refused = await fleet.routers[1].ask(question(1))
        assert refused.error is not None
        assert refused.error.reason == R.ERROR_REASON_QUOTA_EXHAUSTED
        call.cancel()


async def settle_twice(servers: Servers, folder: Path, without: str) -> None:
    """Callers that did not hear that a settlement has worked repeat it."""
    limits = {"budget_tokens": 1_000_000, "budget_window_ms": MONTH_MS}
    async with run_fleet(
        folder, full_node(), servers=servers, routers=1, cache=limits, store_ms=PATIENCE_MS, without=without
    ) as fleet:
        requests = [question(number) for number in range(20)]
        replies = list(await asyncio.gather(*(fleet.routers[0].ask(request) for request in requests)))
        generated = answered(replies)
        await eventually(lambda: fleet.books() == Books(sum(generated), 0))
        assert fleet.cache is not None
        peer = connect(fleet.cache.address)
        metadata = Signer(SECRET, "router", wall_clock_ms).metadata(Principal("acme", "k0"))
        try:
            for request in requests:
                settlement = cache_pb2.SettleRequest(
                    request_id=request.request_id, usage=mesh_pb2.Usage(input_tokens=7, output_tokens=3)
                )
                path = "/ssop.v1.CacheService/Settle"
                await peer.unary(path, settlement.SerializeToString(), timeout_s=30, metadata=metadata)
        finally:
            await peer.close()
        books = fleet.books()
    check_charges(books, generated)


async def test_settlement_that_is_repeated_is_charged_once(servers: Servers, tmp_path: Path) -> None:
    await settle_twice(servers, tmp_path, "")


async def test_checker_fails_without_dedupe(servers: Servers, tmp_path: Path) -> None:
    with pytest.raises(LedgerFault, match="400 tokens were charged for 200"):
        await settle_twice(servers, tmp_path, "dedupe")
