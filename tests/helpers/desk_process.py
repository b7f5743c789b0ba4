"""A process with a desk alone: `python -m helpers.desk_process FOLDER URL_FILE SECRET_FILE`.

A line of standard input names an entity: a post about it arrives, field by field, then its record. A line of standard
output names it again when the desk has it: a worker would acknowledge the post now.
"""

import asyncio
import sys
import time
from pathlib import Path

from prometheus_client import CollectorRegistry

from helpers.opinion_posts import TENANT, make_post, make_record
from ssop_opinion.core.alert_policy import AlertPolicy, Route
from ssop_opinion.core.rules import DEFAULT_RULES
from ssop_opinion.desk_opening import open_desk
from ssop_opinion.settings import ChannelSettings, OpinionSettings
from ssop_opinion.sinks.sqlite import open_sqlite
from ssop_opinion.tenants import Tenant, Tenants
from ssop_opinion.wiring import Setup

POLICY = AlertPolicy(
    rules=DEFAULT_RULES[:1], routes=(Route(channel="hook"),), storm_alerts=1_000, escalate_after_s={}, max_escalations=0
)


async def main(folder: Path, url_file: Path, secret_file: Path) -> None:
    """Judge what standard input names, until it ends."""
    settings = OpinionSettings(
        state_directory=folder,
        tenants_directory=folder,
        stream_url="redis://127.0.0.1:1",
        channels={"hook": ChannelSettings(kind="webhook", url_file=url_file, secret_file=secret_file)},
    )
    tenants = Tenants({TENANT: Tenant(name=TENANT, api_key_file=url_file, alerts=POLICY)})
    sink = await open_sqlite(folder / "records.db")
    async with open_desk(Setup(settings, tenants, CollectorRegistry()), sink) as desk:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        async with asyncio.TaskGroup() as group:
            while line := await reader.readline():
                group.create_task(take(desk, line.decode().strip()))
    await sink.close()


async def take(desk: object, name: str) -> None:
    """A post about an entity comes through."""
    record = make_record(make_post(name), main_entity=name)
    now_ms = time.time_ns() // 1_000_000
    for field, value in record.analysis.fields.items():
        desk.field_arrived(record.post, field, value, now_ms)  # type: ignore[attr-defined]
    await desk.record_stored(record, now_ms)  # type: ignore[attr-defined]
    sys.stdout.write(f"{name}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*map(Path, sys.argv[1:4])))
