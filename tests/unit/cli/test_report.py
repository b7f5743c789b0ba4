"""What a supervisor says about itself."""

import os
from pathlib import Path

import pytest

from ssop_cli.report import ChildReport, Report, is_alive, read_report, start_ticks, write_report

REPORT = Report(
    1, "ready", "127.0.0.1:7300", "/x", 5, ["a note"], [ChildReport("cache", "ready", "unix:/c", restarts=2)]
)


def test_a_report_survives(tmp_path: Path) -> None:
    write_report(tmp_path / "r", REPORT)
    assert read_report(tmp_path / "r") == REPORT


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"children": [{}]}', "\x00"])
def test_what_is_no_report_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "r").write_text(text)
    assert read_report(tmp_path / "r") is None


def test_no_file_is_no_report(tmp_path: Path) -> None:
    assert read_report(tmp_path / "r") is None


def test_this_process_is_alive() -> None:
    assert is_alive(ChildReport("x", "ready", "", pid=os.getpid(), start_ticks=start_ticks(os.getpid())))


def test_another_process_with_the_same_id_is_not_the_child() -> None:
    assert not is_alive(ChildReport("x", "ready", "", pid=os.getpid(), start_ticks=1))
