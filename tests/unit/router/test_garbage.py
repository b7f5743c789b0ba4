"""Requests leave nothing to the garbage collector, however they end: what it has to find stops the router meanwhile."""

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import pytest

from helpers.cascades import prepare
from helpers.eventually import eventually
from helpers.scripted_mesh import GENERATE, Mesh, R, ask, failing, hanging, judged, pausing
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.router_pb2 import GenerateRequest
from ssop_chassis.call import Outlives
from ssop_chassis.dispatch import CallState, Dispatcher
from ssop_chassis.errors import MeshError

ROUNDS: Final = 5
HANGING, FAILING, FAILING_AFTER_A_FIELD = hanging(), failing(), failing(after=2)
UNSURE: Final = judged(0.9, 0.3)


class Call(CallState):
    """As the native transport has it: its work runs in its own task."""

    peer = ""

    def __init__(self, mesh: Mesh, request: GenerateRequest, timeout_s: float) -> None:
        super().__init__(GENERATE, mesh.metadata(), asyncio.get_running_loop().time() + timeout_s)
        self.request = request.SerializeToString()

    def send(self, message: bytes) -> None:
        """Its client takes everything."""

    def carry(self, work: Coroutine[Any, Any, None], outlives: Outlives) -> Awaitable[None]:
        return work


async def serve(mesh: Mesh, text: str, timeout_s: float = 60, **fields: Any) -> ErrorReason.ValueType:
    methods = {method.path: method for service in mesh.router.services for method in service.methods}
    call: Any = Call(mesh, ask(text, **fields), timeout_s)
    error: MeshError | None = await Dispatcher(mesh.keys.authenticate).dispatch(methods[GENERATE], call)
    return error.reason if error is not None else R.ERROR_REASON_UNSPECIFIED


async def be_answered(mesh: Mesh, number: int) -> None:
    assert await serve(mesh, f"question {number}") == R.ERROR_REASON_UNSPECIFIED


async def be_answered_from_the_cache(mesh: Mesh, _: int) -> None:
    assert await serve(mesh, "the same question") == R.ERROR_REASON_UNSPECIFIED


async def leave(mesh: Mesh, number: int) -> None:
    for node in mesh.nodes.values():
        node.script = HANGING
    task = asyncio.ensure_future(serve(mesh, f"question {number}"))
    await eventually(lambda: any(node.running for node in mesh.nodes.values()))
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def be_refused(mesh: Mesh, number: int) -> None:
    mesh.cache.admission_error = MeshError(R.ERROR_REASON_RATE_LIMITED, "scripted")
    assert await serve(mesh, f"question {number}") == R.ERROR_REASON_RATE_LIMITED


async def run_out(mesh: Mesh, number: int) -> None:
    for node in mesh.nodes.values():
        node.script = HANGING
    assert await serve(mesh, f"question {number}", timeout_s=0.05) == R.ERROR_REASON_DEADLINE_EXCEEDED


async def lose_a_node(mesh: Mesh, number: int) -> None:
    mesh.nodes["full-1"].script = FAILING
    assert await serve(mesh, f"question {number}") == R.ERROR_REASON_UNSPECIFIED


async def lose_all_nodes(mesh: Mesh, number: int) -> None:
    for node in mesh.nodes.values():
        node.script = FAILING
    assert await serve(mesh, f"question {number}") != R.ERROR_REASON_UNSPECIFIED


async def follow(mesh: Mesh, number: int) -> None:
    go_on = asyncio.Event()
    for node in mesh.nodes.values():
        node.script = pausing(go_on, after=1)
    leader = asyncio.ensure_future(serve(mesh, f"question {number}"))
    await eventually(lambda: any(node.running for node in mesh.nodes.values()))
    follower = asyncio.ensure_future(serve(mesh, f"question {number}"))
    await eventually(lambda: any(generation.followers for generation in mesh.cache.generations.values()))
    go_on.set()
    assert list(await asyncio.gather(leader, follower)) == [R.ERROR_REASON_UNSPECIFIED] * 2


