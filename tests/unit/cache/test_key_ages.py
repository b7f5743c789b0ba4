"""Which keys are purged."""

from ssop.v1.keys_pb2 import KeyInfo, KeyRecord
from ssop_cache.core.key_ages import find_gone


def record(*, revoked_at_ms: int = 0, expires_at_ms: int = 0) -> bytes:
    info = KeyInfo(key_id="k", tenant="acme", revoked_at_ms=revoked_at_ms, expires_at_ms=expires_at_ms)
    return KeyRecord(info=info, hmac=b"x" * 32).SerializeToString()


def gone(data: bytes, now_ms: int = 1_000) -> bool:
    return [name for name, _ in find_gone([data], now_ms=now_ms, kept_ms=100)] == ["k"]


def test_a_key_that_is_good_stays() -> None:
    assert not gone(record())
    assert not gone(record(expires_at_ms=2_000))


def test_a_key_that_ended_stays_for_its_time() -> None:
    assert not gone(record(revoked_at_ms=901))
    assert gone(record(revoked_at_ms=900))
    assert not gone(record(expires_at_ms=901))
    assert gone(record(expires_at_ms=900))


def test_what_ended_first_counts() -> None:
    assert gone(record(revoked_at_ms=500, expires_at_ms=5_000))
    assert gone(record(revoked_at_ms=990, expires_at_ms=500))


def test_a_record_that_cannot_be_read_stays() -> None:
    assert not gone(b"\xff\xff")
    assert not gone(b"")
