"""Passages on their way into a request."""

import asyncio
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from helpers.eventually import eventually
from helpers.scripted_mesh import (
    GOOD,
    Mesh,
    R,
    ScriptedNode,
    ask,
    encode,
    read_all,
    reason,
    run_router,
)
from ssop.v1 import mesh_pb2, rag_pb2
from ssop.v1.mesh_pb2 import CacheReason, RetrievalReason
from ssop.v1.router_pb2 import RetrievalOptions
from ssop_chassis import tracing
from ssop_chassis.call import Call
from ssop_chassis.errors import MeshError


async def test_passages_go_to_the_node_and_into_the_status(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 3}
    answer = await mesh.generate(ask(model="grok-3-lite"))
    assert answer.decision.retrieval_reason == RetrievalReason.RETRIEVAL_REASON_RETRIEVED
    assert [p.document_id for p in answer.status.passages] == ["d"]
    assert mesh.nodes["lite-1"].requests[0].passages[0].text == "a passage"
    assert answer.accounting.retrieval_wait_ms > 0


async def test_retrieval_overlaps_admission(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 3}
    mesh.cache.gate.clear()
    async with mesh.open(ask(model="grok-3-lite")) as stream:
        await eventually(lambda: len(mesh.rag.retrievals) == 1 and len(mesh.cache.admitted) == 0)
        mesh.cache.gate.set()
        answer = await read_all(stream)
    assert answer.decision.retrieval_reason == RetrievalReason.RETRIEVAL_REASON_RETRIEVED
    assert answer.accounting.rag_overlap_ms > 0
    assert mesh.metric("ssop_router_retrievals_ahead_total", outcome="used") == 1


async def test_answer_ends_whatever_overlap_a_prefetch_is_said_to_have_had() -> None:
    async with run_router(retrieval_ahead="always") as mesh:
        mesh.rag.collections["acme"] = {"docs": 3}
        mesh.rag.overlap_ms = 2**32 - 1
        answer = await mesh.generate(ask(model="grok-3-lite"))
    assert answer.error is None
    assert answer.accounting.rag_overlap_ms == 2**32 - 1


async def test_retrieval_is_cancelled_and_counted_when_the_answer_is_stored() -> None:
    async with run_router(retrieval_ahead="always") as mesh:
        mesh.rag.collections["acme"] = {"docs": 3}
        await mesh.generate(ask(model="grok-3-lite"))
        hit = await mesh.generate(ask(model="grok-3-lite"))
        assert hit.decision.cache_reason == CacheReason.CACHE_REASON_HIT
        assert hit.decision.retrieval_reason == RetrievalReason.RETRIEVAL_REASON_UNSPECIFIED
        assert [p.document_id for p in hit.status.passages] == ["d"]
        assert mesh.metric("ssop_router_retrievals_ahead_total", outcome="wasted") == 1
        await eventually(mesh.is_quiet)


async def test_retrieval_waits_for_admission_where_it_is_told_to() -> None:
    async with run_router(retrieval_ahead="never") as mesh:
        mesh.rag.collections["acme"] = {"docs": 3}
        mesh.cache.gate.clear()
        async with mesh.open(ask(model="grok-3-lite")) as stream:
            await eventually(lambda: mesh.cache.calls == 1)
            assert not mesh.rag.retrievals
            mesh.cache.gate.set()
            assert (await read_all(stream)).accounting.rag_overlap_ms == 0


async def test_answer_from_lossy_passages_says_so_and_is_not_stored(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 3}
    mesh.rag.is_lossy = True
    mesh.rag.prefetches.append(rag_pb2.PrefetchRequest(request_id="r"))
    answer = await mesh.generate(ask(model="grok-3-lite", request_id="r"))
    assert answer.decision.retrieval_reason == RetrievalReason.RETRIEVAL_REASON_PREFETCHED_LOSSY
    assert not mesh.cache.stored
    assert mesh.metric("ssop_router_answers_not_stored_total", reason="passages_lossy") == 1


async def test_tenant_without_collections_retrieves_nothing(mesh: Mesh) -> None:
    answer = await mesh.generate()
    assert answer.decision.retrieval_reason == RetrievalReason.RETRIEVAL_REASON_NO_COLLECTION
    assert not mesh.rag.retrievals


async def test_new_index_version_is_another_answer() -> None:
    async with run_router(collections_ttl_ms=0) as mesh:
        mesh.rag.collections["acme"] = {"docs": 3}
        await mesh.generate(ask(model="grok-3-lite"))
        hit = await mesh.generate(ask(model="grok-3-lite"))
        mesh.rag.collections["acme"] = {"docs": 4}
        miss = await mesh.generate(ask(model="grok-3-lite"))
        assert hit.decision.cache_reason == CacheReason.CACHE_REASON_HIT
        assert miss.decision.cache_reason == CacheReason.CACHE_REASON_MISS


async def test_answer_from_other_versions_than_its_key_says_is_not_stored() -> None:
    async with run_router(collections_ttl_ms=60_000) as mesh:
        mesh.rag.collections["acme"] = {"docs": 3}
        await mesh.generate(ask(model="grok-3-lite", policy="no_cache"))
        mesh.rag.collections["acme"] = {"docs": 4}
        await mesh.generate(ask(model="grok-3-lite"))
        assert not mesh.cache.stored
        assert mesh.metric("ssop_router_answers_not_stored_total", reason="index_changed") == 1


