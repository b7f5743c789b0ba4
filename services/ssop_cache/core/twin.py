"""The state scripts again, as a small state machine: the model of the property tests.

Same calls, same replies; time is passed in, in microseconds. What Redis keeps a while longer only to collect it as
garbage is not modelled, except where a script could see it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ssop_cache.core.scripts import DAY_MS, Reply, ScriptCall, data

SLACK_MS: Final = 1000
SWEEP_MAX: Final = 1000
Arg = str | bytes | int


@dataclass(slots=True)
class Request:
    """A request: `open` (it may be charged), `free` (it used nothing) or `settled`."""

    state: str
    fingerprint: str
    expires_ms: int


@dataclass(slots=True)
class Reservation:
    """Tokens held, and until when."""

    tokens: int
    expires_ms: int


@dataclass(slots=True)
class Lease:
    """A generation: `open`, or `done` for a moment after its answer was stored."""

    fence: int
    request: str
    expires_ms: int
    state: str = "open"
    followed_ms: int = 0
    size_bytes: int = 0
    is_overflowed: bool = False


@dataclass(slots=True)
class Log:
    """The chunks of a generation, tagged: `c` and a chunk, or `e` for the end."""

    entries: list[bytes] = field(default_factory=list)
    expires_ms: int = 0


@dataclass(slots=True)
class StateTwin:
    """What the state instance holds, by key."""

    requests: dict[str, Request] = field(default_factory=dict)
    rates: dict[str, tuple[int, int]] = field(default_factory=dict)
    used: dict[str, tuple[int, int]] = field(default_factory=dict)
    reserved: dict[str, dict[str, Reservation]] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    logs: dict[str, Log] = field(default_factory=dict)
    usage: dict[str, dict[str, int]] = field(default_factory=dict)
    wakes: list[str] = field(default_factory=list)

    def run(self, call: ScriptCall, now_us: int) -> Reply:
        """Run a script at a time."""
        handlers: dict[str, Callable[[ScriptCall, int], Reply]] = {
            "admit_requests": self._admit,
            "conclude_requests": self._conclude,
            "end_leases": self._end,
            "append_chunk": self._append,
            "renew_leases": self._renew,
            "seal_leases": self._seal,
            "join_lease": self._join,
            "read_log": self._read_log,
        }
        return handlers[call.script](call, now_us)

    def reserved_tokens(self, key: str) -> int:
        """Sum of the reservations that are not swept yet."""
        return sum(held.tokens for held in self.reserved.get(key, {}).values())

    def _admit(self, call: ScriptCall, now_us: int) -> Reply:
        reply: Reply = [b"ok", now_us]
        for at, names in enumerate(zip(call.keys[5::2], call.keys[6::2], strict=True)):
            reply += self._admit_one(
                (*call.keys[:5], *names), call.args[:9], call.args[3 * at + 9 : 3 * at + 12], now_us
            )
        return reply

    def _admit_one(  # noqa: C901, PLR0912, PLR0915 - line by line as the script
        self, keys: Sequence[str], shared: Sequence[Arg], own: Sequence[Arg], now_us: int
    ) -> Reply:
        reserved_key, _, used_key, rate_key, fence_key, request_key, lease_key = keys
        interval_us, tolerance_us, budget, window_ms, memory_ms, follow_ms, lease_ms, held_ms, id_at = map(int, shared)
        request_id, fingerprint, tokens, wish = request_key[id_at - 1 :], str(own[0]), int(own[1]), str(own[2])
        wanted, seen = wish[0], int(wish[1:] or 0)
        now_ms = now_us // 1000
        until_ms, reserved_until_ms = now_ms + lease_ms, now_ms + held_ms
        held = self.reserved.setdefault(reserved_key, {})
        lapsed = sorted((r.expires_ms, name) for name, r in held.items() if r.expires_ms <= now_ms)
        for _, name in lapsed[: SWEEP_MAX if budget else 0]:
            del held[name]

        window = now_ms // window_ms
        used_window, used_tokens = self.used.get(used_key, (window, 0))
        used = used_tokens if used_window == window else 0

        def left() -> int:
            reserved = sum(r.tokens for r in held.values())
            return max(0, budget - used - reserved) if budget else -1

        request = self._request(request_key, now_ms)
        known = request if request is not None and request.state in {"open", "free"} else None
        if known is not None and known.fingerprint != fingerprint:
            return [b"duplicate", -1, 0, left()]

        new_tat_us = 0
        if interval_us > 0 and known is None:
            tat_us, was_us = self.rates.get(rate_key, (0, interval_us))
            owed_us = max(tat_us - now_us, 0)
            if was_us != interval_us:
                # In floating point, as Lua reckons.
                owed_us = math.floor(float(owed_us) * float(interval_us) / float(was_us))
            new_tat_us = now_us + owed_us + interval_us
            allowed_us = new_tat_us - tolerance_us
            if now_us < allowed_us:
                return [b"rate", -((now_us - allowed_us) // 1000), 0, left()]

        outcome, fence, is_new_lease = "miss", 0, False
        if wanted == "h":
            outcome = "hit"
        elif lease_key != request_key:
            lease = self._live(lease_key, now_ms)
            if lease is not None and lease.state == "done" and lease.fence != seen:
                return [b"recheck", 0, lease.fence, left()]
            if lease is not None and lease.state == "open" and lease.request == request_id:
                outcome, fence = "lease", lease.fence
            elif wanted != "l":
                outcome = "miss"
            elif lease is not None and lease.state == "open":
                if not lease.is_overflowed:
                    outcome, fence = "follow", lease.fence
            else:
                outcome, is_new_lease = "lease", True

        is_generating = outcome in {"lease", "miss"}
        others = sum(r.tokens for name, r in held.items() if name != request_id)
        if is_generating and budget and used + others + tokens > budget:
            retry_ms = -1
            if tokens <= budget:
                retry_ms = (window + 1) * window_ms - now_ms
                if used + tokens <= budget and held:
                    first_ms = min(r.expires_ms for r in held.values())
                    retry_ms = min(retry_ms, max(1, first_ms - now_ms))
            return [b"quota", retry_ms, 0, left()]

        if new_tat_us:
            self.rates[rate_key] = (new_tat_us, interval_us)
        if is_generating and budget:
            held[request_id] = Reservation(tokens, reserved_until_ms)
        if is_new_lease:
            fence = max(self.fences.get(fence_key, 0) + 1, now_us)
            self.fences[fence_key] = fence
            self.leases[lease_key] = Lease(fence, request_id, until_ms)
        if outcome == "lease":
            self.leases[lease_key].expires_ms = until_ms
        elif outcome == "follow":
            followed = self.leases[lease_key]
            followed.followed_ms = max(followed.followed_ms, now_ms + follow_ms)
        if is_generating or interval_us > 0:
            was_open = request is not None and request.state == "open"
            state = "open" if is_generating or was_open else "free"
            self.requests[request_key] = Request(state, fingerprint, max(until_ms, reserved_until_ms) + memory_ms)
        return [outcome.encode(), 0, fence, left()]

    def _conclude(self, call: ScriptCall, now_us: int) -> Reply:
        window_ms, memory_ms, kept_days, recheck_ms, id_at, count, counters = map(int, call.args[:7])
        names, counter_names, args = call.keys[4:], call.args[7 : 7 + counters], iter(call.args[7 + 2 * counters :])
        reply: Reply = [b"ok", now_us]
        for request_key in names[:count]:
            tokens, amounts = int(next(args)), [int(amount) for amount in str(next(args)).split()]
            settled = self._settle(
                (*call.keys[:4], request_key),
                request_key[id_at - 1 :],
                tokens,
                now_us // 1000,
                window_ms=window_ms,
                memory_ms=memory_ms,
            )
            if settled[0] != b"repeated":
                counted = [(str(name), amount) for name, amount in zip(counter_names, amounts, strict=False) if amount]
                self._count(call.keys[3], counted, now_us // 1000 // DAY_MS, kept_days)
            reply += settled
        for lease_key, fence, word in zip(names[count:], args, args, strict=True):
            lease = self._open(lease_key, int(fence), now_us // 1000)
            if lease is not None and (lease.followed_ms or lease.size_bytes or lease.is_overflowed):
                reply.append(b"followed")
            else:
                reply.append(self._close(lease_key, lease, str(word), now_us // 1000 + recheck_ms))
        return reply

    def _settle(
        self, keys: Sequence[str], request_id: str, tokens: int, now_ms: int, *, window_ms: int, memory_ms: int
    ) -> Reply:
        used_key, reserved_key, _, _, request_key = keys
        request = self._request(request_key, now_ms)
        if request is None:
            return [b"unknown", 0]
        if request.state == "settled":
            return [b"repeated", 0]
        charged = tokens if request.state == "open" else 0
        if window_ms:
            self.reserved.get(reserved_key, {}).pop(request_id, None)
        if charged and window_ms:
            window = now_ms // window_ms
            used_window, used = self.used.get(used_key, (window, 0))
            self.used[used_key] = (window, (used if used_window == window else 0) + charged)
        request.state = "settled"
        request.expires_ms = max(request.expires_ms, now_ms + memory_ms)
        return [b"settled", charged]

    def _count(self, key: str, pairs: Sequence[tuple[str, int]], day: int, kept_days: int) -> None:
        if not pairs:
            return
        usage = self.usage.setdefault(key, {})
        for name, amount in pairs:
            usage[f"{day}/{name}"] = usage.get(f"{day}/{name}", 0) + amount
        if usage.setdefault("last", day) != day:
            usage["last"] = day
            for name in [name for name in usage if name != "last" and int(name.split("/")[0]) <= day - kept_days]:
                del usage[name]

    def _append(self, call: ScriptCall, now_us: int) -> Reply:
        lease_key, log_key = call.keys
        fence, chunk_arg, lease_ms, max_bytes, channel = call.args
        chunk = data(chunk_arg)
        now_ms = now_us // 1000
        lease = self._open(lease_key, int(fence), now_ms)
        if lease is None:
            return [b"lost", now_us, 0, 0]
        lease.expires_ms = now_ms + int(lease_ms)
        is_followed = lease.followed_ms > now_ms
        if chunk and not lease.is_overflowed:
            if lease.size_bytes + len(chunk) > int(max_bytes):
                lease.is_overflowed = True
                self.logs.pop(log_key, None)
            else:
                self._log(log_key, now_ms).entries.append(b"c" + chunk)
                lease.size_bytes += len(chunk)
            if is_followed:
                self.wakes.append(str(channel))
        if log_key in self.logs:
            self.logs[log_key].expires_ms = lease.expires_ms + SLACK_MS
        return [b"ok", now_us, int(is_followed and not lease.is_overflowed), int(lease.is_overflowed)]

    def _renew(self, call: ScriptCall, now_us: int) -> Reply:
        reserved_key, _, *names = call.keys
        reservation_ms, lease_ms, count, *fences = (int(arg) for arg in call.args[: 3 + int(call.args[2])])
        now_ms = now_us // 1000
        reply: Reply = [b"ok", now_us]
        for lease_key, log_key, fence in zip(names[::2], names[1::2], fences, strict=True):
            lease = self._open(lease_key, fence, now_ms)
            if lease is not None and lease.expires_ms < now_ms + lease_ms - lease_ms / 5:
                lease.expires_ms = now_ms + lease_ms
                if log_key in self.logs:
                    self.logs[log_key].expires_ms = lease.expires_ms + SLACK_MS
            is_followed = lease is not None and lease.followed_ms > now_ms and not lease.is_overflowed
            reply.append(2 if is_followed else int(lease is not None))
        for request_id in call.args[3 + count :]:
            held = self.reserved.get(reserved_key, {}).get(str(request_id))
            if held is not None and held.expires_ms > now_ms:
                held.expires_ms = now_ms + reservation_ms
        return reply

    def _seal(self, call: ScriptCall, now_us: int) -> Reply:
        hold_ms, *fences = map(int, call.args)
        now_ms = now_us // 1000
        reply: Reply = [b"ok", now_us]
        for lease_key, log_key, fence in zip(call.keys[::2], call.keys[1::2], fences, strict=True):
            lease = self._open(lease_key, fence, now_ms)
            if lease is None:
                reply += [b"lost", b""]
                continue
            lease.expires_ms = max(lease.expires_ms, now_ms + hold_ms)
            entries = self._log(log_key, now_ms).entries if lease.size_bytes and not lease.is_overflowed else []
            reply += [b"overflowed" if lease.is_overflowed else b"ok", b"".join(entry[1:] for entry in entries)]
        return reply

    def _end(self, call: ScriptCall, now_us: int) -> Reply:
        max_bytes, linger_ms, recheck_ms = map(int, call.args[:3])
        now_ms = now_us // 1000
        reply: Reply = [b"ok", now_us]
        args = iter(call.args[3:])
        for lease_key, log_key, fence, word, rest, channel in zip(
            call.keys[::2], call.keys[1::2], args, args, args, args, strict=True
        ):
            lease = self._open(lease_key, int(fence), now_ms)
            if lease is not None:
                is_followed = lease.followed_ms > now_ms
                is_readable = not lease.is_overflowed and lease.size_bytes + len(data(rest)) <= max_bytes
                if word != "given_up" and is_followed and is_readable:
                    log = self._log(log_key, now_ms)
                    log.entries += [b"c" + data(rest), b"e"] if rest else [b"e"]
                    log.expires_ms = now_ms + linger_ms
                else:
                    self.logs.pop(log_key, None)
                if is_followed:
                    self.wakes.append(str(channel))
            reply.append(self._close(lease_key, lease, str(word), now_ms + recheck_ms))
        return reply

    def _close(self, lease_key: str, lease: Lease | None, word: str, recheck_until_ms: int) -> bytes:
        if lease is None:
            return b"lost"
        if word == "stored":
            lease.state, lease.expires_ms, lease.request = "done", recheck_until_ms, ""
        else:
            del self.leases[lease_key]
        return b"given_up" if word == "given_up" else b"ok"

    def _join(self, call: ScriptCall, now_us: int) -> Reply:
        now_ms = now_us // 1000
        lease = self._live(call.keys[0], now_ms)
        if lease is None or lease.is_overflowed:
            return [b"none", now_us, 0]
        if lease.state == "open":
            lease.followed_ms = max(lease.followed_ms, now_ms + int(call.args[0]))
        return [lease.state.encode(), now_us, lease.fence]

    def _read_log(self, call: ScriptCall, now_us: int) -> Reply:
        lease_key, log_key = call.keys
        fence, first, most, follow_ms = (int(arg) for arg in call.args)
        now_ms = now_us // 1000
        entries = self._log(log_key, now_ms).entries[first : first + most]
        chunks = [entry[1:] for entry in entries if entry != b"e"]
        lease = self._live(lease_key, now_ms)
        if lease is not None and (lease.fence != fence or lease.is_overflowed):
            lease = None
        is_open = lease is not None and lease.state == "open"
        if lease is not None and is_open and lease.followed_ms < now_ms + follow_ms / 2:
            lease.followed_ms = now_ms + follow_ms
        if b"e" in entries:
            outcome = b"ended"
        elif len(entries) == most:
            outcome = b"more"
        else:
            outcome = lease.state.encode() if lease is not None else b"lost"
        return [outcome, now_us, *chunks]

    def _request(self, key: str, now_ms: int) -> Request | None:
        request = self.requests.get(key)
        return request if request is not None and now_ms < request.expires_ms else None

    def _live(self, key: str, now_ms: int) -> Lease | None:
        lease = self.leases.get(key)
        return lease if lease is not None and now_ms < lease.expires_ms else None

    def _open(self, key: str, fence: int, now_ms: int) -> Lease | None:
        lease = self._live(key, now_ms)
        return lease if lease is not None and lease.fence == fence and lease.state == "open" else None

    def _log(self, key: str, now_ms: int) -> Log:
        log = self.logs.setdefault(key, Log())
        if log.entries and now_ms >= log.expires_ms:
            log.entries.clear()
        return log
