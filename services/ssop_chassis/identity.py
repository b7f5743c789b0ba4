"""Who calls: principals, and their tokens between services."""

import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from ssop.v1 import identity_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError

PRINCIPAL_METADATA: Final = "x-ssop-principal-bin"
SCOPES: Final = frozenset({"lite", "full", "rag", "ssop", "admin"})
RESERVED_TENANT: Final = "mesh"
"""Whom the services speak for when they ask for themselves; no key has it."""
TOKEN_LIFETIME_MS: Final = 600_000
CLOCK_SKEW_MS: Final = 5_000
MOST_TOKENS: Final = 1_024
"""Tokens that a service remembers, of those that it signs and of those that it has verified."""
MIN_SECRET_BYTES: Final = 32
_MAC_BYTES: Final = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller: tenant, id of the key, and what the key may do.

    `key_hmac` tells at the edge which of a key's secrets was shown, an HMAC under each of the mesh's; it never travels.
    """

    tenant: str
    key_id: str
    scopes: frozenset[str] = field(default_factory=frozenset)
    key_hmac: bytes = field(default=b"", compare=False, repr=False)

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


@dataclass(frozen=True, slots=True)
class Signed:
    """A principal whose signature is right, and when it holds, in milliseconds since the epoch."""

    principal: Principal
    issued_at_ms: int
    expires_at_ms: int

    def check(self, now_ms: int) -> Principal:
        """The principal. Raises PRINCIPAL_INVALID outside of its time."""
        if not self.issued_at_ms - CLOCK_SKEW_MS <= now_ms <= self.expires_at_ms + CLOCK_SKEW_MS:
            raise _invalid_principal("the principal has expired, or the hosts' clocks differ")
        return self.principal


def verify_principal(token: bytes | str | None, secrets_: Sequence[bytes], *, now_ms: int) -> Principal:
    """The principal of a token, signed with any of the secrets (rotation overlaps). Raises PRINCIPAL_INVALID."""
    return read_token(token, secrets_).check(now_ms)


def read_token(token: bytes | str | None, secrets_: Sequence[bytes]) -> Signed:
    """What a token says, whatever the time. Raises PRINCIPAL_INVALID where none of the secrets signed it."""
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
    if not parsed.tenant:
        raise _invalid_principal("the principal names no tenant")
    principal = Principal(parsed.tenant, parsed.key_id, frozenset(parsed.scopes))
    return Signed(principal, parsed.issued_at_ms, parsed.expires_at_ms)


@dataclass(frozen=True, slots=True)
class Secrets:
    """The mesh's secret, and those that are taken besides while it is rotated; empty: none."""

    own: bytes = field(repr=False)
    old: bytes = field(default=b"", repr=False)
    next: bytes = field(default=b"", repr=False)

    @property
    def accepted(self) -> tuple[bytes, ...]:
        """All, the own one first."""
        return tuple(secret for secret in (self.own, self.next, self.old) if secret)


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs principals for the inner calls of one service. `now_ms` is the wall clock, milliseconds since the epoch.

    A token is used again for a tenth of its life.
    """

    secret: bytes
    issuer: str
    now_ms: Callable[[], int]
    _tokens: dict[tuple[str, str, frozenset[str]], tuple[int, bytes]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def metadata(self, principal: Principal) -> dict[str, str | bytes]:
        """The metadata that an inner call must carry."""
        now_ms = self.now_ms()
        # All that a token says; a tuple of them is hashed in C, a principal is not.
        name = (principal.tenant, principal.key_id, principal.scopes)
        signed_at_ms, token = self._tokens.get(name, (-TOKEN_LIFETIME_MS, b""))
        # A clock that was set back makes a new one too.
        if not 0 <= now_ms - signed_at_ms < TOKEN_LIFETIME_MS // 10:
            token = sign_principal(principal, self.secret, now_ms=now_ms, issuer=self.issuer)
            if len(self._tokens) >= MOST_TOKENS:
                self._tokens.clear()
            self._tokens[name] = (now_ms, token)
        return {PRINCIPAL_METADATA: token}


def _mac(secret: bytes, message: bytes) -> bytes:
    # The prefix keeps this use of the secret apart from that for keys.
    return hmac.digest(secret, b"ssop.principal.v1\0" + message, "sha256")


def _invalid_principal(text: str) -> MeshError:
    return MeshError(ErrorReason.ERROR_REASON_PRINCIPAL_INVALID, text)


# What stands in examples, and what somebody types who wants to get on.
_MIN_DISTINCT_BYTES: Final = 12


def load_secret(path: Path) -> bytes:
    """The mesh's secret: at least 32 bytes in hex.

    Raises ValueError when it is shorter or can't be random, and OSError.
    """
    secret = bytes.fromhex(path.read_text().strip())
    if len(secret) < MIN_SECRET_BYTES:
        raise ValueError(f"{path}: the secret must have at least {MIN_SECRET_BYTES} bytes")
    steps = {(b - a) % 256 for a, b in pairwise(secret)}
    if len(set(secret)) < _MIN_DISTINCT_BYTES or len(steps) < _MIN_DISTINCT_BYTES:
        raise ValueError(f"{path}: the secret is not random; make one with: openssl rand -hex 32")
    return secret
