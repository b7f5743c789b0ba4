"""What callers do, and what hits all nodes alike, takes no node out: seen through a router process."""

import asyncio
import json
import random
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc.aio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from helpers.eventually import eventually
from helpers.ledger import LedgerFault, check_unblamed
from helpers.machine import stretched
from helpers.router_fleet import Fleet, FleetRouter, run_fleet
from helpers.scripted_mesh import ask
from helpers.scripted_node import R, ScriptedNode, answering, encode, failing, node_status_chunk
from ssop.v1 import mesh_pb2
from ssop_chassis.call import Call

SEED = 20_261_129


def two_nodes() -> dict[str, ScriptedNode]:
    return {name: ScriptedNode(name, [mesh_pb2.TIER_FULL]) for name in ("full-1", "full-2")}


def question(number: int = 0) -> Any:
    return ask(f"How is the mood of {number}?", policy="full,no_cache")


async def sample(router: FleetRouter, name: str, **labels: str) -> float:
    """The sum of a metric's samples with these labels."""
    address = next(line["metrics"] for line in router.log if line["message"] == "serving")

    def read() -> str:
        with urlopen(f"http://{address}/metrics", timeout=30) as page:
            text: str = page.read().decode()
            return text

    families = text_string_to_metric_families(await asyncio.to_thread(read))
    samples = [found for family in families for found in family.samples if found.name == name]
    return sum(found.value for found in samples if labels.items() <= found.labels.items())


async def rules(fleet: Fleet) -> list[str]:
    """The rules that have spoken against a node."""
    names = ("slow", "consecutive_failures", "failure_burst", "connection_lost", "repeated_oom")
    spoken = [await sample(fleet.routers[0], "ssop_router_ejections_total", rule=rule) for rule in names]
    return [rule for rule, times in zip(names, spoken, strict=True) if times]


@pytest.mark.parametrize(
    "code", [R.ERROR_REASON_REQUEST_INVALID, R.ERROR_REASON_CONTEXT_EXCEEDED, R.ERROR_REASON_CONTENT_UNSUPPORTED]
)
async def test_24_bad_requests_in_a_row_blame_nobody(tmp_path: Path, code: Any) -> None:
    nodes = two_nodes()
    for node in nodes.values():
        node.script = failing(code)
    async with run_fleet(tmp_path, nodes, routers=1) as fleet:
        for number in range(24):
            reply = await fleet.routers[0].ask(question(number))
            assert reply.error is not None
            assert reply.error.reason == code
        assert fleet.calls == 24
        check_unblamed(await rules(fleet))
        for node in nodes.values():
            node.script = answering()
        assert (await fleet.routers[0].ask(question())).error is None


async def trickle(call: Call, _: Any) -> None:
    """An answer whose first field takes 100 ms, and each of the others 10."""
    await call.write(node_status_chunk())
    # In which callers may leave.
    await asyncio.sleep(0.1)
    for chunk in encode(json.dumps({"mood": "fine", "score": 3})):
        await asyncio.sleep(0.01)
        await call.write(chunk)


async def storm(folder: Path, without: str) -> None:
    """Half of the callers leave, some before the first field and some after it; the others are all served."""
    nodes = two_nodes()
    for node in nodes.values():
        node.script = trickle
    rng = random.Random(SEED)
    async with run_fleet(folder, nodes, routers=1, without=without) as fleet:
        router = fleet.routers[0]

        def has_reached(name: str) -> bool:
            return any(request.request_id == name for node in nodes.values() for request in node.requests)

        async def leave(name: str, chunks: int) -> None:
            request = question()
            request.request_id = name
            call = router.open(request)
            for _ in range(chunks):
                assert await call.read() is not grpc.aio.EOF
            await eventually(lambda: has_reached(name))
            call.cancel()

        for crowd in range(10):
            stayed = [router.ask(question(number)) for number in range(20)]
            left = [leave(f"{crowd}-{number}", rng.choice([0, 0, 1])) for number in range(20)]
            replies, _ = await asyncio.gather(asyncio.gather(*stayed), asyncio.gather(*left))
            assert [reply.error for reply in replies] == [None] * 20, crowd
        await eventually(lambda: sum(node.cancelled for node in nodes.values()) > 100)
        blamed = await rules(fleet)
    check_unblamed(blamed)


async def test_storm_in_which_half_of_the_callers_leave_blames_nobody(tmp_path: Path) -> None:
    await storm(tmp_path, "")


async def test_checker_fails_where_cancels_count_as_failures(tmp_path: Path) -> None:
    with pytest.raises(LedgerFault, match="blamed by"):
        await storm(tmp_path, "neutral cancels")


async def test_outage_that_all_nodes_share_leaves_them_in(tmp_path: Path) -> None:
    nodes = {name: ScriptedNode(name, [mesh_pb2.TIER_FULL]) for name in ("full-1", "full-2", "full-3", "full-4")}
    for node in nodes.values():
        node.script = failing(R.ERROR_REASON_BACKEND_FAILED)
        node.is_well = False
    async with run_fleet(tmp_path, nodes, routers=1) as fleet:
        router = fleet.routers[0]
        for number in range(60):
            assert (await router.ask(question(number))).error is not None
        assert await sample(router, "ssop_router_ejections_total", verdict="shared_cause") > 0
        assert await sample(router, "ssop_router_node_ejected") == 0
        for node in nodes.values():
            node.script = answering()
        replies = await asyncio.gather(*(router.ask(question(number)) for number in range(40)))
        assert [reply.error for reply in replies] == [None] * 40


async def test_node_that_was_overloaded_serves_again_within_two_seconds(tmp_path: Path) -> None:
    nodes = {"full-1": ScriptedNode("full-1", [mesh_pb2.TIER_FULL], failing(R.ERROR_REASON_OVERLOADED))}
    async with run_fleet(tmp_path, nodes, routers=1) as fleet:
        router = fleet.routers[0]
        ends_s = time.monotonic() + 3
        refused = 0
        while time.monotonic() < ends_s or refused <= 100:
            replies = await asyncio.gather(*(router.ask(question(number)) for number in range(20)))
            refused += sum(reply.error is not None for reply in replies)
        check_unblamed(await rules(fleet))
        nodes["full-1"].script = answering()
        well_s = time.monotonic()
        while (reply := await router.ask(question())).error is not None:
            assert reply.error.reason == R.ERROR_REASON_OVERLOADED
        first_s = time.monotonic() - well_s
        while any(
            reply.error for reply in await asyncio.gather(*(router.ask(question(number)) for number in range(20)))
        ):
            pass
        crowd_s = time.monotonic() - well_s
    print(f"served again after {first_s * 1000:.0f} ms, a crowd of 20 after {crowd_s * 1000:.0f} ms")
    assert crowd_s < stretched(2)
