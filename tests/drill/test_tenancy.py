"""A million calls of hostile tenants, at the cache service and at a router on it: none reads what another has.

Takes a quarter of an hour or more, so `make nightly` runs it. SSOP_TEST_CROSSINGS gives another number of calls,
SSOP_TEST_CROSSINGS_SEED another order.
"""

import os
from collections import Counter
from typing import Final

import pytest

from helpers.redis_server import redis_pair
from helpers.router_tenancy import run_campaign

CALLS: Final = int(os.environ.get("SSOP_TEST_CROSSINGS") or 1_000_000)
SEED: Final = int(os.environ.get("SSOP_TEST_CROSSINGS_SEED") or 1)
SLICE: Final = 40_000
ROUTED: Final = 1_500
"""Of each slice, begun at a router; the others at the cache service. Most are more than one call."""


@pytest.mark.timeout(0)
async def test_no_tenant_reads_what_another_has_in_a_million_calls() -> None:
    done: Counter[str] = Counter()
    read: Counter[str] = Counter()
    crossings: list[str] = []
    seed = SEED
    while done.total() < CALLS and not crossings:
        with redis_pair() as servers:
            for journal in await run_campaign(servers, SLICE, ROUTED, seed=seed):
                done += journal.operations
                read += journal.read
                crossings += journal.crossings
        print(f"seed {seed}: {done.total()} calls, {len(crossings)} crossings")
        seed += 1
    print(f"calls: {dict(done)}; answers read: {dict(read)}")
    assert crossings == []
