"""The calls of the Lua scripts: their keys and arguments, and their replies as values.

A reply is a list of int and bytes, as Redis sends it. Times are in milliseconds unless the name says otherwise.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from ssop_cache.core.keys import KEY_RECORDS, TenantKeys

Reply = list[int | bytes]
USAGE_DAYS: Final = 62
"""Days for which a tenant's usage is kept, today's included."""
DAY_MS: Final = 86_400_000
SETTLE_MEMORY_MS: Final = 300_000
"""How long a request is remembered after its reservation, so that a late or repeated Settle is charged once."""
FOLLOW_MS: Final = 5_000
"""How long a follower counts without reading."""
LINGER_MS: Final = 10_000
"""How long a finished log stays for those that still read it."""
RECHECK_MS: Final = 2_000
"""How long after a commit a look-up that came too early is sent back to the answer."""
SEAL_MS: Final = 1_000
"""How long a lease is held at least while its answer is stored."""
READ_ENTRIES: Final = 64
"""Chunks read from a log at once."""


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """One call: which script, on which keys, with which arguments."""

    script: str
    keys: tuple[str, ...]
    args: tuple[str | bytes | int, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a tenant may do. 0 is no limit; `burst` is at least 1.

    `max_rps` is requests per second, up to 100,000; the budget counts tokens per window of `window_ms`. Where
    `is_dynamic`, load moves the rate between `min_rps` and `max_rps`, and the burst keeps its length in time.
    """

    max_rps: float = 0.0
    burst: int = 1
    budget_tokens: int = 0
    window_ms: int = 60_000
    min_rps: float = 0.0
    is_dynamic: bool = False
    full_interval_us: int = 0

    def under(self, share: float) -> "Limits":
        """The limits while the nodes bear this share of the full rate, from 0 (not said) to 1."""
        if not self.is_dynamic or not 0 < share < 1:
            return self
        rps = min(self.max_rps, max(self.min_rps, share * self.max_rps))
        return replace(self, max_rps=rps, full_interval_us=self.full_interval_us or self.interval_us)

    @property
    def interval_us(self) -> int:
        """Microseconds between two requests at the full rate; 0 when there is no rate."""
        return max(1, round(1_000_000 / self.max_rps)) if self.max_rps > 0 else 0

    @property
    def tolerance_us(self) -> int:
        """How far the theoretical arrival time may run ahead (GCRA, ITU-T I.371)."""
        return max(self.interval_us, (self.full_interval_us or self.interval_us) * max(1, self.burst))


class Outcome(StrEnum):
    """What the admission script decided."""

    HIT = "hit"
    LEASE = "lease"
    FOLLOW = "follow"
    MISS = "miss"
    RECHECK = "recheck"
    RATE = "rate"
    QUOTA = "quota"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class Admission:
    """Reply of the admission script. `retry_ms` -1 is never, `budget_left` None is no budget."""

    outcome: Outcome
    now_us: int
    retry_ms: int
    fence: int
    budget_left: int | None


@dataclass(frozen=True, slots=True)
class Admit:
    """What is asked of the admission script. `cache_key` empty: no look-up; `reservation_ms` 0: as the lease."""

    request_id: str
    cache_key: bytes
    tokens: int
    lease_ms: int
    reservation_ms: int = 0
    is_found: bool = False
    wants_lease: bool = True
    seen_fence: int = 0


def admit(keys: TenantKeys, limits: Limits, asked: Admit) -> ScriptCall:
    """Call of `admit_request`."""
    names = [keys.request(asked.request_id), keys.rate, keys.used, keys.reserved, keys.expiry, keys.fence]
    if asked.cache_key:
        names.append(keys.lease(asked.cache_key))
    # A request id that comes again with another question is another request.
    asked_for = asked.cache_key + asked.tokens.to_bytes(8, "big")
    return ScriptCall(
        "admit_request",
        tuple(names),
        (
            asked.request_id,
            hashlib.sha256(asked_for).hexdigest()[:16],
            asked.tokens,
            asked.lease_ms,
            limits.interval_us,
            limits.tolerance_us,
            limits.budget_tokens,
            limits.window_ms,
            int(asked.is_found),
            int(asked.wants_lease),
            SETTLE_MEMORY_MS,
            asked.seen_fence,
            asked.reservation_ms or asked.lease_ms,
            FOLLOW_MS,
        ),
    )


def settle(
    keys: TenantKeys, limits: Limits, request_id: str, tokens: int, counts: Mapping[str, int] | None = None
) -> ScriptCall:
    """Call of `settle_request`. `counts` are added to the tenant's usage of the day."""
    pairs = [part for name, amount in (counts or {}).items() if amount for part in (name, amount)]
    return ScriptCall(
        "settle_request",
        (keys.request(request_id), keys.used, keys.reserved, keys.expiry, keys.usage),
        (request_id, tokens, limits.window_ms, SETTLE_MEMORY_MS, USAGE_DAYS, *pairs),
    )


