"""A store that is damaged, or whose disk is full: what is lost is said, and what is left is true."""

import json
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import rocksdict

from helpers.stored_facts import DOCUMENTS, VECTORS, document, fill, found, open_index
from ssop_rag import database
from ssop_rag.core.model import Query
from ssop_rag.database import LOST_FILE
from ssop_rag.embedded import IndexUnavailableError
from ssop_rag.salvage import Damage, walk


def flip(path: Path, part: float) -> None:
    """Invert a byte, so far into a file."""
    data = bytearray(path.read_bytes())
    data[int(len(data) * part)] ^= 0xFF
    path.write_bytes(bytes(data))


def log_of(directory: Path) -> Path:
    """The log that holds something."""
    return max(directory.glob("*.log"), key=lambda path: path.stat().st_size)


def _table(directory: Path) -> None:
    for path in directory.glob("*.sst"):
        flip(path, 0.5)


def _log(directory: Path) -> None:
    flip(log_of(directory), 0.5)


def _all_files(directory: Path) -> None:
    _table(directory)
    _log(directory)


def _manifest(directory: Path) -> None:
    for path in directory.glob("MANIFEST-*"):
        flip(path, 0.5)


def _current(directory: Path) -> None:
    (directory / "CURRENT").write_text("nothing\n")


@pytest.mark.parametrize(
    ("harm", "least"), [(_table, 30), (_log, 50), (_all_files, 30), (_manifest, 50), (_current, 50)]
)
def test_damaged_store_comes_up_with_what_is_true(tmp_path: Path, harm: Callable[[Path], None], least: int) -> None:
    fill(tmp_path / "index")
    harm(tmp_path / "index")
    damage: Counter[str] = Counter()
    index = open_index(tmp_path / "index", damage)
    kept = found(index)
    (stats,) = index.stats("acme", 1)
    assert stats.documents == len(kept) >= least
    assert damage["places"] + damage["files"] > 0
    assert json.loads((tmp_path / "index-damaged" / LOST_FILE).read_text()) == damage
    index.close()


def test_rescue_that_a_crash_cut_between_its_renames_is_finished(tmp_path: Path) -> None:
    fill(tmp_path / "index")
    _table(tmp_path / "index")
    index = open_index(tmp_path / "index")
    kept = found(index)
    index.close()
    (tmp_path / "index").rename(tmp_path / "index-rescued")
    damage: Counter[str] = Counter()
    index = open_index(tmp_path / "index", damage)
    assert (found(index), damage["places"]) == (kept, 1)
    index.close()


def test_loss_is_told_though_a_crash_came_after_the_repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "index")
    _log(tmp_path / "index")

    def crash(*_: object) -> None:
        raise OSError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(database, "salvage", crash)
        with pytest.raises(IndexUnavailableError):
            open_index(tmp_path / "index")
    damage: Counter[str] = Counter()
    index = open_index(tmp_path / "index", damage)
    assert damage["files"] == 1
    index.close()


def test_versions_after_a_loss_were_never_there_before(tmp_path: Path) -> None:
    fill(tmp_path / "index")
    _table(tmp_path / "index")
    index = open_index(tmp_path / "index")
    (stats,) = index.stats("acme", 1)
    assert stats.version > 1_000_000
    assert index.upsert("acme", "facts", [document(0)], 1).version > stats.version
    index.close()


def test_what_was_lost_can_be_indexed_again(tmp_path: Path) -> None:
    fill(tmp_path / "index")
    _table(tmp_path / "index")
    index = open_index(tmp_path / "index")
    assert len(found(index)) < DOCUMENTS
    index.upsert("acme", "facts", [document(number) for number in range(DOCUMENTS)], 1)
    assert len(found(index)) == DOCUMENTS
    index.close()
    damage: Counter[str] = Counter()
    index = open_index(tmp_path / "index", damage)
    assert (len(found(index)), damage) == (DOCUMENTS, Counter())
    index.close()


def test_damaged_place_is_an_error_and_not_an_end(tmp_path: Path) -> None:
    fill(tmp_path / "index")
    _table(tmp_path / "index")
    raw = rocksdict.Rdict(str(tmp_path / "index"), rocksdict.Options(raw_mode=True))
    with pytest.raises(Damage):
        list(walk(raw, b""))
    raw.close()


def test_write_that_a_crash_cut_is_no_damage(tmp_path: Path) -> None:
    fill(tmp_path / "index")
    log = log_of(tmp_path / "index")
    log.write_bytes(log.read_bytes()[:-100])
    damage: Counter[str] = Counter()
    index = open_index(tmp_path / "index", damage)
    assert (len(found(index)), damage) == (DOCUMENTS - 1, Counter())
    index.close()


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process may grow; writes fail with EFBIG."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_disk_refuses_writes_and_goes_on_reading(tmp_path: Path) -> None:
    index = open_index(tmp_path / "index")
    index.upsert("acme", "facts", [document(0)], 1)
    with full_disk():
        for now_ms in (2, 5_000):
            with pytest.raises(IndexUnavailableError, match="can't be written"):
                index.upsert("acme", "facts", [document(1)], now_ms)
            assert len(index.search("acme", (), Query("", VECTORS[0]), 1, now_ms).passages) == 1
    index.close()


def test_store_takes_writes_again_once_there_is_room(tmp_path: Path) -> None:
    index = open_index(tmp_path / "index")
    index.upsert("acme", "facts", [document(0)], 1)
    with full_disk(), pytest.raises(IndexUnavailableError):
        index.upsert("acme", "facts", [document(1)], 2)
    index.upsert("acme", "facts", [document(2)], 5_000)
    index.close()
    index = open_index(tmp_path / "index")
    assert {2} <= found(index) <= {0, 1, 2}
    assert 0 in found(index)
    index.close()
