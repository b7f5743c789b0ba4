"""The API keys of the edge: those of a file and those of the mesh's store, both read again as they change."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.keys_pb2 import KeyRecord as StoredKey
from ssop.v1.keys_pb2 import ReadKeysRequest, ReadKeysResponse
from ssop_chassis.api_keys import AUTHORIZATION_METADATA, KeyRecord, KeyRing, load_keys
from ssop_chassis.call import Metadata
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import Principal
from ssop_chassis.logs import describe
from ssop_router.dependency import Dependency, InnerMetadata, Unavailable

READ_METHOD: Final = "/ssop.v1.KeyStoreService/ReadKeys"
_log = logging.getLogger(__name__)


class KeysFile:
    """Keys from a file. A file that can't be read leaves the last keys in force, is logged and counted."""

    def __init__(self, path: Path, *, on_failure: Callable[[], None]) -> None:
        self._path = path
        self._on_failure = on_failure
        self._stamp = self._stat()
        self.records = load_keys(path)

    def refresh(self) -> bool:
        """Read the file again if it has changed; whether there are other records now."""
        try:
            stamp = self._stat()
            if stamp == self._stamp:
                return False
            self.records = load_keys(self._path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._on_failure()
            _log.error("the keys file can't be read; the last keys stay in force", extra={"cause": describe(error)})
            return False
        self._stamp = stamp
        _log.info("keys were read again")
        return True

    def _stat(self) -> tuple[int, int, int]:
        # An editor that writes a new file keeps neither inode nor, within the clock's step, a new time.
        stat = self._path.stat()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino


class KeysStore:
    """A copy of the records in the mesh's store. While the store does not answer, the copy grows old."""

    def __init__(
        self,
        store: Dependency,
        *,
        metadata: Callable[[], InnerMetadata],
        timeout_s: float,
        clock_ms: Callable[[], int],
        on_failure: Callable[[], None],
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._timeout_s = timeout_s
        self._clock_ms = clock_ms
        self._on_failure = on_failure
        self._version = 0
        self._read_at_ms: int | None = None
        self.stored: dict[str, StoredKey] = {}
        self.records: list[KeyRecord] = []

    @property
    def age_ms(self) -> int | None:
        """Milliseconds since the copy was known to be right; None before the first time."""
        return None if self._read_at_ms is None else max(0, self._clock_ms() - self._read_at_ms)

    async def refresh(self) -> bool:
        """Ask for changes; whether there are other records now."""
        asked_at_ms = self._clock_ms()
        request = ReadKeysRequest(known_version=self._version)
        try:
            reply = await self._store.unary(
                READ_METHOD, request.SerializeToString(), timeout_s=self._timeout_s, metadata=self._metadata()
            )
        except (Unavailable, MeshError) as error:
            self._on_failure()
            _log.debug("the keys could not be read", extra={"cause": describe(error)})
            return False
        response = ReadKeysResponse.FromString(reply)
        self._read_at_ms = asked_at_ms
        if response.version == self._version:
            return False
        # A store that lost its data counts from the start: whatever it says now is what holds.
        self._version = response.version
        self.stored = {record.info.key_id: record for record in response.records}
        self.records = [read_record(record) for record in response.records]
        return True


class Keys:
    """Who a caller is. Keys of the file come first; those of the store are trusted up to an age.

    `on_age` hears how old the copy of the store is, in milliseconds, at every look. `now_ms` is the wall clock.
    """

    def __init__(
        self,
        file: KeysFile,
        store: KeysStore | None,
        secret: bytes,
        *,
        max_age_ms: int,
        now_ms: Callable[[], int],
        on_age: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._file = file
        self._store = store
        self._secret = secret
        self._max_age_ms = max_age_ms
        self._now_ms = now_ms
        self._on_age = on_age
        self._from_file: frozenset[str] = frozenset()
        self._ring = self._combine()

    def authenticate(self, metadata: Metadata) -> Principal:
        """The principal of a call at the edge. Raises KEY_MISSING, KEY_INVALID, or STORE_UNAVAILABLE."""
        try:
            principal = self._ring.authenticate(metadata.get(AUTHORIZATION_METADATA), now_ms=self._now_ms())
        except MeshError as error:
            if error.reason == ErrorReason.ERROR_REASON_KEY_INVALID and self._store and self._store.age_ms is None:
                # It may be a key that the store holds; who has a good one must not hear that it is none.
                raise _unchecked() from error
            raise
        self._check_age(principal)
        return principal

    def renew(self, principal: Principal) -> Principal:
        """What the caller of a long call may do now. Raises KEY_INVALID, or STORE_UNAVAILABLE."""
        renewed = self._ring.renew(principal, now_ms=self._now_ms())
        self._check_age(renewed)
        return renewed

    async def watch(self, poll_ms: int) -> None:
        """Look for changes again and again; runs until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(poll_ms / 1000)

    async def refresh(self) -> None:
        """Look for changes once."""
        has_changed = self._file.refresh()
        if self._store is not None:
            has_changed = await self._store.refresh() or has_changed
            if self._store.age_ms is not None:
                self._on_age(self._store.age_ms)
        if has_changed:
            self._ring = self._combine()

    def _combine(self) -> KeyRing:
        self._from_file = frozenset(record.id for record in self._file.records)
        stored = self._store.records if self._store is not None else []
        if hidden := sorted(record.id for record in stored if record.id in self._from_file):
            _log.warning("keys of the file hide keys of the store", extra={"key_ids": hidden[:16]})
        return KeyRing([*self._file.records, *stored], self._secret)

    def _check_age(self, principal: Principal) -> None:
        if self._store is None or principal.key_id in self._from_file:
            return
        age_ms = self._store.age_ms
        if age_ms is None or age_ms > self._max_age_ms:
            raise _unchecked()


def read_record(stored: StoredKey) -> KeyRecord:
    """A record of the store as the ring takes it."""
    info = stored.info
    return KeyRecord(
        id=info.key_id,
        tenant=info.tenant,
        scopes=frozenset(info.scopes),
        hmac=stored.hmac,
        expires_at_ms=info.expires_at_ms,
        old_hmac=stored.old_hmac,
        old_expires_at_ms=info.old_secret_expires_at_ms,
        revoked_at_ms=info.revoked_at_ms,
    )


def _unchecked() -> MeshError:
    return MeshError(
        ErrorReason.ERROR_REASON_STORE_UNAVAILABLE, "the API key can't be checked: the store of keys does not answer"
    )
