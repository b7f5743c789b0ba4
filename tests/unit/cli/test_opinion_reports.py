"""The commands that read what the opinion application keeps: on real files, without a mesh."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import typer
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from helpers.opinion_posts import TENANT, make_post, make_record
from ssop_cli.app_opinion_reports import add_reports
from ssop_opinion.alert_store import AlertStore
from ssop_opinion.core.alert_policy import AlertPolicy
from ssop_opinion.desk import STORE_NAME, Desk
from ssop_opinion.sinks.sqlite import open_sqlite

app = typer.Typer()
add_reports(app)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An office with records and alerts, and no process."""
    found = tmp_path_factory.mktemp("office")
    (found / "tenants").mkdir()
    (found / "tenants" / f"{TENANT}.toml").write_text('api_key_file = "key"\n')
    lines = [
        "[opinion]", f'state_directory = "{found}"', f'tenants_directory = "{found}/tenants"', 'stream_url = "redis://x"',
    ]  # fmt: skip
    (found / "ssop.toml").write_text("\n".join(lines))
    asyncio.run(_fill(found))
    return found


async def _fill(folder: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    records = [
        make_record(make_post(str(n), at_ms=now_ms - n, region=("east", "west")[n % 2]), main_entity=f"X{n}")
        for n in range(6)
    ]
    records.append(make_record(make_post("d", at_ms=now_ms), degraded_level=1, main_entity="D"))
    sink = await open_sqlite(folder / "records.db")
    await sink.write(records)
    await sink.close()
    desk = Desk({TENANT: AlertPolicy()}, folder, CollectorRegistry())
    await desk.open()
    running = asyncio.ensure_future(desk.run())
    await asyncio.gather(*(desk.record_stored(record, now_ms) for record in records))
    running.cancel()
    await asyncio.wait({running})
    await desk.close()


def run(folder: Path, *arguments: str, exit_code: int = 0) -> Any:
    done = CliRunner().invoke(app, [*arguments, "--config", str(folder / "ssop.toml"), "--json"])
    assert done.exit_code == exit_code, done.output
    return json.loads(done.stdout)


def test_a_report_is_written_as_page_and_json(folder: Path, tmp_path: Path) -> None:
    found = run(folder, "report", "--out", str(tmp_path))
    assert (found["summary"]["fresh"]["posts"], found["summary"]["degraded"]["posts"]) == (6, 1)
    assert len(found["alerts"]) == 7
    assert {path.suffix for path in tmp_path.iterdir()} == {".html", ".json"}


def test_records_and_edges_are_exported(folder: Path, tmp_path: Path) -> None:
    files = [str(tmp_path / "r.parquet"), str(tmp_path / "e.csv")]
    done = run(folder, "export", "--out", files[0], "--edges", files[1])
    assert (done["records"], done["edges"], pq.read_table(files[0]).num_rows) == (7, 7, 7)


def test_alerts_are_listed_and_acknowledged(folder: Path) -> None:
    found = run(folder, "alerts")["alerts"]
    assert {one["entity"] for one in found} == {"D", *(f"X{n}" for n in range(6))}
    assert run(folder, "ack", found[0]["id"], "--by", "ann")["by"] == "ann"
    store = AlertStore(folder / STORE_NAME)
    assert [one.by for one in store.acknowledgements()] == ["ann"]
    store.close()
    assert run(folder, "ack", "nothing", exit_code=1)["error"]["reason"] == "FAILED"


def test_two_regions_are_compared(folder: Path) -> None:
    found = run(folder, "compare", "east", "west", "--by", "region")
    assert {name: group["alerts"] for name, group in found["groups"].items()} == {"east": 4, "west": 3}
    assert sum(group["degraded_apart"] for group in found["groups"].values()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "--day", "yesterday"],
        ["report", "--time-zone", "Mars"],
        ["report", "--tenant", "stranger"],
        ["export"],
        ["export", "--edges", "x.csv", "--since", "2026-11-30", "--until", "2026-11-29"],
        ["compare", "east", "east"],
    ],
    ids=" ".join,
)
def test_what_makes_no_sense_is_refused(folder: Path, arguments: list[str]) -> None:
    run(folder, *arguments, exit_code=2)


def test_a_missing_section_is_named(tmp_path: Path) -> None:
    (tmp_path / "ssop.toml").write_text("")
    assert "state_directory" in run(tmp_path, "alerts", exit_code=78)["error"]["message"]
