"""Similar answers: level 1 of the ladder, hits for those that opted in, and nothing for anybody else."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from helpers.eventually import eventually
from helpers.machine import stretched
from helpers.scripted_mesh import GOOD, SCHEMA, Mesh, R, ask, encode, failing, reason, run_router, used
from ssop.v1 import mesh_pb2
from ssop.v1.cache_pb2 import FindSimilarResponse, StoredAnswer
from ssop.v1.content_pb2 import ContentPart, Message, Role, Sampling
from ssop.v1.frame_pb2 import Chunk
from ssop.v1.mesh_pb2 import CACHE_LEVEL_SHARED, CacheReason, DegradedReason, Usage
from ssop.v1.router_pb2 import CacheOptions, GenerateRequest
from ssop_chassis.errors import MeshError
from ssop_router.settings import RouterSettings
from ssop_router.similar_settings import load_similar

CHUNK = b"".join(encode(GOOD))
FOUND = FindSimilarResponse(
    answer=StoredAnswer(chunk=CHUNK, age_ms=4321, model="m", level=CACHE_LEVEL_SHARED),
    similarity=0.97,
    cache_key=bytes(32),
)
OPTED_IN = [{"tenant": "acme", "allow_hits": True}]


@pytest.fixture
async def mesh() -> AsyncIterator[Mesh]:
    async with run_router(similar=OPTED_IN) as running:
        yield running


def no_node(mesh: Mesh) -> None:
    for node in mesh.nodes.values():
        node.script = failing()


def willing(text: str = "How is the mood?", **fields: Any) -> GenerateRequest:
    return ask(text, model="grok-3", cache=CacheOptions(allow_similar=True), **fields)


async def test_level_1_answers_when_no_node_can_and_says_so_three_times(mesh: Mesh) -> None:
    no_node(mesh)
    mesh.cache.similar["acme"] = FOUND
    answer = await mesh.generate(ask(model="grok-3"))
    status = answer.status
    assert answer.error is None
    assert answer.documents == list(Chunk.FromString(CHUNK).frames)
    assert (status.state, status.degraded_level, status.fallback_used) == (mesh_pb2.DELIVERY_STATE_DEGRADED, 1, True)
    assert status.degraded_reason == DegradedReason.DEGRADED_REASON_NODES_FAILED
    assert (status.served_by, status.cache_level, status.age_ms) == ("similar", CACHE_LEVEL_SHARED, 4321)
    assert status.similarity == pytest.approx(0.97)
    assert answer.decision.cache_reason == CacheReason.CACHE_REASON_SIMILAR
    assert answer.trailers["x-ssop-degraded-level"] == "1"
    assert mesh.metric("ssop_router_degraded_total", level="1") == 1
    assert mesh.metric("ssop_router_similar_total", outcome="found") == 1


async def test_level_1_goes_before_level_2(mesh: Mesh) -> None:
    mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = failing()
    mesh.cache.similar["acme"] = FOUND
    assert (await mesh.generate(ask(model="grok-3"))).status.degraded_level == 1
    assert "lite-1" not in used(mesh)


async def test_without_a_similar_answer_level_2_follows(mesh: Mesh) -> None:
    mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = failing()
    assert (await mesh.generate(ask(model="grok-3"))).status.degraded_level == 2


async def test_similar_answer_is_never_billed(mesh: Mesh) -> None:
    no_node(mesh)
    mesh.cache.similar["acme"] = FOUND
    answer = await mesh.generate(ask(model="grok-3", request_id="r1"))
    assert not answer.accounting.is_billed
    await eventually(lambda: "r1" in mesh.cache.settled)
    assert mesh.cache.settled["r1"] == Usage()
    counts = mesh.cache.counted["r1"]
    assert (counts.is_cached, counts.is_degraded, counts.is_failed) == (True, True, False)


async def test_similar_answer_is_never_stored(mesh: Mesh) -> None:
    no_node(mesh)
    mesh.cache.similar["acme"] = FOUND
    await mesh.generate(ask(model="grok-3"))
    await eventually(mesh.is_quiet)
    assert mesh.cache.stored == {}
    assert mesh.cache.similar_puts == []


@pytest.mark.parametrize("level", [0, 1])
async def test_max_degraded_level_refuses(mesh: Mesh, level: int) -> None:
    no_node(mesh)
    mesh.cache.similar["acme"] = FOUND
    answer = await mesh.generate(willing(max_degraded_level=level))
    assert (answer.error is None) == (level == 1)
    assert len(mesh.cache.similar_finds) == level


async def test_tenant_that_did_not_opt_in_is_never_looked_up(mesh: Mesh) -> None:
    no_node(mesh)
    mesh.cache.similar["other"] = FOUND
    answer = await mesh.generate(willing(), key=mesh.keys.of("other"))
    assert reason(answer) == R.ERROR_REASON_NO_BACKEND
    assert (mesh.cache.similar_finds, mesh.rag.embedded) == ([], [])


async def test_hit_needs_the_request_to_allow_it(mesh: Mesh) -> None:
    mesh.cache.similar["acme"] = FOUND
    assert (await mesh.generate(ask(model="grok-3"))).status.served_by.startswith("full")
    answer = await mesh.generate(willing("Other words"))
    assert answer.status.state == mesh_pb2.DELIVERY_STATE_OK
    assert (answer.status.served_by, answer.status.age_ms) == ("similar", 4321)
    assert answer.status.similarity == pytest.approx(0.97)
    assert answer.decision.cache_reason == CacheReason.CACHE_REASON_SIMILAR
    assert answer.trailers["x-ssop-degraded-level"] == "0"


async def test_hit_needs_the_tenant_to_allow_it() -> None:
    async with run_router(similar=[{"tenant": "acme"}]) as mesh:
        mesh.cache.similar["acme"] = FOUND
        assert (await mesh.generate(willing())).status.served_by.startswith("full")
        assert mesh.cache.similar_finds == []


async def test_who_takes_no_degraded_answer_gets_no_similar_hit(mesh: Mesh) -> None:
    mesh.cache.similar["acme"] = FOUND
    answer = await mesh.generate(willing(max_degraded_level=0))
    assert answer.status.served_by.startswith("full")


async def test_stored_answer_is_made_findable_once_it_is_stored(mesh: Mesh) -> None:
    await mesh.generate(ask("What is it?", model="grok-3"))
    await eventually(lambda: len(mesh.cache.similar_puts) == 1)
    put = mesh.cache.similar_puts[0]
    assert (put.text, put.embedder) == ("What is it?", "scripted")
    assert put.cache_key == mesh.cache.commits[0].cache_key
    await eventually(lambda: mesh.metric("ssop_router_similar_kept_total", outcome="kept") == 1)
    assert not mesh.rag.embedded[0].is_urgent


@pytest.mark.parametrize(
    "changed",
    [
        {"schema": None},
        {"schema": {**SCHEMA, "title": "another"}},
        {"model": "grok-3-lite"},
        {"key": ("lite", "full", "ssop")},
        {"sampling": Sampling(seed=7)},
        {"system": "Be brief."},
        {"earlier": "Something said before"},
    ],
    ids=lambda changed: next(iter(changed)),
)
async def test_scope_differs_with_all_but_the_question(mesh: Mesh, changed: dict[str, Any]) -> None:
    await mesh.generate(ask("One question", model="grok-3", cache=CacheOptions(allow_sampled=True)))
    await mesh.generate(ask("Another question", model="grok-3", cache=CacheOptions(allow_sampled=True)))
    request = ask("One question", model="grok-3", cache=CacheOptions(allow_sampled=True))
    options: dict[str, Any] = {}
    if "schema" in changed:
        request = ask("One question", model="grok-3", schema=changed["schema"])
    elif "model" in changed:
        request.model = changed["model"]
    elif "key" in changed:
        options["key"] = mesh.keys.of("acme", changed["key"])
    elif "sampling" in changed:
        request.prompt.sampling.CopyFrom(changed["sampling"])
    else:
        role = Role.ROLE_SYSTEM if "system" in changed else Role.ROLE_USER
        said = Message(role=role, parts=[ContentPart(text=next(iter(changed.values())))])
        request.prompt.messages.insert(0, said)
    assert (await mesh.generate(request, **options)).error is None
    await eventually(lambda: len(mesh.cache.similar_puts) == 3)
    first, second, third = mesh.cache.similar_puts
    assert first.scope_key == second.scope_key != third.scope_key


async def test_cache_policy_first_takes_a_similar_answer_before_a_node() -> None:
    rule = {"windows": 3, "window_ms": 100, "min_outcomes": 2, "max_failure_ratio": 0.15}
    async with run_router(similar=[{"tenant": "acme"}], cache_rule=rule) as mesh:
        scripts = {name: node.script for name, node in mesh.nodes.items()}
        no_node(mesh)
        for number in range(1_000):
            failed = await mesh.generate(ask(f"number {number}", model="grok-3"))
            assert failed.error is not None
            if mesh.metric("ssop_router_cache_first"):
                break
            await asyncio.sleep(0.01)
        for name, node in mesh.nodes.items():
            node.script = scripts[name]
        mesh.cache.similar["acme"] = FOUND
        answer = await mesh.generate(ask("one more", model="grok-3"))
        assert answer.status.degraded_reason == DegradedReason.DEGRADED_REASON_CACHE_POLICY
        assert (answer.status.degraded_level, answer.status.served_by) == (1, "similar")


async def test_index_that_is_gone_is_flagged_and_skipped(mesh: Mesh) -> None:
    mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = failing()
    mesh.rag.error = MeshError(R.ERROR_REASON_BACKEND_FAILED, "scripted")
    answer = await mesh.generate(ask(model="grok-3", policy="no_rag"))
    assert answer.status.degraded_level == 2
    assert "similar" in answer.status.unavailable
    assert mesh.metric("ssop_router_similar_total", outcome="unavailable") == 1


async def test_index_that_hangs_costs_its_bound() -> None:
    async with run_router(similar=OPTED_IN, similar_timeout_ms=60) as mesh:
        mesh.cache.is_similar_frozen = True
        answer = await mesh.generate(willing())
        assert answer.status.served_by.startswith("full")
        assert answer.accounting.admission_ms < stretched(1_000)
        assert mesh.metric("ssop_router_similar_total", outcome="late") == 1


async def test_answer_whose_passages_are_not_known_is_not_served(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"c": 1}
    no_node(mesh)
    mesh.cache.similar["acme"] = FOUND
    assert (await mesh.generate(ask(model="grok-3"))).error is not None
    assert mesh.metric("ssop_router_similar_total", outcome="uncited") == 1


async def test_no_cache_means_no_similar_answer(mesh: Mesh) -> None:
    no_node(mesh)
    mesh.cache.similar["acme"] = FOUND
    assert reason(await mesh.generate(willing(), policy="no_cache")) == R.ERROR_REASON_NO_BACKEND
    assert mesh.cache.similar_finds == []


async def test_followers_do_not_get_what_a_similar_question_got(mesh: Mesh) -> None:
    mesh.cache.similar["acme"] = FOUND
    await mesh.generate(willing())
    await eventually(mesh.is_quiet)
    assert [commit.is_complete for commit in mesh.cache.commits] == [False]


async def test_entry_for_a_schema_fits_that_schema_only(tmp_path: Any) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"type": "object", "properties": {"x": {"type": "string"}}}')
    async with run_router(similar=[{"tenant": "acme", "schema_file": str(file)}]) as mesh:
        no_node(mesh)
        mesh.cache.similar["acme"] = FOUND
        assert reason(await mesh.generate(ask(model="grok-3"))) == R.ERROR_REASON_NO_BACKEND


def test_tenant_is_required() -> None:
    with pytest.raises(ValueError, match="tenant"):
        RouterSettings.model_validate({"nodes": ["n"], "keys_file": "k", "similar": [{"allow_hits": True}]})


def test_no_entries_fit_nobody() -> None:
    assert load_similar([]).find("acme", None) is None
