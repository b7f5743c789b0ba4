# cython: annotation_typing=False
"""The API keys of the edge: those of a file and those of the mesh's store, both read again as they change.

`keys.pxd` gives the types with which this very file is compiled.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.keys_pb2 import KeyRecord as StoredKey
from ssop.v1.keys_pb2 import ReadKeysRequest, ReadKeysResponse
from ssop_chassis.api_keys import (
    AUTHORIZATION_METADATA,
    HMAC_BYTES,
    KEY_ID,
    TENANT,
    KeyRecord,
    load_keys,
)
from ssop_chassis.call import Metadata
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import RESERVED_TENANT, Principal, Secrets
from ssop_chassis.key_ring import KeyRing, KeyUnknownError
from ssop_chassis.logs import describe
from ssop_router.dependency import Dependency, InnerMetadata, Unavailable

MOST_OUTDATED: Final = 1_000
"""Keys under the old secret that wait to be brought under the new one; those beyond come with their next use."""
Rehash = Callable[[str, bytes, bytes], Awaitable[None]]
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
        self.records: list[KeyRecord] = []
        self.is_absent = False
        """The service that should keep the keys is one that knows nothing of keys, so that there are none."""

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
            response = ReadKeysResponse.FromString(reply)
        except (Unavailable, MeshError, DecodeError) as error:
            self._on_failure()
            _log.debug("the keys could not be read", extra={"cause": describe(error)})
            self._note_absence(error)
            return False
        self._read_at_ms = asked_at_ms
        self.is_absent = False
        if response.version == self._version:
            return False
        # A store that lost its data counts from the start: whatever it says now is what holds.
        self._version = response.version
        self.records = [read_record(record) for record in response.records if _is_sound(record)]
        if (unsound := len(response.records) - len(self.records)) > 0:
            self._on_failure()
            _log.error("the store holds keys that are none; they are left out", extra={"keys": unsound})
        return True

    def _note_absence(self, error: Exception) -> None:
        cause = error.__cause__ if isinstance(error, Unavailable) else error
        if not isinstance(cause, MeshError) or self._read_at_ms is not None:
            return
        is_absent = cause.reason == ErrorReason.ERROR_REASON_UNSUPPORTED
        if is_absent and not self.is_absent:
            _log.warning("the cache service keeps no keys, being older than this router: the keys file holds them all")
        self.is_absent = is_absent


class Keys:
    """Who a caller is. Keys of the file come first; those of the store are trusted up to an age.

    `on_age` hears how old the copy of the store is, in milliseconds, at every look; `on_fault` counts looks that failed
    as nobody foresaw. `now_ms` is the wall clock.
    """

    def __init__(
        self,
        file: KeysFile,
        store: KeysStore | None,
        secrets: Secrets,
        *,
        max_age_ms: int,
        now_ms: Callable[[], int],
        on_age: Callable[[int], None] = lambda _: None,
        on_fault: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_fault = on_fault
        self._file = file
        self._store = store
        self._secrets = secrets
        self._outdated: dict[str, tuple[bytes, bytes]] = {}
        self._is_warned_of: set[str] = set()
        self._max_age_ms = max_age_ms
        self._now_ms = now_ms
        self._on_age = on_age
        self._from_file: frozenset[str] = frozenset()
        self._ring = self._combine()

    def authenticate(self, metadata: Metadata) -> Principal:
        """The principal of a call at the edge. Raises KEY_MISSING, KEY_INVALID, or STORE_UNAVAILABLE."""
        try:
            principal = self._ring.authenticate(metadata.get(AUTHORIZATION_METADATA), self._now_ms())
        except KeyUnknownError as error:
            if self._store is not None and self._store.age_ms is None and not self._store.is_absent:
                # It may be a key that the store holds; who has a good one must not hear that it is none.
                raise _unchecked() from error
            raise
        self._check_age(principal)
        return principal

    def renew(self, principal: Principal) -> Principal:
        """What the caller of a long call may do now. Raises KEY_INVALID, or STORE_UNAVAILABLE."""
        renewed = self._ring.renew(principal, self._now_ms())
        self._check_age(renewed)
        return renewed

    async def watch(self, poll_ms: int, rehash: Rehash | None = None) -> None:
        """Look for changes again and again, and bring keys that were used under the new secret; until cancelled."""
        while True:
            try:
                await self.refresh()
                if rehash is not None:
                    await self._rehash(rehash)
            except Exception as error:  # noqa: BLE001 - whatever it is, revocations must go on being heard
                self._on_fault()
                _log.error("looking for changes of the keys failed", extra={"cause": describe(error)})
            await asyncio.sleep(poll_ms / 1000)

    async def refresh(self) -> None:
        """Look for changes once."""
        if self._file.refresh():
            # What the file says does not wait for a store that is slow.
            self._ring = self._combine()
        if self._store is None:
            return
        if await self._store.refresh():
            self._ring = self._combine()
        if self._store.age_ms is not None:
            self._on_age(self._store.age_ms)

    def _combine(self) -> KeyRing:
        self._from_file = frozenset(record.id for record in self._file.records)
        stored = self._store.records if self._store is not None else []
        if hidden := sorted(record.id for record in stored if record.id in self._from_file):
            _log.warning("keys of the file hide keys of the store", extra={"key_ids": hidden[:16]})
        return KeyRing([*self._file.records, *stored], self._secrets, self._note_outdated)

    def _note_outdated(self, key_id: str, old: bytes, new: bytes) -> None:
        if key_id not in self._from_file:
            if len(self._outdated) < MOST_OUTDATED:
                self._outdated[key_id] = (old, new)
        elif key_id not in self._is_warned_of:
            self._is_warned_of.add(key_id)
            told = {"key_id": key_id, "hmac": new.hex()}
            _log.warning("a key of the file is under the old secret; put this hmac in its place", extra=told)

    async def _rehash(self, rehash: Rehash) -> None:
        while self._outdated:
            key_id, (old, new) = next(iter(self._outdated.items()))
            await rehash(key_id, old, new)
            self._outdated.pop(key_id, None)

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


def _is_sound(stored: StoredKey) -> bool:
    """Whether a record is one that a router may have written."""
    info = stored.info
    return (
        KEY_ID.fullmatch(info.key_id) is not None
        and TENANT.fullmatch(info.tenant) is not None
        and info.tenant != RESERVED_TENANT
        and len(stored.hmac) == HMAC_BYTES
        and len(stored.old_hmac) in {0, HMAC_BYTES}
    )


def _unchecked() -> MeshError:
    return MeshError(
        ErrorReason.ERROR_REASON_STORE_UNAVAILABLE, "the API key can't be checked: the store of keys does not answer"
    )
