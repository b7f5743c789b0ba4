"""RagService through the in-memory transport, with a hashing embedder and a real store."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helpers.eventually import eventually
from helpers.rag import Caller, RagUnderTest, document, refs
from ssop_chassis.errors import MeshError


@pytest.fixture
async def rag(tmp_path: Path) -> AsyncIterator[RagUnderTest]:
    async with RagUnderTest(tmp_path / "index") as service:
        yield service


@pytest.fixture
def acme(rag: RagUnderTest) -> Caller:
    return rag.caller("acme")


async def test_a_document_is_found(acme: Caller) -> None:
    await acme.upsert("faq", document("1", "how to reset a password"), document("2", "opening hours on sunday"))
    answer = await acme.retrieve("reset password", top_k=1)
    assert [(p.ref.document_id, p.text) for p in answer.passages] == [("1", "how to reset a password")]


async def test_upsert_says_what_it_did(acme: Caller) -> None:
    done = await acme.upsert("faq", document("1", "one two three"))
    assert (done.documents, done.passages, done.index_version, list(done.refused)) == (1, 1, 1, [])


async def test_a_replaced_document_is_found_by_its_new_text_only(acme: Caller) -> None:
    await acme.upsert("faq", document("1", "old " * 300))
    await acme.upsert("faq", document("1", "new"))
    assert [p.text for p in (await acme.retrieve("old", top_k=9)).passages] == ["new"]


async def test_the_scope_is_required(rag: RagUnderTest) -> None:
    with pytest.raises(MeshError) as caught:
        await rag.caller("acme", frozenset({"lite"})).collections()
    assert (caught.value.reason_name, caught.value.metadata["scope"]) == ("SCOPE_MISSING", "rag")


async def test_another_tenant_sees_nothing(rag: RagUnderTest, acme: Caller) -> None:
    await acme.upsert("faq", document("1", "secret"))
    other = rag.caller("other")
    assert await other.collections() == []
    assert list((await other.retrieve("secret")).passages) == []


async def test_bad_documents_are_refused_one_by_one(acme: Caller) -> None:
    done = await acme.upsert(
        "faq",
        document("good", "text"),
        document("empty", " \n"),
        document("binary", "\x01\x02\x03"),
        document("nul", "a\0b"),
        document("large", "x" * 300_000),
        document("expired", "text", expires_at_ms=5),
        document("good", "again"),
    )
    assert done.documents == 1
    assert [refused.document_id for refused in done.refused] == ["empty", "binary", "nul", "large", "expired", "good"]


async def test_an_upsert_of_bad_documents_only_changes_nothing(acme: Caller) -> None:
    done = await acme.upsert("faq", document("empty", ""))
    assert (done.documents, done.index_version, await acme.collections()) == (0, 0, [])


@pytest.mark.parametrize(
    ("collection", "documents", "field"),
    [
        ("", [document("1", "text")], "collection"),
        ("a/b", [document("1", "text")], "collection"),
        ("c" * 65, [document("1", "text")], "collection"),
        ("faq", [], "documents"),
        ("faq", [document(str(n), "text") for n in range(1001)], "documents"),
        ("faq", [document(str(n), "x" * 250_000) for n in range(17)], "documents"),
        ("faq", [document("1", "text"), document("", "text")], "documents[1].document_id"),
        ("faq", [document("é" * 257, "text")], "documents[0].document_id"),
        ("faq", [document("1", "text", expires_at_ms=-1)], "documents[0].expires_at_ms"),
    ],
)
async def test_a_malformed_upsert_names_its_field(
    acme: Caller, collection: str, documents: list[Any], field: str
) -> None:
    with pytest.raises(MeshError) as caught:
        await acme.upsert(collection, *documents)
    assert (caught.value.reason_name, [path for path, _ in caught.value.fields]) == ("REQUEST_INVALID", [field])


@pytest.mark.parametrize(
    ("query", "collections", "top_k", "field"),
    [(" ", (), 0, "query"), ("q", ("a b",), 0, "collections[0]"), ("q", (), 33, "top_k")],
)
async def test_a_malformed_query_names_its_field(
    acme: Caller, query: str, collections: tuple[str, ...], top_k: int, field: str
) -> None:
    with pytest.raises(MeshError) as caught:
        await acme.retrieve(query, *collections, top_k=top_k)
    assert [path for path, _ in caught.value.fields] == [field]


async def test_an_unknown_collection_is_named(acme: Caller) -> None:
    for call in (acme.retrieve("q", "nope"), acme.prefetch("r", "q", "nope")):
        with pytest.raises(MeshError) as caught:
            await call
        assert (caught.value.reason_name, caught.value.metadata) == ("COLLECTION_UNKNOWN", {"collection": "nope"})


async def test_four_passages_come_when_none_are_asked_for(acme: Caller) -> None:
    await acme.upsert("faq", *[document(str(n), f"word {n}") for n in range(9)])
    assert len((await acme.retrieve("word")).passages) == 4


async def test_only_named_collections_are_searched(acme: Caller) -> None:
    for name in ("a", "b", "c"):
        await acme.upsert(name, document("1", "same text"))
    answer = await acme.retrieve("same text", "c", "a")
    stamps = {info.collection: info.index_stamp for info in await acme.collections()}
    assert (refs(answer), answer.index_version) == (
        [("a", "1", 0), ("c", "1", 0)],
        f"a:{stamps['a']},c:{stamps['c']}",
    )


async def test_deleting_raises_the_version(acme: Caller) -> None:
    await acme.upsert("faq", document("1", "one"), document("2", "two"))
    done = await acme.delete("faq", "1", "absent")
    assert (done.documents, done.index_version) == (1, 2)


async def test_deleting_what_is_not_there_changes_nothing(acme: Caller) -> None:
    await acme.upsert("faq", document("1", "one"))
    assert (await acme.delete("faq", "absent")).index_version == 1
    assert (await acme.delete("nope", "1")).documents == 0


async def test_a_collection_made_again_never_shows_an_old_version(acme: Caller) -> None:
    await acme.upsert("faq", document("1", "one"))
    assert (await acme.delete("faq", whole=True)).documents == 1
    assert await acme.collections() == []
    assert (await acme.upsert("faq", document("1", "one"))).index_version == 3


@pytest.mark.parametrize(("ids", "whole"), [((), False), (("1",), True)])
async def test_a_deletion_says_what(acme: Caller, ids: tuple[str, ...], whole: bool) -> None:
    with pytest.raises(MeshError, match="document_ids"):
        await acme.delete("faq", *ids, whole=whole)


async def test_an_expired_document_is_not_found_and_raises_the_version(rag: RagUnderTest, acme: Caller) -> None:
    await acme.upsert("faq", document("1", "one", expires_at_ms=rag.clocks.wall_ms + 10), document("2", "two"))
    rag.clocks.wall_ms += 10
    answer = await acme.retrieve("one")
    assert (refs(answer), answer.index_version.partition(".")[0]) == ([("faq", "2", 0)], "faq:2")
    assert [info.documents for info in await acme.collections()] == [1]


async def test_collections_are_listed_by_name(acme: Caller) -> None:
    await acme.upsert("b", document("1", "one"))
    await acme.upsert("a", document("1", "one"), document("2", "two"))
    listed = [(i.collection, i.documents, i.passages, i.index_version, i.embedder) for i in await acme.collections()]
    assert listed == [("a", 2, 2, 2, "hashing/1"), ("b", 1, 1, 1, "hashing/1")]


async def test_a_full_queue_is_overloaded(tmp_path: Path) -> None:
    async with RagUnderTest(tmp_path / "index", threads=1, max_queue=0) as rag:
        acme = rag.caller()
        await acme.upsert("faq", document("1", "one"))
        rag.embedder.gate.clear()
        running = asyncio.ensure_future(acme.retrieve("one"))
        await eventually(lambda: rag.embedder.queries == ["one"])
        with pytest.raises(MeshError) as caught:
            await acme.retrieve("two")
        assert (caught.value.reason_name, (caught.value.retry_after_ms or 0) > 0) == ("OVERLOADED", True)
        rag.embedder.gate.set()
        await running


async def test_a_long_query_is_cut_and_counted(rag: RagUnderTest, acme: Caller) -> None:
    await acme.upsert("faq", document("1", "one"))
    await acme.retrieve("one " * 1000)
    assert max(map(len, rag.embedder.queries)) <= 1000
    assert rag.registry.get_sample_value("ssop_rag_queries_cut_total") == 1
