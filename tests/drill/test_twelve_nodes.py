"""Twelve node processes of which one is harmed, for each way to do it, and all six at once for longer."""

from pathlib import Path

import pytest

from helpers.twelve_nodes import FAULTS, run_twelve

SEED = 2


@pytest.mark.timeout(180)
@pytest.mark.parametrize("faults", [*((fault,) for fault in FAULTS), FAULTS], ids=[*FAULTS, "all"])
async def test_clients_see_nothing_and_healthy_nodes_stay(tmp_path: Path, faults: tuple[str, ...]) -> None:
    result = await run_twelve(tmp_path, faults, seed=SEED, duration_s=60.0 if len(faults) > 1 else 25.0)
    print(f"\n{'+'.join(faults)}: {result.line()}")
    assert result.failures == []
    assert result.healthy_ejected == 0
    assert result.late_share("fails-fast") < 0.02
