# cython: annotation_typing=False
"""What fields of requests may hold."""

from typing import Final

from ssop_cache.core.names import is_request_id
from ssop_chassis.errors import invalid_request

KEY_BYTES: Final = 32
"""Callers make keys with SHA-256; here they are opaque."""
MAX_LEASE_MS: Final = 600_000
MAX_TTL_MS: Final = 2_678_400_000


def check_request_id(request_id: str) -> None:
    """A request id: 1 to 64 characters of [A-Za-z0-9._:-]. Raises REQUEST_INVALID."""
    if not is_request_id(request_id):
        raise invalid_request(("request_id", "must be 1 to 64 characters of [A-Za-z0-9._:-]"))


def check_key(cache_key: bytes, path: str = "cache_key", is_required: bool = True) -> None:
    """A key: 32 bytes, or none where it is not required. Raises REQUEST_INVALID."""
    if len(cache_key) != KEY_BYTES and (cache_key or is_required):
        raise invalid_request((path, f"must have {KEY_BYTES} bytes"))


def check_ttl(ttl_ms: int) -> None:
    """A time to live, at most 31 days. Raises REQUEST_INVALID."""
    if ttl_ms > MAX_TTL_MS:
        raise invalid_request(("ttl_ms", f"is more than {MAX_TTL_MS}"))


def check_lease(lease_ms: int, path: str = "lease_ms") -> None:
    """A lease: from 1 ms to 10 minutes. Raises REQUEST_INVALID."""
    if not 0 < lease_ms <= MAX_LEASE_MS:
        raise invalid_request((path, f"must be from 1 to {MAX_LEASE_MS}"))


def check_share(share: float) -> None:
    """A share of the rate, from 0 to 1. Raises REQUEST_INVALID."""
    if not 0 <= share <= 1:
        raise invalid_request(("rate_share", "must be from 0 to 1"))
