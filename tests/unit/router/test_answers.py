"""Stored answers, followers, and a cache that fails."""

import asyncio

import pytest

from helpers.eventually import eventually
from helpers.machine import stretched
from helpers.scripted_mesh import (
    GOOD,
    Answer,
    Mesh,
    R,
    answering,
    ask,
    default_nodes,
    encode,
    failing,
    hanging,
    pausing,
    reason,
    run_router,
    used,
)
from ssop.v1 import inference_pb2, mesh_pb2
from ssop.v1.cache_pb2 import LookupResponse
from ssop.v1.content_pb2 import Sampling
from ssop.v1.mesh_pb2 import CacheReason, Receipt
from ssop.v1.router_pb2 import CacheOptions, GenerateRequest
from ssop_chassis.call import Call
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import Principal
from ssop_router import crowd, kept
from ssop_router.core.envelope import Admitted
from ssop_router.core.envelopes import read_admitted
from ssop_router.job import Intake


async def test_small_replay_is_one_message(mesh: Mesh) -> None:
    await mesh.generate(ask(model="grok-3-lite"))
    assert len((await mesh.generate(ask(model="grok-3-lite"))).chunks) == 1


async def test_stored_answer_is_replayed_byte_for_byte(mesh: Mesh) -> None:
    first = await mesh.generate(ask(model="grok-3-lite"))
    second = await mesh.generate(ask(model="grok-3-lite"))
    assert second.documents == first.documents
    assert second.decision.cache_reason == CacheReason.CACHE_REASON_HIT
    assert second.status.is_cached
    assert second.status.age_ms == 1234
    assert not second.accounting.is_billed
    assert used(mesh) == ["lite-1"]


async def test_replay_is_charged_nothing(mesh: Mesh) -> None:
    await mesh.generate(ask(model="grok-3-lite"))
    await mesh.generate(ask(model="grok-3-lite", request_id="second"))
    await eventually(lambda: "second" in mesh.cache.settled)
    assert mesh.cache.settled["second"] == mesh_pb2.Usage()


async def test_settlements_that_find_too_many_waiting_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ssop_router.answers._MOST_WAITING", 2)
    names = [f"r{number}" for number in range(4)]
    async with run_router() as mesh:
        go_on = asyncio.Event()
        mesh.nodes["lite-1"].script = pausing(go_on, after=1)
        asked: list[asyncio.Future[Answer]] = []
        for name in names:
            request = ask(model="grok-3-lite", policy="no_cache", request_id=name)
            asked.append(asyncio.ensure_future(mesh.generate(request)))
            await eventually(lambda: len(mesh.cache.admitted) == len(asked))
        mesh.cache.gate.clear()
        go_on.set()
        await asyncio.gather(*asked)
        mesh.cache.gate.set()
        await eventually(lambda: sorted(mesh.cache.settled) == names)
        assert mesh.metric("ssop_router_settle_failures_total") == 0


async def test_answer_is_never_another_tenants(mesh: Mesh) -> None:
    await mesh.generate(ask(model="grok-3-lite"))
    other = await mesh.generate(ask(model="grok-3-lite"), key=mesh.keys.of("other"))
    assert other.decision.cache_reason == CacheReason.CACHE_REASON_MISS


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (ask(policy="no_cache"), CacheReason.CACHE_REASON_POLICY_OFF),
        (ask(prompt=ask().prompt), CacheReason.CACHE_REASON_MISS),
    ],
)
async def test_cache_reason(mesh: Mesh, request_: GenerateRequest, expected: int) -> None:
    assert (await mesh.generate(request_)).decision.cache_reason == expected


async def test_sampled_answers_are_cached_only_when_asked_for(mesh: Mesh) -> None:
    request = ask()
    request.prompt.sampling.CopyFrom(Sampling(temperature=0.7))
    assert (await mesh.generate(request)).decision.cache_reason == CacheReason.CACHE_REASON_TEMPERATURE
    assert not mesh.cache.stored
    request.cache.CopyFrom(CacheOptions(allow_sampled=True))
    assert (await mesh.generate(request)).decision.cache_reason == CacheReason.CACHE_REASON_MISS
    assert mesh.cache.stored


