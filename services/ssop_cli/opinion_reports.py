"""What `ssop opinion report`, `export`, `alerts`, `ack` and `compare` do, on the files and the sink of the settings."""

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from prometheus_client import CollectorRegistry
from rich.table import Table
from rich.text import Text

from ssop_chassis.settings import SettingsError, load_settings
from ssop_cli.failure import EXIT_SETTINGS, EXIT_USAGE, CommandError
from ssop_cli.opinion_mesh import office_settings
from ssop_cli.places import Places
from ssop_cli.terminal import visible
from ssop_opinion.alert_store import Acknowledgement, AlertStore, read_alerts
from ssop_opinion.core.alerts import Alert
from ssop_opinion.core.comparison import Split, compare
from ssop_opinion.core.record import Record
from ssop_opinion.desk import STORE_NAME
from ssop_opinion.export import Edges, ParquetMissingError, write_edges, write_parquet
from ssop_opinion.history import TooManyError, each_record
from ssop_opinion.ports import Sink, SinkAwayError
from ssop_opinion.report import day_span, make_report, render_report
from ssop_opinion.settings import OpinionSettings
from ssop_opinion.sinks import open_sink
from ssop_opinion.tenants import Tenants, load_tenants
from ssop_opinion.wiring import Setup

T = TypeVar("T")
DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Office:
    """The application's settings and tenants, as commands need them."""

    settings: OpinionSettings
    tenants: Tenants

    @property
    def alerts_file(self) -> Path:
        """Where the desk keeps alerts."""
        return self.settings.state_directory / STORE_NAME

    def tenant(self, name: str) -> str:
        """The tenant of that name; without one the only tenant there is. Raises CommandError."""
        if name in self.tenants:
            return name
        known = ", ".join(sorted(self.tenants))
        if name:
            raise CommandError(f"there is no tenant '{name}'", advice=f"there are: {known}", exit_code=EXIT_USAGE)
        if len(self.tenants) > 1:
            raise CommandError("which tenant?", advice=f"--tenant, one of: {known}", exit_code=EXIT_USAGE)
        return next(iter(self.tenants))


def find_office(config: Path | None, places: Places) -> Office:
    """The office of a settings file, else of the mesh of a state folder. Raises CommandError."""
    path = config or office_settings(places)
    try:
        settings = load_settings(OpinionSettings, "opinion", path=path, environ=os.environ)
        return Office(settings, load_tenants(settings.tenants_directory))
    except SettingsError as error:
        raise CommandError(
            str(error), advice="--config names an ssop.toml with a section [opinion]", exit_code=EXIT_SETTINGS
        ) from error


