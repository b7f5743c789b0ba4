"""Models on trial: who meets them, what is kept of their answers, and copies that nobody sees."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from helpers.eventually import eventually
from helpers.scripted_mesh import Mesh, ScriptedNode, answering, ask, failing, hanging, judged, run_router, used
from ssop.v1 import mesh_pb2
from ssop.v1.router_pb2 import GetMeshStatusRequest, GetMeshStatusResponse, TrialArm
from ssop_router.core.canary import Canary, draw, is_shadowed
from ssop_router.policy_settings import PolicySettings

FULL = mesh_pb2.TIER_FULL
OTHER = '{"mood":"new","score":4}'


def nodes() -> dict[str, ScriptedNode]:
    """The model of full-1 serves; that of full-2 is on trial."""
    return {name: ScriptedNode(name, [FULL]) for name in ("full-1", "full-2")}


def canary(share: float = 0.0, shadow: float = 0.0) -> list[dict[str, object]]:
    return [{"tier": "full", "model": "full-2-model", "share": share, "shadow": shadow}]


async def arms(mesh: Mesh) -> dict[str, TrialArm]:
    metadata = mesh.metadata(mesh.keys.of(scopes=("admin",)))
    request = GetMeshStatusRequest().SerializeToString()
    data = await mesh.peer.unary("/ssop.v1.RouterService/GetMeshStatus", request, timeout_s=5, metadata=metadata)
    (trial,) = GetMeshStatusResponse.FromString(data).trials
    return {arm.arm: arm for arm in trial.arms}


@pytest.mark.parametrize(("share", "node"), [(0.0, "full-1"), (1.0, "full-2")])
async def test_share_decides_who_answers(share: float, node: str) -> None:
    async with run_router(nodes(), canaries=canary(share)) as mesh:
        for _ in range(6):
            answer = await mesh.generate(ask(policy="full,no_cache"))
            assert answer.decision.node == node
            assert answer.decision.is_canary == (node == "full-2")


async def test_a_conversation_stays_with_its_model() -> None:
    async with run_router(nodes(), canaries=canary(0.5)) as mesh:
        for name in ("a", "b", "c", "d"):
            answers = [await mesh.generate(ask(policy="full,no_cache", conversation_id=name)) for _ in range(4)]
            assert len({answer.decision.node for answer in answers}) == 1


async def test_the_others_answer_where_the_canary_fails_and_the_other_way_round() -> None:
    for share, bad, good in ((1.0, "full-2", "full-1"), (0.0, "full-1", "full-2")):
        async with run_router(nodes(), canaries=canary(share)) as mesh:
            mesh.nodes[bad].script = failing()
            answer = await mesh.generate(ask(policy="full,no_cache"))
            assert answer.error is None
            assert answer.decision.node == good
            assert not answer.status.degraded_level


async def test_an_answer_on_trial_is_not_stored() -> None:
    async with run_router(nodes(), canaries=canary(1.0)) as mesh:
        await mesh.generate(ask(policy="full"))
        await eventually(mesh.is_quiet)
        assert not mesh.cache.stored


async def test_a_shadow_asks_the_canary_and_shows_nothing() -> None:
    async with run_router(nodes(), canaries=canary(shadow=1.0)) as mesh:
        mesh.nodes["full-2"].script = answering(OTHER)
        answer = await mesh.generate(ask(policy="full,no_cache"))
        await eventually(mesh.is_quiet)
        assert used(mesh) == ["full-1", "full-2"]
        assert b"new" not in b"".join(answer.chunks)
        assert mesh.nodes["full-2"].requests[0].prompt == mesh.nodes["full-1"].requests[0].prompt
        found = await arms(mesh)
        assert dict(found["shadow"].verdicts) == dict(found["stable"].verdicts) == {"ok": 1}
        assert found["shadow"].first_field_p50_ms > 0


async def test_shadows_are_few_and_wait_for_nobody() -> None:
    async with run_router(nodes(), canaries=canary(shadow=1.0), default_timeout_ms=300) as mesh:
        mesh.nodes["full-2"].script = hanging()
        answers = await asyncio.gather(*(mesh.generate(ask(policy="full,no_cache")) for _ in range(12)))
        assert all(answer.error is None for answer in answers)
        assert mesh.nodes["full-2"].running <= 4
        await eventually(mesh.is_quiet)
        verdicts = (await arms(mesh))["shadow"].verdicts
        assert verdicts["shed"] >= 8
        assert verdicts["shed"] + verdicts["failed"] == 12


async def test_a_shadow_that_breaks_the_schema_is_counted_apart() -> None:
    async with run_router(nodes(), canaries=canary(shadow=1.0)) as mesh:
        mesh.nodes["full-2"].script = answering('{"mood":"new","score":99}')
        answer = await mesh.generate(ask(policy="full,no_cache"))
        await eventually(mesh.is_quiet)
        assert answer.error is None
        assert dict((await arms(mesh))["shadow"].verdicts) == {"invalid": 1}


async def test_arms_count_what_their_models_answered() -> None:
    async with run_router(nodes(), canaries=canary(0.5)) as mesh:
        names = [f"r-{number}" for number in range(12)]
        for name in names:
            await mesh.generate(ask(policy="full,no_cache", request_id=name))
        found = await arms(mesh)
        met = sum(bool(draw([Canary(FULL, "full-2-model", 0.5)], "acme", name)) for name in names)
        assert 0 < met < 12
        assert found["canary"].verdicts["ok"] == met
        assert found["stable"].verdicts["ok"] == 12 - met


@given(st.floats(0, 1), st.text(max_size=8), st.text(max_size=8))
def test_who_meets_a_small_share_meets_a_larger_one(share: float, tenant: str, name: str) -> None:
    small, large = Canary(FULL, "m", share / 2), Canary(FULL, "m", share)
    assert draw([small], tenant, name) <= draw([large], tenant, name)
    assert not draw([Canary(FULL, "m", 0.0)], tenant, name)
    assert draw([Canary(FULL, "m", 1.0)], tenant, name)


def test_shares_come_out_as_they_are_set() -> None:
    rule = Canary(FULL, "m", share=0.1, shadow=0.3)
    names = [f"r-{number}" for number in range(20_000)]
    assert abs(sum(bool(draw([rule], "t", name)) for name in names) / 20_000 - 0.1) < 0.01
    assert abs(sum(is_shadowed(rule, "t", name) for name in names) / 20_000 - 0.3) < 0.015


def test_a_tier_has_one_canary() -> None:
    with pytest.raises(ValidationError, match="one canary"):
        PolicySettings(canaries=[{"tier": "full", "model": "a"}, {"tier": "full", "model": "b"}])


async def test_a_cascade_does_not_store_the_answer_of_a_lite_canary() -> None:
    lite = {name: ScriptedNode(name, [mesh_pb2.TIER_LITE]) for name in ("lite-1", "lite-2")}
    trial = [{"tier": "lite", "model": "lite-2-model", "share": 1.0}]
    async with run_router({**nodes(), **lite}, canaries=trial) as mesh:
        lite["lite-2"].script = judged(0.99)
        answer = await mesh.generate(ask(policy="cascade"))
        await eventually(mesh.is_quiet)
        assert answer.decision.node == "lite-2"
        assert not mesh.cache.stored
