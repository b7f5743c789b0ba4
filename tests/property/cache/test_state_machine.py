"""What holds after any sequence of calls, on the twin of the scripts, with time as an input."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from helpers.script_calls import Admission, Admit, Ending, read_admissions
from ssop_cache.core import scripts
from ssop_cache.core.asked import Settlement
from ssop_cache.core.keys import Layout, TenantKeys
from ssop_cache.core.scripts import Limits, Outcome, Reply, ScriptCall
from ssop_cache.core.twin import StateTwin

TENANTS = ["acme", "globex"]
CACHE_KEYS = [b"\1" * 32, b"\2" * 32]
IDS = [f"r{n}" for n in range(6)]
LIMITS = Limits(max_rps=100, burst=5, budget_tokens=100, window_ms=10_000)
LEASE_MS = st.sampled_from([10, 200, 5000])
MAX_BYTES = 30


class CacheMachine(RuleBasedStateMachine):
    """Two tenants, two keys, six requests each."""

    def __init__(self) -> None:
        super().__init__()
        self.twin = StateTwin()
        self.layout = Layout(1, "test")
        self.now_us = 0
        # By (tenant, key): every fence that was ever given, and the chunks of the generation at hand.
        self.fences: dict[tuple[str, bytes], list[int]] = {}
        self.chunks: dict[tuple[str, bytes, int], bytes] = {}
        self.charges: dict[tuple[str, str], int] = {}
        self.reserved: dict[tuple[str, str], int] = {}

    @initialize(start_ms=st.integers(1, 10**12))
    def begin(self, start_ms: int) -> None:
        self.now_us = start_ms * 1000

    def run(self, call: ScriptCall) -> Reply:
        self.now_us += 7
        return self.twin.run(call, self.now_us)

    def admit_all(self, keys: TenantKeys, *asked: Admit, lease_ms: int) -> list[Admission]:
        return read_admissions(self.run(scripts.admit(keys, LIMITS, asked, lease_ms=lease_ms)))

    def last_fence(self, tenant: str, key: bytes) -> int:
        return self.fences.get((tenant, key), [0])[-1]

    @rule(ms=st.sampled_from([1, 9, 50, 1000, 11_000, 400_000]))
    def let_time_pass(self, ms: int) -> None:
        self.now_us += ms * 1000

    @rule(
        tenant=st.sampled_from(TENANTS),
        name=st.sampled_from(IDS),
        key=st.sampled_from(CACHE_KEYS),
        tokens=st.integers(0, 60),
        lease_ms=LEASE_MS,
    )
    def admit(self, tenant: str, name: str, key: bytes, tokens: int, lease_ms: int) -> None:
        keys = self.layout.of_tenant(tenant)
        lease = self.twin.leases.get(keys.lease(key))
        is_led = lease is not None and lease.state == "open" and lease.expires_ms > (self.now_us + 7) // 1000
        leader = lease.request if is_led and lease is not None else None
        (admission,) = self.admit_all(keys, Admit(name, key, tokens), lease_ms=lease_ms)
        if admission.outcome is not Outcome.LEASE:
            return
        fence = admission.fence
        given = self.fences.setdefault((tenant, key), [])
        if leader is not None:
            assert leader == name, "two leaders in one epoch of the lease"
            assert fence == given[-1]
        else:
            assert not given or fence > given[-1], "a fencing token did not rise"
            given.append(fence)
        assert admission.budget_left >= 0

    @rule(
        tenant=st.sampled_from(TENANTS),
        asked=st.lists(st.tuples(st.sampled_from(IDS), st.integers(0, 60)), min_size=2, max_size=4),
    )
    def admit_many_without_a_key(self, tenant: str, asked: list[tuple[str, int]]) -> None:
        admits = [Admit(name, b"", tokens) for name, tokens in asked]
        self.admit_all(self.layout.of_tenant(tenant), *admits, lease_ms=200)

    @rule(tenant=st.sampled_from(TENANTS), name=st.sampled_from(IDS), share=st.floats(0, 1))
    def settle(self, tenant: str, name: str, share: float) -> None:
        keys = self.layout.of_tenant(tenant)
        held = self.twin.reserved.get(keys.reserved, {}).get(name)
        used = int(share * held.tokens) if held is not None else 0
        # Twice in one call, and once more.
        twice = [Settlement(name, used)] * 2
        assert scripts.number(self.run(scripts.conclude(keys, LIMITS, twice))[5]) == 0, "a settlement was charged twice"
        again = self.run(scripts.conclude(keys, LIMITS, twice[:1]))
        assert scripts.number(again[3]) == 0, "a settlement was charged twice"
        left = self.twin.reserved.get(keys.reserved, {}).get(name)
        assert left is None or left.expires_ms <= self.now_us // 1000, "a settled request still reserves"

    @rule(
        tenant=st.sampled_from(TENANTS), key=st.sampled_from(CACHE_KEYS), chunk=st.binary(max_size=9), lease_ms=LEASE_MS
    )
    def append(self, tenant: str, key: bytes, chunk: bytes, lease_ms: int) -> None:
        fence = self.last_fence(tenant, key)
        keys = self.layout.of_tenant(tenant)
        call = scripts.append(keys, key, fence, chunk, lease_ms=lease_ms, max_backlog_bytes=MAX_BYTES)
        if self.run(call)[0] == b"ok":
            self.chunks[tenant, key, fence] = self.chunks.get((tenant, key, fence), b"") + chunk

    @rule(
        tenant=st.sampled_from(TENANTS), key=st.sampled_from(CACHE_KEYS), name=st.sampled_from(IDS), lease_ms=LEASE_MS
    )
    def renew(self, tenant: str, key: bytes, name: str, lease_ms: int) -> None:
        keys, fence = self.layout.of_tenant(tenant), self.last_fence(tenant, key)
        before = self.twin.reserved_tokens(keys.reserved)
        leases = [(key, fence)] if fence else []
        self.run(scripts.renew(keys, [name], leases, reservation_ms=2 * lease_ms, lease_ms=lease_ms))
        assert self.twin.reserved_tokens(keys.reserved) == before, "a renewal changed what is reserved"

    @rule(tenant=st.sampled_from(TENANTS), key=st.sampled_from(CACHE_KEYS), back=st.integers(1, 3))
    def use_a_stale_token(self, tenant: str, key: bytes, back: int) -> None:
        given = self.fences.get((tenant, key), [])
        if len(given) <= back:
            return
        keys, stale = self.layout.of_tenant(tenant), given[-1 - back]
        append = scripts.append(keys, key, stale, b"x", lease_ms=5000, max_backlog_bytes=MAX_BYTES)
        ending = Ending(key, stale, is_complete=True, is_stored=True)
        assert self.run(append)[0] == b"lost"
        for call in (
            scripts.seal(keys, [(key, stale)]),
            scripts.conclude(keys, LIMITS, endings=[ending]),
            scripts.end(keys, [(ending, b"x")], max_backlog_bytes=MAX_BYTES),
        ):
            assert self.run(call)[2] == b"lost"
        assert self.run(scripts.renew(keys, [], [(key, stale)], reservation_ms=1, lease_ms=5000))[2] == 0

    @rule(tenant=st.sampled_from(TENANTS), key=st.sampled_from(CACHE_KEYS), owner=st.sampled_from(TENANTS))
    def use_a_token_of_another_tenant(self, tenant: str, key: bytes, owner: str) -> None:
        foreign = self.last_fence(owner, key)
        if tenant == owner or foreign == self.last_fence(tenant, key):
            return
        call = scripts.append(
            self.layout.of_tenant(tenant), key, foreign, b"x", lease_ms=5000, max_backlog_bytes=MAX_BYTES
        )
        assert self.run(call)[0] == b"lost"

    @rule(
        tenant=st.sampled_from(TENANTS),
        key=st.sampled_from(CACHE_KEYS),
        complete=st.booleans(),
        stored=st.booleans(),
    )
    def commit(self, tenant: str, key: bytes, complete: bool, stored: bool) -> None:
        keys, fence = self.layout.of_tenant(tenant), self.last_fence(tenant, key)
        sealed = self.run(scripts.seal(keys, [(key, fence)]))
        if sealed[2] == b"ok":
            assert sealed[3] == self.chunks.get((tenant, key, fence), b"")
        ending = Ending(key, fence, is_complete=complete, is_stored=complete and stored)
        if self.run(scripts.conclude(keys, LIMITS, endings=[ending]))[2] == b"followed":
            (outcome,) = self.run(scripts.end(keys, [(ending, b"")], max_backlog_bytes=MAX_BYTES))[2:]
            assert outcome == (b"ok" if complete else b"given_up"), "a generation that is followed was not ended"

    @rule(tenant=st.sampled_from(TENANTS), key=st.sampled_from(CACHE_KEYS))
    def follow(self, tenant: str, key: bytes) -> None:
        keys = self.layout.of_tenant(tenant)
        joined = self.run(scripts.join(keys, key))
        if joined[0] != b"open":
            return
        fence = scripts.number(joined[2])
        read = self.run(scripts.read_log(keys, key, fence, 0))
        assert b"".join(map(scripts.data, read[2:])) == self.chunks.get((tenant, key, fence), b"")

    @invariant()
    def budget_is_never_passed(self) -> None:
        now_ms = self.now_us // 1000
        for tenant in TENANTS:
            keys = self.layout.of_tenant(tenant)
            window, tokens = self.twin.used.get(keys.used, (0, 0))
            used = tokens if window == now_ms // LIMITS.window_ms else 0
            live = [r.tokens for r in self.twin.reserved.get(keys.reserved, {}).values() if r.expires_ms > now_ms]
            assert used + sum(live) <= LIMITS.budget_tokens

    @invariant()
    def logs_are_bounded(self) -> None:
        for log in self.twin.logs.values():
            assert sum(len(entry) - 1 for entry in log.entries) <= MAX_BYTES

    def teardown(self) -> None:
        """At rest, after the longest lease, nothing is reserved and nobody leads."""
        self.now_us += 10_000_000
        for tenant in TENANTS:
            keys = self.layout.of_tenant(tenant)
            (admission,) = self.admit_all(keys, Admit("last", CACHE_KEYS[0], 0), lease_ms=10)
            assert admission.outcome is Outcome.LEASE
            assert self.twin.reserved_tokens(keys.reserved) == 0


TestCacheMachine = CacheMachine.TestCase
