"""API keys: how they look, what is stored of them, and who a caller is by one.

A key is `ssop_<id>_<secret>`: the id names it, the secret is 32 random bytes in base32 (RFC 4648, lower case) and
a CRC-32 as 7 more characters, which tells a typing error from a wrong key. Only an HMAC of the key is stored.
"""

import base64
import binascii
import hmac
import re
import secrets
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import RESERVED_TENANT, Principal, Secrets

AUTHORIZATION_METADATA: Final = "authorization"
KEY_ID: Final = re.compile(r"^[a-z0-9]{1,32}$")
TENANT: Final = re.compile(r"^[A-Za-z0-9._-]{1,64}$")
HMAC_BYTES: Final = 32
_NO_HMAC: Final = bytes(HMAC_BYTES)
_MOST_PROVEN: Final = 1_024


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key as it is stored. HMACs are of the whole key, 32 bytes; times are milliseconds since the epoch, 0 is never.

    While it is rotated the secret before is good too, until `old_expires_at_ms`.
    """

    id: str
    tenant: str
    scopes: frozenset[str]
    hmac: bytes = field(repr=False)
    expires_at_ms: int = 0
    old_hmac: bytes = field(default=b"", repr=False)
    old_expires_at_ms: int = 0
    revoked_at_ms: int = 0


def make_key(key_id: str) -> str:
    """A new key with 32 random bytes. `key_id` is 1 to 32 characters of `[a-z0-9]`."""
    if not KEY_ID.fullmatch(key_id):
        raise ValueError("a key id has 1 to 32 characters of a-z and 0-9")
    secret = _base32(secrets.token_bytes(32))
    return f"ssop_{key_id}_{secret}{_checksum(key_id, secret)}"


def hash_key(key: str, secret: bytes) -> bytes:
    """The HMAC of a key under the mesh's secret: what is stored."""
    return hmac.digest(secret, b"ssop.key.v1\0" + key.encode(), "sha256")


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()


def _checksum(key_id: str, secret: str) -> str:
    return _base32(binascii.crc32(f"{key_id}_{secret}".encode()).to_bytes(4, "big"))


@dataclass(frozen=True, slots=True)
class _Proof:
    """That a key is that of a record, by one of its secrets; whether it still holds is another question."""

    record: KeyRecord
    principal: Principal
    is_new: bool
    is_outdated: bool


