"""Principals and the mesh's secret."""

import secrets
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import (
    PRINCIPAL_METADATA,
    TOKEN_LIFETIME_MS,
    Principal,
    Signer,
    load_secret,
    sign_principal,
    verify_principal,
)

SECRET = b"s" * 32
NOW_MS = 1_800_000_000_000
PRINCIPAL = Principal("acme", "k1", frozenset({"lite", "rag"}))


def test_signed_principal_verifies_to_itself() -> None:
    token = sign_principal(PRINCIPAL, SECRET, now_ms=NOW_MS, issuer="router")
    assert verify_principal(token, (b"n" * 32, SECRET), now_ms=NOW_MS) == PRINCIPAL


@given(data=st.data())
def test_principal_with_any_bit_changed_is_refused(data: st.DataObject) -> None:
    token = bytearray(sign_principal(PRINCIPAL, SECRET, now_ms=NOW_MS, issuer="router"))
    bit = data.draw(st.integers(0, len(token) * 8 - 1))
    token[bit // 8] ^= 1 << bit % 8
    with pytest.raises(MeshError) as caught:
        verify_principal(bytes(token), (SECRET,), now_ms=NOW_MS)
    assert caught.value.reason == ErrorReason.ERROR_REASON_PRINCIPAL_INVALID


@pytest.mark.parametrize("now_ms", [NOW_MS - 10_000, NOW_MS + 610_000])
def test_principal_outside_of_its_time_is_refused(now_ms: int) -> None:
    token = sign_principal(PRINCIPAL, SECRET, now_ms=NOW_MS, issuer="router")
    with pytest.raises(MeshError, match="expired"):
        verify_principal(token, (SECRET,), now_ms=now_ms)


def test_token_is_used_again_for_a_tenth_of_its_life() -> None:
    now_ms = NOW_MS
    signer = Signer(SECRET, "router", lambda: now_ms)
    first = signer.metadata(PRINCIPAL)
    now_ms += TOKEN_LIFETIME_MS // 10 - 1
    assert signer.metadata(PRINCIPAL) == first
    now_ms += 1
    assert signer.metadata(PRINCIPAL) != first


def test_token_is_never_that_of_another_principal() -> None:
    signer = Signer(SECRET, "router", lambda: NOW_MS)
    tokens = {
        signer.metadata(principal)[PRINCIPAL_METADATA]
        for principal in (PRINCIPAL, Principal("other", "k1", PRINCIPAL.scopes), Principal("acme", "k1", frozenset()))
    }
    assert len(tokens) == 3


def test_token_that_was_verified_once_still_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    authenticate = inner_authenticate(SECRET)
    metadata = {PRINCIPAL_METADATA: sign_principal(PRINCIPAL, SECRET, now_ms=NOW_MS, issuer="router")}
    monkeypatch.setattr("ssop_chassis.dispatch.time_ns", lambda: NOW_MS * 1_000_000)
    assert authenticate(metadata) == PRINCIPAL
    monkeypatch.setattr("ssop_chassis.dispatch.time_ns", lambda: (NOW_MS + 610_000) * 1_000_000)
    with pytest.raises(MeshError, match="expired"):
        authenticate(metadata)


def test_missing_scope_is_named() -> None:
    with pytest.raises(MeshError) as caught:
        PRINCIPAL.require("admin")
    assert caught.value.reason == ErrorReason.ERROR_REASON_SCOPE_MISSING
    assert caught.value.metadata["scope"] == "admin"


def test_short_secret_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("ab" * 16)
    with pytest.raises(ValueError, match="32 bytes"):
        load_secret(path)


@pytest.mark.parametrize("text", ["00" * 32, "0123456789abcdef" * 4, bytes(range(32)).hex(), "deadbeef" * 8])
def test_secret_that_somebody_typed_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "secret"
    path.write_text(text)
    with pytest.raises(ValueError, match="not random"):
        load_secret(path)


def test_random_secret_loads(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    for _ in range(1000):
        secret = secrets.token_bytes(32)
        path.write_text(secret.hex() + "\n")
        assert load_secret(path) == secret
