"""All records of a time, one after the other, however many there are."""

from collections.abc import AsyncIterator
from typing import Final

from ssop_opinion.core.record import Record
from ssop_opinion.ports import Query, Sink

PAGE: Final = 2_000
MAX_SAME_MS: Final = 10_000
"""Records of one millisecond that can be told apart: search engines give no deeper window."""


class TooManyError(Exception):
    """More records of one millisecond than a sink can page through."""


async def each_record(sink: Sink, tenant: str, since_ms: int, until_ms: int) -> AsyncIterator[Record]:
    """A tenant's records received from `since_ms` on and before `until_ms`, the newest first, each once.

    Records that are written meanwhile may be missing. Raises SinkAwayError and TooManyError.
    """
    offset = 0
    seen: set[str] = set()
    while until_ms > since_ms:
        query = Query(tenant=tenant, since_ms=since_ms, until_ms=until_ms, limit=PAGE, offset=offset)
        records = (await sink.find(query)).records
        for record in records:
            if record.key not in seen:
                yield record
        if len(records) < PAGE:
            return
        oldest_ms = records[-1].post.received_ms
        if oldest_ms + 1 < until_ms:
            # The next page begins within this millisecond, some of whose records were on this one.
            seen = {record.key for record in records if record.post.received_ms == oldest_ms}
            until_ms, offset = oldest_ms + 1, 0
            continue
        seen |= {record.key for record in records}
        offset += PAGE
        if offset >= MAX_SAME_MS:
            raise TooManyError(f"more than {MAX_SAME_MS} records were received within one millisecond")
