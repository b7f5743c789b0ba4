"""Keys and principals."""

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import (
    KeyRecord,
    KeyRing,
    Principal,
    hash_key,
    load_keys,
    load_secret,
    make_key,
    sign_principal,
    verify_principal,
)

SECRET = b"s" * 32
NOW_MS = 1_800_000_000_000
PRINCIPAL = Principal("acme", "k1", frozenset({"lite", "rag"}))


def ring(key: str, **changes: object) -> KeyRing:
    fields = {"id": "k1", "tenant": "acme", "scopes": frozenset({"lite"}), "hmac_hex": hash_key(key, SECRET)}
    return KeyRing([KeyRecord(**{**fields, **changes})], SECRET)  # type: ignore[arg-type]


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


def test_key_authenticates_as_its_tenant_with_its_scopes() -> None:
    key = make_key("k1")
    assert ring(key).authenticate(f"Bearer {key}", now_ms=NOW_MS) == Principal("acme", "k1", frozenset({"lite"}))


@pytest.mark.parametrize("header", [None, "", b"Bearer x"])
def test_absent_key_is_missing(header: str | bytes | None) -> None:
    with pytest.raises(MeshError) as caught:
        ring(make_key("k1")).authenticate(header, now_ms=NOW_MS)
    assert caught.value.reason == ErrorReason.ERROR_REASON_KEY_MISSING


def test_mistyped_key_is_told_from_an_unknown_one() -> None:
    key = make_key("k1")
    last = "a" if key[-1] != "a" else "b"
    with pytest.raises(MeshError, match="mistyped"):
        ring(key).authenticate(f"Bearer {key[:-1]}{last}", now_ms=NOW_MS)
    with pytest.raises(MeshError, match="unknown"):
        ring(key).authenticate(f"Bearer {make_key('k1')}", now_ms=NOW_MS)


def test_expired_key_is_refused() -> None:
    key = make_key("k1")
    with pytest.raises(MeshError, match="expired"):
        ring(key, expires_at_ms=NOW_MS).authenticate(f"Bearer {key}", now_ms=NOW_MS)


@given(st.text(string.printable, max_size=90))
def test_no_header_raises_anything_but_key_errors(header: str) -> None:
    with pytest.raises(MeshError) as caught:
        ring("ssop_k1_x").authenticate(header, now_ms=NOW_MS)
    assert caught.value.reason in {ErrorReason.ERROR_REASON_KEY_MISSING, ErrorReason.ERROR_REASON_KEY_INVALID}


def test_missing_scope_is_named() -> None:
    with pytest.raises(MeshError) as caught:
        PRINCIPAL.require("admin")
    assert caught.value.reason == ErrorReason.ERROR_REASON_SCOPE_MISSING
    assert caught.value.metadata["scope"] == "admin"


def test_keys_file_with_an_unknown_scope_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(f'[[keys]]\nid = "k1"\ntenant = "a"\nscopes = ["root"]\nhmac = "{"0" * 64}"\n')
    with pytest.raises(ValueError, match="k1"):
        load_keys(path, SECRET)


def test_keys_file_loads(tmp_path: Path) -> None:
    key = make_key("k1")
    path = tmp_path / "keys.toml"
    path.write_text(f'[[keys]]\nid = "k1"\ntenant = "a"\nscopes = ["lite"]\nhmac = "{hash_key(key, SECRET)}"\n')
    assert load_keys(path, SECRET).authenticate(f"Bearer {key}", now_ms=NOW_MS).tenant == "a"


def test_short_secret_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("ab" * 16)
    with pytest.raises(ValueError, match="32 bytes"):
        load_secret(path)
