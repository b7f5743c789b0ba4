"""Status streams, their ages and the snapshot."""

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any, cast

import pytest

from helpers.as_written import run_both_ways
from helpers.eventually import eventually
from helpers.scripted_mesh import SECRET, R, ScriptedNode
from ssop.v1.mesh_pb2 import Tier
from ssop_chassis.call import Call, Service
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import Principal
from ssop_chassis.memory import MemoryPeer
from ssop_router.core.success import Outcomes
from ssop_router.nodes import Node, Nodes
from ssop_router.rotation import Rotation, Standing

way = run_both_ways("ssop_router.nodes", "Node", "Nodes")


class Clock:
    now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


class Watched(ScriptedNode):
    """A node whose status stream does what a test says."""

    mode = "speak"
    watches = 0

    async def watch_status(self, call: Call) -> None:
        self.watches += 1
        if self.mode == "fail":
            raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "scripted")
        if self.mode == "garbage":
            await call.write(b"\xff")
        await call.write(self.status.SerializeToString())
        if self.mode == "silent":
            await asyncio.Event().wait()
        while self.mode == "speak":
            await asyncio.sleep(0.005)
            await call.write(self.status.SerializeToString())
        raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "scripted")


class StillRotation:
    """A rotation that every node stays in, and what it heard."""

    def __init__(self) -> None:
        self.lost: list[str] = []
        self.ooms: list[int] = []
        self.tiers: list[list[int]] = []

    def standing(self, _: str) -> Standing:
        return Standing()

    def serve_tiers(self, _: str, tiers: Sequence[int]) -> None:
        self.tiers.append(list(tiers))

    def add(self, *_: Any) -> None:
        pass

    def remove(self, _: str) -> None:
        pass

    def record(self, *_: Any) -> Standing:
        return Standing()

    def lose(self, address: str) -> None:
        self.lost.append(address)

    def take_ooms(self, _: str, kills: int) -> None:
        self.ooms.append(kills)

    async def watch(self) -> None:
        await asyncio.Event().wait()


def make(scripted: Watched, clock: Clock, **options: Any) -> Nodes:
    services: Sequence[Service] = [scripted.service()]
    peer = MemoryPeer(services, lambda _: Principal("t", "k"), address="n")
    assert SECRET
    rotation = options.pop("rotation", None) or StillRotation()
    values = {"stale_ms": 1000, "restart_ms": 60_000, "reconnect_ms": (5, 20), **options}
    return Nodes(
        [Node(peer, frozenset({Tier.TIER_LITE}), Outcomes(half_life_ms=1000, window_ms=1000))],
        outcomes=Outcomes(half_life_ms=1000, window_ms=1000),
        rotation=lambda _: cast("Rotation", rotation),
        clock_ms=clock,
        rng=random.Random(1),
        metadata=dict,
        **values,
    )


async def watch(nodes: Nodes) -> "asyncio.Task[None]":
    return asyncio.get_running_loop().create_task(nodes.watch())


async def stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait({task})


async def test_status_becomes_a_view_with_its_age() -> None:
    scripted, clock = Watched("n1", [Tier.TIER_FULL]), Clock()
    scripted.status.memory_free_bytes.value = 1
    scripted.status.memory_total_bytes.value = 4
    nodes = make(scripted, clock)
    task = await watch(nodes)
    await eventually(lambda: nodes["n"].is_connected)
    await stop(task)
    view = nodes.snapshot().nodes[0]
    clock.now_ms += 250
    assert view.name == "n1"
    assert view.models[0].tiers == {Tier.TIER_FULL}
    assert view.memory_free_ratio == 0.25
    assert view.age_ms(clock.now_ms) == 250


@pytest.mark.parametrize(("age_ms", "expected"), [(0, 0.01), (5_000, 0.01), (5_001, 0.25)])
async def test_full_kv_cache_is_no_head_room_while_that_is_fresh(age_ms: int, expected: float) -> None:
    scripted = Watched("n1", [Tier.TIER_FULL])
    scripted.status.memory_free_bytes.value = 1
    scripted.status.memory_total_bytes.value = 4
    scripted.status.models[0].kv_used_ratio.value = 0.99
    scripted.status.models[0].kv_used_ratio.age_ms = age_ms
    nodes = make(scripted, Clock())
    task = await watch(nodes)
    await eventually(lambda: nodes["n"].is_connected)
    await stop(task)
    assert nodes.snapshot().nodes[0].memory_free_ratio == pytest.approx(expected)


async def test_node_without_a_status_is_known_by_its_address() -> None:
    view = make(Watched("n1", []), Clock()).snapshot().nodes[0]
    assert (view.name, view.seen_at_ms) == ("n", None)
    assert view.expected_tiers == {Tier.TIER_LITE}


async def test_lost_stream_is_renewed_and_keeps_the_last_status() -> None:
    scripted = Watched("n1", [Tier.TIER_FULL])
    nodes = make(scripted, Clock())
    task = await watch(nodes)
    await eventually(lambda: nodes["n"].is_connected)
    scripted.mode = "fail"
    await eventually(lambda: not nodes["n"].is_connected)
    assert nodes.snapshot().nodes[0].models
    assert not nodes.snapshot().nodes[0].is_connected
    scripted.mode = "speak"
    await eventually(lambda: nodes["n"].is_connected)
    await stop(task)