async def test_cache_only_never_generates(mesh: Mesh) -> None:
    answer = await mesh.generate(ask(policy="cache_only"))
    assert reason(answer) == R.ERROR_REASON_CACHE_MISS
    assert used(mesh) == []


async def test_cache_that_is_down_is_done_without(mesh: Mesh) -> None:
    mesh.cache.error = MeshError(R.ERROR_REASON_STORE_UNAVAILABLE, "scripted")
    answer = await mesh.generate()
    assert answer.error is None
    assert answer.status.unavailable == ["cache", "rate_limit"]
    assert answer.decision.cache_reason == CacheReason.CACHE_REASON_UNAVAILABLE
    assert mesh.metric("ssop_router_unavailable_total", dependency="cache") == 1


async def test_cache_that_is_frozen_costs_little_and_is_left_alone(mesh: Mesh) -> None:
    mesh.cache.is_frozen = True
    answers = [await mesh.generate() for _ in range(6)]
    assert all("cache" in answer.status.unavailable for answer in answers)
    assert all(answer.accounting.admission_ms < stretched(500) for answer in answers)
    assert answers[-1].accounting.admission_ms < stretched(50)


class _Damaged:
    @staticmethod
    def FromString(message: bytes) -> LookupResponse:
        return LookupResponse.FromString(message + b"\xff")


@pytest.mark.parametrize("is_all_damaged", [False, True])
async def test_an_answer_that_cant_be_read_is_done_without(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch, is_all_damaged: bool
) -> None:
    await mesh.generate()
    if is_all_damaged:
        monkeypatch.setattr(kept, "LookupResponse", _Damaged)
    monkeypatch.setattr(crowd, "read_admitted", lambda message: read_admitted(message)._replace(answer=b"\xff"))
    answer = await mesh.generate()
    assert answer.error is None
    assert "cache" in answer.status.unavailable
    assert len(used(mesh)) == 1 + is_all_damaged


@pytest.mark.parametrize("policy", ["", "cascade"])
async def test_a_limit_of_tokens_that_is_next_to_none_reserves_what_the_cache_service_can_be_asked_for(
    policy: str,
) -> None:
    nodes = default_nodes()
    for node in nodes.values():
        node.status.models[0].context_tokens = 0
    request = ask(policy=policy)
    request.prompt.sampling.max_output_tokens = 2**32 - 1
    async with run_router(nodes) as mesh:
        answer = await mesh.generate(request)
        assert answer.error is None
        assert mesh.cache.admitted[-1].reserve_tokens == 2**32 - 1


async def test_limits_are_refusals(mesh: Mesh) -> None:
    mesh.cache.error = MeshError(R.ERROR_REASON_RATE_LIMITED, "scripted", retry_after_ms=700)
    answer = await mesh.generate()
    assert reason(answer) == R.ERROR_REASON_RATE_LIMITED
    assert answer.error is not None
    assert answer.error.retry_after_ms == 700
    assert used(mesh) == []


async def test_same_question_at_the_same_time_is_generated_once() -> None:
    async with run_router(append_interval_ms=5) as mesh:
        go_on = asyncio.Event()
        mesh.nodes["lite-1"].script = pausing(go_on, after=2)
        leader = asyncio.ensure_future(mesh.generate(ask(model="grok-3-lite")))
        await eventually(lambda: mesh.nodes["lite-1"].running == 1)
        followers = [asyncio.ensure_future(mesh.generate(ask(model="grok-3-lite"))) for _ in range(5)]
        await eventually(lambda: any(g.followers == 5 for g in mesh.cache.generations.values()))
        go_on.set()
        first = await leader
        for follower in await asyncio.gather(*followers):
            assert follower.documents == first.documents
            assert follower.decision.cache_reason == CacheReason.CACHE_REASON_FOLLOWER
            assert not follower.accounting.is_billed
        assert used(mesh) == ["lite-1"]


