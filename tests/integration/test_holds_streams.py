"""Streams that are cancelled leave no memory behind, and readers that stall cost others nothing.

The long form, with 50,000 streams and 200 readers, is tests/drill/test_streams.py.
"""

import os
import random
from pathlib import Path
from typing import Final

from helpers.machine import stretched
from helpers.router_fleet import run_fleet
from helpers.scripted_node import ScriptedNode
from helpers.streams import LONG_BYTES, by_text, cancel_streams, measure_p95_ms, question, stalled_readers
from ssop.v1 import mesh_pb2

SEED: Final = int(os.environ.get("SSOP_TEST_STREAMS_SEED") or 1)
MIB: Final = 1_048_576
ROUNDS: Final = 4


def one_node() -> dict[str, ScriptedNode]:
    return {"full-1": ScriptedNode("full-1", [mesh_pb2.TIER_FULL], by_text())}


async def test_cancelled_streams_leave_no_memory_behind(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    async with run_fleet(tmp_path, one_node(), routers=1) as fleet:
        router = fleet.routers[0]
        await cancel_streams(router, 1_000, rng)
        # A heap settles late on a busy machine, where more streams run at once; a leak grows in every round.
        for _ in range(ROUNDS):
            before = router.rss_bytes
            cut = await cancel_streams(router, 2_000, rng)
            grown = router.rss_bytes - before
            print(f"seed {SEED}: {cut} of 2000 streams cut; RSS grew by {grown / MIB:.2f} MiB from {before / MIB:.0f}")
            assert cut > 1_000
            if grown < 4 * MIB:
                break
        assert (await router.ask(question())).error is None
    assert grown < 4 * MIB


async def test_readers_that_stall_keep_neither_others_waiting_nor_memory(tmp_path: Path) -> None:
    async with run_fleet(tmp_path, one_node(), routers=1) as fleet:
        router = fleet.routers[0]
        await measure_p95_ms(router, 100)
        before = router.rss_bytes
        async with stalled_readers(router, 60):
            p95_ms = await measure_p95_ms(router, 200)
            held = router.rss_bytes - before
    print(f"P95 {p95_ms:.1f} ms with 60 stalled readers, which hold {held / 60 / 1024:.0f} KiB each")
    # The answers are a megabyte each; what is held of them is flow control's windows.
    assert held < 60 * LONG_BYTES / 3
    assert p95_ms < stretched(1_000)
