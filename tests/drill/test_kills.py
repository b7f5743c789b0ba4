"""500 runs in which the model is killed -9 at a random token; minutes, so `make nightly` runs it.

SSOP_TEST_KILLS gives another number of runs, SSOP_TEST_KILLS_SEED other ones.
"""

import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Final

import jsonschema_rs
import pytest

from helpers.inference import OPINION, POST
from helpers.kills import draw, run_kill_mesh, tell
from helpers.ledger import check_final
from helpers.mortal_nodes import mortal_nodes
from helpers.router_fleet import run_fleet
from helpers.scripted_mesh import SECRET
from ssop_codec import FrameKind
from ssop_sdk import AsyncSsopClient

RUNS: Final = int(os.environ.get("SSOP_TEST_KILLS") or 500)
SEED: Final = int(os.environ.get("SSOP_TEST_KILLS_SEED") or 1)
REAL_RUNS: Final = 12
HEALTH: Final = {"probe_ms": 100, "good_probes": 1, "slow_start_ms": 0, "backoff_min_ms": 0, "backoff_max_ms": 0}


@pytest.mark.timeout(3_600)
async def test_500_answers_whose_models_are_killed_are_whole_or_flagged(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    runs = [draw(number, rng) for number in range(RUNS)]
    started_s = time.monotonic()
    async with run_kill_mesh(tmp_path) as mesh:
        await mesh.run(runs, at_once=3)
        await mesh.settle()
        print(f"seed {SEED}, {time.monotonic() - started_s:.0f} s: {tell(runs, mesh)}")
        assert mesh.claims >= RUNS
        assert sum(run.error is None for run in runs) >= 0.98 * RUNS
        mesh.check(runs)


@pytest.mark.timeout(1_200)
async def test_answers_of_a_real_model_that_is_killed_are_whole(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    outcomes: Counter[str] = Counter()
    names = ("node-1", "node-2")
    async with mortal_nodes(tmp_path, SECRET, *names) as mortals:
        addresses = [node.address for node in mortals.nodes.values()]
        async with run_fleet(tmp_path, {}, routers=1, addresses=addresses, health=HEALTH) as fleet:
            router = fleet.routers[0]
            async with AsyncSsopClient(router.key, router.address, policy="full", timeout_s=90) as client:
                for _ in range(REAL_RUNS):
                    stream = client.generate(POST, output_schema=OPINION, temperature=0.9, seed=rng.randrange(10**6))
                    kill_at, sent, killed = rng.randrange(1, 8), [], ""
                    async for frame in stream:
                        if frame.kind != FrameKind.VALUE:
                            continue
                        sent.append((frame.tokens, frame.value))
                        if len(sent) == kill_at and stream.decision is not None:
                            killed = stream.decision.node
                            mortals.kill(killed)
                    answer = await stream.result()
                    assert stream.status is not None
                    outcomes[f"{len(stream.status.continuations)} continuations"] += 1
                    assert jsonschema_rs.is_valid(OPINION, answer)
                    check_final(sent, answer)
                    if killed:
                        mortals.start(killed)
                        await mortals.serves(killed)
    print(f"seed {SEED}: {REAL_RUNS} answers of SmolLM2-135M: {dict(outcomes)}")
    assert outcomes["1 continuations"] > REAL_RUNS / 3
