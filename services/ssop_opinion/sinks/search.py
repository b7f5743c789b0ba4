"""Records in Elasticsearch or OpenSearch: bulk writes under deterministic ids, each item judged by its own status."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from ssop_opinion.core.document import from_document
from ssop_opinion.core.record import Record
from ssop_opinion.core.search_document import index_of, make_search, make_source
from ssop_opinion.ports import ItemFault, Page, Query, SinkAwayError
from ssop_opinion.settings import SearchSettings

LASTING: Final = frozenset({400, 413})
"""Statuses of an item that say something of the record. Others say something of the cluster: a full disk, a block, a
missing right, or no time; the record is tried again."""


class TooLargeError(Exception):
    """A request that the server, or a proxy before it, finds too large (413)."""


class SearchClient(Protocol):
    """What is used of a client. Each raises SinkAwayError where the cluster does not do what it is asked."""

    async def prepare(self) -> None:
        """Install the template and the policy."""
        ...

    async def bulk(self, lines: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """The reply to a bulk request. Raises TooLargeError, too."""
        ...

    async def search(self, index: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The reply to a search over indices that may not exist."""
        ...

    async def close(self) -> None:
        """Drop the connections."""
        ...


class SearchSink:
    """A Sink."""

    def __init__(self, client: SearchClient, settings: SearchSettings) -> None:
        self._client = client
        self._settings = settings
        self._is_prepared = False

    async def write(self, records: Sequence[Record]) -> Sequence[ItemFault]:
        """See Sink."""
        if not self._is_prepared:
            # Without its template an index would be made with a mapping of its own.
            await self._client.prepare()
            self._is_prepared = True
        # Of a key that comes twice the last one would win in any case.
        latest = list({record.key: record for record in records}.values())
        return await self._write(latest)

    async def _write(self, records: Sequence[Record]) -> Sequence[ItemFault]:
        if not records:
            return ()
        settings = self._settings
        lines: list[Mapping[str, Any]] = []
        for record in records:
            index = index_of(record, settings.index, settings.retention_days)
            lines += [{"index": {"_index": index, "_id": record.key}}, make_source(record)]
        try:
            reply = await self._client.bulk(lines)
        except TooLargeError:
            if len(records) == 1:
                return [ItemFault(records[0].key, "too_large", is_lasting=True)]
            half = len(records) // 2
            return [*await self._write(records[:half]), *await self._write(records[half:])]
        return list(_faults(records, reply))

    async def find(self, query: Query) -> Page:
        """See Sink. Records can be found a second after they were written."""
        reply = await self._client.search(f"{self._settings.index}-*", make_search(query))
        try:
            hits = reply["hits"]
            records = [from_document(hit["_source"]["document"]) for hit in hits["hits"]]
            return Page(records, int(hits["total"]["value"]))
        except (KeyError, TypeError) as error:
            raise SinkAwayError("the cluster's reply is no search result") from error

    async def close(self) -> None:
        """See Sink."""
        await self._client.close()


def _faults(records: Sequence[Record], reply: Mapping[str, Any]) -> list[ItemFault]:
    try:
        items = [next(iter(item.values())) for item in reply["items"]]
        statuses = [int(item["status"]) for item in items]
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise SinkAwayError("the cluster's reply is no bulk result") from error
    if len(items) != len(records):
        raise SinkAwayError("the cluster's reply has another number of items")
    return [
        ItemFault(record.key, _reason(item, status), status in LASTING)
        for record, item, status in zip(records, items, statuses, strict=True)
        if status >= 300
    ]


def _reason(item: Mapping[str, Any], status: int) -> str:
    """The type of an error, which is a word of the server's code; never its reason, which quotes the document."""
    error = item.get("error")
    kind = error.get("type") if isinstance(error, Mapping) else None
    is_word = isinstance(kind, str) and len(kind) <= 64 and kind.replace("_", "").isalnum() and kind.isascii()
    return str(kind) if is_word else f"status_{status}"
