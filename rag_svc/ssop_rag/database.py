"""RocksDB as the embedded index uses it: what can't be read is an error and never an end, and a full disk passes.

The library's own iterators stop at a damaged block as if nothing came after it, and after a failed write it refuses
every later one; here the first is looked for, and the second ends with the database opened again.
"""

import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import rocksdict

from ssop_rag.salvage import Damage, check, salvage, walk

LOST_FILE: Final = "lost.json"
"""In the folder of a damaged database that was put aside: what was lost, by the names of the metric."""
REOPEN_MS: Final = 1_000
"""How often at most it is tried to open a database again whose writes fail."""
_MARK: Final = "repaired"
_NO_DAMAGE: Final = (
    "lock hold",
    "while lock file",
    "resource temporarily unavailable",
    "permission denied",
    "read-only file system",
    "no space left",
    "file too large",
    "too many open files",
    "cannot allocate memory",
    "not a directory",
)
_PROBE_BYTES: Final = 1_048_576
"""What opening takes of a disk, and more."""
_log = logging.getLogger(__name__)


class IndexUnavailableError(OSError):
    """The index can't be opened, read or written: another process has it, or the folder or its files can't be used."""


class Database:
    """A database in a folder, for several threads. `on_damage(what, count)` hears of what was lost as it is opened.

    What uses it does so within `inside`. Raises IndexUnavailableError.
    """

    def __init__(self, directory: Path, on_damage: Callable[[str, int], None]) -> None:
        self._directory = directory
        self._on_damage = on_damage
        self._synced: Any = rocksdict.WriteOptions()
        self._synced.sync = True
        self._condition = threading.Condition()
        self._users = 0
        self._is_failed = False
        self._tried_ms = 0
        self._db: Any = _open(directory, on_damage)

    def close(self) -> None:
        """Close the folder. Nothing else may run or be called after."""
        # After a failed write closing fails too; the log holds what was acknowledged.
        with suppress(Exception):
            self._db.close()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Use the database; it is not opened again meanwhile."""
        with self._condition:
            self._users += 1
        try:
            yield
        finally:
            with self._condition:
                self._users -= 1
                self._condition.notify_all()

    def reopen_failed(self, now_ms: int, on_reopened: Callable[[], None]) -> None:
        """Open it again, if a write has failed, there is room again, and it was not tried just now.

        Waits for those inside; `on_reopened` is called before anybody else may be. What a failed write left behind
        is there afterwards, or not.
        """
        if not self._is_failed:
            return
        with self._condition:
            if not self._is_failed or now_ms - self._tried_ms < REOPEN_MS or not _has_room(self._directory):
                return
            self._tried_ms = now_ms
            while self._users:
                self._condition.wait()
            self.close()
            self._db = _open(self._directory, self._on_damage)
            self._is_failed = False
            on_reopened()
        _log.info("the index can be written again", extra={"directory": str(self._directory)})

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:  # the library raises plain Exception for all faults
            raise _unreadable(error) from error
        return value

    def walk(self, begin: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys from `begin` on, with their values."""
        return _checked(self._db, begin)

    def snapshot(self) -> "Snapshot":
        """The database as it is now, whatever becomes of it."""
        try:
            return Snapshot(self._db.snapshot())
        except Exception as error:
            raise _unreadable(error) from error

    def write(self, batch: Any) -> None:
        """Write a batch; durable when it returns."""
        try:
            self._db.write(batch, self._synced)
        except Exception as error:
            if not self._is_failed:
                _log.error("the index can't be written", extra={"cause": str(error)[:200]})
            self._is_failed = True
            raise IndexUnavailableError("the index can't be written") from error


class Snapshot:
    """A database as it was. Raises IndexUnavailableError at a damaged place."""

    def __init__(self, snapshot: Any) -> None:
        self._snapshot = snapshot

    def walk(self, begin: bytes) -> Iterator[tuple[bytes, bytes]]:
        """See Database.walk."""
        return _checked(self._snapshot, begin)


def _checked(source: Any, begin: bytes) -> Iterator[tuple[bytes, bytes]]:
    try:
        yield from walk(source, begin)
    except Damage as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> IndexUnavailableError:
    _log.error(
        "the index can't be read; starting the service again drops what is damaged", extra={"cause": str(error)[:200]}
    )
    return IndexUnavailableError("some of the index can't be read")


def _has_room(directory: Path) -> bool:
    """Whether opening the database is likely to work: it writes files before it can be read."""
    path = directory / "room"
    try:
        with path.open("wb") as file:
            file.write(b"\0" * _PROBE_BYTES)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        return False
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)
    return True


