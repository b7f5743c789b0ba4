"""The folder of the host's level: restarts, and what happens when it is broken."""

from pathlib import Path

import pytest
import rocksdict

from ssop_cache.core.changes import Cursor
from ssop_cache.core.local import LocalAnswer, Name, encode_name
from ssop_cache.local_disk import Disk, DiskError

NAME: Name = ("a" * 32, b"\1" * 32)
OTHER: Name = ("a" * 32, b"\2" * 32)
ANSWER = LocalAnswer(1, 0, 1_000, b"record")
CURSOR = Cursor(b"e" * 16, 3, 4)


def write(folder: Path, entries: dict[Name, LocalAnswer | None], *, is_all: bool = False) -> None:
    disk = Disk(folder, lambda kind: None)
    disk.write(entries, CURSOR, is_all=is_all)
    disk.close()


def load(folder: Path, now_ms: int = 1) -> tuple[dict[Name, LocalAnswer], Cursor, list[str]]:
    faults: list[str] = []
    disk = Disk(folder, faults.append)
    found, cursor = disk.load(now_ms)
    disk.close()
    return found, cursor, faults


def test_entries_and_cursor_survive(tmp_path: Path) -> None:
    write(tmp_path, {NAME: ANSWER})
    assert load(tmp_path) == ({NAME: ANSWER}, CURSOR, [])


def test_deleted_entry_stays_deleted(tmp_path: Path) -> None:
    write(tmp_path, {NAME: ANSWER, OTHER: ANSWER})
    write(tmp_path, {NAME: None})
    assert list(load(tmp_path)[0]) == [OTHER]


def test_whole_copy_leaves_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, {NAME: ANSWER})
    write(tmp_path, {OTHER: ANSWER}, is_all=True)
    assert list(load(tmp_path)[0]) == [OTHER]


def test_lapsed_entries_are_not_loaded(tmp_path: Path) -> None:
    write(tmp_path, {NAME: ANSWER})
    assert load(tmp_path, 1_000)[0] == {}


def test_spoilt_entry_is_left_out_and_counted(tmp_path: Path) -> None:
    write(tmp_path, {NAME: ANSWER, OTHER: ANSWER})
    options = rocksdict.Options(raw_mode=True)
    database = rocksdict.Rdict(str(tmp_path), options)
    database[encode_name(NAME)] = b"garbage"
    database.close()
    found, _, faults = load(tmp_path)
    assert (list(found), faults) == ([OTHER], ["entry"])


def test_entries_without_a_cursor_are_forgotten(tmp_path: Path) -> None:
    write(tmp_path, {NAME: ANSWER})
    database = rocksdict.Rdict(str(tmp_path), rocksdict.Options(raw_mode=True))
    del database[b"cursor"]
    database.close()
    assert load(tmp_path)[:2] == ({}, Cursor())
    assert load(tmp_path)[0] == {}


@pytest.mark.parametrize("pattern", ["CURRENT", "MANIFEST*", "*.sst"])
def test_broken_folder_is_made_again(tmp_path: Path, pattern: str) -> None:
    write(tmp_path, {NAME: ANSWER})
    write(tmp_path, {OTHER: ANSWER})
    files = list(tmp_path.glob(pattern))
    assert files
    for file in files:
        file.write_bytes(b"garbage" * 100)
    found, cursor, faults = load(tmp_path)
    assert (found, cursor, faults) == ({}, Cursor(), ["folder"])
    write(tmp_path, {NAME: ANSWER})
    assert load(tmp_path) == ({NAME: ANSWER}, CURSOR, [])


def test_folder_of_another_process_is_left_alone(tmp_path: Path) -> None:
    first = Disk(tmp_path, lambda kind: None)
    with pytest.raises(DiskError, match="another process"):
        Disk(tmp_path, lambda kind: None)
    first.close()


def test_folder_that_can_not_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError, match="can't be made"):
        Disk(tmp_path / "file" / "folder", lambda kind: None)
