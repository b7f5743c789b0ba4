"""The cache service on real servers: admission, budgets, answers, leases."""

import asyncio
import time
import uuid
from collections.abc import Iterator

import pytest

from helpers.cache_service import FOLLOW, HIT, LEASE, MISS, answer, pieces, running_cache
from helpers.eventually import eventually
from helpers.redis_server import EVERY_REDIS, RedisServer, redis_pair
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.frame_pb2 import VERDICT_INCOMPLETE, VERDICT_INVALID
from ssop_cache.core.keys import Layout
from ssop_chassis.errors import MeshError

Servers = tuple[RedisServer, RedisServer]
KEY = b"\1" * 32
MONTH_MS = 2_678_400_000
"""A window of the budget whose end no test sees."""


@pytest.fixture(scope="module", params=EVERY_REDIS)
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    with redis_pair(request.param) as pair:
        yield pair


@pytest.fixture
def tenant() -> str:
    """A tenant of its own for each test: the servers are shared."""
    return uuid.uuid4().hex


async def refused(reason: str, call: object) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await call  # type: ignore[misc]
    assert caught.value.reason_name == reason
    return caught.value


async def test_first_request_leads_and_the_second_follows(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as under_test:
        client = under_test.client(tenant)
        assert (await client.admit("a", KEY)).outcome == LEASE
        assert (await client.admit("b", KEY)).outcome == FOLLOW


async def test_committed_answer_is_replayed_byte_for_byte(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as under_test:
        client = under_test.client(tenant)
        lease = await client.admit("a", KEY)
        await client.commit(KEY, lease.fencing_token, answer("caf\u00e9"), model="small-1")
        hit = await client.admit("b", KEY)
        assert (hit.outcome, hit.answer.chunk, hit.answer.model) == (HIT, answer("caf\u00e9"), "small-1")
        assert (await client.lookup(KEY)).answer.chunk == answer("caf\u00e9")


async def test_answer_that_was_appended_in_pieces_is_stored_whole(servers: Servers, tenant: str) -> None:
    first, second, last = pieces("a", "b", "c")
    async with running_cache(*servers) as under_test:
        client = under_test.client(tenant)
        fence = (await client.admit("a", KEY)).fencing_token
        await client.append(KEY, fence, first)
        await client.append(KEY, fence, second)
        await client.commit(KEY, fence, last)
        assert (await client.lookup(KEY)).answer.chunk == first + second + last


async def test_answer_older_than_asked_is_a_miss(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as under_test:
        client = under_test.client(tenant)
        fence = (await client.admit("a", KEY)).fencing_token
        await client.commit(KEY, fence, answer())
        ages: list[int] = []

        async def grow() -> None:
            while not ages or ages[-1] < 5:
                ages.append((await client.lookup(KEY)).answer.age_ms)

        await asyncio.wait_for(grow(), 60)
        assert (await client.lookup(KEY, max_age_ms=2)).outcome == MISS
        assert (await client.lookup(KEY, max_age_ms=60_000)).outcome == HIT


async def test_answer_goes_after_its_time_to_live(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as under_test:
        client = under_test.client(tenant)
        fence = (await client.admit("a", KEY)).fencing_token
        await client.commit(KEY, fence, answer(), ttl_ms=20)
        outcomes: list[int] = []

        async def wait() -> None:
            while not outcomes or outcomes[-1] != MISS:
                outcomes.append((await client.lookup(KEY)).outcome)

        await asyncio.wait_for(wait(), 60)


async def test_no_lease_was_asked_for_and_none_is_given(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as under_test:
        client = under_test.client(tenant)
        assert (await client.admit("a", KEY, no_lease=True)).outcome == MISS
        assert (await client.admit("b", KEY)).outcome == LEASE


async def test_repeated_admission_is_the_same_admission(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers, budget_tokens=100, budget_window_ms=MONTH_MS, max_rps=0.001, burst=1) as t:
        client = t.client(tenant)
        first = await client.admit("a", KEY, tokens=60)
        again = await client.admit("a", KEY, tokens=60)
        assert again == first
        assert again.budget_left_tokens == 40


async def test_same_id_with_another_question_is_a_duplicate(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as under_test:
        client = under_test.client(tenant)
        await client.admit("a", KEY)
        await refused("REQUEST_DUPLICATE", client.admit("a", b"\2" * 32))


async def test_rate_is_refused_with_the_time_to_wait(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers, max_rps=0.005, burst=2) as under_test:
        client = under_test.client(tenant)
        await client.admit("a")
        await client.admit("b")
        error = await refused("RATE_LIMITED", client.admit("c"))
        assert error.retry_after_ms is not None
        assert 100_000 < error.retry_after_ms <= 200_000
        assert error.quotas == ((f"tenant:{tenant}", "0.005 requests per second, 2 at once"),)


async def test_budget_is_refused_and_settling_gives_back(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers, budget_tokens=100, budget_window_ms=MONTH_MS) as under_test:
        client = under_test.client(tenant)
        assert (await client.admit("a", tokens=70)).budget_left_tokens == 30
        error = await refused("QUOTA_EXHAUSTED", client.admit("b", tokens=31))
        assert error.quotas == ((f"tenant:{tenant}", f"100 tokens per {MONTH_MS} ms"),)
        assert await client.settle("a", 10, 5) == 15
        assert (await client.admit("b", tokens=31)).budget_left_tokens == 54


async def test_request_that_can_never_fit_is_told_no_time_to_wait(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers, budget_tokens=100) as under_test:
        error = await refused("QUOTA_EXHAUSTED", under_test.client(tenant).admit("a", tokens=101))
        assert error.retry_after_ms is None


async def test_second_settlement_charges_nothing(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as under_test:
        client = under_test.client(tenant)
        await client.admit("a")
        assert [await client.settle("a", 3, 4), await client.settle("a", 3, 4)] == [7, 0]


async def test_settling_an_unknown_request_charges_nothing(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as under_test:
        assert await under_test.client(tenant).settle("never", 9) == 0
        assert under_test.metric("ssop_cache_settlements_total", outcome="unknown") == 1


async def test_late_settlement_is_charged_although_the_reservation_lapsed(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers, budget_tokens=100, budget_window_ms=MONTH_MS) as under_test:
        client = under_test.client(tenant)
        await client.admit("a", tokens=90, lease_ms=1)
        left: list[int] = []

        async def lapse() -> None:
            while not left or left[-1] < 99:
                left.append((await client.admit(f"probe{len(left)}", tokens=1, lease_ms=1)).budget_left_tokens)
                await client.settle(f"probe{len(left) - 1}", 0)

        await asyncio.wait_for(lapse(), 60)
        assert await client.settle("a", 50) == 50
        assert (await client.admit("b", tokens=1)).budget_left_tokens == 49


async def test_cached_answer_costs_no_budget(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers, budget_tokens=100, budget_window_ms=MONTH_MS) as under_test:
        client = under_test.client(tenant)
        fence = (await client.admit("a", KEY, tokens=100)).fencing_token
        await client.commit(KEY, fence, answer())
        assert (await client.admit("b", KEY, tokens=100)).outcome == HIT


async def test_thousand_at_once_get_one_lease(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as one, running_cache(*servers) as other:
        clients = [one.client(tenant), other.client(tenant)]
        admitted = await asyncio.gather(*(clients[n % 2].admit(f"r{n}", KEY, lease_ms=60_000) for n in range(1000)))
    outcomes = [response.outcome for response in admitted]
    assert (outcomes.count(LEASE), outcomes.count(FOLLOW)) == (1, 999)


async def test_thousand_at_once_never_pass_the_budget(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers, budget_tokens=1000, budget_window_ms=MONTH_MS) as under_test:
        client = under_test.client(tenant)
        asked = (client.admit(f"r{n}", tokens=7, lease_ms=60_000) for n in range(400))
        results = await asyncio.gather(*asked, return_exceptions=True)
    admitted = [result for result in results if not isinstance(result, BaseException)]
    assert len(admitted) == 1000 // 7
    assert min(response.budget_left_tokens for response in admitted) == 1000 % 7


async def test_abandoned_requests_leave_nothing_after_the_lease(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers, budget_tokens=10**6, budget_window_ms=MONTH_MS) as under_test:
        client = under_test.client(tenant)
        await asyncio.gather(
            *(client.admit(f"r{n}", n.to_bytes(32, "big"), tokens=5, lease_ms=50) for n in range(2000))
        )
        base = Layout(1, "").of_tenant(tenant).base
        state, _ = servers
        await eventually(lambda: not [key for key in state.keys(f"{base}:*") if not is_memory(key)])
        assert (await client.admit("after", tokens=1)).budget_left_tokens == 10**6 - 1


def is_memory(key: str) -> bool:
    """What stays a while on purpose: what became of a request, and the last fencing token."""
    return ":request:" in key or key.endswith(":fence")


async def test_stale_fencing_token_is_refused_everywhere(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as under_test:
        client = under_test.client(tenant)
        stale = (await client.admit("a", KEY, lease_ms=1)).fencing_token
        fresh = 0

        async def take_over() -> None:
            nonlocal fresh
            while not fresh:
                fresh = (await client.admit("b", KEY)).fencing_token

        await asyncio.wait_for(take_over(), 60)
        assert fresh > stale
        await refused("LEASE_LOST", client.append(KEY, stale, answer("old")))
        await refused("LEASE_LOST", client.commit(KEY, stale, answer("old")))
        await refused("LEASE_LOST", client.commit(KEY, stale, is_complete=False))
        assert (await client.lookup(KEY)).outcome == MISS
        await client.commit(KEY, fresh, answer("new"))
        assert (await client.lookup(KEY)).answer.chunk == answer("new")


@pytest.mark.parametrize(
    "chunk",
    [
        answer(verdict=VERDICT_INVALID),
        answer(verdict=VERDICT_INCOMPLETE),
        pieces("a", "b")[0],
        pieces("a", "b")[1],
        b"",
        b"\xff",
    ],
    ids=["invalid", "cut", "no end", "no beginning", "empty", "no chunk"],
)
async def test_only_whole_ok_answers_are_stored(servers: Servers, tenant: str, chunk: bytes) -> None:
    async with running_cache(*servers) as under_test:
        client = under_test.client(tenant)
        fence = (await client.admit("a", KEY)).fencing_token
        await refused("REQUEST_INVALID", client.commit(KEY, fence, chunk))
        assert (await client.lookup(KEY)).outcome == MISS
        assert (await client.admit("b", KEY)).outcome == LEASE


async def test_generation_that_was_given_up_stores_nothing(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as under_test:
        client = under_test.client(tenant)
        fence = (await client.admit("a", KEY)).fencing_token
        await client.commit(KEY, fence, answer(), is_complete=False)
        assert (await client.admit("b", KEY)).outcome == LEASE


async def test_too_large_answer_is_not_stored_and_counted(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers, max_answer_bytes=100) as under_test:
        client = under_test.client(tenant)
        fence = (await client.admit("a", KEY)).fencing_token
        await client.commit(KEY, fence, answer("x" * 200))
        assert (await client.lookup(KEY)).outcome == MISS
        assert under_test.metric("ssop_cache_answers_not_stored_total", reason="too_large") == 1
        assert (await client.admit("b", KEY)).outcome == LEASE


async def test_other_tenants_answer_is_a_miss(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as under_test:
        fence = (await under_test.client(tenant).admit("a", KEY)).fencing_token
        await under_test.client(tenant).commit(KEY, fence, answer())
        other = under_test.client(f"{tenant}x")
        assert (await other.lookup(KEY)).outcome == MISS
        assert (await other.admit("a", KEY)).outcome == LEASE


async def test_other_tenants_lease_is_not_mine(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as under_test:
        fence = (await under_test.client(tenant).admit("a", KEY)).fencing_token
        other = under_test.client(f"{tenant}x")
        await refused("LEASE_LOST", other.append(KEY, fence, answer()))
        await refused("LEASE_LOST", other.commit(KEY, fence, answer()))
        await refused("REQUEST_UNKNOWN", other.follow(KEY))


async def test_flushed_scripts_cost_nothing_and_run_once(servers: Servers, tenant: str) -> None:
    state, cache = servers
    async with running_cache(*servers, budget_tokens=1000, budget_window_ms=MONTH_MS) as under_test:
        client = under_test.client(tenant)
        for n in range(10):
            state.ask("SCRIPT", "FLUSH")
            cache.ask("SCRIPT", "FLUSH")
            response = await client.admit(f"r{n}", tokens=10)
            assert response.budget_left_tokens == 990 - 10 * n


@pytest.mark.parametrize(
    ("field", "request_id", "key", "lease_ms"),
    [
        ("request_id", "", KEY, 1000),
        ("request_id", "a b", KEY, 1000),
        ("request_id", "x" * 65, KEY, 1000),
        ("cache_key", "a", b"short", 1000),
        ("lease_ms", "a", KEY, 0),
        ("lease_ms", "a", KEY, 600_001),
    ],
)
async def test_malformed_request_names_its_field(
    servers: Servers, field: str, request_id: str, key: bytes, lease_ms: int
) -> None:
    async with running_cache(*servers) as under_test:
        error = await refused("REQUEST_INVALID", under_test.client().admit(request_id, key, lease_ms=lease_ms))
        assert error.fields[0][0] == field
        assert error.reason == ErrorReason.ERROR_REASON_REQUEST_INVALID


async def test_usage_is_the_tenants_own_once_and_by_the_clock_that_counted_it(
    servers: Servers, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_cache(*servers) as under_test:
        client, other = under_test.client(tenant), under_test.client(tenant + "2")
        await client.admit("a", tokens=30)
        for _ in range(2):
            await client.settle("a", 10, 5)
        await other.admit("a", tokens=30)
        await other.settle("a", 1)
        now_s = time.time()
        # The host of the service is a day behind.
        monkeypatch.setattr(time, "time", lambda: now_s - 86_400)
        (day,) = await client.usage()
    assert [(tier.requests, tier.input_tokens, tier.output_tokens) for tier in day.tiers] == [(1, 10, 5)]
