"""Who calls: principals, their tokens between services, and API keys from a file.

A key is `ssop_<id>_<secret>`: the id names it, the secret is 32 random bytes in base32 (RFC 4648, lower case) and
a CRC-32 as 7 more characters, which tells a typing error from a wrong key. Only an HMAC of the key is stored.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from ssop.v1 import identity_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError

PRINCIPAL_METADATA: Final = "x-ssop-principal-bin"
AUTHORIZATION_METADATA: Final = "authorization"
SCOPES: Final = frozenset({"lite", "full", "rag", "ssop", "admin"})
TOKEN_LIFETIME_MS: Final = 600_000
CLOCK_SKEW_MS: Final = 5_000
MIN_SECRET_BYTES: Final = 32
_MAC_BYTES: Final = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller: tenant, id of the key, and what the key may do."""

    tenant: str
    key_id: str
    scopes: frozenset[str] = field(default_factory=frozenset)

    def require(self, scope: str) -> None:
        """Raise SCOPE_MISSING, naming the scope, unless the key has it."""
        if scope not in self.scopes:
            raise MeshError(
                ErrorReason.ERROR_REASON_SCOPE_MISSING,
                f"the key lacks the scope '{scope}'",
                metadata={"scope": scope, "key_id": self.key_id},
            )


def sign_principal(principal: Principal, secret: bytes, *, now_ms: int, issuer: str) -> bytes:
    """The token that carries a principal to an inner service: HMAC-SHA-256 (RFC 2104), then the message.

    `secret` is the mesh's secret, at least 32 bytes; `now_ms` is wall-clock milliseconds since the epoch.
    """
    message = identity_pb2.Principal(
        tenant=principal.tenant,
        key_id=principal.key_id,
        scopes=sorted(principal.scopes),
        issued_at_ms=now_ms,
        expires_at_ms=now_ms + TOKEN_LIFETIME_MS,
        issuer=issuer,
    ).SerializeToString()
    return _mac(secret, message) + message


def verify_principal(token: bytes | str | None, secrets_: Sequence[bytes], *, now_ms: int) -> Principal:
    """The principal of a token, signed with any of the secrets (rotation overlaps). Raises PRINCIPAL_INVALID."""
    if not isinstance(token, bytes) or len(token) <= _MAC_BYTES:
        raise _invalid_principal("the call carries no principal")
    mac, message = token[:_MAC_BYTES], token[_MAC_BYTES:]
    if not any(hmac.compare_digest(mac, _mac(secret, message)) for secret in secrets_):
        raise _invalid_principal("the principal's signature is wrong")
    parsed = identity_pb2.Principal()
    try:
        parsed.ParseFromString(message)
    except DecodeError as error:
        raise _invalid_principal("the principal is malformed") from error
    if not parsed.issued_at_ms - CLOCK_SKEW_MS <= now_ms <= parsed.expires_at_ms + CLOCK_SKEW_MS:
        raise _invalid_principal("the principal has expired, or the hosts' clocks differ")
    if not parsed.tenant:
        raise _invalid_principal("the principal names no tenant")
    return Principal(parsed.tenant, parsed.key_id, frozenset(parsed.scopes))


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs principals for the inner calls of one service. `now_ms` is the wall clock, milliseconds since the epoch."""

    secret: bytes
    issuer: str
    now_ms: Callable[[], int]

    def metadata(self, principal: Principal) -> dict[str, str | bytes]:
        """The metadata that an inner call must carry."""
        token = sign_principal(principal, self.secret, now_ms=self.now_ms(), issuer=self.issuer)
        return {PRINCIPAL_METADATA: token}


def _mac(secret: bytes, message: bytes) -> bytes:
    # The prefix keeps this use of the secret apart from that for keys.
    return hmac.digest(secret, b"ssop.principal.v1\0" + message, "sha256")


def _invalid_principal(text: str) -> MeshError:
    return MeshError(ErrorReason.ERROR_REASON_PRINCIPAL_INVALID, text)


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key as it is stored. `hmac_hex` is the HMAC of the whole key; `expires_at_ms` 0 is never."""

    id: str
    tenant: str
    scopes: frozenset[str]
    hmac_hex: str
    expires_at_ms: int = 0


