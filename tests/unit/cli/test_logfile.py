"""Logs of bounded size."""

from pathlib import Path

from ssop_cli.logfile import LogFile, read_tail


def test_a_full_file_is_turned_at_a_line_end(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "x.log", 12)
    log.write(b"one\ntwo\nthree\n")
    log.close()
    assert (tmp_path / "x.log.1").read_bytes() == b"one\ntwo\n"
    assert (tmp_path / "x.log").read_bytes() == b"three\n"


def test_an_existing_file_is_continued(tmp_path: Path) -> None:
    for line in (b"one\n", b"two\n"):
        log = LogFile(tmp_path / "x.log")
        log.write(line)
        log.close()
    assert (tmp_path / "x.log").read_bytes() == b"one\ntwo\n"


def test_the_tail_is_the_last_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("".join(f"{number}\n" for number in range(100_000)))
    assert read_tail(path, 2) == ["99998", "99999"]


def test_a_missing_log_has_no_tail(tmp_path: Path) -> None:
    assert read_tail(tmp_path / "x.log", 2) == []
