"""Where records are kept."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ssop_opinion.ports import Sink
from ssop_opinion.sinks.sqlite import open_sqlite
from ssop_opinion.wiring import Setup


@asynccontextmanager
async def open_sink(setup: Setup) -> AsyncIterator[Sink]:
    """The sink that the settings name. Raises SinkAwayError where it can't be opened, and SettingsError."""
    sink = await _open(setup)
    try:
        yield sink
    finally:
        await sink.close()


async def _open(setup: Setup) -> Sink:
    settings = setup.settings
    if settings.sink == "sqlite":
        return await open_sqlite(settings.records_file)
    raise NotImplementedError
