"""The official client of Elasticsearch. Needs the extra `elasticsearch`."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from elasticsearch import ApiError, AsyncElasticsearch, TransportError

from ssop_opinion.core.search_document import make_ilm_policy, make_template
from ssop_opinion.ports import SinkAwayError
from ssop_opinion.settings import SearchSettings
from ssop_opinion.sinks.search import TooLargeError
from ssop_opinion.tenants import read_secret

_TOO_LARGE = 413


class ElasticClient:
    """A SearchClient. Repeats nothing by itself: the writer does, and says so."""

    def __init__(self, settings: SearchSettings) -> None:
        self._settings = settings
        options: dict[str, Any] = {}
        if settings.api_key_file is not None:
            options["api_key"] = read_secret(settings.api_key_file)
        elif settings.username:
            password = read_secret(settings.password_file) if settings.password_file is not None else ""
            options["basic_auth"] = (settings.username, password)
        if settings.ca_file is not None:
            options["ca_certs"] = str(settings.ca_file)
        self._client = AsyncElasticsearch(
            settings.urls, request_timeout=settings.timeout_ms / 1000, max_retries=0, retry_on_timeout=False, **options
        )

    async def prepare(self) -> None:
        """See SearchClient."""
        settings = self._settings
        policy = f"{settings.index}-policy" if settings.has_lifecycle else ""
        template = make_template(settings.index, shards=settings.shards, replicas=settings.replicas, policy=policy)
        try:
            if policy:
                await self._client.ilm.put_lifecycle(name=policy, policy=make_ilm_policy(settings.retention_days))
            await self._client.indices.put_index_template(name=settings.index, **template)
        except (ApiError, TransportError) as error:
            raise _away(error) from error

    async def bulk(self, lines: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """See SearchClient."""
        try:
            return cast("Mapping[str, Any]", (await self._client.bulk(operations=lines)).body)
        except (ApiError, TransportError) as error:
            if isinstance(error, ApiError) and error.meta.status == _TOO_LARGE:
                raise TooLargeError from error
            raise _away(error) from error

    async def search(self, index: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """See SearchClient."""
        try:
            reply = await self._client.search(index=index, body=dict(body), ignore_unavailable=True)
        except (ApiError, TransportError) as error:
            raise _away(error) from error
        return cast("Mapping[str, Any]", reply.body)

    async def close(self) -> None:
        """See SearchClient."""
        await self._client.close()


def _away(error: ApiError | TransportError) -> SinkAwayError:
    status = f" with {error.meta.status}" if isinstance(error, ApiError) else ""
    return SinkAwayError(f"Elasticsearch refuses{status}: {type(error).__name__}")
