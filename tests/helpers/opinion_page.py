"""The opinion page on loopback, in front of records in memory and a real desk."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from helpers.opinion_posts import TENANT
from ssop_chassis.http_server import bind_sockets, make_server
from ssop_opinion.core.alert_policy import AlertPolicy
from ssop_opinion.core.document import terms_of
from ssop_opinion.core.record import Record
from ssop_opinion.desk import Desk
from ssop_opinion.desk_opening import open_desk
from ssop_opinion.pages import page_routes
from ssop_opinion.ports import ItemFault, Page, Query, SinkAwayError
from ssop_opinion.settings import ChannelSettings, OpinionSettings
from ssop_opinion.tenants import Tenant, Tenants
from ssop_opinion.wiring import Setup
from ssop_sdk.errors import AuthenticationError, Unavailable

KEY: Final = "ssop_ann_secretoftests"
OTHER: Final = "globex"
OTHER_KEY: Final = "ssop_eve_secretoftests"
STRANGER_KEY: Final = "ssop_mal_secretoftests"
LOST_KEY: Final = "ssop_away_secretoftests"


class MemorySink:
    """A Sink in memory: exact terms, words as parts of the text."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.is_away = False

    async def write(self, records: Sequence[Record]) -> Sequence[ItemFault]:
        """See Sink."""
        self.records |= {record.key: record for record in records}
        return ()

    async def find(self, query: Query) -> Page:
        """See Sink."""
        if self.is_away:
            raise SinkAwayError("away")
        found = [record for record in self.records.values() if self._fits(record, query)]
        found.sort(key=lambda record: -record.post.received_ms)
        return Page(found[query.offset : query.offset + query.limit], len(found))

    @staticmethod
    def _fits(record: Record, query: Query) -> bool:
        post, terms = record.post, terms_of(record)
        return (
            post.tenant == query.tenant
            and query.text.casefold() in post.text.casefold()
            and (query.since_ms is None or post.received_ms >= query.since_ms)
            and (query.until_ms is None or post.received_ms < query.until_ms)
            and all(terms.get(name) == wanted for name, wanted in (query.terms or {}).items())
            and (query.has_degraded or record.analysis.is_fresh)
        )

    async def close(self) -> None:
        """See Sink."""


async def ask(key: str) -> str:
    """What the mesh says of keys."""
    if key == LOST_KEY:
        raise Unavailable("no router")
    known = {KEY: TENANT, OTHER_KEY: OTHER, STRANGER_KEY: "stranger"}
    if key not in known:
        raise AuthenticationError("unknown")
    return known[key]


@dataclass
class Opinion:
    """What runs: the page's address, the records and the desk."""

    url: str
    sink: MemorySink
    desk: Desk
    settings: OpinionSettings = field(repr=False)

    async def take(self, record: Record, *, fields_first: bool = False) -> None:
        """A post comes through: its fields, its record, and what the desk makes of both."""
        now_ms = record.analysed_ms
        if fields_first:
            for name, value in record.analysis.fields.items():
                self.desk.field_arrived(record.post, name, value, now_ms)
        await self.sink.write([record])
        await self.desk.record_stored(record, now_ms)


@asynccontextmanager
async def run_opinion(
    folder: Path, policy: AlertPolicy | None = None, channels: Mapping[str, ChannelSettings] | None = None
) -> AsyncIterator[Opinion]:
    """The page with two tenants, until the block ends."""
    settings = OpinionSettings(
        state_directory=folder,
        tenants_directory=folder,
        stream_url="redis://127.0.0.1:1",
        channels=dict(channels or {}),
    )
    key_file = folder / "key"
    key_file.write_text("ssop_x")
    alerts: dict[str, Any] = {} if policy is None else {"alerts": policy}
    tenants = Tenants(
        {
            TENANT: Tenant(name=TENANT, api_key_file=key_file, **alerts),
            OTHER: Tenant(name=OTHER, api_key_file=key_file),
        }
    )
    setup = Setup(settings=settings, tenants=tenants, registry=CollectorRegistry())
    sink = MemorySink()
    async with open_desk(setup, sink) as desk:
        app = Starlette(routes=list(page_routes(setup, sink, desk, ask)))
        server = make_server(app, settings, 1_000)
        sockets, addresses = bind_sockets(["127.0.0.1:0"])
        serving = asyncio.ensure_future(server.serve(sockets))
        try:
            yield Opinion(f"http://{addresses[0]}", sink, desk, settings)
        finally:
            server.should_exit = True
            server.force_exit = True
            await serving
