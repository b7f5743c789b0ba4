"""Four faults of the drill on a real mesh; all of them are in tests/drill."""

from pathlib import Path
from typing import Any

import pytest

from helpers.drills import broken, run_drill

SAMPLE = ("kill-inference", "freeze-redis-state", "kill-router", "cut-stream")


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any], Path]:
    """Exit code and report of a drill, and where its mesh was."""
    folder = tmp_path_factory.mktemp("d")
    return *run_drill(folder, *SAMPLE), folder


def test_every_fault_of_the_sample_is_survived(drill: tuple[int, dict[str, Any], Path]) -> None:
    code, report, _ = drill
    assert broken(report) == []
    assert (code, report["is_good"]) == (0, True)


def test_the_load_alone_fails_no_request(drill: tuple[int, dict[str, Any], Path]) -> None:
    alone = drill[1]["faults"][0]
    assert (alone["name"], alone["errors"], alone["degraded"]) == ("none", {}, {})


def test_a_killed_service_was_really_gone(drill: tuple[int, dict[str, Any], Path]) -> None:
    back = {row["name"]: row["back_s"] for row in drill[1]["faults"]}
    assert back["kill-inference"] > 0
    assert back["kill-router"] > 0


def test_clients_of_a_killed_router_are_told(drill: tuple[int, dict[str, Any], Path]) -> None:
    errors = next(row["errors"] for row in drill[1]["faults"] if row["name"] == "kill-router")
    assert errors.get("UNREACHABLE", 0) > 0


def test_answers_were_really_cut(drill: tuple[int, dict[str, Any], Path]) -> None:
    notes = next(row["notes"] for row in drill[1]["faults"] if row["name"] == "cut-stream")
    assert [note for note in notes if "harmed" in note]


def test_nothing_is_left_of_the_mesh(drill: tuple[int, dict[str, Any], Path]) -> None:
    assert list(drill[2].glob("ssop-drill-*")) == []
