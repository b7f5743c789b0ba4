"""The whole matrix of the drill on a real mesh."""

import pytest

from helpers.drills import broken, run_drill
from ssop_cli.drill.faults import FAULTS


@pytest.mark.timeout(1_200)
def test_every_fault_of_the_matrix_is_survived(tmp_path_factory: pytest.TempPathFactory) -> None:
    code, report = run_drill(tmp_path_factory.mktemp("d"))
    assert broken(report) == []
    assert [row["name"] for row in report["faults"]] == ["none", *(fault.name for fault in FAULTS)]
    assert code == 0
