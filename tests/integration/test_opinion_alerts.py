"""Posts through queue, worker and sink to somebody's robot, on a real Redis."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.eventually import eventually
from helpers.opinion import TENANT, ScriptedAnalyst, make_tenant, parts, posts, running
from helpers.redis_server import RedisServer
from helpers.robots import run_receiver, wecom
from ssop_opinion.core.record import Analysis
from ssop_opinion.desk import Desk
from ssop_opinion.desk_opening import open_desk
from ssop_opinion.intake import Origin
from ssop_opinion.process import OpinionProcess
from ssop_opinion.wiring import Parts

KEY = "k-1"
PATH = f"/cgi-bin/webhook/send?key={KEY}"
LONG_S = 100.0
STORM = 5
ORIGIN = Origin(TENANT, "crm", "webhook")
BAD: dict[str, Any] = {
    "main_entity": "X200", "event_type": "failure", "sentiment_score": -5, "sentiment_label": "negative", "severity": 5,
    "summary": "it burns",
}  # fmt: skip


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer("state") as server:
        yield server


def made_of(analyst: ScriptedAnalyst) -> Parts:
    """Parts with a scripted analyst and a real desk."""
    base = parts(analyst)
    return Parts(base.open_analyst, base.open_sink, open_desk, base.page_routes)


def prepare(folder: Path, url: str) -> dict[str, Any]:
    """A tenant whose alerts go to a robot, and the settings that name it."""
    (folder / "tenants").mkdir()
    make_tenant(folder / "tenants", alerts={"routes": [{"channel": "ops"}], "storm_alerts": STORM})
    (folder / "ops.url").write_text(url)
    return {"channels": {"ops": {"kind": "wecom", "url_file": str(folder / "ops.url")}}}


@asynccontextmanager
async def at_work(process: OpinionProcess) -> AsyncIterator[Desk]:
    """The worker at work; the desk."""
    worker, desk, stop = process.worker, process.desk, asyncio.Event()
    assert worker is not None
    assert isinstance(desk, Desk)
    working = asyncio.create_task(worker.run(stop, 10))
    try:
        yield desk
    finally:
        stop.set()
        await working


async def test_a_bad_post_reaches_a_robot_and_its_alert_can_be_acknowledged(redis: RedisServer, tmp_path: Path) -> None:
    analyst = ScriptedAnalyst(lambda _: Analysis(fields=BAD, verdict="ok"))
    async with run_receiver(wecom(KEY), PATH) as robot:
        values = prepare(tmp_path, robot.url)
        async with (
            running(tmp_path, redis, made_of(analyst), **values) as (process, registry),
            at_work(process) as desk,
        ):
            await process.intake.append(posts(1), ORIGIN)
            await eventually(lambda: bool(robot.taken), LONG_S)
            assert "X200 / failure" in robot.taken[0].document["markdown"]["content"]
            lead_s = registry.get_sample_value("ssop_opinion_alert_lead_seconds_sum")
            print(f"alert after {lead_s:.3f} s")
            (alert,) = await desk.alerts(TENANT, limit=9)
            await desk.acknowledge(TENANT, alert.id, "ann")
            assert (await desk.alerts(TENANT, limit=9))[0].acknowledged_by == "ann"


async def test_a_flood_about_many_entities_is_a_handful_of_messages(redis: RedisServer, tmp_path: Path) -> None:
    analyst = ScriptedAnalyst(lambda post: Analysis(fields={**BAD, "main_entity": post.id}, verdict="ok"))
    async with run_receiver(wecom(KEY), PATH) as robot:
        values = prepare(tmp_path, robot.url)
        async with running(tmp_path, redis, made_of(analyst), **values) as (process, _), at_work(process) as desk:
            await process.intake.append(posts(300), ORIGIN)

            async def is_done() -> bool:
                found = await desk.alerts(TENANT, limit=100)
                return sum(one.posts for one in found) == 300 and not (await desk.deliveries(TENANT))[0]["pending"]

            async with asyncio.timeout(LONG_S):
                while not await is_done():
                    await asyncio.sleep(0.02)
            found = await desk.alerts(TENANT, limit=100)
    assert sorted((one.kind, one.more) for one in found) == [*[("alert", 0)] * STORM, ("storm", 300 - STORM)]
    assert len(robot.taken) <= STORM + 1


async def test_an_answer_that_is_refused_withdraws_what_its_fields_had_caused(
    redis: RedisServer, tmp_path: Path
) -> None:
    analyst = ScriptedAnalyst(lambda _: Analysis(fields=BAD, verdict="invalid", reason="maximum /severity"))
    async with run_receiver(wecom(KEY), PATH) as robot:
        values = prepare(tmp_path, robot.url)
        async with running(tmp_path, redis, made_of(analyst), **values) as (process, _), at_work(process) as desk:
            await process.intake.append(posts(1), ORIGIN)

            async def phases() -> list[str]:
                return [one.phase for one in await desk.alerts(TENANT, limit=9)]

            async with asyncio.timeout(LONG_S):
                while await phases() != ["withdrawn"]:
                    await asyncio.sleep(0.02)
