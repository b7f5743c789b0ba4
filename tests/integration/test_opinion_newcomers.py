"""Tenants that come while the application runs."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from helpers.eventually import eventually
from helpers.log_lines import read_log
from helpers.opinion import (
    GOOD,
    KEY_ID,
    SECRET,
    TENANT,
    ScriptedAnalyst,
    bodies,
    emptied,
    make_settings,
    make_tenant,
    parts,
    posts,
    running,
    signed,
    working,
)
from helpers.redis_server import RedisServer
from ssop_chassis.settings import SettingsError
from ssop_cli.embedded import dump_toml
from ssop_opinion.analyst import MeshAnalyst, open_analyst
from ssop_opinion.core.post import Post
from ssop_opinion.core.record import Analysis
from ssop_opinion.desk import Desk
from ssop_opinion.desk_opening import open_desk
from ssop_opinion.intake import Origin
from ssop_opinion.newcomers import admit_newcomers
from ssop_opinion.ports import AlertDesk, Query, Sink
from ssop_opinion.process import OpinionProcess, open_process
from ssop_opinion.tenants import Tenants, load_tenants
from ssop_opinion.webhook import PATH
from ssop_opinion.wiring import Parts, Setup

NEW = "newcomer"
GRAVE = {**GOOD.fields, "sentiment_score": -5, "severity": 5}


@pytest.fixture(scope="module")
def shared() -> Iterator[RedisServer]:
    with RedisServer("state") as server:
        yield server


@pytest.fixture
def redis(shared: RedisServer) -> RedisServer:
    shared.ask("FLUSHALL")
    return shared


async def send(client: httpx.AsyncClient, url: str, made: list[Post], nonce: str, key: str) -> int:
    """The status that a signed webhook is answered with."""
    body = bodies(made)
    headers = {**signed(body, nonce=nonce, key=key), "content-type": "application/x-ndjson"}
    return (await client.post(url, content=body, headers=headers)).status_code


@asynccontextmanager
async def judging(folder: Path, redis: RedisServer) -> AsyncIterator[tuple[OpinionProcess, Desk]]:
    """A process with the real desk, and a door."""
    desks: list[Desk] = []

    @asynccontextmanager
    async def noted(setup: Setup, sink: Sink) -> AsyncIterator[AlertDesk]:
        async with open_desk(setup, sink) as desk:
            desks.append(desk)
            yield desk

    analyst = ScriptedAnalyst(lambda _: Analysis(fields=GRAVE, verdict="ok"))
    fake = parts(analyst)
    made = Parts(fake.open_analyst, fake.open_sink, noted, fake.page_routes)
    async with open_process(make_settings(folder, redis.url), made, CollectorRegistry()) as process:
        yield process, desks[0]


async def test_posts_of_a_new_tenant_become_records_and_alerts(tmp_path: Path, redis: RedisServer) -> None:
    made = posts(3, tenant=NEW)
    async with judging(tmp_path, redis) as (process, desk):
        door = process.webhook()
        client = httpx.AsyncClient(transport=httpx.ASGITransport(door), base_url="http://door")
        async with client, working(process):
            assert await send(client, PATH, made, "a-nonce-before", f"{KEY_ID}-{NEW}") == 401
            make_tenant(tmp_path / "tenants", NEW)
            await admit_newcomers(process.setup)
            assert await send(client, PATH, made, "a-nonce-after", f"{KEY_ID}-{NEW}") == 202
            await emptied(process)
        found = await process.sink.find(Query(NEW))
        assert sorted(record.key for record in found.records) == sorted(post.key for post in made)
        assert [alert.tenant for alert in await desk.alerts(NEW, limit=10)] == [NEW]


async def test_who_was_there_goes_on_and_shares_the_queue_from_then_on(tmp_path: Path, redis: RedisServer) -> None:
    async with running(tmp_path, redis, parts(ScriptedAnalyst())) as (process, _):
        assert not process.queue.is_shared
        make_tenant(tmp_path / "tenants", NEW)
        await admit_newcomers(process.setup)
        assert process.queue.is_shared
        assert sorted(process.setup.tenants) == [TENANT, NEW]


async def test_posts_of_whom_another_process_knows_alone_are_left_to_it(tmp_path: Path, redis: RedisServer) -> None:
    analyst, ours, new = ScriptedAnalyst(), posts(3), posts(3, tenant=NEW)
    for name in ("told", "untold"):
        (tmp_path / name).mkdir()
    async with (
        running(tmp_path / "told", redis, parts(ScriptedAnalyst())) as (told, _),
        running(tmp_path / "untold", redis, parts(analyst), claim_ms=300) as (untold, _),
        working(untold),
    ):
        make_tenant(tmp_path / "told" / "tenants", NEW)
        await admit_newcomers(told.setup)
        await told.intake.append(new, Origin(NEW, "crm", "webhook"))
        await eventually(lambda: untold.queue.lengths.get(NEW) == len(new))
        # The first may come by a read that began before; what comes by the others is read of all that is looked at.
        for count, post in enumerate(ours, 1):
            await told.intake.append([post], Origin(TENANT, "crm", "webhook"))
            await eventually(lambda count=count: len(analyst.seen) >= count)  # type: ignore[misc]
        assert {post.tenant for post in analyst.seen} == {TENANT}
        make_tenant(tmp_path / "untold" / "tenants", NEW)
        await admit_newcomers(untold.setup)
        await emptied(untold)
    assert {post.key for post in analyst.seen} == {post.key for post in [*ours, *new]}


async def test_posts_of_whom_nobody_knows_any_more_are_taken_out(tmp_path: Path, redis: RedisServer) -> None:
    (tmp_path / "before").mkdir()
    make_settings(tmp_path / "before", redis.url)
    make_tenant(tmp_path / "before" / "tenants", NEW)
    async with running(tmp_path / "before", redis, parts(ScriptedAnalyst())) as (process, _):
        await process.intake.append(posts(3, tenant=NEW), Origin(NEW, "crm", "webhook"))
    async with running(tmp_path, redis, parts(ScriptedAnalyst())) as (process, _), working(process):
        await emptied(process)


def spoil_toml(folder: Path) -> None:
    (folder / "other.toml").write_text("api_key_file = [")


def steal_key(folder: Path) -> None:
    make_tenant(folder, NEW, webhook_keys=[{"id": KEY_ID, "secret_file": f"{NEW}.secret"}])


def lose_secret(folder: Path) -> None:
    (folder / f"{NEW}.secret").unlink()


def name_no_channel(folder: Path) -> None:
    make_tenant(folder, NEW, alerts={"routes": [{"channel": "nowhere"}]})


@pytest.mark.parametrize("spoil", [spoil_toml, steal_key, lose_secret, name_no_channel])
async def test_a_fault_of_a_file_lets_nobody_in(
    tmp_path: Path, redis: RedisServer, spoil: Callable[[Path], None]
) -> None:
    async with judging(tmp_path, redis) as (process, desk):
        door = process.webhook()
        make_tenant(tmp_path / "tenants", NEW)
        make_tenant(tmp_path / "tenants", "another")
        spoil(tmp_path / "tenants")
        with pytest.raises(SettingsError):
            await admit_newcomers(process.setup)
        assert sorted(process.setup.tenants) == [TENANT]
        assert not process.queue.is_shared
        async with httpx.AsyncClient(transport=httpx.ASGITransport(door), base_url="http://door") as client:
            assert await send(client, PATH, posts(1), "a-nonce", f"{KEY_ID}-another") == 401
            assert await send(client, PATH, posts(1), "a-nonce-2", KEY_ID) == 202
        assert await desk.deliveries("another") == []


async def test_a_key_of_a_tenant_whose_file_is_gone_stays_its_own(tmp_path: Path, redis: RedisServer) -> None:
    async with running(tmp_path, redis, parts(ScriptedAnalyst())) as (process, _):
        process.webhook()
        (tmp_path / "tenants" / f"{TENANT}.json").unlink()
        steal_key(tmp_path / "tenants")
        with pytest.raises(SettingsError):
            await admit_newcomers(process.setup)


async def test_the_analyst_knows_a_new_tenant(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, "redis://nowhere", has_hint=False, router_address="127.0.0.1:1")
    setup = Setup(settings, load_tenants(tmp_path / "tenants"), CollectorRegistry())
    async with open_analyst(setup) as analyst:
        assert isinstance(analyst, MeshAnalyst)
        blank = Post(NEW, "crm", "1", " ", "webhook", 1)
        assert (await analyst.analyse(blank, lambda *_: None)).reason == "TENANT_UNKNOWN"
        make_tenant(tmp_path / "tenants", NEW)
        found = load_tenants(tmp_path / "tenants")
        for let_in in [await admit(Tenants({NEW: found[NEW]})) for admit in setup.admits]:
            let_in()
        assert (await analyst.analyse(blank, lambda *_: None)).reason == "TEXT_EMPTY"


async def test_a_hang_up_lets_new_tenants_in_and_ends_nothing(tmp_path: Path, redis: RedisServer) -> None:
    settings = make_settings(tmp_path, redis.url)
    document = {
        "listen": list(settings.listen), "roles": ["doors"], "state_directory": str(settings.state_directory),
        "tenants_directory": str(settings.tenants_directory), "stream_url": redis.url,
    }  # fmt: skip
    config, log = tmp_path / "ssop.toml", tmp_path / "log"
    (tmp_path / "mesh.secret").write_text(SECRET + "\n")
    config.write_text(dump_toml({"mesh": {"secret_file": str(tmp_path / "mesh.secret")}, "opinion": document}))
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "ssop_opinion.main", "--config", str(config)], stdout=file, stderr=file
        )

    def lines(message: str) -> list[dict[str, Any]]:
        return [line for line in read_log(log) if message in str(line.get("message"))]

    try:
        await eventually(lambda: bool(lines("serving")) or process.poll() is not None, 90)
        assert process.poll() is None, log.read_text()
        [address] = lines("serving")[0]["addresses"]
        async with httpx.AsyncClient(timeout=60) as client:
            url = f"http://{address}{PATH}"
            assert await send(client, url, posts(1), "a-nonce-before", f"{KEY_ID}-{NEW}") == 401
            make_tenant(tmp_path / "tenants", NEW)
            process.send_signal(signal.SIGHUP)
            await eventually(lambda: bool(lines("the tenants were read again")), 90)
            assert await send(client, url, posts(1), "a-nonce-after", f"{KEY_ID}-{NEW}") == 202
            (tmp_path / "tenants" / "broken.toml").write_text("[")
            process.send_signal(signal.SIGHUP)
            await eventually(lambda: bool(lines("no tenant came in")), 90)
            assert await send(client, url, posts(1), "a-nonce-at-last", f"{KEY_ID}-{NEW}") == 202
        process.terminate()
        assert await asyncio.to_thread(process.wait, 60) == 0
    finally:
        process.kill()
        process.wait()
