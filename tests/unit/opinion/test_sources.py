"""The doors for files, Redis and Kafka: what is forgotten by its source only when the queue has it."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from helpers.eventually import eventually
from helpers.redis_server import RedisServer
from ssop_opinion.core.post import PostError
from ssop_opinion.ending import end
from ssop_opinion.files import read_file
from ssop_opinion.intake import Origin
from ssop_opinion.kafka_source import KafkaSource
from ssop_opinion.metrics import OpinionMetrics
from ssop_opinion.redis_source import RedisSource
from ssop_opinion.settings import KafkaSourceSettings, RedisSourceSettings

ORIGIN = Origin("acme", "local", "file")


class Intake:
    """Notes what it is given; holds it back until `go`."""

    def __init__(self) -> None:
        self.taken: list[Mapping[str, Any] | PostError] = []
        self.go = asyncio.Event()
        self.go.set()

    async def take(self, found: Iterable[tuple[Mapping[str, Any] | PostError, bytes]], origin: Origin) -> int:
        await self.go.wait()
        came = [body for body, _ in found]
        self.taken += came
        return sum(not isinstance(one, PostError) for one in came)

    def told(self) -> list[str]:
        """Texts, or the reasons of faults."""
        return [one.reason if isinstance(one, PostError) else one["text"] for one in self.taken]


async def test_a_file_is_read_to_its_end_whatever_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "posts.jsonl"
    good = json.dumps({"text": "机" * 50}, ensure_ascii=False).encode()
    path.write_bytes(b"\n".join([good, b"", b"x" * 200_000, b"\xff", b"[]", good * 0 + b'{"text":"last"}']))
    intake = Intake()
    assert await read_file(path, intake, ORIGIN) == 2  # type: ignore[arg-type]
    assert intake.told() == ["机" * 50, "post_too_large", "not_utf8", "not_an_object", "last"]


@dataclass
class Message:
    value: bytes | None


class Topic:
    """A topic, as far as the source uses aiokafka's consumer. `committed` is where the group would go on."""

    def __init__(self, values: list[bytes | None]) -> None:
        self.values = values
        self.committed = 0
        self.starts = 0
        self.stops = 0
        self.failures = 0
        self._place = 0

    async def start(self) -> None:
        self.starts += 1
        self._place = self.committed

    async def stop(self) -> None:
        self.stops += 1

    async def getmany(self, *, timeout_ms: int, max_records: int) -> dict[Any, list[Any]]:
        if self.failures:
            self.failures -= 1
            raise OSError("the broker is gone")
        found = self.values[self._place : self._place + 2]
        self._place += len(found)
        if not found:
            await asyncio.sleep(0.005)
        return {"partition": [Message(value) for value in found]}

    async def commit(self) -> None:
        self.committed = self._place


def kafka(topic: Topic, intake: Intake) -> KafkaSource:
    settings = KafkaSourceSettings(tenant="acme", servers=["none:1"], topic="posts")
    return KafkaSource(settings, intake, OpinionMetrics(CollectorRegistry()), lambda _: topic)  # type: ignore[arg-type]


async def test_offsets_are_committed_when_the_queue_has_the_posts() -> None:
    topic, intake = Topic([b'{"text":"a"}', b"no", None]), Intake()
    intake.go.clear()
    task = asyncio.create_task(kafka(topic, intake).run())
    try:
        await asyncio.sleep(0)
        assert topic.committed == 0
        intake.go.set()
        await eventually(lambda: topic.committed == 3, 60)
    finally:
        await end({task})
    assert intake.told() == ["a", "not_json", "not_json"]
    assert topic.stops == topic.starts == 1


async def test_a_broker_that_goes_is_asked_again_from_what_was_committed() -> None:
    topic, intake = Topic([b'{"text":"a"}', b'{"text":"b"}']), Intake()
    topic.failures = 2
    task = asyncio.create_task(kafka(topic, intake).run())
    try:
        await eventually(lambda: topic.committed == 2, 60)
    finally:
        await end({task})
    assert topic.starts == 3


@pytest.mark.parametrize(
    "said",
    [
        {"username": "me"},
        {"password_file": "/secret"},
        {"has_tls": True, "certificate_file": "/cert"},
        {"ca_file": "/ca"},
        {"username": "me", "password_file": "/secret", "sasl_mechanism": "PLAIN"},
    ],
    ids="-".join,
)
def test_settings_of_brokers_that_can_not_be_meant_are_refused(said: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        KafkaSourceSettings.model_validate({"tenant": "acme", "servers": ["none:1"], "topic": "posts", **said})


async def test_entries_of_a_stream_are_acknowledged_when_the_queue_has_them() -> None:
    with RedisServer("state") as server:
        for text in ("a", "b"):
            server.ask("XADD", "theirs", "*", "post", json.dumps({"text": text}))
        server.ask("XADD", "theirs", "*", "something", "else")
        intake = Intake()
        intake.go.clear()
        settings = RedisSourceSettings(tenant="acme", url=server.url, stream="theirs", group="us")
        source = RedisSource(settings, intake, OpinionMetrics(CollectorRegistry()))  # type: ignore[arg-type]
        task = asyncio.create_task(source.run())

        def pending() -> int:
            reply = server.ask("XPENDING", "theirs", "us") if server.ask("XINFO", "GROUPS", "theirs") else {}
            return int(reply["pending"]) if isinstance(reply, dict) and reply else 0

        try:
            await eventually(lambda: pending() == 3, 60)
            intake.go.set()
            await eventually(lambda: pending() == 0, 60)
            server.kill()
            server.start()
            server.ask("XADD", "theirs", "*", "post", json.dumps({"text": "c"}))
            await eventually(lambda: len(intake.taken) == 4, 60)
        finally:
            await end({task})
    assert intake.told() == ["a", "b", "not_json", "c"]