def append(
    keys: TenantKeys, cache_key: bytes, fence: int, chunk: bytes, *, lease_ms: int, max_backlog_bytes: int
) -> ScriptCall:
    """Call of `append_chunk`."""
    return ScriptCall(
        "append_chunk",
        (keys.lease(cache_key), keys.log(cache_key, fence)),
        (fence, chunk, lease_ms, max_backlog_bytes, keys.channel(cache_key)),
    )


def renew(
    keys: TenantKeys,
    request_ids: Sequence[str],
    leases: Sequence[tuple[bytes, int]],
    *,
    reservation_ms: int,
    lease_ms: int,
) -> ScriptCall:
    """Call of `renew_leases`. `leases` are cache keys with their fences."""
    names = [name for key, fence in leases for name in (keys.lease(key), keys.log(key, fence))]
    fences = [fence for _, fence in leases]
    return ScriptCall(
        "renew_leases",
        (keys.reserved, keys.expiry, *names),
        (reservation_ms, lease_ms, len(fences), *fences, *request_ids),
    )


def seal(keys: TenantKeys, cache_key: bytes, fence: int) -> ScriptCall:
    """Call of `seal_lease`."""
    return ScriptCall("seal_lease", (keys.lease(cache_key), keys.log(cache_key, fence)), (fence, SEAL_MS))


def commit(
    keys: TenantKeys,
    cache_key: bytes,
    fence: int,
    rest: bytes,
    *,
    is_complete: bool,
    is_stored: bool,
    max_backlog_bytes: int,
) -> ScriptCall:
    """Call of `commit_answer`."""
    return ScriptCall(
        "commit_answer",
        (keys.lease(cache_key), keys.log(cache_key, fence)),
        (
            fence,
            rest,
            int(is_complete),
            int(is_stored),
            max_backlog_bytes,
            keys.channel(cache_key),
            LINGER_MS,
            RECHECK_MS,
        ),
    )


def join(keys: TenantKeys, cache_key: bytes) -> ScriptCall:
    """Call of `join_lease`."""
    return ScriptCall("join_lease", (keys.lease(cache_key),), (FOLLOW_MS,))


def read_log(keys: TenantKeys, cache_key: bytes, fence: int, first: int) -> ScriptCall:
    """Call of `read_log`."""
    return ScriptCall(
        "read_log",
        (keys.lease(cache_key), keys.log(cache_key, fence)),
        (fence, first, READ_ENTRIES, FOLLOW_MS),
    )


def find_answer(keys: TenantKeys, cache_key: bytes, max_age_ms: int) -> ScriptCall:
    """Call of `find_answer`."""
    return ScriptCall("find_answer", (keys.answer(cache_key), keys.flush), (max_age_ms,))


def put_answer(
    keys: TenantKeys, cache_key: bytes, fence: int, record: bytes, *, ttl_ms: int, nonce: bytes
) -> ScriptCall:
    """Call of `put_answer`. `nonce` names the mark where there is none."""
    return ScriptCall("put_answer", (keys.answer(cache_key), keys.flush), (fence, record, ttl_ms, nonce))


def drop_answer(keys: TenantKeys, cache_key: bytes) -> ScriptCall:
    """Call of `drop_answer`."""
    return ScriptCall("drop_answer", (keys.answer(cache_key),), ())


def flush_answers(keys: TenantKeys, floor: int, nonce: bytes) -> ScriptCall:
    """Call of `flush_answers`."""
    return ScriptCall("flush_answers", (keys.flush, *keys.similar), (nonce, floor))


def read_keys(known_version: int) -> ScriptCall:
    """Call of `read_keys`."""
    return ScriptCall("read_keys", KEY_RECORDS, (known_version,))


def write_key(key_id: str, expected: bytes, record: bytes, *, most: int) -> ScriptCall:
    """Call of `write_key`. `expected` is empty where there must be none; `most` bounds the records."""
    return ScriptCall("write_key", KEY_RECORDS, (key_id, expected, record, most))


def drop_key(key_id: str, record: bytes) -> ScriptCall:
    """Call of `drop_key`."""
    return ScriptCall("drop_key", KEY_RECORDS, (key_id, record))


def number(value: int | bytes) -> int:
    """An integer of a reply."""
    return int(value)


def word(value: int | bytes) -> str:
    """A word of a reply, such as its outcome."""
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


def data(value: int | bytes | str) -> bytes:
    """Bytes of a reply or an argument."""
    if isinstance(value, bytes):
        return value
    raise TypeError("there is something else where bytes belong")


def parse_admission(reply: Reply) -> Admission:
    """The reply of `admit_request`."""
    outcome, now_us, retry_ms, fence, left = reply
    budget_left = number(left)
    return Admission(
        Outcome(word(outcome)),
        number(now_us),
        number(retry_ms),
        number(fence),
        budget_left if budget_left >= 0 else None,
    )
