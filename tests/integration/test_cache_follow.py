"""Following a generation on a real server."""

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from helpers.cache_service import FOLLOW, HIT, LEASE, MISS, CacheClient, answer, pieces, running_cache
from helpers.eventually import eventually
from helpers.machine import stretched
from helpers.redis_server import EVERY_REDIS, RedisServer, redis_pair
from ssop.v1 import cache_pb2
from ssop_cache.core.keys import Layout
from ssop_chassis.errors import MeshError
from ssop_chassis.memory import MemoryStream

Servers = tuple[RedisServer, RedisServer]
KEY = b"\1" * 32


@pytest.fixture(scope="module", params=EVERY_REDIS)
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    with redis_pair(request.param) as pair:
        yield pair


@pytest.fixture
def tenant() -> str:
    return uuid.uuid4().hex


async def read(stream: MemoryStream) -> bytes:
    message = await stream.read()
    assert message is not None
    return cache_pb2.FollowResponse.FromString(message).chunk


async def until_followed(client: CacheClient, fence: int) -> None:
    async with asyncio.timeout(60):
        while not await client.append(KEY, fence):
            await asyncio.sleep(0.005)


async def reason_of(call: object) -> str:
    with pytest.raises(MeshError) as caught:
        await call  # type: ignore[misc]
    return caught.value.reason_name


async def test_follower_gets_the_backlog_then_what_comes_then_the_end(servers: Servers, tenant: str) -> None:
    one, two, three = pieces("a", "b", "c")
    async with running_cache(*servers) as under_test:
        client = under_test.client(tenant)
        fence = (await client.admit("a", KEY)).fencing_token
        await client.append(KEY, fence, one)
        assert (await client.admit("b", KEY)).outcome == FOLLOW
        async with client.open_follow(KEY) as stream:
            assert await read(stream) == one
            await client.append(KEY, fence, two)
            assert await read(stream) == two
            await client.commit(KEY, fence, three)
            assert await read(stream) == three
            assert await stream.read() is None


async def test_followers_are_woken_and_need_not_wait_for_their_poll(servers: Servers, tenant: str) -> None:
    state, _ = servers
    one, two = pieces("a", "b")
    async with running_cache(*servers) as under_test:
        client = under_test.client(tenant)
        fence = (await client.admit("a", KEY)).fencing_token
        following = asyncio.ensure_future(client.follow(KEY))
        await until_followed(client, fence)
        before = state.calls("publish")
        await client.append(KEY, fence, one)
        await client.commit(KEY, fence, two)
        assert await following == one + two
        assert state.calls("publish") == before + 2


async def test_leader_hears_of_a_follower_at_its_next_sign_of_life(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as under_test:
        client = under_test.client(tenant)
        fence = (await client.admit("a", KEY)).fencing_token
        assert not await client.append(KEY, fence)
        await client.admit("b", KEY)
        assert await client.append(KEY, fence)


async def test_followers_of_two_processes_get_the_same_bytes(servers: Servers, tenant: str) -> None:
    chunks = pieces(*(f"field {n}" for n in range(300)))
    async with running_cache(*servers) as one, running_cache(*servers) as other:
        leader = one.client(tenant)
        fence = (await leader.admit("a", KEY)).fencing_token
        following = [asyncio.ensure_future(one.client(tenant).follow(KEY)) for _ in range(40)]
        following += [asyncio.ensure_future(other.client(tenant).follow(KEY)) for _ in range(40)]
        await until_followed(leader, fence)
        for chunk in chunks[:-1]:
            await leader.append(KEY, fence, chunk)
        await leader.commit(KEY, fence, chunks[-1])
        assert set(await asyncio.gather(*following)) == {b"".join(chunks)}
        assert one.metric("ssop_cache_followed_generations") == 0


async def test_follower_that_leaves_harms_no_other(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as under_test:
        client = under_test.client(tenant)
        fence = (await client.admit("a", KEY)).fencing_token
        staying = asyncio.ensure_future(client.follow(KEY))
        async with client.open_follow(KEY):
            await until_followed(client, fence)
        await client.commit(KEY, fence, answer())
        assert await staying == answer()


async def test_follower_that_comes_after_the_commit_gets_the_answer(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as under_test:
        client = under_test.client(tenant)
        fence = (await client.admit("a", KEY)).fencing_token
        assert (await client.admit("b", KEY)).outcome == FOLLOW
        await client.commit(KEY, fence, answer())
        assert await client.follow(KEY) == answer()


async def test_follower_gets_an_answer_that_was_too_large_to_store(servers: Servers, tenant: str) -> None:
    one, two = pieces("x" * 200, "y")
    async with running_cache(*servers, max_answer_bytes=100) as under_test:
        client = under_test.client(tenant)
        fence = (await client.admit("a", KEY)).fencing_token
        following = asyncio.ensure_future(client.follow(KEY))
        await until_followed(client, fence)
        await client.append(KEY, fence, one)
        await client.commit(KEY, fence, two)
        assert await following == one + two
        assert (await client.lookup(KEY)).outcome == MISS


async def test_nobody_to_follow_is_unknown(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as under_test:
        assert await reason_of(under_test.client(tenant).follow(KEY)) == "REQUEST_UNKNOWN"


async def test_when_the_leader_gives_up_exactly_one_follower_takes_over(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as under_test:
        client = under_test.client(tenant)
        fence = (await client.admit("a", KEY)).fencing_token
        ids = [f"f{n}" for n in range(20)]
        assert {(await client.admit(name, KEY)).outcome for name in ids} == {FOLLOW}
        await client.append(KEY, fence, pieces("a", "b")[0])
        async with client.open_follow(KEY) as first:
            # It reads, so the generation is followed here, by those below too.
            await read(first)
            following = [asyncio.ensure_future(reason_of(client.follow(KEY))) for _ in ids]
            await client.commit(KEY, fence, is_complete=False)
            assert await reason_of(first.read()) == "LEASE_LOST"
        # Those that came after the end are told that there is nothing; both mean: admit again.
        assert set(await asyncio.gather(*following)) <= {"LEASE_LOST", "REQUEST_UNKNOWN"}
        outcomes = [r.outcome for r in await asyncio.gather(*(client.admit(name, KEY) for name in ids))]
        assert (outcomes.count(LEASE), outcomes.count(FOLLOW)) == (1, 19)


async def test_when_the_leader_dies_followers_hear_within_the_lease(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as under_test:
        client = under_test.client(tenant)
        fence = (await client.admit("a", KEY)).fencing_token
        await client.append(KEY, fence, pieces("a", "b")[0])
        async with client.open_follow(KEY) as stream:
            await read(stream)
            # The last sign of life, once it is followed: what comes first must not be late.
            await client.append(KEY, fence, lease_ms=300)
            started_s = asyncio.get_running_loop().time()
            assert await reason_of(stream.read()) == "LEASE_LOST"
        assert asyncio.get_running_loop().time() - started_s < stretched(1.3)
        successor = await client.admit("b", KEY)
        assert successor.outcome == LEASE
        assert successor.fencing_token > fence


async def test_backlog_over_its_limit_can_not_be_followed(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers, max_answer_bytes=100, max_backlog_bytes=100) as under_test:
        client = under_test.client(tenant)
        fence = (await client.admit("a", KEY)).fencing_token
        following = asyncio.ensure_future(reason_of(client.follow(KEY)))
        await until_followed(client, fence)
        one, two = pieces("x" * 200, "y")
        assert not await client.append(KEY, fence, one)
        assert await following == "LEASE_LOST"
        assert (await client.admit("b", KEY)).outcome == MISS
        assert under_test.metric("ssop_cache_backlog_overflows_total") == 1
        await client.commit(KEY, fence, two)
        assert (await client.lookup(KEY)).outcome == MISS


async def test_more_followed_generations_than_allowed_are_overloaded(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers, max_followed=1) as under_test:
        client = under_test.client(tenant)
        fence = (await client.admit("a", KEY)).fencing_token
        async with client.open_follow(KEY):
            await until_followed(client, fence)
            assert await reason_of(client.follow(b"\2" * 32)) == "OVERLOADED"


async def test_lone_request_pays_nothing_for_followers(servers: Servers, tenant: str) -> None:
    state, _ = servers
    watched = ("publish", "rpush", "lrange")
    async with running_cache(*servers) as under_test:
        client = under_test.client(tenant)
        before = {command: state.calls(command) for command in watched}
        fence = (await client.admit("a", KEY)).fencing_token
        await client.append(KEY, fence)
        await client.commit(KEY, fence, answer())
        await client.settle("a", 3)
        assert {command: state.calls(command) for command in watched} == before
        assert (await client.admit("b", KEY)).outcome == HIT


async def test_log_goes_when_nobody_can_need_it(servers: Servers, tenant: str) -> None:
    state, _ = servers
    base = Layout(1, "").of_tenant(tenant).base
    async with running_cache(*servers) as under_test:
        client = under_test.client(tenant)
        fence = (await client.admit("a", KEY)).fencing_token
        await client.append(KEY, fence, answer(), lease_ms=100)
        await eventually(lambda: not state.keys(f"{base}:log:*"))
