"""The desk: one process judges, what it caused is on disk, and another takes over."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from helpers.eventually import eventually
from helpers.opinion_posts import FIELDS, START_MS, TENANT, make_post, make_record
from ssop_opinion.alert_store import read_alerts
from ssop_opinion.core.alert_policy import AlertPolicy
from ssop_opinion.core.alerts import Alert, AlertError
from ssop_opinion.core.rules import DEFAULT_RULES
from ssop_opinion.desk import STORE_NAME, Desk

POLICY = AlertPolicy(rules=DEFAULT_RULES)
LONG_S = 60.0


@asynccontextmanager
async def run_desk(folder: Path) -> AsyncIterator[Desk]:
    desk = Desk({TENANT: POLICY}, folder, CollectorRegistry())
    await desk.open()
    running = asyncio.ensure_future(desk.run())
    try:
        yield desk
    finally:
        running.cancel()
        await asyncio.wait({running})
        await desk.close()


def kept(folder: Path) -> list[Alert]:
    return read_alerts(folder / STORE_NAME, [TENANT], 0, 1 << 60)


async def test_an_alert_is_there_before_the_verdict(tmp_path: Path) -> None:
    async with run_desk(tmp_path) as desk:
        for name, value in FIELDS.items():
            desk.field_arrived(make_post(), name, value, START_MS)
        await eventually(lambda: bool(kept(tmp_path)), LONG_S)
        assert kept(tmp_path)[0].phase == "provisional"


async def test_what_a_record_causes_is_on_disk_when_the_desk_returns(tmp_path: Path) -> None:
    async with run_desk(tmp_path) as desk:
        await desk.record_stored(make_record(make_post()), START_MS)
        assert [(one.phase, one.entity) for one in kept(tmp_path)] == [("confirmed", "X200")]


async def test_a_second_analysis_of_a_post_begins_anew(tmp_path: Path) -> None:
    async with run_desk(tmp_path) as desk:
        post = make_post()
        desk.field_arrived(post, "severity", 5, START_MS)
        desk.field_arrived(post, "severity", 1, START_MS)
        for name in ("main_entity", "event_type", "sentiment_score"):
            desk.field_arrived(post, name, FIELDS[name], START_MS)
        await desk.record_stored(make_record(post, severity=1), START_MS)
        assert kept(tmp_path) == []


async def test_names_that_are_no_unicode_are_kept(tmp_path: Path) -> None:
    async with run_desk(tmp_path) as desk:
        await desk.record_stored(make_record(make_post(), main_entity="half \ud83d\n\x00"), START_MS)
        assert kept(tmp_path)[0].entity == "half ?\n\x00"
    async with run_desk(tmp_path) as other:
        await other.record_stored(make_record(make_post("2"), main_entity="half \ud83d\n\x00"), START_MS)
        assert [one.posts for one in kept(tmp_path)] == [2]


async def test_a_fault_of_the_program_is_not_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_desk(tmp_path) as desk:

        def fail(*_: Any) -> None:
            raise ValueError("a bug")

        monkeypatch.setattr(desk._store, "commit", fail)
        for number in range(2):
            with pytest.raises(RuntimeError, match="stopped"):
                await desk.record_stored(make_record(make_post(str(number))), START_MS)
        assert not desk.is_well
        monkeypatch.undo()


async def test_posts_of_a_tenant_without_a_file_are_left_alone(tmp_path: Path) -> None:
    async with run_desk(tmp_path) as desk:
        post = make_post(tenant="stranger")
        desk.field_arrived(post, "severity", 5, START_MS)
        await desk.record_stored(make_record(post), START_MS)
        assert kept(tmp_path) == []


async def test_one_process_judges_for_two(tmp_path: Path) -> None:
    async with run_desk(tmp_path) as one, run_desk(tmp_path) as other:
        assert (one.is_judge, other.is_judge) == (True, False)
        for number in range(3):
            # A sequence of three, of which the second process sees one.
            desk = other if number == 1 else one
            await desk.record_stored(make_record(make_post(str(number), at_ms=START_MS + number), severity=2), START_MS)
        await eventually(lambda: [alert.rule for alert in kept(tmp_path)] == ["row"], LONG_S)


async def test_another_process_takes_over(tmp_path: Path) -> None:
    async with run_desk(tmp_path) as one:
        for number in range(2):
            await one.record_stored(make_record(make_post(str(number), at_ms=START_MS + number), severity=2), START_MS)
    async with run_desk(tmp_path) as other:
        assert other.is_judge
        await other.record_stored(make_record(make_post("2", at_ms=START_MS + 9), severity=2), START_MS)
        assert [alert.rule for alert in kept(tmp_path)] == ["row"]


async def test_an_alert_is_acknowledged_in_any_process(tmp_path: Path) -> None:
    async with run_desk(tmp_path) as one, run_desk(tmp_path) as other:
        now_ms = time.time_ns() // 1_000_000
        await one.record_stored(make_record(make_post(at_ms=now_ms)), now_ms)
        await other.acknowledge(TENANT, kept(tmp_path)[0].id, "ann")
        await eventually(lambda: kept(tmp_path)[0].acknowledged_by == "ann", LONG_S)


async def test_nobody_acknowledges_an_alert_of_another_tenant(tmp_path: Path) -> None:
    async with run_desk(tmp_path) as desk:
        now_ms = time.time_ns() // 1_000_000
        await desk.record_stored(make_record(make_post(at_ms=now_ms)), now_ms)
        for tenant in ("stranger", ""):
            with pytest.raises(AlertError):
                await desk.acknowledge(tenant, kept(tmp_path)[0].id, "eve")
        assert kept(tmp_path)[0].acknowledged_by == ""


async def test_a_disk_that_fails_holds_records_up_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_desk(tmp_path) as desk:
        failures = [sqlite3.OperationalError("database or disk is full")] * 2
        store: Any = desk._store
        commit = store.commit

        def fail(*arguments: Any) -> None:
            if failures:
                raise failures.pop()
            commit(*arguments)

        monkeypatch.setattr(store, "commit", fail)
        monkeypatch.setattr("ssop_opinion.desk.RETRY_S", 0.01)
        await desk.record_stored(make_record(make_post()), START_MS)
        assert failures == []
        assert len(kept(tmp_path)) == 1


async def test_hundreds_of_records_share_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_desk(tmp_path) as desk:
        store: Any = desk._store
        commit, commits = store.commit, []

        def note(*arguments: Any) -> None:
            commits.append(1)
            commit(*arguments)

        monkeypatch.setattr(store, "commit", note)
        records = [make_record(make_post(str(number), at_ms=START_MS + number)) for number in range(500)]
        await asyncio.gather(*(desk.record_stored(record, START_MS) for record in records))
        assert kept(tmp_path)[0].posts == 500
        assert len(commits) < 50
