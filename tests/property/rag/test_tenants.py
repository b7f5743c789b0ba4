"""Tenants never meet, whatever they ask for: random hostile calls against a model of what each may find.

SSOP_CROSSING_CALLS says how many calls are made; `make nightly` makes 100,000.
"""

import os
import random
from pathlib import Path

from helpers.crossings import TENANTS, Tenant, run_tenants
from helpers.rag import HashingEmbedder, RagUnderTest

CALLS = int(os.environ.get("SSOP_CROSSING_CALLS", "4000"))


async def test_no_call_of_a_tenant_reaches_another(tmp_path: Path) -> None:
    async with RagUnderTest(tmp_path / "index", embedder=HashingEmbedder(dim=8)) as rag:
        tenants = [Tenant(name, rag.caller(name), random.Random(f"7 {name}")) for name in TENANTS]
        await run_tenants(tenants, CALLS)
    assert sum(tenant.crossings for tenant in tenants) == 0
    assert sum(tenant.calls for tenant in tenants) == CALLS
    assert all(tenant.answers > CALLS / len(TENANTS) / 2 for tenant in tenants)
