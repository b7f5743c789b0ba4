"""Records in a real OpenSearch node."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.opensearch_node import OpenSearchNode
from helpers.opinion import GOOD, TENANT, ScriptedAnalyst, emptied, parts, posts, running
from helpers.redis_server import RedisServer
from ssop_opinion.core.post import Post
from ssop_opinion.core.record import Record
from ssop_opinion.intake import Origin
from ssop_opinion.ports import Query, SinkAwayError
from ssop_opinion.settings import SearchSettings
from ssop_opinion.sinks.opensearch import OpenSearchClient
from ssop_opinion.sinks.search import SearchSink

pytestmark = pytest.mark.needs("maven")
NOW_MS = 1_796_000_000_000


@pytest.fixture(scope="module")
def node() -> Iterator[OpenSearchNode]:
    with OpenSearchNode() as running_node:
        yield running_node


def search(node: OpenSearchNode, index: str) -> SearchSettings:
    # The policy needs a plugin that the server's own jars are without; tests of the wire have it.
    return SearchSettings(urls=[node.url], index=index, replicas=0, has_lifecycle=False)


@asynccontextmanager
async def opened(node: OpenSearchNode, index: str) -> AsyncIterator[SearchSink]:
    settings = search(node, index)
    sink = SearchSink(OpenSearchClient(settings), settings)
    try:
        yield sink
    finally:
        await sink.close()


def record(number: int, text: str = "手机坏了，要求退款 it broke", **fields: object) -> Record:
    post = Post(TENANT, "crm", f"p-{number}", text, "webhook", NOW_MS + number, NOW_MS, region="eu")
    return Record(post, replace(GOOD, fields={**GOOD.fields, **fields}), NOW_MS)


async def test_records_are_found_as_they_were_written(node: OpenSearchNode) -> None:
    made = [record(number) for number in range(20)]
    async with opened(node, "found") as sink:
        assert await sink.write(made) == []
        assert await sink.write(made[:5]) == []
        node.ask("POST", "/found-*/_refresh")
        page = await sink.find(Query(TENANT, limit=7))
        assert (page.total, list(page.records)) == (20, made[:-8:-1])
        assert (await sink.find(Query(TENANT, since_ms=NOW_MS + 5, until_ms=NOW_MS + 7))).total == 2
        assert (await sink.find(Query("other"))).total == 0


@pytest.mark.parametrize(
    ("text", "total"),
    [("退款", 1), ("手机坏了", 1), ("坏手", 0), ("BROKE", 1), ("it 退款", 1), ("broke it", 1), ("{}", 0)],
)
async def test_words_are_found(node: OpenSearchNode, text: str, total: int) -> None:
    async with opened(node, "words") as sink:
        await sink.write([record(1)])
        node.ask("POST", "/words-*/_refresh")
        assert (await sink.find(Query(TENANT, text=text))).total == total


async def test_terms_are_those_of_metadata_and_fields(node: OpenSearchNode) -> None:
    async with opened(node, "terms") as sink:
        await sink.write([record(1), record(2, event_type="praise")])
        node.ask("POST", "/terms-*/_refresh")
        assert (await sink.find(Query(TENANT, terms={"event_type": "praise", "region": "eu"}))).total == 1
        assert (await sink.find(Query(TENANT, terms={"sentiment_score": "-3"}))).total == 2


async def test_fields_of_odd_kinds_do_not_touch_the_mapping(node: OpenSearchNode) -> None:
    odd = record(1, main_entity={"a": 1}, severity="high", new_field={"deep": [1, {"er": 2}]}, sentiment_score=True)
    async with opened(node, "odd") as sink:
        assert await sink.write([odd, record(2)]) == []
        node.ask("POST", "/odd-*/_refresh")
        assert (await sink.find(Query(TENANT))).records[1] == odd
    mapping = str(node.ask("GET", "/odd-*/_mapping"))
    assert "new_field" not in mapping


async def test_what_an_index_will_not_take_is_a_lasting_fault_of_that_record_alone(node: OpenSearchNode) -> None:
    mapping = {"dynamic": False, "properties": {"fields": {"properties": {"event_type": {"type": "date"}}}}}
    node.ask("PUT", "/refusing-2026.11", {"mappings": mapping})
    made = [record(1, event_type=1), record(2), record(3, event_type=1)]
    async with opened(node, "refusing") as sink:
        [fault] = await sink.write(made)
    assert (fault.key, fault.reason, fault.is_lasting) == (made[1].key, "mapper_parsing_exception", True)


async def test_a_blocked_index_is_no_fault_of_a_record(node: OpenSearchNode) -> None:
    async with opened(node, "blocked") as sink:
        await sink.write([record(1)])
        [index] = node.ask("GET", "/blocked-*/_settings")
        node.ask("PUT", f"/{index}/_settings", {"index.blocks.write": True})
        [fault] = await sink.write([record(2)])
    assert (fault.reason, fault.is_lasting) == ("cluster_block_exception", False)


async def test_posts_that_wait_for_a_node_that_was_killed_are_each_there_once(
    node: OpenSearchNode, tmp_path: Path
) -> None:
    made = posts(60)
    with RedisServer("state") as redis:
        settings = search(node, "mortal").model_dump()
        async with running(tmp_path, redis, parts(ScriptedAnalyst()), sink="opensearch", search=settings, bulk=10) as (
            process,
            _,
        ):
            stop = asyncio.Event()
            worker = asyncio.create_task(process.require_worker().run(stop, 5))
            await process.intake.append(made[:30], Origin(TENANT, "crm", "webhook"))
            await emptied(process)
            await asyncio.to_thread(node.kill)
            await process.intake.append(made[30:], Origin(TENANT, "crm", "webhook"))
            with pytest.raises(SinkAwayError):
                await process.sink.find(Query(TENANT))
            await asyncio.to_thread(node.start)
            await emptied(process)
            stop.set()
            await worker
            await asyncio.to_thread(node.ask, "POST", "/mortal-*/_refresh")
            found = await process.sink.find(Query(TENANT, limit=1_000))
    assert sorted(one.key for one in found.records) == sorted(post.key for post in made)