def read_zone(name: str) -> ZoneInfo:
    """A time zone. Raises CommandError."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise CommandError(f"there is no time zone {name}", exit_code=EXIT_USAGE) from error


def read_day(text: str, zone: ZoneInfo) -> date:
    """A day as 2026-11-30; empty: today there. Raises CommandError."""
    if not text:
        return datetime.now(zone).date()
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise CommandError(f"{text} is no day such as 2026-11-30", exit_code=EXIT_USAGE) from error


def alerts_between(office: Office, tenants: Sequence[str], since_ms: int, until_ms: int) -> list[Alert]:
    """Alerts of tenants, the oldest first; none where no desk has been. Raises CommandError."""
    if not office.alerts_file.exists():
        return []
    try:
        return read_alerts(office.alerts_file, tenants, since_ms, until_ms)
    except sqlite3.Error as error:
        raise CommandError(f"{office.alerts_file} can't be read: {error}") from error


def write_report(office: Office, tenant: str, day: date, zone: ZoneInfo, folder: Path) -> dict[str, Any]:
    """Make the report of a day, and write it as HTML and JSON. Raises CommandError."""
    alerts = alerts_between(office, [tenant], *day_span(day, zone))
    report = _with_sink(office, lambda sink: make_report(sink, tenant, day, zone, alerts))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        page, data = (folder / f"opinion-{tenant}-{day.isoformat()}.{kind}" for kind in ("html", "json"))
        page.write_text(render_report(report), encoding="utf-8", errors="replace")
        data.write_text(json.dumps(report, ensure_ascii=True, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"the report can't be written: {error}") from error
    return {**report, "files": [str(page), str(data)]}


def write_exports(
    office: Office, tenant: str, span: tuple[int, int], parquet: Path | None, edges: Path | None
) -> dict[str, Any]:
    """Write what was asked for, in one pass. Raises CommandError."""
    found = Edges()

    async def noted(records: AsyncIterator[Record]) -> AsyncIterator[Record]:
        async for record in records:
            if edges is not None:
                found.add(record)
            yield record

    async def work(sink: Sink) -> int:
        records = noted(each_record(sink, tenant, *span))
        if parquet is not None:
            return await write_parquet(records, parquet)
        return await _count(records)

    try:
        done: dict[str, Any] = {"records": _with_sink(office, work)}
        if parquet is not None:
            done["parquet"] = str(parquet)
        if edges is not None:
            done |= {"edges": write_edges(found, edges), "edges_file": str(edges), "edges_left_out": found.left_out}
    except ParquetMissingError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"the export can't be written: {error}") from error
    return done


async def _count(records: AsyncIterator[Record]) -> int:
    count = 0
    async for _ in records:
        count += 1
    return count


def leave_acknowledgement(office: Office, tenant: str, alert_id: str, by: str) -> None:
    """Leave word that somebody has seen an alert: the desk takes it within a second, or when it runs again.

    Raises CommandError for an alert that is not open.
    """
    if not office.alerts_file.exists():
        raise CommandError("there are no alerts yet")
    try:
        store = AlertStore(office.alerts_file)
        try:
            alert = store.alert(tenant, alert_id)
            if alert is None or not alert.is_open:
                raise CommandError(f"tenant {tenant} has no open alert {alert_id}")
            store.ask_acknowledgement(Acknowledgement(alert_id, tenant, by, time.time_ns() // 1_000_000))
        finally:
            store.close()
    except sqlite3.Error as error:
        raise CommandError(f"{office.alerts_file} can't be written: {error}") from error


def compare_policies(
    office: Office, by: Split, names: tuple[str, str], tenants: Sequence[str], span: tuple[int, int], *, seed: int
) -> dict[str, Any]:
    """Lead times of two groups of alerts, with intervals. Raises CommandError."""
    alerts = alerts_between(office, tenants, *span)
    rng = Random(seed)  # noqa: S311 - a bootstrap must be repeatable
    return {**compare(alerts, by, names, rng), "since_ms": span[0], "until_ms": span[1], "seed": seed}


def alert_json(alert: Alert) -> dict[str, Any]:
    """As JSON."""
    found = asdict(alert)
    del found["places"]
    return {**found, "is_open": alert.is_open}


def alerts_table(alerts: Sequence[Alert]) -> Table:
    """A line for each."""
    table = Table("opened (UTC)", "id", "severity", "state", "about", "rule", box=None, header_style="bold")
    for heading in ("posts", "degraded"):
        table.add_column(heading, justify="right")
    table.add_column("acknowledged")
    for one in alerts:
        subject = f"and {one.more} more" if one.kind == "storm" else f"{one.entity} / {one.event_type}"
        cells = (
            _shown_time(one.opened_ms), one.id, one.severity, one.phase, subject, one.rule, str(one.posts),
            str(one.degraded_posts or ""), f"{one.acknowledged_by} {_shown_time(one.acknowledged_ms)}".strip(),
        )  # fmt: skip
        table.add_row(*(Text(visible(cell)) for cell in cells))
    return table


def comparison_table(found: dict[str, Any]) -> Table:
    """Medians with their intervals, in seconds, of both groups and of their difference."""
    one, other = found["groups"]
    table = Table("", one, other, f"{one} less {other}", box=None, header_style="bold")
    for name in ("alerts", "acknowledged", "withdrawn_apart", "degraded_apart", "escalations"):
        table.add_row(name.replace("_", " "), *(str(group[name]) for group in found["groups"].values()), "")
    for measure, difference in found["differences"].items():
        cells = [_interval(group[measure]) for group in found["groups"].values()]
        table.add_row(measure.removesuffix("_ms").replace("_", " ") + ", s", *cells, _interval(difference))
    return table


def last_days(days: int) -> tuple[int, int]:
    """The last days up to now, in Unix milliseconds."""
    until_ms = time.time_ns() // 1_000_000 + 1
    return until_ms - days * DAY_MS, until_ms


def days_span(since: date, until: date, zone: ZoneInfo) -> tuple[int, int]:
    """From the beginning of a day to the end of another. Raises CommandError."""
    if until < since:
        raise CommandError("--until is before --since", exit_code=EXIT_USAGE)
    return day_span(since, zone)[0], day_span(until, zone)[1]


def _interval(found: dict[str, Any] | None) -> str:
    if found is None:
        return "none"
    median, low, high = (found[name] / 1_000 for name in ("median", "low", "high"))
    return f"{median:,.1f} ({low:,.1f} to {high:,.1f})"


def _shown_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S") if at_ms else ""


def _with_sink(office: Office, work: Callable[[Sink], Awaitable[T]]) -> T:
    async def run() -> T:
        async with open_sink(Setup(office.settings, office.tenants, CollectorRegistry())) as sink:
            return await work(sink)

    try:
        return asyncio.run(run())
    except (SinkAwayError, TooManyError) as error:
        raise CommandError(str(error)) from error
    except SettingsError as error:
        raise CommandError(str(error), exit_code=EXIT_SETTINGS) from error
