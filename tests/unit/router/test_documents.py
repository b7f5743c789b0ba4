"""RagService at the router's address: keys, limits, deadlines, errors; the retrieval service is scripted."""

import asyncio
import time

import pytest

from helpers.scripted_mesh import Mesh, run_router
from ssop.v1 import rag_pb2
from ssop.v1.cache_pb2 import TenantLimits
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError

R = ErrorReason
UPSERT = "/ssop.v1.RagService/UpsertDocuments"
LIST = "/ssop.v1.RagService/ListCollections"


async def call(mesh: Mesh, method: str = LIST, request: bytes = b"", *, key: str | None = None) -> bytes:
    return await mesh.peer.unary(method, request, timeout_s=5, metadata=mesh.metadata(key))


async def refusal(mesh: Mesh, method: str = LIST, *, key: str | None = None) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await call(mesh, method, key=key)
    return caught.value


async def test_the_bytes_go_on_with_the_principal_of_the_key() -> None:
    async with run_router() as mesh:
        began_s = time.monotonic()
        await call(mesh, UPSERT, b"\x0a\x03abc", key=mesh.keys.of("other"))
        (seen,) = mesh.rag.calls
        assert (seen.request, seen.method, seen.principal.tenant) == (b"\x0a\x03abc", UPSERT, "other")
        assert 4.9 - (time.monotonic() - began_s) < seen.remaining_s() < 5


async def test_the_answer_is_that_of_the_service() -> None:
    async with run_router() as mesh:
        mesh.rag.collections = {"acme": {"faq": 7}, "other": {"theirs": 1}}
        response = rag_pb2.ListCollectionsResponse.FromString(await call(mesh))
        assert [(info.collection, info.index_version) for info in response.collections] == [("faq", 7)]


@pytest.mark.parametrize(
    "method",
    [method.name for method in rag_pb2.DESCRIPTOR.services_by_name["RagService"].methods],
)
async def test_every_method_needs_the_scope(method: str) -> None:
    async with run_router() as mesh:
        error = await refusal(mesh, f"/ssop.v1.RagService/{method}", key=mesh.keys.of("acme", ["lite", "full"]))
        assert (error.reason_name, error.metadata["scope"]) == ("SCOPE_MISSING", "rag")
        assert mesh.cache.admitted == []


@pytest.mark.parametrize("method", ["Prefetch", "CancelPrefetch"])
async def test_prefetches_are_not_for_callers(method: str) -> None:
    async with run_router() as mesh:
        assert (await refusal(mesh, f"/ssop.v1.RagService/{method}")).reason_name == "UNSUPPORTED"
        assert mesh.rag.prefetches == []


async def test_a_call_counts_for_the_rate_limit_and_reserves_nothing() -> None:
    async with run_router() as mesh:
        await call(mesh)
        (admitted,) = mesh.cache.admitted
        assert (admitted.reserve_tokens, admitted.cache_key, admitted.no_lease) == (0, b"", True)
        mesh.cache.error = MeshError(R.ERROR_REASON_RATE_LIMITED, "too many", retry_after_ms=70)
        error = await refusal(mesh)
        assert (error.reason_name, error.retry_after_ms) == ("RATE_LIMITED", 70)


async def test_without_its_cache_the_mesh_serves_documents() -> None:
    async with run_router(admission_timeout_ms=20) as mesh:
        mesh.cache.is_frozen = True
        await call(mesh)
        assert mesh.metric("ssop_router_unavailable_total", dependency="cache") == 1


async def test_without_its_cache_the_mesh_holds_calls_about_documents_to_its_share() -> None:
    async with run_router() as mesh:
        mesh.cache.limits = TenantLimits(max_rps=0.01, burst=2)
        await call(mesh)
        mesh.cache.error = MeshError(R.ERROR_REASON_STORE_UNAVAILABLE, "scripted")
        await call(mesh)
        await call(mesh)
        assert (await refusal(mesh)).reason == R.ERROR_REASON_RATE_LIMITED


@pytest.mark.parametrize("reason", ["COLLECTION_UNKNOWN", "QUOTA_EXHAUSTED", "REQUEST_INVALID", "OVERLOADED"])
async def test_errors_of_the_service_pass_through(reason: str) -> None:
    async with run_router() as mesh:
        mesh.rag.error = MeshError(R.Value(f"ERROR_REASON_{reason}"), "why", metadata={"a": "b"}, retry_after_ms=9)
        error = await refusal(mesh)
        assert (error.reason_name, error.message, error.metadata, error.retry_after_ms) == (
            reason,
            "why",
            {"a": "b"},
            9,
        )


@pytest.mark.parametrize("reason", ["BACKEND_FAILED", "PRINCIPAL_INVALID"])
async def test_a_service_that_does_not_serve_is_a_clear_unavailable(reason: str) -> None:
    async with run_router() as mesh:
        mesh.rag.error = MeshError(R.Value(f"ERROR_REASON_{reason}"), "inner")
        error = await refusal(mesh)
        assert (error.reason_name, error.message) == ("STORE_UNAVAILABLE", "the retrieval service does not answer")


async def test_a_mesh_without_retrieval_says_so() -> None:
    async with run_router(has_rag=False) as mesh:
        error = await refusal(mesh)
        assert (error.reason_name, error.message) == ("STORE_UNAVAILABLE", "this mesh has no retrieval service")


async def test_failing_upserts_leave_retrieval_of_requests_alone() -> None:
    async with run_router() as mesh:
        mesh.rag.collections = {"acme": {"faq": 1}}
        mesh.rag.error = MeshError(R.ERROR_REASON_OVERLOADED, "busy")
        for _ in range(5):
            await refusal(mesh, UPSERT)
        mesh.rag.error = None
        answer = await mesh.generate()
        assert [ref.document_id for ref in answer.status.passages] == ["d"]


async def test_a_new_collection_is_known_at_once() -> None:
    async with run_router(collections_ttl_ms=60_000) as mesh:
        assert list((await mesh.generate()).status.passages) == []
        mesh.rag.collections = {"acme": {"faq": 1}}
        await call(mesh, UPSERT)
        assert len((await mesh.generate()).status.passages) == 1


async def test_calls_are_bounded() -> None:
    async with run_router(max_document_calls=2) as mesh:
        mesh.rag.is_frozen = True
        running = [asyncio.ensure_future(call(mesh)) for _ in range(2)]
        await asyncio.sleep(0)
        while len(mesh.cache.admitted) < 2:
            await asyncio.sleep(0)
        error = await refusal(mesh)
        assert (error.reason_name, error.retry_after_ms) == ("OVERLOADED", 1000)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        mesh.rag.is_frozen = False
        await call(mesh)


async def test_a_deadline_is_the_callers_own() -> None:
    async with run_router() as mesh:
        mesh.rag.is_frozen = True
        with pytest.raises(MeshError) as caught:
            await mesh.peer.unary(LIST, b"", timeout_s=0.1, metadata=mesh.metadata())
        assert caught.value.reason_name == "DEADLINE_EXCEEDED"
