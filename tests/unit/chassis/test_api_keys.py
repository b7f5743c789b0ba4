"""API keys."""

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.as_written import run_both_ways
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.api_keys import KeyRecord, hash_key, load_keys, make_key
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import Principal, Secrets
from ssop_chassis.key_ring import KeyRing

way = run_both_ways("ssop_chassis.key_ring", "KeyRing")
SECRET = b"s" * 32
NOW_MS = 1_800_000_000_000


def ring(key: str, **changes: object) -> KeyRing:
    fields = {"id": "k1", "tenant": "acme", "scopes": frozenset({"lite"}), "hmac": hash_key(key, SECRET)}
    return KeyRing([KeyRecord(**{**fields, **changes})], Secrets(SECRET))  # type: ignore[arg-type]


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


def test_key_that_was_good_once_still_expires() -> None:
    key = make_key("k1")
    keys = ring(key, expires_at_ms=NOW_MS + 1)
    assert keys.authenticate(f"Bearer {key}", now_ms=NOW_MS).tenant == "acme"
    with pytest.raises(MeshError, match="expired"):
        keys.authenticate(f"Bearer {key}", now_ms=NOW_MS + 1)


def test_old_secret_that_was_good_once_still_ends_with_the_overlap() -> None:
    old, new = make_key("k1"), make_key("k1")
    rotated = ring(new, old_hmac=hash_key(old, SECRET), old_expires_at_ms=NOW_MS + 1)
    assert rotated.authenticate(f"Bearer {old}", now_ms=NOW_MS).tenant == "acme"
    with pytest.raises(MeshError, match="rotated"):
        rotated.authenticate(f"Bearer {old}", now_ms=NOW_MS + 1)


def test_each_use_of_a_key_under_the_old_secret_is_told() -> None:
    key, new_secret, told = make_key("k1"), b"n" * 32, []
    record = KeyRecord("k1", "acme", frozenset(), hash_key(key, SECRET))
    keys = KeyRing([record], Secrets(new_secret, old=SECRET), lambda *change: told.append(change))
    for _ in range(2):
        keys.authenticate(f"Bearer {key}", now_ms=NOW_MS)
    assert told == [("k1", hash_key(key, SECRET), hash_key(key, new_secret))] * 2


@given(st.text(string.printable, max_size=90))
def test_no_header_raises_anything_but_key_errors(header: str) -> None:
    with pytest.raises(MeshError) as caught:
        ring("ssop_k1_x").authenticate(header, now_ms=NOW_MS)
    assert caught.value.reason in {ErrorReason.ERROR_REASON_KEY_MISSING, ErrorReason.ERROR_REASON_KEY_INVALID}


def test_keys_file_with_an_unknown_scope_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(f'[[keys]]\nid = "k1"\ntenant = "a"\nscopes = ["root"]\nhmac = "{"0" * 64}"\n')
    with pytest.raises(ValueError, match="k1"):
        load_keys(path)


def test_keys_file_loads(tmp_path: Path) -> None:
    key = make_key("k1")
    path = tmp_path / "keys.toml"
    path.write_text(f'[[keys]]\nid = "k1"\ntenant = "a"\nscopes = ["lite"]\nhmac = "{hash_key(key, SECRET).hex()}"\n')
    assert KeyRing(load_keys(path), Secrets(SECRET)).authenticate(f"Bearer {key}", now_ms=NOW_MS).tenant == "a"


def test_keys_file_may_not_speak_for_the_mesh(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(f'[[keys]]\nid = "k1"\ntenant = "mesh"\nscopes = ["lite"]\nhmac = "{"0" * 64}"\n')
    with pytest.raises(ValueError, match="tenant"):
        load_keys(path)


def test_both_secrets_are_good_while_a_key_is_rotated() -> None:
    old, new = make_key("k1"), make_key("k1")
    rotated = ring(new, old_hmac=hash_key(old, SECRET), old_expires_at_ms=NOW_MS + 1)
    assert rotated.authenticate(f"Bearer {old}", now_ms=NOW_MS) == rotated.authenticate(f"Bearer {new}", now_ms=NOW_MS)


def test_old_secret_ends_with_the_overlap() -> None:
    old, new = make_key("k1"), make_key("k1")
    rotated = ring(new, old_hmac=hash_key(old, SECRET), old_expires_at_ms=NOW_MS)
    with pytest.raises(MeshError, match="rotated"):
        rotated.authenticate(f"Bearer {old}", now_ms=NOW_MS)


def test_revoked_key_is_refused_and_so_is_its_old_secret() -> None:
    old, new = make_key("k1"), make_key("k1")
    revoked = ring(new, old_hmac=hash_key(old, SECRET), old_expires_at_ms=NOW_MS + 1, revoked_at_ms=NOW_MS)
    for key in (old, new):
        with pytest.raises(MeshError, match="revoked"):
            revoked.authenticate(f"Bearer {key}", now_ms=NOW_MS)


def test_renewed_principal_has_the_scopes_of_now() -> None:
    key = make_key("k1")
    before = ring(key).authenticate(f"Bearer {key}", now_ms=NOW_MS)
    after = ring(key, scopes=frozenset({"full"}))
    assert after.renew(before, now_ms=NOW_MS).scopes == {"full"}


@pytest.mark.parametrize(
    "changes", [{"revoked_at_ms": 1}, {"expires_at_ms": NOW_MS}, {"tenant": "other"}, {"id": "k2"}]
)
def test_principal_of_a_key_that_ended_is_not_renewed(changes: dict[str, object]) -> None:
    key = make_key("k1")
    before = ring(key).authenticate(f"Bearer {key}", now_ms=NOW_MS)
    with pytest.raises(MeshError) as caught:
        ring(key, **changes).renew(before, now_ms=NOW_MS)
    assert caught.value.reason == ErrorReason.ERROR_REASON_KEY_INVALID
