"""The commands of `ssop opinion` for people who read: report, export, alerts, ack, compare."""

import getpass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ssop_cli.failure import EXIT_USAGE, CommandError
from ssop_cli.terminal import AsJson, StateDir, err, guard, need_server, out, places_of, print_json

Config = Annotated[
    Path | None, typer.Option("--config", help="An ssop.toml with a section \\[opinion]; else the state directory's.")
]
Tenant = Annotated[str, typer.Option("--tenant", help="Whose; not needed where there is one.")]
Zone = Annotated[str, typer.Option("--time-zone", help="Where days begin, such as Asia/Shanghai.")]
Days = Annotated[int, typer.Option("--days", min=1, max=400, help="The last days.")]


class SplitBy(StrEnum):
    """What tells two groups of alerts apart."""

    TENANT = "tenant"
    REGION = "region"
    POLICY = "policy"


def add_reports(app: typer.Typer) -> None:
    """Give an application these commands."""
    for name, command in (
        ("report", report), ("export", export), ("alerts", alerts), ("ack", ack), ("compare", compare),
    ):  # fmt: skip
        app.command(name)(command)


def report(  # noqa: PLR0917 - each is an option, given by name
    day: Annotated[str, typer.Option("--day", help="Which, such as 2026-11-30. \\[today]")] = "",
    tenant: Tenant = "",
    time_zone: Zone = "UTC",
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for both files.")] = Path(),
    config: Config = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Write the report of a day as HTML and JSON: what to do, figures, clusters, alerts."""
    with guard(as_json):
        need_server()
        from ssop_cli import opinion_reports as job  # noqa: PLC0415

        office = job.find_office(config, places_of(state_dir))
        zone = job.read_zone(time_zone)
        found = job.write_report(office, office.tenant(tenant), job.read_day(day, zone), zone, out_dir)
        if as_json:
            print_json(found)
            return
        fresh = found["summary"]["fresh"]
        out.print(f"{fresh['posts']:,} posts, {fresh['negative']:,} negative, {len(found['actions'])} actions")
        for name in found["files"]:
            out.print(name, soft_wrap=True)


def export(  # noqa: PLR0917 - each is an option, given by name
    parquet: Annotated[Path | None, typer.Option("--out", help="A Parquet file; needs the extra \\[parquet].")] = None,
    edges: Annotated[Path | None, typer.Option("--edges", help="A CSV file with entities, events and counts.")] = None,
    since: Annotated[str, typer.Option("--since", help="First day, such as 2026-11-30. \\[today]")] = "",
    until: Annotated[str, typer.Option("--until", help="Last day. \\[today]")] = "",
    tenant: Tenant = "",
    time_zone: Zone = "UTC",
    config: Config = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Write records as Parquet, and an edge list of entities and events."""
    with guard(as_json):
        need_server()
        from ssop_cli import opinion_reports as job  # noqa: PLC0415

        if parquet is None and edges is None:
            raise CommandError("nothing to write", advice="--out FILE.parquet, --edges FILE.csv", exit_code=EXIT_USAGE)
        office = job.find_office(config, places_of(state_dir))
        zone = job.read_zone(time_zone)
        span = job.days_span(job.read_day(since, zone), job.read_day(until, zone), zone)
        done = job.write_exports(office, office.tenant(tenant), span, parquet, edges)
        if as_json:
            print_json(done)
            return
        out.print(f"{done['records']:,} records read")
        for name in (parquet, edges):
            if name is not None:
                out.print(str(name), soft_wrap=True)
        if done.get("edges_left_out"):
            err.print(f"{done['edges_left_out']:,} posts are in no edge: there are too many names", style="yellow")


def alerts(  # noqa: PLR0917 - each is an option, given by name
    days: Days = 7,
    is_open: Annotated[bool, typer.Option("--open", help="Only those nobody has acknowledged.")] = False,
    tenant: Tenant = "",
    config: Config = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List alerts, the oldest first."""
    with guard(as_json):
        need_server()
        from ssop_cli import opinion_reports as job  # noqa: PLC0415

        office = job.find_office(config, places_of(state_dir))
        found = job.alerts_between(office, [office.tenant(tenant)], *job.last_days(days))
        found = [one for one in found if not is_open or (one.is_open and not one.acknowledged_ms)]
        if as_json:
            print_json({"alerts": [job.alert_json(one) for one in found]})
        elif not found:
            out.print(f"no alerts in {days} days")
        else:
            out.print(job.alerts_table(found))


def ack(  # noqa: PLR0917 - each is an option, given by name
    alert_id: Annotated[str, typer.Argument(help="Id of the alert, as messages and `alerts` show it.")],
    by: Annotated[str, typer.Option("--by", help="Who has seen it. \\[the user]")] = "",
    tenant: Tenant = "",
    config: Config = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Acknowledge an alert: it is escalated no more."""
    with guard(as_json):
        need_server()
        from ssop_cli import opinion_reports as job  # noqa: PLC0415

        office = job.find_office(config, places_of(state_dir))
        name = by or getpass.getuser()
        job.leave_acknowledgement(office, office.tenant(tenant), alert_id, name)
        if as_json:
            print_json({"alert_id": alert_id, "by": name})
        else:
            out.print(f"{alert_id}: acknowledged by {name}", soft_wrap=True)


def compare(  # noqa: PLR0917 - each is an option, given by name
    one: Annotated[str, typer.Argument(help="A tenant, region or policy.")],
    other: Annotated[str, typer.Argument(help="Another.")],
    by: Annotated[SplitBy, typer.Option("--by", help="What they are names of.")] = SplitBy.REGION,
    days: Days = 30,
    tenant: Tenant = "",
    seed: Annotated[int, typer.Option("--seed", help="Of the bootstrap.")] = 0,
    config: Config = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Compare two groups of alerts: from the first post to the alert, and to its acknowledgement, with intervals."""
    with guard(as_json):
        need_server()
        from ssop_cli import opinion_reports as job  # noqa: PLC0415

        if one == other:
            raise CommandError("both names are the same", exit_code=EXIT_USAGE)
        office = job.find_office(config, places_of(state_dir))
        tenants = [office.tenant(one), office.tenant(other)] if by is SplitBy.TENANT else [office.tenant(tenant)]
        found = job.compare_policies(office, by.value, (one, other), tenants, job.last_days(days), seed=seed)
        if as_json:
            print_json(found)
            return
        out.print(job.comparison_table(found))
        out.print("medians, with 95 % bootstrap intervals; withdrawn and degraded alerts are counted and not measured")