async def follow_in_vain(mesh: Mesh, number: int) -> None:
    go_on = asyncio.Event()

    async def refuse(call: object, _: object) -> None:
        await go_on.wait()
        raise MeshError(R.ERROR_REASON_UNSUPPORTED, "scripted")

    for node in mesh.nodes.values():
        node.script = refuse
    leader = asyncio.ensure_future(serve(mesh, f"question {number}"))
    await eventually(lambda: any(node.running for node in mesh.nodes.values()))
    follower = asyncio.ensure_future(serve(mesh, f"question {number}"))
    await eventually(lambda: any(generation.followers for generation in mesh.cache.generations.values()))
    go_on.set()
    assert R.ERROR_REASON_UNSPECIFIED not in await asyncio.gather(leader, follower)


async def do_without_passages(mesh: Mesh, number: int) -> None:
    mesh.rag.collections["acme"] = {"docs": 1}
    mesh.rag.retrieval_error = MeshError(R.ERROR_REASON_STORE_UNAVAILABLE, "scripted")
    assert await serve(mesh, f"question {number}") == R.ERROR_REASON_UNSPECIFIED


async def lose_the_lite_answer(mesh: Mesh, number: int) -> None:
    prepare(mesh, FAILING)
    assert await serve(mesh, f"question {number}", policy="cascade") == R.ERROR_REASON_UNSPECIFIED


async def lose_the_rest_of_the_lite_answer(mesh: Mesh, number: int) -> None:
    prepare(mesh, FAILING_AFTER_A_FIELD)
    await serve(mesh, f"question {number}", policy="cascade")


async def outdo_the_lite_answer(mesh: Mesh, number: int) -> None:
    prepare(mesh, UNSURE)
    assert await serve(mesh, f"question {number}", policy="cascade") == R.ERROR_REASON_UNSPECIFIED


async def run_out_while_the_lite_answer_waits(mesh: Mesh, number: int) -> None:
    prepare(mesh, UNSURE, HANGING)
    reason = await serve(mesh, f"question {number}", timeout_s=0.05, policy="cascade")
    assert reason == R.ERROR_REASON_DEADLINE_EXCEEDED


async def leave_a_recorded_answer(mesh: Mesh, number: int) -> None:
    for node in mesh.nodes.values():
        node.script = HANGING
    task = asyncio.ensure_future(serve(mesh, f"question {number}", resume_window_ms=1))
    await eventually(lambda: any(node.running for node in mesh.nodes.values()))
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await eventually(mesh.is_quiet)


ENDS = [
    be_answered,
    be_answered_from_the_cache,
    follow,
    follow_in_vain,
    leave,
    be_refused,
    run_out,
    lose_a_node,
    lose_all_nodes,
    do_without_passages,
    lose_the_lite_answer,
    lose_the_rest_of_the_lite_answer,
    outdo_the_lite_answer,
    run_out_while_the_lite_answer_waits,
    leave_a_recorded_answer,
]


def find_garbage() -> Counter[str]:
    """What the collector finds that is of a class of the project's."""
    gc.collect()
    kinds = (type(one) for one in gc.garbage)
    return Counter(
        kind.__qualname__ for kind in kinds if kind.__module__.startswith(("ssop_router", "ssop_chassis.deadline"))
    )


@pytest.mark.parametrize("end", ENDS)
async def test_request_leaves_nothing_to_the_collector(mesh: Mesh, end: Callable[[Mesh, int], Awaitable[None]]) -> None:
    # What is made once, at the first request, is not what each leaves.
    await end(mesh, -1)
    await eventually(mesh.is_quiet)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for number in range(ROUNDS):
            await end(mesh, number)
        await eventually(mesh.is_quiet)
        assert find_garbage() == Counter()
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
