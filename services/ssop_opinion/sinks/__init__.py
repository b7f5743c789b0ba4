"""Where records are kept."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ssop_chassis.settings import SettingsError
from ssop_opinion.ports import Sink
from ssop_opinion.settings import OpinionSettings
from ssop_opinion.sinks.search import SearchClient, SearchSink
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
    return SearchSink(_make_client(settings), settings.search)


def _make_client(settings: OpinionSettings) -> SearchClient:
    """The client of a cluster; each is an extra of its own. A cluster that is away is waited for, not an error."""
    try:
        if settings.sink == "elasticsearch":
            from ssop_opinion.sinks.elastic import ElasticClient  # noqa: PLC0415 - needs the extra [elasticsearch]

            return ElasticClient(settings.search)
        from ssop_opinion.sinks.opensearch import OpenSearchClient  # noqa: PLC0415 - needs the extra [opensearch]

        return OpenSearchClient(settings.search)
    except ImportError as error:
        raise SettingsError(f"the sink {settings.sink} needs: pip install 'ssop-mesh[{settings.sink}]'") from error