def make_key(key_id: str) -> str:
    """A new key with 32 random bytes. `key_id` is 1 to 32 characters of `[a-z0-9]`."""
    if not (key_id.isascii() and key_id.isalnum() and key_id == key_id.lower() and len(key_id) <= 32):
        raise ValueError("a key id has 1 to 32 characters of a-z and 0-9")
    secret = _base32(secrets.token_bytes(32))
    return f"ssop_{key_id}_{secret}{_checksum(key_id, secret)}"


def hash_key(key: str, secret: bytes) -> str:
    """The HMAC of a key under the mesh's secret, in hex: what is stored."""
    return hmac.digest(secret, b"ssop.key.v1\0" + key.encode(), "sha256").hex()


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()


def _checksum(key_id: str, secret: str) -> str:
    return _base32(binascii.crc32(f"{key_id}_{secret}".encode()).to_bytes(4, "big"))


class KeyRing:
    """The keys of a mesh, as loaded from a file."""

    def __init__(self, records: Sequence[KeyRecord], secret: bytes) -> None:
        self._records: Mapping[str, KeyRecord] = {record.id: record for record in records}
        self._secret = secret

    def authenticate(self, authorization: str | bytes | None, *, now_ms: int) -> Principal:
        """The principal of an `authorization: Bearer <key>` header. Raises KEY_MISSING or KEY_INVALID."""
        if not isinstance(authorization, str) or not authorization:
            raise MeshError(
                ErrorReason.ERROR_REASON_KEY_MISSING,
                "send the API key as 'authorization: Bearer <key>'",
            )
        kind, _, key = authorization.partition(" ")
        parts = key.strip().split("_")
        if kind.lower() != "bearer" or len(parts) != 3 or parts[0] != "ssop":
            raise _invalid_key("the API key is malformed")
        _, key_id, secret = parts
        if not secret.endswith(_checksum(key_id, secret[:-7])):
            raise _invalid_key("the API key is mistyped: its checksum is wrong")
        record = self._records.get(key_id)
        stored = record.hmac_hex if record is not None else "0" * 64
        # Compared even when the id is unknown, so that the time tells nothing about ids.
        is_right = hmac.compare_digest(stored, hash_key(key.strip(), self._secret))
        if record is None or not is_right:
            raise _invalid_key("the API key is unknown")
        if record.expires_at_ms and now_ms >= record.expires_at_ms:
            raise _invalid_key("the API key has expired")
        return Principal(record.tenant, record.id, record.scopes)


def _invalid_key(text: str) -> MeshError:
    return MeshError(ErrorReason.ERROR_REASON_KEY_INVALID, text)


def load_keys(path: Path, secret: bytes) -> KeyRing:
    """Load a keys file (TOML, a table `[[keys]]` for each: id, tenant, scopes, hmac, expires_at_ms).

    Raises ValueError, naming the key at fault, and OSError.
    """
    records = []
    for entry in tomllib.loads(path.read_text()).get("keys", []):
        unknown = set(entry.get("scopes", [])) - SCOPES
        if unknown or not entry.get("tenant") or len(entry.get("hmac", "")) != 64:
            raise ValueError(
                f"{path}: key '{entry.get('id')}': needs a tenant, a 64-digit hmac and scopes of {sorted(SCOPES)}"
            )
        records.append(
            KeyRecord(
                entry["id"],
                entry["tenant"],
                frozenset(entry["scopes"]),
                entry["hmac"],
                entry.get("expires_at_ms", 0),
            )
        )
    return KeyRing(records, secret)


def load_secret(path: Path) -> bytes:
    """The mesh's secret: at least 32 bytes in hex. Raises ValueError when it is shorter, and OSError."""
    secret = bytes.fromhex(path.read_text().strip())
    if len(secret) < MIN_SECRET_BYTES:
        raise ValueError(f"{path}: the secret must have at least {MIN_SECRET_BYTES} bytes")
    return secret
