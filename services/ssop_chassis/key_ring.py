# cython: annotation_typing=False
"""Who a caller is by an API key.

`key_ring.pxd` gives the types with which this very file is compiled.
"""

import hmac
from collections.abc import Callable, Iterable
from typing import Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.api_keys import HMAC_BYTES, KeyRecord, checksum, hash_key
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import Principal, Secrets

_NO_HMAC: Final = bytes(HMAC_BYTES)
_MOST_PROVEN: Final = 1_024


class _Proof:
    """That a key is that of a record, by one of its secrets; whether it still holds is another question."""

    __slots__ = ("is_new", "is_outdated", "principal", "record")

    def __init__(self, record: KeyRecord, principal: Principal, is_new: bool, is_outdated: bool) -> None:
        self.record = record
        self.principal = principal
        self.is_new = is_new
        self.is_outdated = is_outdated


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
        self._records = found
        self._secrets = secrets_
        self._on_outdated = on_outdated
        self._proven: dict[str, _Proof] = {}

    def authenticate(self, authorization: str | bytes | None, now_ms: int) -> Principal:
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
        if not secret.endswith(checksum(key_id, secret[:-7])):
            raise _invalid_key("the API key is mistyped: its checksum is wrong")
        proof = self._prove(key_id, b"".join([hash_key(key, one) for one in self._secrets.accepted]))
        principal = self._check(proof, now_ms)
        if len(self._proven) >= _MOST_PROVEN:
            self._proven.clear()
        self._proven[authorization] = proof
        return principal

    def renew(self, principal: Principal, now_ms: int) -> Principal:
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