async def test_what_nobody_follows_is_stored_without_an_append() -> None:
    async with run_router(append_interval_ms=5) as mesh:
        go_on = asyncio.Event()
        mesh.nodes["lite-1"].script = pausing(go_on, after=1)
        asked = asyncio.ensure_future(mesh.generate(ask(model="grok-3-lite")))
        await eventually(lambda: len(mesh.cache.renewals) > 2)
        go_on.set()
        assert (await asked).error is None
        await eventually(lambda: bool(mesh.cache.commits))
        assert (mesh.cache.appends, mesh.cache.commits[0].is_complete) == (0, True)


async def test_what_is_large_is_appended_though_nobody_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ssop_router.lease.MOST_PENDING_BYTES", 1)
    async with run_router() as mesh:
        assert (await mesh.generate(ask(model="grok-3-lite"))).error is None
        await eventually(lambda: bool(mesh.cache.commits))
        assert mesh.cache.appends > 0
        assert mesh.cache.commits[0].is_complete


async def test_leader_that_could_not_append_lets_its_followers_go() -> None:
    async with run_router(append_interval_ms=5) as mesh:
        go_on = asyncio.Event()
        chunks = encode(GOOD)

        may_begin = asyncio.Event()

        async def script(call: Call, _: object) -> None:
            await may_begin.wait()
            for chunk in chunks[:2]:
                await call.write(chunk)
            await go_on.wait()
            for chunk in chunks[2:]:
                await call.write(chunk)

        mesh.nodes["lite-1"].script = script
        leader = asyncio.ensure_future(mesh.generate(ask(model="grok-3-lite")))
        await eventually(lambda: mesh.nodes["lite-1"].running == 1)
        follower = asyncio.ensure_future(mesh.generate(ask(model="grok-3-lite")))
        await eventually(lambda: any(g.followers for g in mesh.cache.generations.values()))
        mesh.cache.append_error = MeshError(R.ERROR_REASON_STORE_UNAVAILABLE, "scripted")
        may_begin.set()
        await eventually(lambda: mesh.cache.appends > 0)
        mesh.cache.append_error = None
        go_on.set()
        answers = [await leader, await follower]
        assert [answer.error for answer in answers] == [None, None]
        assert [commit.is_complete for commit in mesh.cache.commits] == [False, True]


async def test_leader_that_goes_away_generates_on_for_its_followers() -> None:
    async with run_router(append_interval_ms=5) as mesh:
        go_on = asyncio.Event()
        mesh.nodes["lite-1"].script = pausing(go_on, after=2)
        leader = mesh.open(ask(model="grok-3-lite"))
        await leader.read()
        follower = asyncio.ensure_future(mesh.generate(ask(model="grok-3-lite")))
        await eventually(lambda: any(g.followers for g in mesh.cache.generations.values()))
        appends = mesh.cache.appends
        await eventually(
            lambda: (
                mesh.cache.appends > appends or any(job.has_followers for job in mesh.router.pipeline._running.values())
            )
        )
        await eventually(lambda: any(job.has_followers for job in mesh.router.pipeline._running.values()))
        await leader.cancel()
        go_on.set()
        answer = await follower
        assert answer.error is None
        assert used(mesh) == ["lite-1"]
        assert mesh.nodes["lite-1"].cancelled == 0


async def test_what_is_generated_once_its_client_has_gone_is_neither_sent_nor_lost() -> None:
    async with run_router(append_interval_ms=5) as mesh:
        go_on = asyncio.Event()
        mesh.nodes["lite-1"].script = pausing(go_on, after=2)
        leader = mesh.open(ask(model="grok-3-lite", request_id="leader"))
        await leader.read()
        job = mesh.router.pipeline._running["acme", "leader"]
        follower = asyncio.ensure_future(mesh.generate(ask(model="grok-3-lite")))
        await eventually(lambda: job.has_followers)
        sent = job.sends.frames
        await leader.cancel()
        go_on.set()
        followed = await follower
        await eventually(mesh.is_quiet)
        assert mesh.metric("ssop_router_frames_sent_total") == sent + len(followed.documents)
        received = Receipt(request_id="leader", frames_received=sent, frames_verified=sent)
        await mesh.generate(ask(receipts=[received]))
        assert mesh.metric("ssop_router_frames_lost_total") == 0


