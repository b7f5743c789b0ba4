"""CheckSchema, ExplainDecision, ListModels and GetMeshStatus."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from helpers.scripted_mesh import SCHEMA, Mesh, R, ask, default_nodes, run_router
from ssop.v1 import mesh_pb2
from ssop.v1.content_pb2 import OutputSchema
from ssop.v1.mesh_pb2 import CacheReason, CascadeReason, RetrievalReason, Tier
from ssop.v1.router_pb2 import (
    CheckSchemaRequest,
    CheckSchemaResponse,
    ExplainDecisionRequest,
    ExplainDecisionResponse,
    GetMeshStatusRequest,
    GetMeshStatusResponse,
    ListModelsRequest,
    ListModelsResponse,
)
from ssop_chassis.errors import MeshError
from ssop_codec import Encoder, compile_schema


@pytest.fixture
async def mesh() -> AsyncIterator[Mesh]:
    async with run_router() as running:
        yield running


async def call(mesh: Mesh, name: str, request: Any, *, key: str | None = None) -> bytes:
    return await mesh.peer.unary(
        f"/ssop.v1.RouterService/{name}", request.SerializeToString(), timeout_s=5, metadata=mesh.metadata(key)
    )


async def explain(mesh: Mesh, **options: Any) -> ExplainDecisionResponse:
    request = ExplainDecisionRequest(request=ask(**options))
    return ExplainDecisionResponse.FromString(await call(mesh, "ExplainDecision", request))


async def check(mesh: Mesh, schema: str, buffer_bytes: int = 0) -> CheckSchemaResponse:
    request = CheckSchemaRequest(output_schema=OutputSchema(json_schema=schema), stream_buffer_size=buffer_bytes)
    return CheckSchemaResponse.FromString(await call(mesh, "CheckSchema", request))


async def test_schema_is_described_as_a_header_would(mesh: Mesh) -> None:
    response = await check(mesh, '{"type":"object","properties":{"a":{"type":"string"}}}')
    assert [node.key for node in response.header.nodes] == ["", "a"]
    assert response.header.node_count == 2
    assert response.header.stream_buffer_size in {1024, 2048}


async def test_buffer_that_was_asked_for_is_named(mesh: Mesh) -> None:
    assert (await check(mesh, "{}", 256)).header.stream_buffer_size == 256


async def test_caps_are_named_with_their_limits(mesh: Mesh) -> None:
    caps = {cap.cap: (cap.used, cap.limit) for cap in (await check(mesh, '{"type":"string"}')).caps}
    assert caps["max_schema_bytes"] == (17, 262_144)
    assert all(used <= limit for used, limit in caps.values())


async def test_every_model_says_its_mode(mesh: Mesh) -> None:
    backends = (await check(mesh, '{"type":"string"}')).backends
    assert sorted(backend.model for backend in backends) == ["full-1-model", "full-2-model", "lite-1-model"]
    assert all(backend.constraint_mode == mesh_pb2.CONSTRAINT_MODE_RELAXED for backend in backends)


async def test_refused_schema(mesh: Mesh) -> None:
    with pytest.raises(MeshError) as caught:
        await check(mesh, '{"type":"nonsense"}')
    assert caught.value.reason == R.ERROR_REASON_SCHEMA_REFUSED


async def test_explanation_runs_and_charges_nothing(mesh: Mesh) -> None:
    response = await explain(mesh, text="Translate this")
    assert response.decision.tier == Tier.TIER_LITE
    assert response.decision.node == "lite-1"
    assert response.decision.cache_reason == CacheReason.CACHE_REASON_MISS
    assert response.decision.retrieval_reason == RetrievalReason.RETRIEVAL_REASON_NO_COLLECTION
    assert len(response.explanation) >= 3
    assert not mesh.cache.admitted
    assert not any(node.requests for node in mesh.nodes.values())


async def test_explanation_pins_no_conversation(mesh: Mesh) -> None:
    await explain(mesh, text="Translate this", conversation_id="c")
    answer = await mesh.generate(ask("And what else is there?", conversation_id="c"))
    assert answer.decision.tier == Tier.TIER_FULL


async def test_explanation_sees_a_stored_answer(mesh: Mesh) -> None:
    await mesh.generate(ask("Translate this"))
    response = await explain(mesh, text="Translate this")
    assert response.decision.cache_reason == CacheReason.CACHE_REASON_HIT
    assert response.decision.node == ""


async def test_explanation_of_what_would_be_refused(mesh: Mesh) -> None:
    with pytest.raises(MeshError) as caught:
        await explain(mesh, model="gpt-9")
    assert caught.value.reason == R.ERROR_REASON_MODEL_UNKNOWN


async def test_models_are_those_of_the_keys_scopes(mesh: Mesh) -> None:
    async def names(*scopes: str) -> list[str]:
        data = await call(mesh, "ListModels", ListModelsRequest(), key=mesh.keys.of(scopes=scopes))
        return [model.model for model in ListModelsResponse.FromString(data).models]

    assert await names("lite", "full") == ["auto", "grok-3", "grok-3-lite"]
    assert await names("lite") == ["auto", "grok-3-lite"]
    assert await names("admin") == []


async def test_models_name_the_largest_context_of_their_tier() -> None:
    nodes = default_nodes()
    nodes["full-2"].status.models[0].context_tokens = 9000
    async with run_router(nodes) as mesh:
        models = ListModelsResponse.FromString(await call(mesh, "ListModels", ListModelsRequest())).models
        assert {m.model: m.context_tokens for m in models} == {"auto": 9000, "grok-3": 9000, "grok-3-lite": 4096}


async def test_status_needs_the_scope_admin(mesh: Mesh) -> None:
    with pytest.raises(MeshError) as caught:
        await call(mesh, "GetMeshStatus", GetMeshStatusRequest())
    assert caught.value.metadata["scope"] == "admin"


async def test_status_shows_nodes_and_dependencies(mesh: Mesh) -> None:
    await mesh.generate()
    mesh.rag.error = MeshError(R.ERROR_REASON_BACKEND_FAILED, "scripted")
    await mesh.generate(key=mesh.keys.of("other"))
    key = mesh.keys.of(scopes=["admin"])
    status = GetMeshStatusResponse.FromString(await call(mesh, "GetMeshStatus", GetMeshStatusRequest(), key=key))
    assert [node.address for node in status.nodes] == ["full-1", "full-2", "lite-1"]
    assert all(node.status.node == node.address for node in status.nodes)
    assert {d.name: d.is_available for d in status.dependencies} == {"cache": True, "rag": False}
    assert status.frames_sent > 0
    assert status.in_flight == 0


def test_schema_of_these_tests_compiles() -> None:
    assert Encoder(compile_schema(json.dumps(SCHEMA)))


async def test_explanation_of_a_cascade_says_when_full_takes_over(mesh: Mesh) -> None:
    response = await explain(mesh, policy="cascade")
    assert response.decision.tier == Tier.TIER_LITE
    assert response.decision.cascade_reason == CascadeReason.CASCADE_REASON_UNSPECIFIED
    assert any(line.startswith("cascade: lite answers first") for line in response.explanation)
