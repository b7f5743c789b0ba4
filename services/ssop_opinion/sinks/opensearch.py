"""The official client of OpenSearch. Needs the extra `opensearch`."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from opensearchpy import AsyncOpenSearch
from opensearchpy.exceptions import OpenSearchException, TransportError

from ssop_opinion.core.search_document import make_ism_policy, make_template
from ssop_opinion.ports import SinkAwayError
from ssop_opinion.settings import SearchSettings
from ssop_opinion.sinks.search import TooLargeError
from ssop_opinion.tenants import read_secret

_CONFLICT: Final = 409
_TOO_LARGE: Final = 413


class OpenSearchClient:
    """A SearchClient. Repeats nothing by itself: the writer does, and says so."""

    def __init__(self, settings: SearchSettings) -> None:
        self._settings = settings
        options: dict[str, Any] = {}
        if settings.username:
            password = read_secret(settings.password_file) if settings.password_file is not None else ""
            options["http_auth"] = (settings.username, password)
        if settings.ca_file is not None:
            options["ca_certs"] = str(settings.ca_file)
        self._client = AsyncOpenSearch(
            hosts=settings.urls, timeout=settings.timeout_ms / 1000, max_retries=0, retry_on_timeout=False, **options
        )

    async def prepare(self) -> None:
        """See SearchClient."""
        settings = self._settings
        template = make_template(settings.index, shards=settings.shards, replicas=settings.replicas)
        try:
            if settings.has_lifecycle:
                await self._put_policy()
            await self._client.indices.put_index_template(name=settings.index, body=template)
        except OpenSearchException as error:
            raise _away(error) from error

    async def _put_policy(self) -> None:
        """Make the ISM policy, or bring the one that is there up to date, which takes its sequence number."""
        settings = self._settings
        path = f"/_plugins/_ism/policies/{settings.index}-policy"
        body = make_ism_policy(settings.index, settings.retention_days)
        try:
            await self._client.transport.perform_request("PUT", path, body=body)
        except TransportError as error:
            if error.status_code != _CONFLICT:
                raise
            found = await self._client.transport.perform_request("GET", path)
            params = {"if_seq_no": found["_seq_no"], "if_primary_term": found["_primary_term"]}
            await self._client.transport.perform_request("PUT", path, params=params, body=body)

    async def bulk(self, lines: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """See SearchClient."""
        try:
            return cast("Mapping[str, Any]", await self._client.bulk(body=list(lines)))
        except OpenSearchException as error:
            if isinstance(error, TransportError) and error.status_code == _TOO_LARGE:
                raise TooLargeError from error
            raise _away(error) from error

    async def search(self, index: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """See SearchClient."""
        try:
            reply = await self._client.search(index=index, body=dict(body), params={"ignore_unavailable": "true"})
        except OpenSearchException as error:
            raise _away(error) from error
        return cast("Mapping[str, Any]", reply)

    async def close(self) -> None:
        """See SearchClient."""
        await self._client.close()


def _away(error: OpenSearchException) -> SinkAwayError:
    status = f" with {error.status_code}" if isinstance(error, TransportError) else ""
    return SinkAwayError(f"OpenSearch refuses{status}: {type(error).__name__}")