async def test_lease_of_a_request_that_went_while_it_was_admitted_is_given_up(mesh: Mesh) -> None:
    mesh.cache.gate.clear()
    calls = mesh.cache.calls
    leader = mesh.open(ask(model="grok-3-lite"))
    await eventually(lambda: mesh.cache.calls > calls)
    await leader.cancel()
    await eventually(lambda: mesh.router.pipeline.in_flight == 0)
    mesh.cache.gate.set()
    await eventually(lambda: [commit.is_complete for commit in mesh.cache.commits] == [False])
    assert all(generation.state != "open" for generation in mesh.cache.generations.values())


async def test_lease_that_comes_in_the_turn_in_which_its_request_goes_is_given_up(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_in_vain(reply: bytes) -> Admitted:
        asyncio.get_running_loop().call_soon(task.cancel)
        return read_admitted(reply)

    monkeypatch.setattr(crowd, "read_admitted", read_in_vain)
    principal = Principal("acme", "k", frozenset({"lite", "full", "ssop"}))
    job = mesh.router.pipeline.accept(Intake(ask(model="grok-3-lite"), principal, 60))
    task = asyncio.ensure_future(mesh.router.pipeline.serve(job, lambda _: None, lambda work, _: work))
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: [commit.is_complete for commit in mesh.cache.commits] == [False])


async def test_follower_takes_over_when_the_leader_fails_before_a_field(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].script = hanging()
    leader = mesh.open(ask(model="grok-3-lite"))
    await eventually(lambda: mesh.nodes["lite-1"].running == 1)
    follower = asyncio.ensure_future(mesh.generate(ask(model="grok-3-lite")))
    await eventually(lambda: any(g.followers for g in mesh.cache.generations.values()))
    mesh.nodes["lite-1"].script = answering()
    await leader.cancel()
    answer = await follower
    assert answer.error is None
    assert answer.decision.cache_reason == CacheReason.CACHE_REASON_MISS
    assert mesh.cache.stored


async def test_follower_that_takes_over_without_the_cache_is_counted_as_a_generation(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].script = hanging()
    leader = mesh.open(ask(model="grok-3-lite"))
    await eventually(lambda: mesh.nodes["lite-1"].running == 1)
    follower = asyncio.ensure_future(mesh.generate(ask(model="grok-3-lite", request_id="follower")))
    await eventually(lambda: any(g.followers for g in mesh.cache.generations.values()))
    mesh.nodes["lite-1"].script = answering()
    mesh.cache.admission_error = MeshError(R.ERROR_REASON_STORE_UNAVAILABLE, "scripted")
    await leader.cancel()
    assert (await follower).error is None
    await eventually(lambda: "follower" in mesh.cache.counted)
    assert not mesh.cache.counted["follower"].is_cached
    assert mesh.cache.settled["follower"].output_tokens == 3


async def test_degraded_generation_has_no_followers(mesh: Mesh) -> None:
    go_on = asyncio.Event()

    async def script(call: Call, request: inference_pb2.InferenceServiceGenerateRequest) -> None:
        await go_on.wait()
        await answering()(call, request)

    mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = failing()
    mesh.nodes["lite-1"].script = script
    leader = asyncio.ensure_future(mesh.generate(ask(model="grok-3")))
    await eventually(lambda: mesh.nodes["lite-1"].running == 1)
    await eventually(lambda: len(mesh.cache.commits) == 1)
    second = asyncio.ensure_future(mesh.generate(ask(model="grok-3")))
    await eventually(lambda: mesh.nodes["lite-1"].running == 2)
    go_on.set()
    assert (await leader).status.degraded_level == 2
    assert (await second).status.degraded_level == 2
