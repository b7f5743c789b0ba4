"""The host's answers on disk: a RocksDB folder. Blocking; used from one thread.

Every batch is one write: entries, deletions and the cursor of the log of changes together, so that a process that is
killed leaves a state that its cursor describes. What is broken is thrown away and made again: it is only a cache.
"""

import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ssop_cache.core.changes import Cursor, decode_cursor, encode_cursor
from ssop_cache.core.local import (
    LocalAnswer,
    LocalRecordError,
    Name,
    decode_local,
    decode_name,
    encode_local,
    encode_name,
)

_CURSOR: Final = b"cursor"
_BUFFER_BYTES: Final = 8 << 20
_log = logging.getLogger(__name__)


class DiskError(OSError):
    """The folder can't be used; the text says why."""


class Disk:
    """An open folder. `on_fault(kind)` hears of what was thrown away: `folder`, `entry` or `cursor`."""

    def __init__(self, directory: Path, on_fault: Callable[[str], None]) -> None:
        self._directory = directory
        self._on_fault = on_fault
        try:
            import rocksdict  # noqa: PLC0415 - only where the level is kept on disk
        except ImportError as error:
            raise DiskError("the cache's local_directory needs rocksdict: pip install rocksdict") from error
        self._rocks: Any = rocksdict
        self._db: Any = self._open()

    def load(self, now_ms: int) -> tuple[dict[Name, LocalAnswer], Cursor]:
        """All entries that are whole and have not lapsed, and what they are up to date with. Raises DiskError.

        Without a cursor nobody knows what has changed since, so that there are no entries then.
        """
        try:
            return self._load(now_ms)
        except DiskError:
            raise
        except Exception as error:  # noqa: BLE001 - the library raises plain Exception for all faults
            _log.error("the folder of stored answers is broken and is made again: %s", type(error).__name__)
            self._remake()
            return {}, Cursor()

    def write(self, changes: Mapping[Name, LocalAnswer | None], cursor: Cursor, *, is_all: bool) -> None:
        """Put and delete (None) entries. `is_all`: nothing else stays. Raises DiskError."""
        batch = self._rocks.WriteBatch(raw_mode=True)
        if is_all:
            batch.delete_range(b"", b"\xff" * 64)
        for name, answer in changes.items():
            if answer is None:
                batch.delete(encode_name(name))
            else:
                batch.put(encode_name(name), encode_local(answer))
        batch.put(_CURSOR, encode_cursor(cursor))
        try:
            self._db.write(batch)
        except Exception as error:  # the library raises plain Exception for all faults
            raise DiskError(f"the folder {self._directory} can't be written") from error

    def close(self) -> None:
        """Close the folder."""
        self._db.close()

    def _load(self, now_ms: int) -> tuple[dict[Name, LocalAnswer], Cursor]:
        cursor, found, spoilt = None, {}, []
        for key, value in self._db.items():
            if key == _CURSOR:
                try:
                    cursor = decode_cursor(value)
                except ValueError:
                    self._on_fault("cursor")
                continue
            try:
                name, answer = decode_name(key), decode_local(value)
            except LocalRecordError:
                self._on_fault("entry")
                spoilt.append(key)
                continue
            if answer.expires_ms > now_ms:
                found[name] = answer
            else:
                spoilt.append(key)
        if cursor is None or cursor == Cursor():
            self.write({}, Cursor(), is_all=True)
            return {}, Cursor()
        for key in spoilt:
            self._db.delete(key)
        return found, cursor

    def _open(self) -> Any:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DiskError(f"the folder {self._directory} can't be made: {error.strerror}") from error
        try:
            return self._try_open()
        except Exception as error:  # the library raises plain Exception for all faults
            if "lock" in str(error).lower():
                raise DiskError(f"the folder {self._directory} is in use by another process") from error
            _log.error("the folder of stored answers is broken and is made again: %s", type(error).__name__)
        return self._remake()

    def _remake(self) -> Any:
        self._on_fault("folder")
        if hasattr(self, "_db"):
            self._db.close()
        try:
            shutil.rmtree(self._directory)
            self._directory.mkdir(mode=0o700)
            self._db = self._try_open()
        except Exception as error:  # the library raises plain Exception for all faults
            raise DiskError(f"the folder {self._directory} can't be made again") from error
        return self._db

    def _try_open(self) -> Any:
        options = self._rocks.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(_BUFFER_BYTES)
        options.set_max_write_buffer_number(2)
        return self._rocks.Rdict(str(self._directory), options)
