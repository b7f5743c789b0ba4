"""The long run of tests/integration/test_opinion_kills.py: forty kills, of each process in turn."""

import random
from pathlib import Path

import pytest

from helpers.opinion_drill import VICTIMS, Drill, run_drill


@pytest.mark.timeout(0)
def test_forty_kills_lose_nothing(tmp_path: Path) -> None:
    rng = random.Random(7)
    drill = Drill(posts=6_000, kills=[rng.choice(VICTIMS) for _ in range(40)], seed=7, pause_s=0.05)
    verdicts = run_drill(tmp_path, drill)
    assert len(drill.killed) == 40
    print(verdicts)
