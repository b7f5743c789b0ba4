"""50,000 cancelled streams and 200 stalled readers on a router process; minutes, so `make nightly` runs it.

SSOP_TEST_CANCELS and SSOP_TEST_READERS give other numbers, SSOP_TEST_STREAMS_SEED another order.
"""

import os
import random
import statistics
from pathlib import Path
from typing import Final

import pytest

from helpers.router_fleet import run_fleet
from helpers.scripted_node import ScriptedNode
from helpers.streams import by_text, cancel_streams, measure_p95_ms, question, stalled_readers
from ssop.v1 import mesh_pb2

CANCELS: Final = int(os.environ.get("SSOP_TEST_CANCELS") or 50_000)
READERS: Final = int(os.environ.get("SSOP_TEST_READERS") or 200)
SEED: Final = int(os.environ.get("SSOP_TEST_STREAMS_SEED") or 1)
MIB: Final = 1_048_576
ROUNDS: Final = 8


def one_node() -> dict[str, ScriptedNode]:
    return {"full-1": ScriptedNode("full-1", [mesh_pb2.TIER_FULL], by_text())}


@pytest.mark.timeout(1_200)
async def test_rss_grows_by_less_than_25_mb_over_50000_cancelled_streams(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    async with run_fleet(tmp_path, one_node(), routers=1) as fleet:
        router = fleet.routers[0]
        await cancel_streams(router, 1_000, rng)
        before = router.rss_bytes
        cut = 0
        for _ in range(0, CANCELS, 5_000):
            cut += await cancel_streams(router, min(5_000, CANCELS), rng)
            print(f"{cut} cut, RSS {router.rss_bytes / MIB:.1f} MiB", flush=True)
            # What the node of a test remembers is no part of it.
            fleet.nodes["full-1"].forget()
        grown = router.rss_bytes - before
        assert (await router.ask(question())).error is None
    print(f"seed {SEED}: {cut} of {CANCELS} streams cut; RSS grew by {grown / MIB:.2f} MiB from {before / MIB:.0f}")
    assert cut > CANCELS / 2
    assert grown < 25_000_000


@pytest.mark.timeout(600)
async def test_200_stalled_readers_slow_the_others_by_less_than_a_twentieth(tmp_path: Path) -> None:
    async with run_fleet(tmp_path, one_node(), routers=1) as fleet:
        router = fleet.routers[0]
        await measure_p95_ms(router, 200)
        ratios, held = [], 0
        # With and without by turns, so that what else the machine does hits both.
        for number in range(ROUNDS):
            alone_ms = await measure_p95_ms(router, 200)
            before = router.rss_bytes
            async with stalled_readers(router, READERS):
                beside_ms = await measure_p95_ms(router, 200)
                held = max(held, router.rss_bytes - before)
            ratios.append(beside_ms / alone_ms)
            print(
                f"round {number}: P95 {alone_ms:.2f} ms alone, {beside_ms:.2f} ms beside {READERS} readers", flush=True
            )
    ratio = statistics.median(ratios)
    print(f"median ratio {ratio:.3f}; readers held {held / MIB:.0f} MiB")
    assert held < READERS * 400_000
    assert ratio < 1.05
