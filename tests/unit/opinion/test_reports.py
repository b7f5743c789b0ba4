"""Reports and exports: what counts, what is apart, and that what posts hold is text."""

import csv
import json
from datetime import date
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq
import pytest

from helpers.opinion_page import MemorySink
from helpers.opinion_posts import START_MS, TENANT, make_facts, make_post, make_record
from ssop_opinion import history
from ssop_opinion.core.actions import propose
from ssop_opinion.core.alert_book import AlertBook
from ssop_opinion.core.alert_policy import AlertPolicy
from ssop_opinion.core.alerts import Alert, acknowledge
from ssop_opinion.core.comparison import compare
from ssop_opinion.core.record import Record
from ssop_opinion.core.rules import DEFAULT_RULES
from ssop_opinion.core.summary import summarise
from ssop_opinion.export import Edges, write_edges, write_parquet
from ssop_opinion.history import each_record
from ssop_opinion.report import day_span, make_report, render_report

UTC = ZoneInfo("UTC")
DAY = date(2026, 11, 18)


async def fill(*records: Record) -> MemorySink:
    sink = MemorySink()
    await sink.write(records)
    return sink


def make_alert(number: int, *, region: str = "east", ack_ms: int = 0, **changes: Any) -> Alert:
    book = AlertBook(TENANT, AlertPolicy(rules=DEFAULT_RULES[:1]))
    facts = make_facts(str(number), region=region, **changes)
    (notice,) = book.judge(facts, START_MS + 1_000 + number)
    return acknowledge(notice.alert, "ann", notice.alert.opened_ms + ack_ms) if ack_ms else notice.alert


def test_figures_are_those_of_fresh_records() -> None:
    records = [
        make_record(make_post("1"), sentiment_score=-4),
        make_record(make_post("2"), sentiment_score=2, sentiment_label="positive"),
        make_record(make_post("3"), degraded_level=1),
        make_record(make_post("4"), verdict="invalid"),
    ]
    found = summarise(records, START_MS, START_MS + 10_000, 10)
    assert (found["posts"], found["fresh"]["posts"], found["fresh"]["mean_score"]) == (4, 2, -1.0)
    assert (found["degraded"]["posts"], found["failed"]["posts"]) == (1, 1)
    assert (found["series"][0]["posts"], found["series"][0]["apart"]) == (2, 2)
    assert found["clusters"][0]["region"] == "east"


def test_fields_of_other_kinds_are_no_figures() -> None:
    record = make_record(make_post(), sentiment_score="-4", sentiment_label="furious", severity=True, main_entity=7)
    found = summarise([record], START_MS, START_MS + 1_000, 1)
    assert (found["fresh"]["mean_score"], found["fresh"]["negative"], found["fresh"]["severity_max"]) == (None, 0, 0)
    assert found["entities"][0]["name"] == ""


def test_actions_are_one_for_an_entity_and_event_and_ranked() -> None:
    records = [
        *(make_record(make_post(f"w{n}"), main_entity="Lamp", suggested_action="watch") for n in range(9)),
        make_record(make_post("e1"), main_entity="X200"),
        make_record(make_post("e2"), main_entity="x200 "),
        make_record(make_post("i"), main_entity="Cup", suggested_action="ignore"),
        make_record(make_post("d"), main_entity="X200", degraded_level=2),
        make_record(make_post("o"), main_entity="Other", suggested_action="launch missiles"),
    ]
    found = propose(records, [make_alert(1, main_entity="X200")])
    assert [(one["action"], one["entity"], one["posts"]) for one in found] == [
        ("escalate", "X200", 2), ("watch", "Lamp", 9),
    ]  # fmt: skip
    assert found[0]["degraded_posts_apart"] == 1
    assert (found[0]["alert"]["severity"], found[1]["alert"]) == ("critical", None)


