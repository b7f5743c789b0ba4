"""API keys: how they look, and what is stored of them.

A key is `ssop_<id>_<secret>`: the id names it, the secret is 32 random bytes in base32 (RFC 4648, lower case) and
a CRC-32 as 7 more characters, which tells a typing error from a wrong key. Only an HMAC of the key is stored.
"""

import base64
import binascii
import hmac
import re
import secrets
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ssop_chassis.identity import RESERVED_TENANT

AUTHORIZATION_METADATA: Final = "authorization"
KEY_ID: Final = re.compile(r"^[a-z0-9]{1,32}$")
TENANT: Final = re.compile(r"^[A-Za-z0-9._-]{1,64}$")
HMAC_BYTES: Final = 32


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
    return f"ssop_{key_id}_{secret}{checksum(key_id, secret)}"


def hash_key(key: str, secret: bytes) -> bytes:
    """The HMAC of a key under the mesh's secret: what is stored."""
    return hmac.digest(secret, b"ssop.key.v1\0" + key.encode(), "sha256")


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()


def checksum(key_id: str, secret: str) -> str:
    """What a key ends with."""
    return _base32(binascii.crc32(f"{key_id}_{secret}".encode()).to_bytes(4, "big"))


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