async def test_node_that_a_probe_found_well_is_asked_for_its_status_at_once() -> None:
    scripted = Watched("n1", [Tier.TIER_FULL])
    nodes = make(scripted, Clock(), reconnect_ms=(5, 3_600_000))
    task = await watch(nodes)
    await eventually(lambda: nodes["n"].is_connected)
    scripted.mode = "fail"
    await eventually(lambda: scripted.watches >= 10)
    scripted.mode = "speak"
    nodes["n"].stand(Standing(weight=0.0))
    nodes["n"].stand(Standing(weight=0.1))
    await eventually(lambda: nodes["n"].is_connected)
    await stop(task)


async def test_silent_node_is_not_trusted() -> None:
    scripted = Watched("n1", [Tier.TIER_FULL])
    scripted.mode = "silent"
    nodes = make(scripted, Clock(), stale_ms=30)
    task = await watch(nodes)
    await eventually(lambda: scripted.watches >= 2)
    await stop(task)


async def test_garbage_does_not_end_the_watch() -> None:
    scripted = Watched("n1", [Tier.TIER_FULL])
    scripted.mode = "garbage"
    nodes = make(scripted, Clock())
    task = await watch(nodes)
    await eventually(lambda: scripted.watches >= 2)
    assert not task.done()
    await stop(task)


async def test_error_that_nobody_foresaw_ends_no_watch_and_is_counted() -> None:
    scripted = Watched("n1", [Tier.TIER_FULL])
    faults: list[int] = []

    class Broken(StillRotation):
        def serve_tiers(self, *_: Any) -> None:
            if len(faults) < 2:
                raise KeyError("scripted")

    nodes = make(scripted, Clock(), rotation=Broken(), on_fault=lambda: faults.append(1))
    task = await watch(nodes)
    await eventually(lambda: nodes["n"].is_connected and len(faults) == 2)
    assert not task.done()
    await stop(task)


async def test_tiers_are_told_when_they_change_and_not_with_every_status() -> None:
    scripted, rotation, clock = Watched("n1", [Tier.TIER_FULL]), StillRotation(), Clock()
    nodes = make(scripted, clock, rotation=rotation)
    task = await watch(nodes)
    for tiers in ([Tier.TIER_FULL], [Tier.TIER_LITE]):
        scripted.status.models[0].tiers[:] = tiers
        await eventually(lambda: bool(rotation.tiers) and rotation.tiers[-1] == scripted.status.models[0].tiers)
        clock.now_ms += 1_000
        # Another one has come since.
        await eventually(lambda: nodes["n"].seen_at_ms == clock.now_ms)
    await stop(task)
    assert rotation.tiers == [[Tier.TIER_FULL], [Tier.TIER_LITE]]


async def test_a_node_that_stays_after_all_has_its_tiers_told_again() -> None:
    rotation = StillRotation()
    nodes = make(Watched("n1", [Tier.TIER_FULL]), Clock(), rotation=rotation)
    task = await watch(nodes)
    await eventually(lambda: len(rotation.tiers) == 1)
    with nodes.occupy("n"):
        nodes.leave("n", lambda: None)
        nodes.stay("n")
    await eventually(lambda: len(rotation.tiers) == 2)
    await stop(task)
    assert rotation.tiers == [[Tier.TIER_FULL]] * 2


async def test_a_status_is_seen_by_the_next_decision() -> None:
    scripted, clock = Watched("n1", [Tier.TIER_FULL]), Clock()
    nodes = make(scripted, clock)
    task = await watch(nodes)
    await eventually(lambda: nodes["n"].is_connected)
    load = scripted.status.models[0].slots_busy
    for busy in (3.0, 1.0):
        load.value = busy
        clock.now_ms += 1_000
        await eventually(lambda: nodes.snapshot().nodes[0].models[0].slots_busy == load.value)
    assert nodes.snapshot().nodes[0].seen_at_ms == clock.now_ms
    await stop(task)


async def test_stream_that_reached_its_length_is_renewed_without_doubt() -> None:
    scripted = Watched("n1", [Tier.TIER_FULL])
    nodes = make(scripted, Clock(), restart_ms=30)
    task = await watch(nodes)
    await eventually(lambda: nodes["n"].is_connected)
    lost = False
    async with asyncio.timeout(60):
        while scripted.watches < 3:
            await asyncio.sleep(0.002)
            lost = lost or not nodes["n"].is_connected
    await stop(task)
    assert not lost


async def test_back_off_is_bounded_below() -> None:
    scripted = Watched("n1", [])
    scripted.mode = "fail"
    nodes = make(scripted, Clock(), reconnect_ms=(20, 40))
    began_s = time.monotonic()
    task = await watch(nodes)
    await asyncio.sleep(0.15)
    await stop(task)
    assert scripted.watches <= 1 + (time.monotonic() - began_s) / 0.02


async def test_attempts_are_counted_while_they_run() -> None:
    nodes = make(Watched("n1", []), Clock())
    with nodes.occupy("n"):
        assert nodes.snapshot().nodes[0].in_flight == 1
    assert nodes.snapshot().nodes[0].in_flight == 0


async def test_snapshot_is_made_again_only_after_a_change() -> None:
    nodes = make(Watched("n1", []), Clock())
    first = nodes.snapshot()
    assert nodes.snapshot() is first
    with nodes.occupy("n"):
        assert nodes.snapshot() is not first
