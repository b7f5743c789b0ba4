"""What the sinks send to Elasticsearch and OpenSearch, and what they make of the replies."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.opinion import GOOD, TENANT
from helpers.search_server import Reply, Request, SearchServer, search_server
from ssop_opinion.core.document import to_document
from ssop_opinion.core.post import Post
from ssop_opinion.core.record import Record
from ssop_opinion.core.search_document import index_of, make_source
from ssop_opinion.ports import Query, SinkAwayError
from ssop_opinion.settings import SearchSettings
from ssop_opinion.sinks.elastic import ElasticClient
from ssop_opinion.sinks.opensearch import OpenSearchClient
from ssop_opinion.sinks.search import SearchClient, SearchSink

NOW_MS = 1_796_000_000_000
DAY_MS = 86_400_000
KINDS: dict[str, tuple[Callable[[SearchSettings], SearchClient], str]] = {
    "elasticsearch": (ElasticClient, "Elasticsearch"),
    "opensearch": (OpenSearchClient, ""),
}


def record(number: int, *, posted_ms: int = NOW_MS, received_ms: int = NOW_MS) -> Record:
    post = Post(TENANT, "crm", f"p-{number}", "手机坏了", "webhook", received_ms, posted_ms)
    return Record(post, GOOD, NOW_MS)


def taken(request: Request) -> Reply:
    """What a cluster that takes everything says."""
    if request.path.partition("?")[0].endswith("_bulk"):
        return 200, {"errors": False, "items": [{"index": {"status": 201}} for _ in request.body[::2]]}
    return 200, {"acknowledged": True}


@asynccontextmanager
async def opened(
    kind: str, answer: Callable[[Request], Reply] = taken, **settings: Any
) -> AsyncIterator[tuple[SearchSink, SearchServer]]:
    make, product = KINDS[kind]
    async with search_server(answer, product) as server:
        wanted = SearchSettings.model_validate({"urls": [server.url], "timeout_ms": 2_000, **settings})
        sink = SearchSink(make(wanted), wanted)
        try:
            yield sink, server
        finally:
            await sink.close()


def statuses(*found: Any) -> Callable[[Request], Reply]:
    """A cluster that says these of the items of a bulk: a status, or a status and the type of an error."""

    def answer(request: Request) -> Reply:
        if not request.path.partition("?")[0].endswith("_bulk"):
            return taken(request)
        items = [
            {"index": {"status": one[0], "error": {"type": one[1], "reason": "it quotes 手机坏了"}}}
            if isinstance(one, tuple)
            else {"index": {"status": one}}
            for one in found
        ]
        return 200, {"errors": True, "items": items}

    return answer


@pytest.mark.parametrize("kind", KINDS)
async def test_a_bulk_names_index_and_key_of_each_record(kind: str) -> None:
    async with opened(kind) as (sink, server):
        assert await sink.write([record(1), record(2)]) == []
    bulk = server.requests[-1]
    assert bulk.method in {"POST", "PUT"}
    assert bulk.path.partition("?")[0] == "/_bulk"
    assert bulk.body[0] == {"index": {"_index": "ssop-opinion-2026.11", "_id": f"{TENANT}/crm/p-1"}}
    assert bulk.body[1] == make_source(record(1))
    assert bulk.body[1]["document"]["post"]["text"] == "手机坏了"


async def test_elasticsearch_gets_its_policy_and_template_before_the_first_record() -> None:
    async with opened("elasticsearch", retention_days=30) as (sink, server):
        await sink.write([record(1)])
        await sink.write([record(2)])
    policy, template, *bulks = server.requests
    assert (policy.method, policy.path) == ("PUT", "/_ilm/policy/ssop-opinion-policy")
    assert policy.body["policy"]["phases"]["delete"] == {"min_age": "61d", "actions": {"delete": {}}}
    assert (template.method, template.path) == ("PUT", "/_index_template/ssop-opinion")
    assert template.body["index_patterns"] == ["ssop-opinion-*"]
    assert template.body["template"]["settings"]["index.lifecycle.name"] == "ssop-opinion-policy"
    assert template.body["template"]["mappings"]["dynamic"] is False
    assert len(bulks) == 2


async def test_opensearch_gets_its_policy_and_template_before_the_first_record() -> None:
    async with opened("opensearch", retention_days=30) as (sink, server):
        await sink.write([record(1)])
    policy, template, _ = server.requests
    assert (policy.method, policy.path) == ("PUT", "/_plugins/_ism/policies/ssop-opinion-policy")
    assert policy.body["policy"]["states"][0]["transitions"][0]["conditions"] == {"min_index_age": "61d"}
    assert policy.body["policy"]["ism_template"] == [{"index_patterns": ["ssop-opinion-*"], "priority": 200}]
    assert template.path == "/_index_template/ssop-opinion"
    assert "index.lifecycle.name" not in template.body["template"]["settings"]


async def test_a_policy_of_opensearch_that_is_there_is_brought_up_to_date() -> None:
    def answer(request: Request) -> Reply:
        if request.path == "/_plugins/_ism/policies/ssop-opinion-policy":
            if request.method == "PUT":
                return 409, {"error": {"type": "version_conflict_engine_exception"}, "status": 409}
            return 200, {"_seq_no": 7, "_primary_term": 2}
        return taken(request)

    async with opened("opensearch", answer) as (sink, server):
        await sink.write([record(1)])
    assert server.requests[2].path.partition("?")[2].split("&") == ["if_seq_no=7", "if_primary_term=2"]


@pytest.mark.parametrize("kind", KINDS)
async def test_each_item_is_judged_by_its_own_status(kind: str) -> None:
    found = (201, (400, "mapper_parsing_exception"), (429, "es_rejected_execution_exception"), 503, (403, "x y"), 413)
    async with opened(kind, statuses(*found)) as (sink, _):
        faults = await sink.write([record(number) for number in range(6)])
    assert [(fault.key[-1], fault.reason, fault.is_lasting) for fault in faults] == [
        ("1", "mapper_parsing_exception", True),
        ("2", "es_rejected_execution_exception", False),
        ("3", "status_503", False),
        ("4", "status_403", False),
        ("5", "status_413", True),
    ]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_bulk_that_is_too_large_is_halved_until_it_fits(kind: str) -> None:
    def answer(request: Request) -> Reply:
        is_bulk = request.path.partition("?")[0].endswith("_bulk")
        has_large = is_bulk and any("p-3" in str(line) for line in request.body)
        return (413, {}) if is_bulk and (len(request.body) > 4 or has_large) else taken(request)

    async with opened(kind, answer) as (sink, _):
        [fault] = await sink.write([record(number) for number in range(5)])
    assert (fault.key[-1], fault.reason, fault.is_lasting) == ("3", "too_large", True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [401, 429, 500, 503])
async def test_a_cluster_that_refuses_is_away_and_is_asked_once(kind: str, status: int) -> None:
    def answer(request: Request) -> Reply:
        return (status, {"error": "no"}) if request.path.partition("?")[0].endswith("_bulk") else taken(request)

    async with opened(kind, answer) as (sink, server):
        with pytest.raises(SinkAwayError):
            await sink.write([record(1)])
    assert sum(request.path.startswith("/_bulk") for request in server.requests) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [{}, {"items": []}, {"items": [{}]}, {"items": [{"index": {"status": "x"}}]}])
async def test_a_reply_that_is_no_bulk_result_keeps_the_records(kind: str, body: Any) -> None:
    def answer(request: Request) -> Reply:
        return (200, body) if request.path.partition("?")[0].endswith("_bulk") else taken(request)

    async with opened(kind, answer) as (sink, _):
        with pytest.raises(SinkAwayError):
            await sink.write([record(1)])


async def test_a_server_that_is_no_elasticsearch_is_refused_by_its_client() -> None:
    async with search_server(taken, product="") as server:
        wanted = SearchSettings(urls=[server.url])
        sink = SearchSink(ElasticClient(wanted), wanted)
        with pytest.raises(SinkAwayError, match="UnsupportedProductError"):
            await sink.write([record(1)])
        await sink.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_search_is_of_one_tenant_whatever_is_asked_for(kind: str) -> None:
    hit = {"_source": {"document": to_document(record(1))}}

    def answer(request: Request) -> Reply:
        return 200, {"hits": {"hits": [hit], "total": {"value": 41, "relation": "eq"}}}

    async with opened(kind, answer) as (sink, server):
        page = await sink.find(
            Query(
                TENANT, text='坏了 "*', since_ms=1, terms={"region": 'eu" OR 1'}, has_degraded=False, limit=5, offset=10
            )
        )
    assert (page.total, list(page.records)) == (41, [record(1)])
    [request] = server.requests
    assert request.path.partition("?")[0] == "/ssop-opinion-*/_search"
    assert request.body["query"]["bool"]["filter"] == [
        {"term": {"tenant": TENANT}},
        {"range": {"received_at": {"gte": 1}}},
        {"term": {"terms": 'region=eu" OR 1'}},
        {"term": {"is_fresh": True}},
        {"match_phrase": {"text": "坏了"}},
        {"match_phrase": {"text": '"*'}},
    ]
    assert (request.body["from"], request.body["size"]) == (10, 5)


@pytest.mark.parametrize(("offset", "expected"), [(0, (0, 10_000)), (9_999, (9_999, 1)), (20_000, (10_000, 0))])
async def test_a_search_stays_inside_of_the_window(offset: int, expected: tuple[int, int]) -> None:
    def answer(_: Request) -> Reply:
        return 200, {"hits": {"hits": [], "total": {"value": 0}}}

    async with opened("opensearch", answer) as (sink, server):
        await sink.find(Query(TENANT, limit=50_000, offset=offset))
    assert (server.requests[0].body["from"], server.requests[0].body["size"]) == expected


async def test_a_password_is_sent_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    for kind in KINDS:
        async with opened(kind, username="u", password_file=tmp_path / "password") as (sink, server):
            await sink.write([record(1)])
        assert server.requests[0].headers["authorization"] == "Basic dTpodW50ZXIy"


def test_the_index_of_a_post_with_a_time_does_not_depend_on_when_it_came() -> None:
    late = NOW_MS + 40 * DAY_MS
    first = index_of(record(1), "o", 400)
    assert index_of(record(1, received_ms=late), "o", 400) == first == "o-2026.11"
    assert index_of(record(1, posted_ms=0, received_ms=late), "o", 400) == "o-2027.01"
    assert index_of(record(1, posted_ms=1), "o", 400) == "o-2026.11"


def test_a_field_of_another_type_than_the_mapping_is_kept_and_not_indexed() -> None:
    odd = replace(record(1), analysis=replace(GOOD, fields={"severity": "high", "main_entity": {"a": 1}, "n": True}))
    source = make_source(odd)
    assert source["fields"] == {}
    assert source["document"]["analysis"]["fields"] == {"severity": "high", "main_entity": {"a": 1}, "n": True}
