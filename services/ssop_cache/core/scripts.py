# cython: annotation_typing=False
"""The calls of the Lua scripts: their keys and arguments, and their replies as values.

A reply is a list of int and bytes, as Redis sends it. Times are in milliseconds unless the name says otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar, cast

from ssop_cache.core.asked import Settlement
from ssop_cache.core.keys import KEY_RECORDS, TenantKeys
from ssop_cache.core.names import mark_question

T = TypeVar("T")
Reply = list[int | bytes]
Arg = str | bytes | int
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


class ScriptCall(NamedTuple):
    """One call: which script, on which keys, with which arguments."""

    script: str
    keys: tuple[str, ...]
    args: tuple[Arg, ...]


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


_OUTCOMES: Final[Mapping[int | bytes, Outcome]] = {outcome.encode(): outcome for outcome in Outcome}


Admission = tuple[Outcome, int, int, int]
"""What the admission script says of a request: its outcome, when to try again in milliseconds (-1: never), the fence of
its lease (0: none), and what is left of the budget (-1: there is none)."""
Admit = tuple[str, bytes, int, bool, bool, int]
"""What is asked of it: request id, cache key (empty: no look-up), tokens, whether the answer was found, whether a lease
is wanted, and the fence of the commit after which the answer was looked for again (0: none)."""
Ending = tuple[bytes, int, bool, bool]
"""The end of a generation: cache key, fence, whether it is complete, as only what can be stored is, and whether its
answer is stored."""

Stored = tuple[bytes, int, bytes, int]
"""An answer that is stored: cache key, fence, record, and for how long in milliseconds."""


def admit(
    keys: TenantKeys, limits: Limits, asked: Sequence[Admit], *, lease_ms: int, reservation_ms: int = 0
) -> ScriptCall:
    """Call of `admit_requests`: those asked for are judged in their order. `reservation_ms` 0: as the lease."""
    names = [keys.reserved, keys.expiry, keys.used, keys.rate, keys.fence]
    args: list[Arg] = [
        limits.interval_us,
        limits.tolerance_us,
        limits.budget_tokens,
        limits.window_ms,
        SETTLE_MEMORY_MS,
        FOLLOW_MS,
        lease_ms,
        reservation_ms or lease_ms,
        keys.id_at,
    ]
    _add_asked(keys, asked, names, args)
    return ScriptCall("admit_requests", tuple(names), tuple(args))


def _add_asked(keys: TenantKeys, asked: Sequence[Admit], names: list[str], args: list[Arg]) -> None:
    for request_id, cache_key, tokens, is_found, wants_lease, seen_fence in asked:
        request = keys.request(request_id)
        names.append(request)
        names.append(keys.lease(cache_key) if cache_key else request)
        wish = "h" if is_found else "l" if wants_lease else "m"
        # A request id that comes again with another question is another request.
        args.append(mark_question(cache_key, tokens))
        args.append(tokens)
        args.append(f"{wish}{seen_fence}" if seen_fence else wish)


def conclude(
    keys: TenantKeys, limits: Limits, settlements: Sequence[Settlement] = (), endings: Sequence[Ending] = ()
) -> ScriptCall:
    """Call of `conclude_requests`. Generations that are followed it leaves to `end`."""
    counted: dict[str, int] = {}
    for _, _, counts in settlements:
        if counts:
            for name, amount in counts.items():
                counted[name] = counted.get(name, 0) + amount
    names = [keys.used, keys.reserved, keys.expiry, keys.usage]
    args: list[Arg] = [
        limits.window_ms if limits.budget_tokens else 0,
        SETTLE_MEMORY_MS,
        USAGE_DAYS,
        RECHECK_MS,
        keys.id_at,
        len(settlements),
        len(counted),
        *counted,
        *counted.values(),
    ]
    _add_settlements(keys, settlements, tuple(counted), names, args)
    _add_endings(keys, endings, names, args)
    return ScriptCall("conclude_requests", tuple(names), tuple(args))


def _add_settlements(
    keys: TenantKeys, settlements: Sequence[Settlement], counters: tuple[str, ...], names: list[str], args: list[Arg]
) -> None:
    for request_id, tokens, counts in settlements:
        names.append(keys.request(request_id))
        args.append(tokens)
        args.append(" ".join([_digits(counts.get(name, 0)) for name in counters]) if counts else "")


def _digits(amount: int) -> str:
    """Up to 64 bits: as a C number, where this is compiled, it is written for less than as an object."""
    return f"{amount}"


def _add_endings(keys: TenantKeys, endings: Sequence[Ending], names: list[str], args: list[Arg]) -> None:
    for cache_key, fence, is_complete, is_stored in endings:
        names.append(keys.lease(cache_key))
        args.append(fence)
        args.append(_word(is_complete, is_stored))


def end(keys: TenantKeys, followed: Sequence[tuple[Ending, bytes]], *, max_backlog_bytes: int) -> ScriptCall:
    """Call of `end_leases`. With each ending comes what was not appended."""
    names: list[str] = []
    args: list[Arg] = [max_backlog_bytes, LINGER_MS, RECHECK_MS]
    for (cache_key, fence, is_complete, is_stored), rest in followed:
        names += (keys.lease(cache_key), keys.log(cache_key, fence))
        args += (fence, _word(is_complete, is_stored), rest, keys.channel(cache_key))
    return ScriptCall("end_leases", tuple(names), tuple(args))


def _word(is_complete: bool, is_stored: bool) -> str:
    """How a generation ends, for `close_lease` of `lua/_records.lua`."""
    return ("stored" if is_stored else "told") if is_complete else "given_up"


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


def seal(keys: TenantKeys, leases: Sequence[tuple[bytes, int]]) -> ScriptCall:
    """Call of `seal_leases`. `leases` are cache keys with their fences."""
    names = [name for key, fence in leases for name in (keys.lease(key), keys.log(key, fence))]
    return ScriptCall("seal_leases", tuple(names), (SEAL_MS, *(fence for _, fence in leases)))


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


def find_answers(keys: TenantKeys, wanted: Sequence[tuple[bytes, int]]) -> ScriptCall:
    """Call of `find_answers`. Wanted are cache keys, and how old their answers may be in milliseconds; 0: no limit."""
    names = _name_answers(keys, wanted)
    return ScriptCall("find_answers", names, tuple([max_age_ms for _, max_age_ms in wanted]))


def put_answers(keys: TenantKeys, answers: Sequence[Stored], *, nonce: bytes) -> ScriptCall:
    """Call of `put_answers`. `nonce` names the mark where there is none."""
    args: list[Arg] = [nonce]
    for _, fence, record, ttl_ms in answers:
        args += (fence, record, ttl_ms)
    return ScriptCall("put_answers", _name_answers(keys, answers), tuple(args))


def _name_answers(keys: TenantKeys, asked: Sequence[tuple[bytes, *tuple[Arg, ...]]]) -> tuple[str, ...]:
    """The mark of the tenant's answers, and the answers by the key that each begins with."""
    return (keys.flush, *[keys.answer(one[0]) for one in asked])


def drop_answer(keys: TenantKeys, cache_key: bytes, fence: int) -> ScriptCall:
    """Call of `drop_answer`: one of a generation before `fence`."""
    return ScriptCall("drop_answer", (keys.answer(cache_key),), (fence,))


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


def count_each(values: Sequence[T]) -> dict[T, int]:
    """How often each of them is there: as a rule all are the same."""
    counts: dict[T, int] = {}
    left = list(values)
    while left:
        value = left[0]
        counts[value] = left.count(value)
        left = [other for other in left if other != value]
    return counts


def parse_admissions(reply: Reply) -> list[Admission]:
    """The reply of `admit_requests`."""
    outcomes = map(_OUTCOMES.__getitem__, reply[2::4])
    numbers = cast("list[int]", reply)
    return list(zip(outcomes, numbers[3::4], numbers[4::4], numbers[5::4], strict=True))
