"""KeyService: makes, lists, rotates and revokes API keys. The plain key exists in one reply and nowhere else."""

import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Final

from ssop.v1 import keys_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.keys_pb2 import KeyInfo, KeyRecord
from ssop_chassis.api_keys import KEY_ID, TENANT, hash_key, make_key
from ssop_chassis.api_keys import KeyRecord as FileRecord
from ssop_chassis.call import Call
from ssop_chassis.errors import MeshError, invalid_request
from ssop_chassis.identity import RESERVED_TENANT, SCOPES
from ssop_router.dependency import Dependency, InnerMetadata, Unavailable
from ssop_router.keys import READ_METHOD

ADMIN_SCOPE: Final = "admin"
MAX_OVERLAP_MS: Final = 2_592_000_000
MAX_LIFETIME_MS: Final = 315_360_000_000
_WRITE_METHOD: Final = "/ssop.v1.KeyStoreService/WriteKey"
_TRIES: Final = 5
_log = logging.getLogger(__name__)


class KeyServicer:
    """See `keys.proto`. `store` is None where the mesh has no cache service. `now_ms` is the wall clock."""

    def __init__(
        self,
        store: Dependency | None,
        secret: bytes,
        *,
        metadata: Callable[[], InnerMetadata],
        file_records: Callable[[], Sequence[FileRecord]],
        timeout_s: float,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._secret = secret
        self._metadata = metadata
        self._file_records = file_records
        self._timeout_s = timeout_s
        self._now_ms = now_ms

    async def create_key(self, call: Call) -> None:
        """See KeyService.CreateKey."""
        call.principal.require(ADMIN_SCOPE)
        request = keys_pb2.CreateKeyRequest.FromString(call.request)
        _check_creation(request)
        key_id = request.key_id or secrets.token_hex(6)
        if self._is_in_file(key_id):
            raise _exists()
        plain_key = make_key(key_id)
        now_ms = self._now_ms()
        info = KeyInfo(
            key_id=key_id,
            tenant=request.tenant,
            scopes=sorted(set(request.scopes)),
            created_at_ms=now_ms,
            expires_at_ms=now_ms + request.lifetime_ms if request.lifetime_ms else 0,
            hashed_at_ms=now_ms,
        )
        record = KeyRecord(info=info, hmac=hash_key(plain_key, self._secret))
        if not await self._write(None, record):
            raise _exists()
        await call.write(keys_pb2.CreateKeyResponse(key=info, plain_key=plain_key).SerializeToString())

    async def list_keys(self, call: Call) -> None:
        """See KeyService.ListKeys."""
        call.principal.require(ADMIN_SCOPE)
        request = keys_pb2.ListKeysRequest.FromString(call.request)
        infos = [
            KeyInfo(
                key_id=record.id,
                tenant=record.tenant,
                scopes=sorted(record.scopes),
                expires_at_ms=record.expires_at_ms,
                is_in_file=True,
            )
            for record in self._file_records()
        ]
        if self._store is not None:
            infos += [record.info for record in (await self._read()).values()]
        wanted = [info for info in infos if request.tenant in {"", info.tenant}]
        response = keys_pb2.ListKeysResponse(keys=sorted(wanted, key=lambda info: info.key_id))
        await call.write(response.SerializeToString())

    async def rotate_key(self, call: Call) -> None:
        """See KeyService.RotateKey."""
        call.principal.require(ADMIN_SCOPE)
        request = keys_pb2.RotateKeyRequest.FromString(call.request)
        if not 0 <= request.overlap_ms <= MAX_OVERLAP_MS:
            raise invalid_request(("overlap_ms", f"must be from 0 to {MAX_OVERLAP_MS}"))
        now_ms = self._now_ms()
        plain_key = ""

        def rotate(record: KeyRecord) -> None:
            nonlocal plain_key
            if record.info.revoked_at_ms:
                raise invalid_request(("key_id", "is of a key that was revoked"))
            if 0 < record.info.expires_at_ms <= now_ms:
                raise invalid_request(("key_id", "is of a key that has expired"))
            if request.overlap_ms and record.info.old_secret_expires_at_ms > now_ms:
                # There is one place for an old secret; a promise that was made is not broken unasked.
                raise invalid_request(
                    ("overlap_ms", "the last rotation overlaps still; 0 ends both secrets before the new one at once")
                )
            plain_key = make_key(record.info.key_id)
            record.old_hmac = record.hmac if request.overlap_ms else b""
            record.info.old_secret_expires_at_ms = now_ms + request.overlap_ms if request.overlap_ms else 0
            record.hmac = hash_key(plain_key, self._secret)
            record.info.rotated_at_ms = record.info.hashed_at_ms = now_ms

        info = await self._change(request.key_id, rotate)
        await call.write(keys_pb2.RotateKeyResponse(key=info, plain_key=plain_key).SerializeToString())

    async def revoke_key(self, call: Call) -> None:
        """See KeyService.RevokeKey."""
        call.principal.require(ADMIN_SCOPE)
        request = keys_pb2.RevokeKeyRequest.FromString(call.request)
        now_ms = self._now_ms()

        def revoke(record: KeyRecord) -> None:
            record.info.revoked_at_ms = record.info.revoked_at_ms or now_ms

        info = await self._change(request.key_id, revoke)
        await call.write(keys_pb2.RevokeKeyResponse(key=info).SerializeToString())

    async def rehash(self, key_id: str, old: bytes, new: bytes) -> None:
        """Put a key's HMAC under the mesh's new secret in the place of that under the old one. Raises as others do."""
        before = (await self._read()).get(key_id)
        if before is None:
            return
        after = KeyRecord()
        after.CopyFrom(before)
        if before.hmac == old:
            after.hmac = new
        elif before.old_hmac == old:
            after.old_hmac = new
        else:
            return
        after.info.hashed_at_ms = self._now_ms()
        if await self._write(before, after):
            _log.info("a key was brought under the new secret", extra={"key_id": key_id})

    async def _change(self, key_id: str, change: Callable[[KeyRecord], None]) -> KeyInfo:
        """Change a record as it is in the store, whoever else changes it meanwhile."""
        if not KEY_ID.fullmatch(key_id):
            raise invalid_request(("key_id", "must be 1 to 32 characters of [a-z0-9]"))
        for _ in range(_TRIES):
            before = (await self._read()).get(key_id)
            if before is None:
                is_in_file = self._is_in_file(key_id)
                fault = "the key stands in the routers' keys file: change it there" if is_in_file else "no such key"
                raise MeshError(ErrorReason.ERROR_REASON_KEY_UNKNOWN, fault, metadata={"key_id": key_id})
            after = KeyRecord()
            after.CopyFrom(before)
            change(after)
            if await self._write(before, after):
                return after.info
        raise MeshError(
            ErrorReason.ERROR_REASON_STORE_UNAVAILABLE,
            "the key changes faster than it can be written",
            retry_after_ms=100,
        )

    def _is_in_file(self, key_id: str) -> bool:
        return any(record.id == key_id for record in self._file_records())

    async def _read(self) -> dict[str, KeyRecord]:
        reply = await self._ask(READ_METHOD, keys_pb2.ReadKeysRequest().SerializeToString())
        records = keys_pb2.ReadKeysResponse.FromString(reply).records
        return {record.info.key_id: record for record in records}

    async def _write(self, expected: KeyRecord | None, record: KeyRecord) -> bool:
        request = keys_pb2.WriteKeyRequest(expected=expected, record=record)
        reply = await self._ask(_WRITE_METHOD, request.SerializeToString())
        return keys_pb2.WriteKeyResponse.FromString(reply).is_written

    async def _ask(self, method: str, request: bytes) -> bytes:
        if self._store is None:
            raise MeshError(
                ErrorReason.ERROR_REASON_UNSUPPORTED,
                "the mesh has no cache service to keep keys; they stand in the routers' keys file",
                metadata={"feature": "keys"},
            )
        try:
            return await self._store.unary(method, request, timeout_s=self._timeout_s, metadata=self._metadata())
        except Unavailable as error:
            cause = error.__cause__
            if isinstance(cause, MeshError) and cause.reason == ErrorReason.ERROR_REASON_UNSUPPORTED:
                raise MeshError(
                    cause.reason,
                    "the mesh's cache service is too old to keep keys; they stand in the routers' keys file",
                    metadata={"feature": "keys"},
                ) from error
            raise MeshError(
                ErrorReason.ERROR_REASON_STORE_UNAVAILABLE, "the store of keys does not answer", retry_after_ms=1000
            ) from error


def _check_creation(request: keys_pb2.CreateKeyRequest) -> None:
    faults = []
    if request.key_id and not KEY_ID.fullmatch(request.key_id):
        faults.append(("key_id", "must be 1 to 32 characters of [a-z0-9]"))
    if not TENANT.fullmatch(request.tenant) or request.tenant == RESERVED_TENANT:
        faults.append(("tenant", f"must be 1 to 64 characters of [A-Za-z0-9._-], and not '{RESERVED_TENANT}'"))
    if not request.scopes or not SCOPES.issuperset(request.scopes):
        faults.append(("scopes", f"must be one or more of {', '.join(sorted(SCOPES))}"))
    if not 0 <= request.lifetime_ms <= MAX_LIFETIME_MS:
        faults.append(("lifetime_ms", f"must be from 0 to {MAX_LIFETIME_MS}"))
    if faults:
        raise invalid_request(*faults)


def _exists() -> MeshError:
    return MeshError(ErrorReason.ERROR_REASON_KEY_EXISTS, "there is a key with this id")