async def test_retrieval_that_is_down_is_done_without_and_not_stored(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 3}
    mesh.rag.error = MeshError(R.ERROR_REASON_BACKEND_FAILED, "scripted")
    answer = await mesh.generate()
    assert answer.error is None
    assert answer.status.unavailable == ["rag"]
    assert answer.decision.retrieval_reason == RetrievalReason.RETRIEVAL_REASON_UNAVAILABLE
    assert not mesh.cache.stored


async def test_retrieval_that_is_frozen_is_waited_for_a_little() -> None:
    async with run_router(retrieval_timeout_ms=30) as mesh:
        mesh.rag.collections["acme"] = {"docs": 3}
        mesh.rag.is_frozen = True
        answers = [await mesh.generate(ask(f"t{index}")) for index in range(5)]
        assert all(answer.status.unavailable == ["rag"] for answer in answers)
        # An unbounded wait would last until the deadline of the call.
        assert answers[-1].accounting.total_ms < 10_000


async def test_unknown_collection_is_the_callers_error(mesh: Mesh) -> None:
    answer = await mesh.generate(ask(retrieval=RetrievalOptions(collections=["nowhere"])))
    assert reason(answer) == R.ERROR_REASON_COLLECTION_UNKNOWN


async def test_named_collection_needs_the_scope_rag(mesh: Mesh) -> None:
    key = mesh.keys.of(scopes=["lite", "full", "ssop"])
    answer = await mesh.generate(ask(retrieval=RetrievalOptions(collections=["docs"])), key=key)
    assert reason(answer) == R.ERROR_REASON_SCOPE_MISSING
    assert answer.error is not None
    assert answer.error.metadata["scope"] == "rag"


async def test_key_without_rag_is_served_without_passages(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 3}
    answer = await mesh.generate(key=mesh.keys.of(scopes=["lite", "full", "ssop"]))
    assert answer.decision.retrieval_reason == RetrievalReason.RETRIEVAL_REASON_SCOPE


async def test_profile_bounds_requests_at_a_time() -> None:
    always = {"from": "00:00", "until": "00:00", "max_in_flight": 1}
    async with run_router(profiles=[always]) as mesh:
        mesh.cache.gate.clear()
        async with mesh.open(ask("first")) as first:
            await eventually(lambda: mesh.router.pipeline.in_flight == 1)
            assert reason(await mesh.generate(ask("second"))) == R.ERROR_REASON_OVERLOADED
            mesh.cache.gate.set()
            await read_all(first)


async def test_replay_names_the_passages_that_its_fields_may_cite(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 3}
    first = await mesh.generate()
    again = await mesh.generate()
    assert again.status.is_cached
    assert list(again.status.passages) == list(first.status.passages)


async def test_replay_of_an_answer_from_elsewhere_searches_for_its_passages_once(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 3}
    await mesh.generate()
    mesh.router.pipeline._citations._known.clear()
    for error in (None, MeshError(R.ERROR_REASON_STORE_UNAVAILABLE, "scripted")):
        mesh.rag.error = error
        again = await mesh.generate()
        assert again.status.is_cached
        assert [p.document_id for p in again.status.passages] == ["d"]


async def test_replay_comes_without_passages_when_they_can_not_be_found(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 3}
    await mesh.generate()
    mesh.router.pipeline._citations._known.clear()
    mesh.rag.error = MeshError(R.ERROR_REASON_STORE_UNAVAILABLE, "scripted")
    again = await mesh.generate()
    assert again.status.is_cached
    assert (list(again.status.passages), list(again.status.unavailable)) == ([], ["rag"])


async def test_follower_names_the_passages_of_its_leader() -> None:
    started = asyncio.Event()
    go_on = asyncio.Event()
    chunks = encode(GOOD)

    async def script(call: Call, _: Any) -> None:
        started.set()
        await go_on.wait()
        for chunk in chunks:
            await call.write(chunk)

    nodes = {"only": ScriptedNode("only", [mesh_pb2.TIER_FULL, mesh_pb2.TIER_LITE], script)}
    async with run_router(nodes) as mesh:
        mesh.rag.collections["acme"] = {"docs": 3}
        leader = asyncio.ensure_future(mesh.generate())
        await started.wait()
        follower = asyncio.ensure_future(mesh.generate())
        await eventually(lambda: len(mesh.cache.admitted) == 2)
        go_on.set()
        first, second = await asyncio.gather(leader, follower)
    assert second.decision.cache_reason == CacheReason.CACHE_REASON_FOLLOWER
    assert [p.document_id for p in first.status.passages] == [p.document_id for p in second.status.passages] == ["d"]


async def test_trace_shows_the_overlap(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    tracing.look_again()
    mesh.rag.collections["acme"] = {"docs": 3}
    answer = await mesh.generate(ask(model="grok-3-lite"))
    await eventually(lambda: any(s.name.endswith("RouterService/Generate") for s in exporter.get_finished_spans()))
    events = [event for span in exporter.get_finished_spans() for event in span.events]
    event = next(event for event in events if event.name == "ssop.retrieval")
    assert event.attributes is not None
    assert event.attributes["ssop.rag_overlap_ms"] == answer.accounting.rag_overlap_ms > 0
    assert event.attributes["ssop.passages"] == 1
