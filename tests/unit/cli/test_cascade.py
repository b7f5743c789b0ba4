"""`ssop route cascade`: thresholds from a decision log."""

import json
from pathlib import Path
from typing import Any

import pytest

from ssop.v1 import mesh_pb2
from ssop_cli.cascade import calibrate, calibration_json
from ssop_cli.failure import CommandError
from ssop_cli.mesh import accounting_json, decision_json


def write(folder: Path, *results: Any, junk: bytes = b"") -> Path:
    path = folder / "log.jsonl"
    path.write_bytes(junk + b"".join(json.dumps({"result": result}).encode() + b"\n" for result in results))
    return path


def judged(confidence: float) -> dict[str, Any]:
    return {"cascade": "kept_confident" if confidence >= 0.6 else "escalated_unsure", "cascade_confidence": confidence}


def test_threshold_for_a_share(tmp_path: Path) -> None:
    found = calibrate(write(tmp_path, *(judged(n / 10) for n in range(1, 11))), 0.3)
    assert (found.judged, found.escalated) == (10, 5)
    assert found.rows == ((0.4, 0.3),)


def test_shares_of_a_kind_where_none_is_asked(tmp_path: Path) -> None:
    found = calibration_json(calibrate(write(tmp_path, *(judged(n / 100) for n in range(100))), None))
    assert [row["full_share"] for row in found["thresholds"]] == [0.1, 0.2, 0.3, 0.4, 0.5]


def test_other_requests_and_broken_lines_are_left_out(tmp_path: Path) -> None:
    log = write(tmp_path, {"cascade_confidence": None}, {}, [], judged(0.5), junk=b"{\n\xff\nnull\n")
    assert calibrate(log, 0.0).judged == 1


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_share_out_of_range(tmp_path: Path, share: float) -> None:
    with pytest.raises(CommandError):
        calibrate(write(tmp_path, judged(0.5)), share)


def test_log_without_cascades(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no cascade"):
        calibrate(write(tmp_path), 0.5)


def test_log_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="can't be read"):
        calibrate(tmp_path / "absent", 0.5)


def test_discarded_answer_is_in_the_accounting() -> None:
    accounting = mesh_pb2.Accounting(discarded_usage=mesh_pb2.Usage(input_tokens=7, output_tokens=3))
    found = accounting_json(accounting)
    assert (found["discarded_input_tokens"], found["discarded_output_tokens"]) == (7, 3)
    assert json.dumps(found)


def test_cascade_is_in_the_decision() -> None:
    decision = mesh_pb2.Decision(cascade_reason=mesh_pb2.CASCADE_REASON_ESCALATED_UNSURE, cascade_confidence=0.25)
    found = decision_json(decision)
    assert (found["cascade"], found["cascade_confidence"]) == ("escalated_unsure", 0.25)
