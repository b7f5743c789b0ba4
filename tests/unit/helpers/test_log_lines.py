"""What tests read of logs."""

from pathlib import Path

from helpers.log_lines import read_log


def test_half_a_line_at_the_end_is_not_read_yet(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"message": "a"}\n{"mess')
    assert read_log(log) == [{"message": "a"}]


def test_line_that_a_process_was_killed_in_is_no_record(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"message": "a"}\n{"mess\nTraceback\n{"message": "b"}\n')
    assert read_log(log) == [{"message": "a"}, {"message": "b"}]


def test_text_with_a_line_separator_of_another_kind_is_read_whole(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"message": "a\u2028b"}\n', encoding="utf-8")
    assert read_log(log) == [{"message": "a\u2028b"}]
