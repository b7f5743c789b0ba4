"""The Lua scripts and their Python twin give the same replies, over random sequences of calls."""

import asyncio
import time
import uuid
from collections.abc import Iterator
from functools import partial
from typing import ClassVar, cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from prometheus_client import CollectorRegistry

from helpers.redis_server import EVERY_REDIS, RedisServer
from helpers.script_calls import Admission, Admit, Ending, read_admissions
from ssop_cache.core import scripts
from ssop_cache.core.asked import Settlement
from ssop_cache.core.keys import Layout, TenantKeys
from ssop_cache.core.scripts import Limits, Outcome, Reply, ScriptCall
from ssop_cache.core.twin import StateTwin
from ssop_cache.deployment import Access, open_deployment
from ssop_cache.metrics import CacheMetrics
from ssop_cache.store import RedisStore, load_scripts
from ssop_chassis.attention import Attention

CACHE_KEYS = [b"", b"\1" * 32, b"\2" * 32]
IDS = [f"r{n}" for n in range(5)]
LIMITS = [
    Limits(),
    Limits(max_rps=500, burst=2),
    Limits(max_rps=500, burst=2, min_rps=1, is_dynamic=True).under(0.37),
    Limits(budget_tokens=50, window_ms=100),
    Limits(max_rps=2000, burst=3, budget_tokens=40, window_ms=3_600_000),
]
MAX_BACKLOG_BYTES = 40


class ScriptMachine(RuleBasedStateMachine):
    """Each rule runs a script on the server, then on the twin at the time that the server says it ran."""

    server: ClassVar[RedisServer]

    def __init__(self) -> None:
        super().__init__()
        self.twin = StateTwin()
        self.fences = dict.fromkeys(CACHE_KEYS, 0)
        self.entries = dict.fromkeys(CACHE_KEYS, 0)
        self.keys: TenantKeys = Layout(1, "test").of_tenant(uuid.uuid4().hex)
        self.loop = asyncio.new_event_loop()
        metrics = CacheMetrics(CollectorRegistry())
        self.store = self.loop.run_until_complete(self._open(metrics))

    async def _open(self, metrics: CacheMetrics) -> RedisStore:
        deployment = open_deployment(Access(url=self.server.url), timeout_s=5, connections=16)
        return RedisStore("state", deployment, metrics, timeout_s=5, attention=Attention())

    def teardown(self) -> None:
        self.loop.run_until_complete(self.store.close())
        self.loop.close()

    def agree(self, call: ScriptCall) -> Reply:
        reply = self.loop.run_until_complete(self.store.run(call))
        assert self.twin.run(call, scripts.number(reply[1])) == reply
        return reply

    @rule(
        asked=st.lists(
            st.builds(
                Admit,
                request_id=st.sampled_from(IDS),
                cache_key=st.sampled_from(CACHE_KEYS),
                tokens=st.sampled_from([0, 5, 20, 60]),
                is_found=st.integers(0, 9).map(lambda n: n == 0),
                wants_lease=st.integers(0, 4).map(bool),
            ),
            min_size=1,
            max_size=4,
        ),
        limits=st.sampled_from(LIMITS),
        lease_ms=st.sampled_from([1, 5, 5000]),
        reservation_ms=st.sampled_from([3, 15_000]),
    )
    def admit(self, asked: list[Admit], limits: Limits, lease_ms: int, reservation_ms: int) -> None:
        asked = [one._replace(is_found=one.is_found and bool(one.cache_key)) for one in asked]
        ask = partial(self.admit_all, limits=limits, lease_ms=lease_ms, reservation_ms=reservation_ms)
        admissions = ask(asked)
        again = [
            one._replace(seen_fence=admission.fence)
            for one, admission in zip(asked, admissions, strict=True)
            if admission.outcome is Outcome.RECHECK
        ]
        if again:
            ask(again)

    def admit_all(self, asked: list[Admit], *, limits: Limits, lease_ms: int, reservation_ms: int) -> list[Admission]:
        call = scripts.admit(self.keys, limits, asked, lease_ms=lease_ms, reservation_ms=reservation_ms)
        admissions = read_admissions(self.agree(call))
        for one, admission in zip(asked, admissions, strict=True):
            if admission.outcome is Outcome.LEASE:
                self.fences[one.cache_key] = admission.fence
                self.entries[one.cache_key] = 0
        return admissions

    @rule(
        settled=st.lists(st.tuples(st.sampled_from(IDS), st.integers(0, 30)), max_size=3),
        ended=st.lists(
            st.tuples(st.sampled_from(CACHE_KEYS[1:]), st.binary(max_size=12), st.booleans(), st.booleans()), max_size=3
        ),
        limits=st.sampled_from(LIMITS),
    )
    def conclude(
        self, settled: list[tuple[str, int]], ended: list[tuple[bytes, bytes, bool, bool]], limits: Limits
    ) -> None:
        settlements = [
            Settlement(name, tokens, {"lite.requests": 1, "lite.output_tokens": tokens, "failed": 0})
            for name, tokens in settled
        ]
        endings = [
            Ending(key, self.fences[key], is_complete=complete, is_stored=complete and stored)
            for key, _, complete, stored in ended
        ]
        outcomes = self.agree(scripts.conclude(self.keys, limits, settlements, endings))[2 + 2 * len(settled) :]
        followed = [
            (ending, rest)
            for ending, (_, rest, *_), outcome in zip(endings, ended, outcomes, strict=True)
            if outcome == b"followed"
        ]
        if followed:
            self.agree(scripts.end(self.keys, followed, max_backlog_bytes=MAX_BACKLOG_BYTES))

    @rule(
        key=st.sampled_from(CACHE_KEYS[1:]),
        chunk=st.binary(max_size=12),
        lease_ms=st.sampled_from([1, 5000]),
        drift=st.sampled_from([0, 0, 0, -1]),
    )
    def append(self, key: bytes, chunk: bytes, lease_ms: int, drift: int) -> None:
        fence = self.fences[key] + drift
        call = scripts.append(self.keys, key, fence, chunk, lease_ms=lease_ms, max_backlog_bytes=MAX_BACKLOG_BYTES)
        self.agree(call)

    @rule(
        request_ids=st.lists(st.sampled_from(IDS), max_size=3, unique=True),
        leases=st.lists(st.tuples(st.sampled_from(CACHE_KEYS[1:]), st.sampled_from([0, 0, -1])), max_size=2),
        lease_ms=st.sampled_from([1, 5000]),
    )
    def renew(self, request_ids: list[str], leases: list[tuple[bytes, int]], lease_ms: int) -> None:
        named = [(key, self.fences[key] + drift) for key, drift in leases]
        self.agree(scripts.renew(self.keys, request_ids, named, reservation_ms=2 * lease_ms, lease_ms=lease_ms))

    @rule(keys=st.lists(st.sampled_from(CACHE_KEYS[1:]), min_size=1, max_size=3))
    def seal(self, keys: list[bytes]) -> None:
        self.agree(scripts.seal(self.keys, [(key, self.fences[key]) for key in keys]))

    @rule(key=st.sampled_from(CACHE_KEYS[1:]))
    def join(self, key: bytes) -> None:
        self.agree(scripts.join(self.keys, key))

    @rule(key=st.sampled_from(CACHE_KEYS[1:]))
    def read(self, key: bytes) -> None:
        reply = self.agree(scripts.read_log(self.keys, key, self.fences[key], self.entries[key]))
        self.entries[key] += len(reply) - 2

    @rule()
    def let_time_pass(self) -> None:
        # Time is an input of the scripts here, and the server's clock can't be set.
        time.sleep(0.003)

    @invariant()
    def usage_agrees(self) -> None:
        flat = self.server.ask("HGETALL", self.keys.usage)
        found = flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))
        usage = {name.decode(): int(amount) for name, amount in found.items()}
        assert usage == self.twin.usage.get(self.keys.usage, {})

    @invariant()
    def reservations_agree(self) -> None:
        total = self.server.ask("HGET", self.keys.reserved, "/sum")
        assert int(total or 0) == self.twin.reserved_tokens(self.keys.reserved)


