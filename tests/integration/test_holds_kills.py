"""Models killed at a random token: answers are complete and valid or flagged, and no field changes. A sample of them.

All 500 runs are in `tests/drill/test_kills.py`.
"""

import random
from pathlib import Path

import pytest

from helpers.kills import check_run, draw, run_kill_mesh, tell
from helpers.ledger import LedgerFault
from helpers.replay_nodes import GUARDS
from ssop_sdk import GenerationInterrupted

RUNS = 20


async def test_answers_whose_models_are_killed_are_whole_or_flagged(tmp_path: Path) -> None:
    rng = random.Random(5)
    runs = [draw(number, rng) for number in range(RUNS)]
    async with run_kill_mesh(tmp_path) as mesh:
        await mesh.run(runs, at_once=2)
        await mesh.settle()
        print(tell(runs, mesh))
        assert mesh.claims >= RUNS
        assert sum(bool(run.first_seqs) for run in runs) > RUNS / 2
        mesh.check(runs)


@pytest.mark.parametrize("guard", GUARDS)
async def test_ledger_fails_where_a_continuation_begins_anew(guard: str, tmp_path: Path) -> None:
    rng = random.Random(5)
    runs = [draw(number, rng) for number in range(6)]
    async with run_kill_mesh(tmp_path, without=guard) as mesh:
        await mesh.run(runs, at_once=2)
        await mesh.settle()
        # Of one that was cut again nothing but the beginning may have been seen.
        mixed = [run for run in runs if run.first_seqs and not isinstance(run.error, GenerationInterrupted)]
        assert mixed
        for run in mixed:
            with pytest.raises(LedgerFault) as caught:
                check_run(run)
            print(caught.value)