@pytest.mark.parametrize("same_ms", [1, 3, 7, 40])
async def test_every_record_is_read_once(monkeypatch: pytest.MonkeyPatch, same_ms: int) -> None:
    monkeypatch.setattr(history, "PAGE", 5)
    sink = await fill(*(make_record(make_post(str(n), at_ms=START_MS + n // same_ms)) for n in range(40)))
    found = [one.key async for one in each_record(sink, TENANT, START_MS, START_MS + 1_000)]
    assert len(found) == len(set(found)) == 40


async def test_records_that_cannot_be_told_apart_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "PAGE", 5)
    monkeypatch.setattr(history, "MAX_SAME_MS", 10)
    sink = await fill(*(make_record(make_post(str(n))) for n in range(30)))
    with pytest.raises(history.TooManyError):
        _ = [one async for one in each_record(sink, TENANT, START_MS, START_MS + 1_000)]


async def test_a_report_has_all_parts_and_a_page_that_loads_nothing() -> None:
    evil = "<script>alert(1)</script>"
    sink = await fill(
        make_record(make_post("1"), main_entity=evil, summary=evil),
        make_record(make_post("2"), degraded_level=1),
        make_record(make_post("3", tenant="globex")),
        make_record(make_post("4", at_ms=START_MS - 86_400_000)),
    )
    report = await make_report(sink, TENANT, DAY, UTC, [make_alert(1, main_entity=evil)])
    assert (report["summary"]["fresh"]["posts"], report["summary"]["degraded"]["posts"]) == (1, 1)
    assert report["schemas"] == {"post ab12": 2}
    page = render_report(json.loads(json.dumps(report)))
    assert "<script" not in page
    assert "default-src 'none'" in page
    for part in ("To do today", "escalate", "Sentiment over the day", "phones", "&lt;script&gt;", "<svg", "critical"):
        assert part in page


async def test_a_report_of_a_day_without_posts_is_a_page() -> None:
    report = await make_report(await fill(), TENANT, DAY, UTC, [])
    assert "Nothing." in render_report(report)


def test_days_of_other_lengths_are_days() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    hours = [(end - begin) / 3_600_000 for begin, end in (day_span(date(2026, 3, 29), berlin), day_span(DAY, berlin))]
    assert hours == [23, 24]


async def test_parquet_has_schema_id_and_hash_on_each_record(tmp_path: Path) -> None:
    sink = await fill(
        make_record(make_post("1", text="half \ud83d a pair")), make_record(make_post("2"), degraded_level=2)
    )
    path = tmp_path / "out.parquet"
    assert await write_parquet(each_record(sink, TENANT, 0, 1 << 50), path) == 2
    rows = pq.read_table(path).to_pylist()
    assert {(one["schema_id"], one["schema_hash"]) for one in rows} == {("post", "ab12")}
    assert sorted((one["is_fresh"], one["degraded_level"]) for one in rows) == [(False, 2), (True, 0)]
    assert (rows[0]["sentiment_score"], json.loads(rows[0]["fields_json"])["main_entity"]) == (-4.0, "X200")
    assert [one.name for one in tmp_path.iterdir()] == ["out.parquet"]


async def test_an_export_that_fails_leaves_nothing(tmp_path: Path) -> None:
    sink = await fill(make_record(make_post("1")))
    sink.is_away = True
    with pytest.raises(Exception, match="away"):
        await write_parquet(each_record(sink, TENANT, 0, 1 << 50), tmp_path / "out.parquet")
    assert list(tmp_path.iterdir()) == []


def test_edges_join_entities_and_events(tmp_path: Path) -> None:
    edges = Edges()
    for record in (
        make_record(make_post("1")),
        make_record(make_post("2"), main_entity="x200"),
        make_record(make_post("3"), degraded_level=1),
        make_record(make_post("4"), main_entity="=HYPERLINK(1)", event_type="news"),
        make_record(make_post("5"), verdict="failed"),
    ):
        edges.add(record)
    assert write_edges(edges, tmp_path / "edges.csv") == 2
    with (tmp_path / "edges.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(one["entity"], one["event_type"], one["posts"], one["degraded_posts_apart"]) for one in rows] == [
        ("X200", "failure", "2", "1"), ("'=HYPERLINK(1)", "news", "1", "0"),
    ]  # fmt: skip


def test_two_policies_are_compared_with_intervals() -> None:
    alerts = [make_alert(n, region="east", ack_ms=60_000 + n) for n in range(40)]
    alerts += [make_alert(n, region="west", ack_ms=300_000 + n) for n in range(40)]
    alerts += [make_alert(99, region="east", level=2, ack_ms=9_000_000)]
    found = compare(alerts, "region", ("east", "west"), Random(1))
    east, gap = found["groups"]["east"], found["differences"]["alert_to_acknowledgement_ms"]
    assert (east["alerts"], east["degraded_apart"], east["acknowledged"]) == (41, 1, 40)
    low, high = east["alert_to_acknowledgement_ms"]["low"], east["alert_to_acknowledgement_ms"]["high"]
    assert 60_000 <= low <= east["alert_to_acknowledgement_ms"]["median"] <= high <= 60_040
    assert gap["low"] <= gap["median"] == -240_000 <= gap["high"] < 0


def test_a_comparison_is_the_same_with_the_same_seed() -> None:
    alerts = [make_alert(n, region=region, ack_ms=1_000 * n + 1) for n in range(9) for region in ("east", "west")]
    one, other = (compare(alerts, "region", ("east", "west"), Random(3)) for _ in range(2))
    assert one == other


def test_a_group_without_alerts_has_no_figures() -> None:
    found = compare([make_alert(1)], "region", ("east", "south"), Random(1))
    assert found["groups"]["south"]["post_to_alert_ms"] is None
    assert found["differences"]["post_to_alert_ms"] is None


def test_bootstrap_intervals_cover_what_they_claim() -> None:
    rng = Random(11)
    covered = 0
    for _ in range(60):
        alerts = [make_alert(0, ack_ms=1 + round(rng.expovariate(1 / 100_000))) for _ in range(30)]
        found = compare(alerts, "region", ("east", "west"), rng)["groups"]["east"]["alert_to_acknowledgement_ms"]
        covered += found["low"] <= 69_315 <= found["high"]
    # 57 of 60 are expected at 95 %.
    assert covered >= 51
