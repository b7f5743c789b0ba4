"""`client.index` over gRPC, through the router's edge, to a real retrieval service with a hashing embedder."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from helpers.document_edge import serve_documents
from helpers.sdk_clients import KEY
from ssop.v1 import rag_pb2
from ssop_sdk import (
    AsyncSsopClient,
    CollectionUnknown,
    Document,
    MessageTooLarge,
    QuotaExhausted,
    RequestInvalid,
    ScopeMissing,
    SsopClient,
)


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    async with serve_documents(tmp_path, max_tenant_passages=3000) as address:
        yield address


@pytest.fixture
async def client(address: str) -> AsyncIterator[AsyncSsopClient]:
    async with AsyncSsopClient(KEY, address, timeout_s=20) as client:
        yield client


async def test_documents_go_in_and_are_found(client: AsyncSsopClient) -> None:
    report = await client.index.upsert("faq", {"1": "how to reset a password", "2": "opening hours on sunday"})
    assert (report.indexed, report.passages, report.version) == (["1", "2"], 2, 1)
    found = await client.index.search("reset password", ["faq"], top_k=1)
    assert [(one.collection, one.document_id, one.text) for one in found] == [("faq", "1", "how to reset a password")]


async def test_a_report_tells_each_document_apart(client: AsyncSsopClient) -> None:
    await client.index.upsert("faq", {"same": "one", "new": "one"})
    report = await client.index.upsert(
        "faq", [Document("same", "one"), {"id": "new", "text": "two", "title": "t"}, Document("bad", " ")]
    )
    assert (report.indexed, report.unchanged, report.refused) == (["new"], ["same"], {"bad": "the text is empty"})


async def test_many_documents_take_several_calls(client: AsyncSsopClient) -> None:
    report = await client.index.upsert("faq", ({"id": str(n), "text": f"text {n}"} for n in range(2_345)))
    assert len(report.indexed) == 2_345
    assert report.version == 24
    listed = [one.document_id async for one in client.index.documents("faq")]
    assert sorted(listed, key=int) == [str(n) for n in range(2_345)]


async def test_a_large_list_comes_in_pages_that_fit(client: AsyncSsopClient) -> None:
    documents = [Document(str(n), "x", attributes={"note": "y" * 30_000}) for n in range(200)]
    await client.index.upsert("faq", documents)
    assert len([one async for one in client.index.documents("faq")]) == 200


async def test_documents_and_collections_are_deleted(client: AsyncSsopClient) -> None:
    await client.index.upsert("faq", {"1": "one", "2": "two"})
    assert await client.index.delete("faq", ["1", "gone"]) == 1
    assert await client.index.delete_collection("faq") == 1
    assert list(await client.index.collections()) == []
    with pytest.raises(CollectionUnknown):
        [one async for one in client.index.documents("faq")]


async def test_snapshots_are_saved_listed_restored_and_deleted(client: AsyncSsopClient) -> None:
    await client.index.upsert("faq", {"1": "one"})
    saved = await client.index.save_snapshot("monday")
    await client.index.upsert("faq", {"1": "two"})
    assert [one.snapshot for one in await client.index.snapshots()] == ["monday"]
    (restored,) = await client.index.restore_snapshot("monday")
    assert (saved.collections[0].index_version, restored.index_version) == (1, 3)
    assert [one.text for one in await client.index.search("one")] == ["one"]
    assert await client.index.delete_snapshot("monday")


async def test_errors_are_those_of_the_api(client: AsyncSsopClient, address: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        await client.index.upsert("a/b", {"1": "one"})
    assert caught.value.fields[0][0] == "collection"
    with pytest.raises(QuotaExhausted):
        await client.index.upsert("faq", {str(n): "word " * 25_000 for n in range(12)})
    async with AsyncSsopClient("other", address) as other:
        with pytest.raises(ScopeMissing):
            await other.index.collections()


async def test_a_document_over_a_limit_is_refused_by_name(client: AsyncSsopClient) -> None:
    report = await client.index.upsert("faq", {"large": "word " * 100_000, "good": "text"})
    assert (report.indexed, list(report.refused)) == (["good"], ["large"])
    assert "at most 262144 are taken" in report.refused["large"]
    with pytest.raises(MessageTooLarge):
        await client.index.upsert("faq", {"huge": "word " * 1_000_000})


NO_DOCUMENTS: list[Any] = ["text", [1], [{"id": "1"}], [{"id": 1, "text": "t"}], [{"id": "1", "text": None}]]


@pytest.mark.parametrize("documents", NO_DOCUMENTS)
async def test_what_is_no_document_is_a_type_error(client: AsyncSsopClient, documents: Any) -> None:
    with pytest.raises(TypeError):
        await client.index.upsert("faq", documents)


async def test_half_a_surrogate_pair_is_a_value_error(client: AsyncSsopClient) -> None:
    with pytest.raises(ValueError, match="surrogate") as caught:
        await client.index.upsert("faq", {"1": "a\ud800"})
    assert caught.value.__suppress_context__


async def test_the_sync_client_does_the_same(address: str) -> None:
    def use() -> None:
        with SsopClient(KEY, address, timeout_s=20) as client:
            assert client.index.upsert("faq", {"1": "one two", "2": "three"}).indexed == ["1", "2"]
            assert [one.document_id for one in client.index.documents("faq")] == ["1", "2"]
            assert client.index.search("three", top_k=1)[0].document_id == "2"
            assert client.index.save_snapshot("s", ["faq"]).collections[0].documents == 2
            assert client.index.delete("faq", ["1"]) == 1
            assert [info.documents for info in client.index.collections()] == [1]
            assert client.index.restore_snapshot("s")[0].documents == 2
            assert [one.snapshot for one in client.index.snapshots()] == ["s"]
            assert client.index.delete_snapshot("s")
            assert client.index.delete_collection("faq") == 2

    await asyncio.to_thread(use)


async def test_garbage_is_refused_and_breaks_nothing(client: AsyncSsopClient, address: str) -> None:
    await client.index.upsert("faq", {"1": "one"})
    rng = random.Random(5)
    whole = rag_pb2.UpsertDocumentsRequest(
        collection="faq", documents=[rag_pb2.IndexDocument(document_id="x", text="y" * 50)]
    )
    codes = set()
    async with grpc.aio.insecure_channel(address) as channel:
        for method in rag_pb2.DESCRIPTOR.services_by_name["RagService"].methods:
            call: Any = channel.unary_unary(f"/ssop.v1.RagService/{method.name}")
            for _ in range(40):
                data = bytearray(rng.choice([whole.SerializeToString(), rng.randbytes(60)]))
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                try:
                    await call(bytes(data), timeout=20, metadata=(("authorization", f"Bearer {KEY}"),))
                except grpc.aio.AioRpcError as error:
                    codes.add(error.code())
    assert codes <= {
        grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }  # fmt: skip
    assert (await client.index.upsert("after", {"1": "one"})).indexed == ["1"]
