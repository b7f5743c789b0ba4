"""The SDK in front of several routers of one mesh: what a router that is gone, or goes, costs its callers."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from helpers.answers import PERSON, PERSON_SCHEMA
from helpers.redis_server import redis_pair
from helpers.router_fleet import run_fleet
from helpers.scripted_mesh import ask
from helpers.scripted_node import ScriptedNode, answering, hanging
from helpers.scripted_router import ScriptedRouter, as_script, serve
from helpers.sdk_clients import GOOD, KEY
from ssop.v1 import mesh_pb2
from ssop_sdk import AsyncSsopClient, GenerationInterrupted, RetryPolicy, SsopClient, SsopError, Unavailable

GONE = "127.0.0.1:1"


class Pair:
    """Two scripted routers, and the target of both."""

    def __init__(self, folder: str) -> None:
        self.addresses = [f"unix:{folder}/{name}.sock" for name in "ab"]
        self.routers = [ScriptedRouter(as_script(GOOD)) for _ in self.addresses]

    @property
    def target(self) -> str:
        return ",".join(self.addresses)

    @property
    def asked(self) -> list[int]:
        return [len(router.requests) for router in self.routers]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        pair = Pair(stack.enter_context(tempfile.TemporaryDirectory(prefix="sdk")))
        for router, address in zip(pair.routers, pair.addresses, strict=True):
            await stack.enter_async_context(serve(router, address))
        yield pair


async def test_request_goes_to_the_next_router_where_the_first_is_gone_and_the_others_after_it(pair: Pair) -> None:
    async with AsyncSsopClient(KEY, f"{GONE},{pair.target}", output_schema=PERSON_SCHEMA) as client:
        for _ in range(3):
            assert await client.generate("x").result() == PERSON
    assert pair.asked == [3, 0]


async def test_sync_request_goes_to_the_next_router_too(pair: Pair) -> None:
    def use() -> list[Any]:
        with SsopClient(KEY, f"{GONE},{pair.target}", output_schema=PERSON_SCHEMA) as client:
            return [client.generate("x").result() for _ in range(3)]

    assert await asyncio.to_thread(use) == [PERSON] * 3
    assert pair.asked == [3, 0]


async def test_unary_calls_go_to_the_next_router(pair: Pair) -> None:
    from ssop.v1 import router_pb2 as pb  # noqa: PLC0415

    pair.routers[0].unary["ListModels"] = pb.ListModelsResponse(models=[pb.ModelInfo(model="m")])
    async with AsyncSsopClient(KEY, f"{GONE},{pair.target}") as client:
        assert [model.model for model in await client.models()] == ["m"]


async def test_request_that_waits_at_a_router_that_dies_is_asked_again_elsewhere_by_the_same_id(pair: Pair) -> None:
    async def hang(request: Any, context: Any) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    pair.routers[0].script = hang
    async with AsyncSsopClient(KEY, pair.target, output_schema=PERSON_SCHEMA) as client:
        waiting = asyncio.ensure_future(client.generate("x", request_id="mine").result())
        async with asyncio.timeout(60):
            while not pair.routers[0].in_flight:
                await asyncio.sleep(0.005)
        await pair.routers[0].server.stop(0)
        assert await waiting == PERSON
    assert [router.requests[0].request_id for router in pair.routers] == ["mine", "mine"]


async def test_answer_that_was_begun_is_not_asked_for_again(pair: Pair) -> None:
    async def begin(request: Any, context: Any) -> AsyncIterator[bytes]:
        for chunk in GOOD[:4]:
            yield chunk
        await asyncio.Event().wait()

    pair.routers[0].script = begin
    async with AsyncSsopClient(KEY, pair.target, output_schema=PERSON_SCHEMA) as client:
        stream = client.generate("x")
        await anext(stream)
        await pair.routers[0].server.stop(0)
        with pytest.raises(GenerationInterrupted):
            await stream.result()
        # The next one is not begun, and goes on to the other router.
        assert await client.generate("x").result() == PERSON
    assert pair.asked == [1, 1]


async def test_session_after_a_lost_one_begins_at_the_next_router(pair: Pair) -> None:
    seen: list[int] = []

    def script(number: int) -> Any:
        async def run(requests: Any, context: Any) -> AsyncIterator[Any]:
            seen.append(number)
            async for _ in requests:
                break
            await asyncio.Event().wait()
            yield None

        return run

    for number, router in enumerate(pair.routers):
        router.session_script = script(number)
    async with AsyncSsopClient(KEY, pair.target) as client:
        async with client.session() as session:
            stream = await session.begin("x", is_complete=True)
            async with asyncio.timeout(60):
                while not seen:
                    await asyncio.sleep(0.005)
            await pair.routers[0].server.stop(0)
            with pytest.raises(Unavailable):
                await stream.result()
        async with client.session() as session:
            await session.begin("x", is_complete=True)
            async with asyncio.timeout(60):
                while len(seen) < 2:
                    await asyncio.sleep(0.005)
    assert seen == [0, 1]


async def test_what_comes_while_a_router_drains_is_unavailable_and_never_cancelled(pair: Pair) -> None:
    """gRPC itself ends as CANCELLED what reaches a server after it has begun to stop."""
    outcomes: Counter[str] = Counter()

    async def one(client: AsyncSsopClient) -> None:
        try:
            await client.generate("x").result()
            outcomes["ok"] += 1
        except SsopError as error:
            outcomes[type(error).__name__] += 1

    retry = RetryPolicy(max_retries=0)
    async with AsyncSsopClient(KEY, pair.addresses[0], output_schema=PERSON_SCHEMA, retry=retry) as client:
        await one(client)
        tasks = [asyncio.ensure_future(one(client)) for _ in range(50)]
        stopping = asyncio.ensure_future(pair.routers[0].server.stop(5))
        for _ in range(30):
            tasks += [asyncio.ensure_future(one(client)) for _ in range(3)]
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        await stopping
    print(dict(outcomes))
    assert outcomes["Unavailable"] > 0
    assert set(outcomes) <= {"ok", "Unavailable"}


async def test_drain_costs_no_request_where_there_is_another_router(pair: Pair) -> None:
    async with AsyncSsopClient(KEY, pair.target, output_schema=PERSON_SCHEMA) as client:
        tasks = [asyncio.ensure_future(client.generate("x").result()) for _ in range(50)]
        stopping = asyncio.ensure_future(pair.routers[0].server.stop(5))
        for _ in range(30):
            tasks += [asyncio.ensure_future(client.generate("x").result()) for _ in range(3)]
            await asyncio.sleep(0)
        assert await asyncio.gather(*tasks) == [PERSON] * len(tasks)
        await stopping


async def test_request_whose_router_is_killed_is_served_by_another_and_charged_once(tmp_path: Path) -> None:
    node = ScriptedNode("full-1", [mesh_pb2.TIER_FULL], hanging())
    limits = {"budget_tokens": 10_000, "budget_window_ms": 2_678_400_000}
    with redis_pair() as servers:
        async with run_fleet(tmp_path, {"full-1": node}, servers=servers, routers=2, cache=limits) as fleet:
            target = ",".join(router.address for router in fleet.routers)
            async with AsyncSsopClient(fleet.routers[0].key, target, policy="full", timeout_s=60) as client:
                asking = asyncio.ensure_future(client.generate("How is the mood?", request_id="once").result())
                async with asyncio.timeout(60):
                    while not node.requests:
                        await asyncio.sleep(0.01)
                node.script = answering()
                fleet.routers[0].kill()
                assert await asking
            async with asyncio.timeout(60):
                while fleet.books().reserved:
                    await asyncio.sleep(0.05)
            assert fleet.books().charged == 10
            assert (await fleet.routers[1].ask(ask(policy="full"))).error is None
    assert [request.request_id for request in node.requests[:2]] == ["once", "once"]