def _options(*, is_tolerant: bool = False) -> Any:
    """A write that was cut by a crash, and so never acknowledged, is passed over always.

    Anything else that is wrong with the log is an error, where the library's default would drop all that comes after it
    and say nothing; with `is_tolerant` just the damaged writes are passed over.
    """
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    mode = rocksdict.DBRecoveryMode
    options.set_wal_recovery_mode(
        mode.skip_any_corrupted_record() if is_tolerant else mode.tolerate_corrupted_tail_records()
    )
    return options


def _open(directory: Path, on_damage: Callable[[str, int], None]) -> Any:
    """The database, without what is damaged; that is kept beside it, in `NAME-damaged`, until the next time."""
    _finish_rescue(directory, on_damage)
    lost: dict[str, int] = {}
    mark = directory / _MARK
    try:
        db = rocksdict.Rdict(str(directory), _options())
    except Exception as error:
        if not _is_damage(error):
            raise _unopened(directory, error) from error
        _log.error("the index is damaged and is repaired", extra={"cause": str(error)[:200]})
        db = _repair(directory, mark)
    if mark.exists():
        lost["files"] = 1
    try:
        if db is not None:
            check(db)
    except Damage:
        lost["places"] = 0
    return _rescue(directory, db, lost, on_damage) if lost else db


def _beside(directory: Path, what: str) -> Path:
    return directory.with_name(f"{directory.name}-{what}")


def _finish_rescue(directory: Path, on_damage: Callable[[str, int], None]) -> None:
    """Where a crash came between the two renames of a rescue, do the second one; make the folder if there is none."""
    try:
        if not directory.exists() and _beside(directory, "rescued").exists():
            _beside(directory, "rescued").rename(directory)
            _tell(_read_lost(_beside(directory, "damaged")), directory, on_damage)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise IndexUnavailableError(f"the index folder {directory} can't be made: {error.strerror}") from error


def _read_lost(aside: Path) -> dict[str, int]:
    try:
        return dict(json.loads((aside / LOST_FILE).read_text()))
    except (OSError, ValueError):
        return {"files": 1}


def _tell(lost: dict[str, int], directory: Path, on_damage: Callable[[str, int], None]) -> None:
    for what, count in lost.items():
        on_damage(what, count)
    _log.error("some of the index was damaged and is lost", extra={**lost, "kept": str(_beside(directory, "damaged"))})


def _repair(directory: Path, mark: Path) -> Any:
    """The database without what is damaged in its log, or else with new tables of contents.

    For these the library puts whole files aside of which it can't read a part, so it is the last resort. What it leaves
    looks whole, so `mark` lies there until the rescue is over, whatever ends this process meanwhile. None where nothing
    helps.
    """
    with suppress(OSError):
        mark.touch()
    with suppress(Exception):
        return rocksdict.Rdict(str(directory), _options(is_tolerant=True))
    try:
        rocksdict.Rdict.repair(str(directory), _options(is_tolerant=True))
        return rocksdict.Rdict(str(directory), _options(is_tolerant=True))
    except Exception as error:
        if not _is_damage(error):
            raise _unopened(directory, error) from error
        _log.error("the index can't be repaired", extra={"cause": str(error)[:200]})
    return None


def _rescue(directory: Path, db: Any, lost: dict[str, int], on_damage: Callable[[str, int], None]) -> Any:
    """Put what can be read, and is whole, into a new database in the place of the damaged one; None: nothing can."""
    fresh_at, aside = _beside(directory, "rescued"), _beside(directory, "damaged")
    try:
        shutil.rmtree(fresh_at, ignore_errors=True)
        fresh = rocksdict.Rdict(str(fresh_at), _options())
        if db is None:
            lost["stores"] = 1
        else:
            lost |= salvage(db, fresh)
            db.close()
        fresh.close()
        with suppress(OSError):
            (directory / LOST_FILE).write_text(json.dumps(lost))
        shutil.rmtree(aside, ignore_errors=True)
        directory.rename(aside)
        fresh_at.rename(directory)
        db = rocksdict.Rdict(str(directory), _options())
    except Exception as error:
        raise _unopened(directory, error) from error
    _tell(lost, directory, on_damage)
    return db


def _is_damage(error: Exception) -> bool:
    """Whether files are wrong; not whether this process may not, or can't now, use good ones."""
    text = str(error).lower()
    return not any(words in text for words in _NO_DAMAGE)


def _unopened(directory: Path, error: Exception) -> IndexUnavailableError:
    if "lock" in str(error).lower() and not _is_damage(error):
        return IndexUnavailableError(
            f"the index folder {directory} is in use by another process; one process opens it at a time"
        )
    return IndexUnavailableError(f"the index folder {directory} can't be opened: {error}")