class KeyRing:
    """The keys of a mesh, by id; of two with the same id the first counts.

    Whose a key is is remembered, since the records of a ring never change; whether it still holds is asked each time.

    HMACs may be under any of the secrets. `on_outdated` hears of each use of a key whose HMAC is under the old one:
    its id, that HMAC, and the one that should stand there.
    """

    def __init__(
        self,
        records: Iterable[KeyRecord],
        secrets_: Secrets,
        on_outdated: Callable[[str, bytes, bytes], None] = lambda *_: None,
    ) -> None:
        found: dict[str, KeyRecord] = {}
        for record in records:
            found.setdefault(record.id, record)
        self._records: Mapping[str, KeyRecord] = found
        self._secrets = secrets_
        self._on_outdated = on_outdated
        self._proven: dict[str, _Proof] = {}

    def authenticate(self, authorization: str | bytes | None, *, now_ms: int) -> Principal:
        """The principal of an `authorization: Bearer <key>` header. Raises KEY_MISSING or KEY_INVALID."""
        if not isinstance(authorization, str) or not authorization:
            raise MeshError(
                ErrorReason.ERROR_REASON_KEY_MISSING,
                "send the API key as 'authorization: Bearer <key>'",
            )
        proof = self._proven.get(authorization)
        if proof is not None:
            return self._check(proof, now_ms)
        kind, _, key = authorization.partition(" ")
        key = key.strip()
        parts = key.split("_")
        if kind.lower() != "bearer" or len(parts) != 3 or parts[0] != "ssop":
            raise _invalid_key("the API key is malformed")
        _, key_id, secret = parts
        if not secret.endswith(_checksum(key_id, secret[:-7])):
            raise _invalid_key("the API key is mistyped: its checksum is wrong")
        proof = self._prove(key_id, b"".join(hash_key(key, one) for one in self._secrets.accepted))
        principal = self._check(proof, now_ms)
        if len(self._proven) >= _MOST_PROVEN:
            self._proven.clear()
        self._proven[authorization] = proof
        return principal

    def renew(self, principal: Principal, *, now_ms: int) -> Principal:
        """What the key of a principal may do now: for calls that outlive a change. Raises KEY_INVALID.

        A secret that would not be taken any more is not renewed either.
        """
        renewed = self._check(self._prove(principal.key_id, principal.key_hmac), now_ms)
        if renewed.tenant != principal.tenant:
            raise _invalid_key("the API key speaks for another tenant now")
        return renewed

    def _prove(self, key_id: str, found: bytes) -> _Proof:
        """`found` holds an HMAC for each of the secrets. Raises KEY_INVALID where none is of a record with this id."""
        record = self._records.get(key_id)
        is_new = is_old = is_outdated = False
        for at in range(0, len(found), HMAC_BYTES):
            one = found[at : at + HMAC_BYTES]
            # Compared even when there is nothing to compare with, so that the time tells nothing of ids and rotations.
            is_this_new = hmac.compare_digest(one, record.hmac if record is not None else _NO_HMAC)
            is_this_old = hmac.compare_digest(one, (record.old_hmac if record is not None else b"") or _NO_HMAC)
            is_new |= is_this_new
            is_old |= is_this_old
            # The old secret is the last one.
            is_outdated = bool(self._secrets.old) and (is_this_new or is_this_old)
        if record is None or not (is_new or is_old):
            raise KeyUnknownError
        return _Proof(record, Principal(record.tenant, record.id, record.scopes, found), is_new, is_outdated)

    def _check(self, proof: _Proof, now_ms: int) -> Principal:
        """The principal, where the key holds at this time. Raises KEY_INVALID."""
        record = proof.record
        if record.revoked_at_ms:
            raise _invalid_key("the API key was revoked")
        if not proof.is_new and now_ms >= record.old_expires_at_ms:
            raise _invalid_key("the API key was rotated, and its old secret has expired")
        if record.expires_at_ms and now_ms >= record.expires_at_ms:
            raise _invalid_key("the API key has expired")
        if proof.is_outdated:
            found = proof.principal.key_hmac
            self._on_outdated(record.id, found[-HMAC_BYTES:], found[:HMAC_BYTES])
        return proof.principal


class KeyUnknownError(MeshError):
    """KEY_INVALID for a well-formed key that no record here is of."""

    def __init__(self) -> None:
        super().__init__(ErrorReason.ERROR_REASON_KEY_INVALID, "the API key is unknown")


def _invalid_key(text: str) -> MeshError:
    return MeshError(ErrorReason.ERROR_REASON_KEY_INVALID, text)


def load_keys(path: Path) -> list[KeyRecord]:
    """Load a keys file (TOML, a table `[[keys]]` for each: id, tenant, scopes, hmac in hex, expires_at_ms).

    Raises ValueError, naming the key at fault, and OSError.
    """
    return [_read_entry(path, entry) for entry in tomllib.loads(path.read_text()).get("keys", [])]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str = Field(pattern=KEY_ID.pattern)
    tenant: str = Field(pattern=TENANT.pattern)
    scopes: list[Literal["lite", "full", "rag", "ssop", "admin"]]
    hmac: str = Field(pattern="^[0-9a-f]{64}$")
    expires_at_ms: int = Field(0, ge=0)

    @field_validator("tenant")
    @classmethod
    def _is_not_the_mesh(cls, value: str) -> str:
        if value == RESERVED_TENANT:
            raise ValueError(f"'{RESERVED_TENANT}' is what the services call themselves")
        return value


def _read_entry(path: Path, document: Any) -> KeyRecord:
    try:
        entry = _Entry.model_validate(document)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
            for fault in error.errors(include_input=False, include_url=False)
        )
        key_id = document.get("id") if isinstance(document, dict) else None
        raise ValueError(f"{path}: key '{key_id}': {faults}") from None
    return KeyRecord(entry.id, entry.tenant, frozenset(entry.scopes), bytes.fromhex(entry.hmac), entry.expires_at_ms)
