"""Posts from the topics of a real Kafka broker: each is in the queue once, whatever goes away meanwhile."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from helpers.eventually import eventually
from helpers.kafka_broker import PASSWORD, USER, KafkaBroker
from helpers.opinion import TENANT, ScriptedAnalyst, parts, running
from helpers.redis_server import RedisServer
from ssop_opinion.ending import end
from ssop_opinion.process import OpinionProcess
from ssop_opinion.queue import QueueAwayError

pytestmark = pytest.mark.needs("maven")
PATIENCE_S = 90


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running_broker:
        yield running_broker


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer("state") as server:
        yield server


def values(first: int, count: int) -> list[bytes]:
    return [
        json.dumps({"id": f"p-{number}", "text": f"it broke {number}"}).encode()
        for number in range(first, first + count)
    ]


@asynccontextmanager
async def reading(folder: Path, redis: RedisServer, source: dict[str, Any]) -> AsyncIterator[OpinionProcess]:
    """A process whose source of Kafka runs."""
    described = {"tenant": TENANT, **source}
    async with running(folder, redis, parts(ScriptedAnalyst()), kafka_sources=[described]) as (process, _):
        tasks = {asyncio.create_task(run()) for run in process.sources()}
        try:
            yield process
        finally:
            await end(tasks)


async def until(count: Callable[[], Awaitable[int]], wanted: int) -> None:
    """Poll until there are as many."""
    async with asyncio.timeout(PATIENCE_S):
        while await count() != wanted:
            await asyncio.sleep(0.05)


async def queued(process: OpinionProcess) -> int:
    """Posts in the queue; -1 while it is away."""
    try:
        return (await process.queue.sizes())[0]
    except QueueAwayError:
        return -1


async def test_posts_of_a_topic_are_queued_and_then_committed(
    broker: KafkaBroker, tmp_path: Path, redis: RedisServer
) -> None:
    await broker.make_topic("whole", partitions=3)
    await broker.send("whole", [*values(0, 50), b"no JSON", b"\xff\xfe", b"", *values(50, 50)])
    async with reading(tmp_path, redis, {"servers": [broker.server], "topic": "whole"}) as process:
        await until(lambda: broker.committed("whole", "ssop-opinion"), 103)
        assert await queued(process) == 100


async def test_a_broker_that_is_killed_and_comes_back_costs_no_post_and_doubles_none(
    broker: KafkaBroker, tmp_path: Path, redis: RedisServer
) -> None:
    await broker.make_topic("killed")
    await broker.send("killed", values(0, 200))
    async with reading(tmp_path, redis, {"servers": [broker.server], "topic": "killed"}) as process:
        await until(partial(queued, process), 200)
        broker.kill()
        broker.start()
        await broker.send("killed", values(150, 150))
        await until(partial(queued, process), 300)


async def test_a_queue_that_is_away_is_waited_for_with_nothing_committed(
    broker: KafkaBroker, tmp_path: Path, redis: RedisServer
) -> None:
    await broker.make_topic("waits")
    async with reading(tmp_path, redis, {"servers": [broker.server], "topic": "waits"}) as process:
        redis.kill()
        await broker.send("waits", values(0, 30))
        assert await broker.committed("waits", "ssop-opinion") == 0
        redis.start()
        await until(lambda: broker.committed("waits", "ssop-opinion"), 30)
        assert await queued(process) == 30


async def test_a_topic_that_is_read_again_from_its_beginning_doubles_nothing(
    broker: KafkaBroker, tmp_path: Path, redis: RedisServer
) -> None:
    await broker.make_topic("twice")
    await broker.send("twice", values(0, 40))
    for group in ("first", "second"):
        source = {"servers": [broker.server], "topic": "twice", "group": group}
        async with reading(tmp_path, redis, source) as process:
            await until(partial(broker.committed, "twice", group), 40)
            assert await queued(process) == 40


async def test_brokers_with_tls_certificates_and_passwords_are_read(
    broker: KafkaBroker, tmp_path: Path, redis: RedisServer
) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD + "\n")
    secure = {
        "servers": [broker.secure_server], "topic": "secure", "has_tls": True, "ca_file": str(broker.ca_file),
        "certificate_file": str(broker.client.certificate), "key_file": str(broker.client.key),
        "username": USER, "password_file": str(password), "sasl_mechanism": "PLAIN",
    }  # fmt: skip
    await broker.make_topic("secure")
    await broker.send("secure", values(0, 5))
    async with reading(tmp_path, redis, secure) as process:
        await until(partial(queued, process), 5)


async def test_a_wrong_password_takes_nothing_and_is_nowhere_in_the_log(
    broker: KafkaBroker, tmp_path: Path, redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    password = tmp_path / "password"
    password.write_text("quite-another-one\n")
    wrong = {
        "servers": [broker.secure_server], "topic": "denied", "has_tls": True, "ca_file": str(broker.ca_file),
        "certificate_file": str(broker.client.certificate), "key_file": str(broker.client.key),
        "username": USER, "password_file": str(password), "sasl_mechanism": "PLAIN",
    }  # fmt: skip
    await broker.make_topic("denied")
    await broker.send("denied", values(0, 5))
    async with reading(tmp_path, redis, wrong) as process:
        await eventually(lambda: "the topic can't be read" in caplog.text, PATIENCE_S)
        assert await queued(process) == 0
    assert "quite-another-one" not in caplog.text
