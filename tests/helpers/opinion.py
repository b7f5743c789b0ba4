"""The opinion application in tests: on a real Redis, with an analyst that a test scripts and a desk that notes."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from helpers.redis_server import RedisServer
from ssop_opinion.core.post import Post
from ssop_opinion.core.record import Analysis, Record
from ssop_opinion.core.signature import sign
from ssop_opinion.ports import AlertDesk, Analyst, OnField, Sink
from ssop_opinion.process import OpinionProcess, open_process
from ssop_opinion.queue import SUMS, QueueAwayError
from ssop_opinion.settings import OpinionSettings
from ssop_opinion.sinks import open_sink
from ssop_opinion.wiring import Parts, Setup

SECRET = "a secret of sixteen bytes or more"
KEY_ID = "crm"
TENANT = "acme"
FIELDS: Mapping[str, Any] = {
    "main_entity": "Acme", "event_type": "complaint", "sentiment_score": -3, "sentiment_label": "negative",
    "summary": "it broke",
}  # fmt: skip
GOOD = Analysis(fields=FIELDS, verdict="ok", tier="lite", model="replay", cache="miss")
Answer = Callable[[Post], Analysis]


class ScriptedAnalyst:
    """Answers as a test says; raising is an answer, too. `seen` are the posts that it was asked about."""

    def __init__(self, answer: Answer = lambda _: GOOD) -> None:
        self.answer = answer
        self.seen: list[Post] = []

    async def analyse(self, post: Post, on_field: OnField) -> Analysis:
        self.seen.append(post)
        analysis = self.answer(post)
        for name, value in analysis.fields.items():
            on_field(name, value)
        return analysis


class NotingDesk:
    """An alert desk that notes what it is told."""

    def __init__(self) -> None:
        self.fields: list[tuple[str, str, Any]] = []
        self.stored: list[Record] = []

    def field_arrived(self, post: Post, name: str, value: Any, now_ms: int) -> None:
        self.fields.append((post.key, name, value))

    async def record_stored(self, record: Record, now_ms: int) -> None:
        self.stored.append(record)


def parts(analyst: Analyst, desk: AlertDesk | None = None, sink: Sink | None = None) -> Parts:
    """Parts of a process; the sink is that of the settings unless there is one."""

    @asynccontextmanager
    async def open_analyst(_: Setup) -> AsyncIterator[Analyst]:
        yield analyst

    @asynccontextmanager
    async def open_desk(_: Setup, __: Sink) -> AsyncIterator[AlertDesk]:
        yield desk if desk is not None else NotingDesk()

    @asynccontextmanager
    async def given_sink(_: Setup) -> AsyncIterator[Sink]:
        assert sink is not None
        yield sink

    return Parts(open_analyst, open_sink if sink is None else given_sink, open_desk, lambda *_: ())


def make_tenant(folder: Path, name: str = TENANT, **values: Any) -> None:
    """A tenant's files: its configuration, its key of the mesh, and the secret of a webhook key."""
    (folder / f"{name}.key").write_text("ssop_test_key\n")
    (folder / f"{name}.secret").write_text(SECRET + "\n")
    key_id = KEY_ID if name == TENANT else f"{KEY_ID}-{name}"
    document = {
        "api_key_file": f"{name}.key",
        "webhook_keys": [{"id": key_id, "secret_file": f"{name}.secret", "source": "crm", "region": "eu"}],
        **values,
    }
    (folder / f"{name}.json").write_text(json.dumps(document))


def make_settings(folder: Path, url: str, **values: Any) -> OpinionSettings:
    """Settings on a folder, with a tenant; quick where the defaults are patient."""
    tenants = folder / "tenants"
    if not tenants.exists():
        tenants.mkdir()
        make_tenant(tenants)
    return OpinionSettings.model_validate({
        "listen": ["127.0.0.1:0"], "state_directory": folder / "state", "tenants_directory": tenants, "stream_url": url,
        "claim_ms": 1_500, "max_wait_ms": 200, "linger_ms": 2, **values,
    })  # fmt: skip


@asynccontextmanager
async def running(
    folder: Path, redis: RedisServer, made: Parts, **values: Any
) -> AsyncIterator[tuple[OpinionProcess, CollectorRegistry]]:
    """All of a process but its server and its worker's loop."""
    registry = CollectorRegistry()
    async with open_process(make_settings(folder, redis.url, **values), made, registry) as process:
        yield process, registry


@asynccontextmanager
async def working(process: OpinionProcess) -> AsyncIterator[None]:
    """The worker of a process at work."""
    stop = asyncio.Event()
    task = asyncio.create_task(process.require_worker().run(stop, 10))
    try:
        yield
    finally:
        stop.set()
        await task


async def emptied(process: OpinionProcess) -> None:
    """Return when no post waits or is worked on."""
    async with asyncio.timeout(90):
        while True:
            with suppress(QueueAwayError):
                if not (await process.queue.sizes())[0]:
                    return
            await asyncio.sleep(0.02)


def sums(redis: RedisServer) -> set[int]:
    """What the queue says of how much it holds, of all kinds: {0} when it is empty."""
    held = redis.ask("HVALS", SUMS)
    return {int(value) for value in [*held, redis.ask("GET", "{ssop.opinion}:bytes") or 0]}


def posts(count: int, *, tenant: str = TENANT, seed: int = 0) -> list[Post]:
    """Posts that all say something else."""
    rng = random.Random(seed)
    now_ms = time.time_ns() // 1_000_000
    return [
        Post(tenant, "crm", f"p-{seed}-{number}", f"post {number} says {rng.random()}", "webhook", now_ms)
        for number in range(count)
    ]


def signed(
    body: bytes, *, nonce: str, now_s: float | None = None, secret: str = SECRET, key: str = KEY_ID
) -> dict[str, str]:
    """The headers of a signed webhook."""
    timestamp = str(int(time.time() if now_s is None else now_s))
    return {
        "x-ssop-key": key,
        "x-ssop-timestamp": timestamp,
        "x-ssop-nonce": nonce,
        "x-ssop-signature": sign(secret.encode(), timestamp, nonce, body),
    }


def bodies(made: Sequence[Post]) -> bytes:
    """Posts as NDJSON."""
    return b"\n".join(json.dumps({"id": post.id, "text": post.text}).encode() for post in made)
