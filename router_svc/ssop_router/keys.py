"""The API keys of the edge: read from a file, and again when it changes, so that a revoked key ends within a second."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from ssop_chassis.call import Metadata
from ssop_chassis.identity import AUTHORIZATION_METADATA, KeyRing, Principal, load_keys
from ssop_chassis.logs import describe

_log = logging.getLogger(__name__)


class KeysFile:
    """Keys from a file. A file that can't be read leaves the last keys in force, is logged and counted."""

    def __init__(self, path: Path, secret: bytes, *, now_ms: Callable[[], int], on_failure: Callable[[], None]) -> None:
        self._path = path
        self._secret = secret
        self._now_ms = now_ms
        self._on_failure = on_failure
        self._stamp = self._stat()
        self._ring: KeyRing = load_keys(path, secret)

    def authenticate(self, metadata: Metadata) -> Principal:
        """The principal of a call at the edge. Raises KEY_MISSING or KEY_INVALID."""
        return self._ring.authenticate(metadata.get(AUTHORIZATION_METADATA), now_ms=self._now_ms())

    async def watch(self, poll_ms: int) -> None:
        """Read the file again whenever it has changed; runs until cancelled."""
        while True:
            await asyncio.sleep(poll_ms / 1000)
            self.refresh()

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        try:
            stamp = self._stat()
            if stamp == self._stamp:
                return
            self._ring = load_keys(self._path, self._secret)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._on_failure()
            _log.error("the keys file can't be read; the last keys stay in force", extra={"cause": describe(error)})
            return
        self._stamp = stamp
        _log.info("keys were read again")

    def _stat(self) -> tuple[int, int, int]:
        # An editor that writes a new file keeps neither inode nor, within the clock's step, a new time.
        stat = self._path.stat()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino
