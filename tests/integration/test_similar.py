"""The index of similar answers on real Redis: who finds what, and what is never found."""

import math
import struct
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from helpers.cache_service import CacheClient, CacheUnderTest, answer, running_cache, unit_vector
from helpers.redis_server import EVERY_REDIS, RedisServer, redis_pair
from ssop_chassis.errors import MeshError

OTHER_SCOPE = b"\10" * 32
KEY = b"\1" * 32


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[RedisServer, RedisServer]]:
    with redis_pair() as pair:
        yield pair


@pytest.fixture
async def host(servers: tuple[RedisServer, RedisServer]) -> AsyncIterator[CacheUnderTest]:
    for server in servers:
        server.ask("FLUSHALL")
    async with running_cache(*servers, similar_entries=5) as running:
        yield running


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


async def put(client: CacheClient, text: str, cache_key: bytes = KEY, **fields: Any) -> bool:
    """Store an answer that repeats the question, and make it findable."""
    await client.store(f"r{cache_key.hex()[-8:]}", cache_key, answer(text))
    return await client.put_similar(text, cache_key, **fields)


@pytest.mark.parametrize("version", EVERY_REDIS)
async def test_same_question_in_other_words_finds_the_answer(version: str) -> None:
    with redis_pair(version) as servers:
        async with running_cache(*servers) as host:
            client = host.client()
            assert await put(client, "What is the refund policy for laptops?")
            found = await client.find_similar("Please tell me what the refund policy for laptops")
            assert not found.HasField("answer")
            found = await client.find_similar("hi, what is refund policy for laptops, please")
            assert found.answer.chunk == answer("What is the refund policy for laptops?")
            assert found.similarity == pytest.approx(math.cos(0.1), abs=1e-5)
            assert (found.cache_key, found.answer.age_ms < 60_000) == (KEY, True)


@pytest.mark.parametrize(
    ("asked", "guard"),
    [
        ("Can I return it after 60 days?", "number"),
        ("Can I not return it after 30 days?", "negation"),
        ("Can I return it before 30 days?", "polarity"),
        ("Can Bob return it after 30 days?", "entity"),
        ("Can I return it again after 30 days?", "content"),
    ],
)
async def test_near_question_is_told_apart_and_counted(host: CacheUnderTest, asked: str, guard: str) -> None:
    client = host.client()
    await put(client, "Can I return it after 30 days?")
    assert not (await client.find_similar(asked)).HasField("answer")
    assert host.metric("ssop_cache_similar_refusals_total", guard=guard) == 1
    assert dict((await client.stats()).similar_refusals) == {guard: 1}


@pytest.mark.parametrize(
    "changed",
    [
        {"scope_key": OTHER_SCOPE},
        {"embedder": "another"},
        {"vector": unit_vector(1.5)},
        {"vector": struct.pack("<2f", 1.0, 0.0)},
        {"min_similarity": 0.999},
    ],
    ids=["scope", "embedder", "far", "another length", "threshold"],
)
async def test_question_of_another_kind_finds_nothing(host: CacheUnderTest, changed: dict[str, Any]) -> None:
    client = host.client()
    await put(client, "How far is it?")
    assert not (await client.find_similar("How far is it?", **changed)).HasField("answer")


async def test_older_answer_than_asked_for_is_not_found(host: CacheUnderTest) -> None:
    client = host.client()
    await put(client, "How far is it?")
    while (await client.find_similar("How far is it?")).answer.age_ms < 2:
        pass
    assert not (await client.find_similar("How far is it?", max_age_ms=1)).HasField("answer")


async def test_nothing_is_another_tenants(host: CacheUnderTest) -> None:
    await put(host.client("umbrella"), "How far is it?")
    assert not (await host.client("acme").find_similar("How far is it?")).HasField("answer")


async def test_flush_and_deletion_end_similar_answers_too(host: CacheUnderTest) -> None:
    client = host.client()
    await put(client, "How far is it?")
    await client.flush(KEY)
    assert not (await client.find_similar("How far is it?")).HasField("answer")
    await put(client, "How far is it?", key(2))
    await client.flush()
    assert not (await client.find_similar("How far is it?")).HasField("answer")
    await put(client, "How far is it?", key(3))
    assert (await client.find_similar("How far is it?")).cache_key == key(3)


async def test_question_whose_answer_is_gone_is_forgotten(
    host: CacheUnderTest, servers: tuple[RedisServer, RedisServer]
) -> None:
    client = host.client()
    await put(client, "How far is it?")
    await client.flush(KEY)
    await client.find_similar("How far is it?")
    assert not servers[1].keys("*similar*")


async def test_bound_of_a_tenant_holds_and_the_oldest_go(
    host: CacheUnderTest, servers: tuple[RedisServer, RedisServer]
) -> None:
    client = host.client()
    for number in range(8):
        await put(client, f"How far is number {number + 10}?", key(number))
    (records,) = [name for name in servers[1].keys("*similar*") if servers[1].ask("TYPE", name) == b"hash"]
    assert servers[1].ask("HLEN", records) == 5
    assert not (await client.find_similar("How far is number 10?")).HasField("answer")
    assert (await client.find_similar("How far is number 17?")).cache_key == key(7)


async def test_part_of_the_index_that_was_evicted_takes_the_rest_along(
    host: CacheUnderTest, servers: tuple[RedisServer, RedisServer]
) -> None:
    client = host.client()
    await put(client, "How far is it?")
    (ages,) = servers[1].keys("*similar*:ages")
    servers[1].ask("DEL", ages)
    await put(client, "How high is it?", key(2))
    assert not (await client.find_similar("How far is it?")).HasField("answer")
    assert (await client.find_similar("How high is it?")).cache_key == key(2)


async def test_question_lapses(host: CacheUnderTest) -> None:
    client = host.client()
    await put(client, "How far is it?", ttl_ms=20)
    while (await client.find_similar("How far is it?")).HasField("answer"):
        pass
    assert (await client.lookup(KEY)).answer.chunk


async def test_neither_question_nor_tenant_is_in_redis_as_text(
    host: CacheUnderTest, servers: tuple[RedisServer, RedisServer]
) -> None:
    client = host.client("verysecret")
    await put(client, "Where is the treasure?")
    (records,) = [name for name in servers[1].keys("*similar*") if servers[1].ask("TYPE", name) == b"hash"]
    assert b"treasure" not in b"".join(servers[1].ask("HVALS", records))
    assert "verysecret" not in records


@pytest.mark.parametrize(
    "fields",
    [
        {"vector": b""},
        {"vector": b"\0" * 12},
        {"vector": b"\0" * 11},
        {"vector": struct.pack("<3f", math.nan, 0, 0)},
        {"vector": struct.pack("<3f", 2, 0, 0)},
        {"scope_key": b"short"},
        {"embedder": ""},
        {"min_similarity": math.nan},
    ],
)
async def test_malformed_look_up_is_refused(host: CacheUnderTest, fields: dict[str, Any]) -> None:
    with pytest.raises(MeshError) as caught:
        await host.client().find_similar("How far is it?", **fields)
    assert caught.value.reason_name == "REQUEST_INVALID"


async def test_spoilt_record_is_left_out_and_counted(
    host: CacheUnderTest, servers: tuple[RedisServer, RedisServer]
) -> None:
    client = host.client()
    await put(client, "How far is it?")
    (records,) = [name for name in servers[1].keys("*similar*") if servers[1].ask("TYPE", name) == b"hash"]
    (name,) = servers[1].ask("HKEYS", records)
    for garbage in (b"", b"SSN1", b"x" * 5_000):
        servers[1].ask("HSET", records, name, garbage)
        assert not (await client.find_similar("How far is it?")).HasField("answer")
    assert host.metric("ssop_cache_answers_unusable_total") == 3


async def test_question_that_is_too_long_is_not_kept(host: CacheUnderTest) -> None:
    assert not await put(host.client(), "far " * 2_000)
