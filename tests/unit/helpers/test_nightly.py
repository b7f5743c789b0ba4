"""The nightly run: a part that fails or hangs stops none after it, and what is left behind is named."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.nightly import ROOT, Outcome, Part, judge, make_parts, run_all, run_part, summary


def _part(name: str, program: str) -> Part:
    return Part(name, [sys.executable, "-c", program])


def test_every_part_has_its_turn_whatever_became_of_others(tmp_path: Path) -> None:
    parts = [
        _part("breaks", "raise SystemExit('broken')"),
        Part("absent", ["/no/such/program"]),
        _part("works", "print('all well')"),
    ]
    found = list(run_all(parts, tmp_path, 0))
    assert [(outcome.name, outcome.state) for outcome in found] == [
        ("breaks", "failed"),
        ("absent", "failed"),
        ("works", "ran"),
    ]
    assert found[0].note == "status 1; broken"


@pytest.fixture
def _hears_interrupts() -> Iterator[None]:
    """As `main` sees to it, since what a shell starts in the background ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_hears_interrupts")
def test_part_that_goes_on_too_long_is_stopped_and_cleans_up(tmp_path: Path) -> None:
    program = f"trap 'touch {tmp_path}/done; exit 1' INT; echo hangs; while :; do sleep 0.1; done"
    outcome = run_part(Part("hangs", ["sh", "-c", program]), tmp_path, 3.0)
    assert (outcome.state, outcome.note) == ("stopped", "its time was over; last printed: hangs")
    assert (tmp_path / "done").exists()


def test_process_that_is_left_is_named_and_ended(tmp_path: Path) -> None:
    program = """
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True).pid)
"""
    outcome = run_part(_part("leaves", program), tmp_path, 0)
    assert outcome.state == "ran"
    assert [name.rpartition(" ")[2] for name in outcome.left] == ["time.sleep(600)"]
    assert not Path(f"/proc/{outcome.note}/cmdline").exists() or not Path(f"/proc/{outcome.note}/cmdline").read_bytes()


def test_temporary_file_that_is_left_is_named_and_removed(tmp_path: Path) -> None:
    program = "import tempfile; print(tempfile.mkdtemp(suffix='.kept'))"
    outcome = run_part(_part("litters", program), tmp_path, 0)
    assert outcome.left == [Path(outcome.note).name]
    assert not Path(outcome.note).exists()


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (77, "no GPU\n", ("skipped", "no GPU")),
        (0, "SKIPPED [1] x.py:3: no root\n=== 2 skipped in 0.1s ===\n", ("skipped", "SKIPPED [1] x.py:3: no root")),
        (0, "=== 3 passed, 1 skipped in 0.1s ===\n", ("ran", "3 passed, 1 skipped")),
        (0, "", ("ran", "printed nothing")),
        (1, "=== 1 failed, 3 passed in 0.1s ===\n", ("failed", "status 1; === 1 failed, 3 passed in 0.1s ===")),
    ],
)
def test_part_is_judged_by_status_and_last_words(status: int, text: str, expected: tuple[str, str]) -> None:
    assert judge(status, False, text) == expected


def test_summary_says_why_what_did_not_run_did_not() -> None:
    outcomes = [
        Outcome("a", "ran", 1.0, "9 passed"),
        Outcome("b", "skipped", 0.0, "no GPU"),
        Outcome("c", "failed", 2.0, "status 1", ["process redis"]),
    ]
    assert summary(outcomes, 4).splitlines() == [
        "3 of 4 parts",
        "ran: 1",
        "skipped: 1",
        "  b: no GPU",
        "stopped: 0",
        "failed: 1",
        "  c: status 1",
        "left something behind: 1",
        "  c: process redis",
    ]


def test_every_drill_and_benchmark_is_a_part() -> None:
    names = {part.name for part in make_parts(".venv", is_quick=False)}
    drills = {f"drill {path.stem.removeprefix('test_')}" for path in (ROOT / "tests" / "drill").glob("test_*.py")}
    benches = {path.stem for path in (ROOT / "tests" / "bench").glob("bench_*.py")}
    assert drills | benches | {"tests", "fuzz", "fuzz-transport", "tenants"} == names