@pytest.fixture(params=EVERY_REDIS)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with RedisServer("state", request.param) as running:
        yield running


def test_twin_and_server_agree(server: RedisServer) -> None:
    machine = type("Machine", (ScriptMachine,), {"server": server})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=20, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.parametrize("lease_ms", [500, 60_000])
def test_a_stored_answer_is_known_for_as_long_as_look_ups_may_be_late(server: RedisServer, lease_ms: int) -> None:
    keys, key = Layout(1, "test").of_tenant("acme"), CACHE_KEYS[1]

    def run(call: ScriptCall) -> Reply:
        text = load_scripts()[call.script]
        return cast("Reply", server.ask("EVAL", text, len(call.keys), *call.keys, *call.args))

    outcomes: Reply = []
    # The short lease is over by the end of it where this process is held up meanwhile.
    for number in range(20):
        asked = [Admit(f"r{number}", key, 1)]
        (admission,) = read_admissions(run(scripts.admit(keys, Limits(), asked, lease_ms=lease_ms)))
        ending = Ending(key, admission.fence, is_complete=True, is_stored=True)
        outcomes = run(scripts.conclude(keys, Limits(), endings=[ending]))[2:]
        if outcomes == [b"ok"]:
            break
    assert outcomes == [b"ok"]
    look = "return {redis.call('TIME'), redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[1])}"
    (seconds, us), left_ms, record = server.ask("EVAL", look, 1, keys.lease(key))
    _, state, until_ms, *_ = record.split(b" ")
    assert state == b"done"
    assert int(seconds) * 1000 + int(us) // 1000 + left_ms >= int(until_ms)
