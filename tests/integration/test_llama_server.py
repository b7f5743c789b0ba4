"""The real llama-server behind a node: held to schemas, cancelled, stalled, killed."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from helpers.beginnings import cut
from helpers.eventually import eventually
from helpers.inference import LONG, OPINION, POST, Answer, NodeUnderTest, serve, user_prompt
from helpers.live_mesh import run_mesh
from helpers.llama_server import SLOTS, LlamaServer, freed_after_s, llama_server
from helpers.machine import stretched
from helpers.models import smollm2_path
from helpers.upstream import scripted_upstream
from helpers.vendors import VENDORS
from ssop.v1 import frame_pb2, inference_pb2, mesh_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_cli.app import app
from ssop_inference.assembly import build_node
from ssop_inference.openai_wire import OpenAiWire
from ssop_inference.settings import InferenceSettings, ModelSettings
from ssop_inference.upstream import UpstreamBackend
from ssop_sdk import SsopClient

R = ErrorReason
FREED_WITHIN_S = 0.1
BATCHES_WITHIN_S = 0.5
WORDS: dict[str, Any] = {
    "type": "object",
    "properties": {name: {"enum": ["sea", "land"]} for name in ("a", "b")},
    "required": ["a", "b"],
    "additionalProperties": False,
}
# The server reads it in some seconds, eight tokens at a time, and looks at cancelled requests in between.
UNREAD = "word " * 1500


@pytest.fixture(scope="module")
def server() -> Iterator[LlamaServer]:
    with llama_server() as running:
        yield running


@asynccontextmanager
async def node_of(server: LlamaServer, *, timeout_s: float = 30, **fields: Any) -> AsyncIterator[NodeUnderTest]:
    model = ModelSettings(name="m", backend="openai", url=server.url, slots=SLOTS, **fields)
    node = build_node(InferenceSettings(models=(model,)))
    node.retry_s = 0.05
    try:
        await node.start(timeout_s=timeout_s)
        yield serve(node)
    finally:
        await node.close()


def backend_of(running: NodeUnderTest) -> UpstreamBackend:
    backend = running.node.models[0].backend
    assert isinstance(backend, UpstreamBackend)
    return backend


async def reason_of(call: Awaitable[Any]) -> int:
    with pytest.raises(MeshError) as caught:
        await call
    return caught.value.reason


async def test_server_is_known_by_its_pages(server: LlamaServer) -> None:
    async with node_of(server) as running:
        backend = backend_of(running)
        wire = backend.wire
        assert isinstance(wire, OpenAiWire)
        assert (wire.dialect.name, wire.load_page, backend.facts.slots) == ("llama-server", "/metrics", SLOTS)
        (model,) = (await running.client.status()).models
        assert (model.context_tokens, model.has_logprobs) == (2048, True)


async def test_share_of_its_kv_cache_is_in_the_status(server: LlamaServer) -> None:
    async with node_of(server, load_period_ms=100) as running:
        async with running.client.open(user_prompt(POST, max_output_tokens=500)) as stream:
            await stream.read()
            backend = backend_of(running)
            await eventually(lambda: 0 < (backend.load_now().kv_used_ratio or 0) < 1, 60)
            (model,) = (await running.client.status()).models
            assert 0 < model.kv_used_ratio.value < 1
        await eventually(lambda: backend.load_now().kv_used_ratio == 0, 60)


async def test_schema_is_held_in_full(server: LlamaServer) -> None:
    async with node_of(server) as running:
        answer = await running.client.generate(user_prompt(POST, schema=OPINION))
        assert answer.status.constraint_mode == mesh_pb2.CONSTRAINT_MODE_FULL
        assert answer.end.verdict == frame_pb2.VERDICT_OK


async def test_counts_are_those_of_its_tokenizer(server: LlamaServer) -> None:
    async with node_of(server) as running:
        prompt = user_prompt(POST, max_output_tokens=3)
        answer = await running.client.generate(prompt)
        assert answer.end.usage.output_tokens == 3
        assert answer.end.usage.input_tokens == await running.client.count_tokens(prompt)


async def test_prompt_over_its_context_is_refused(server: LlamaServer) -> None:
    async with node_of(server) as running:
        call = running.client.generate(user_prompt("word " * 3000))
        assert await reason_of(call) == R.ERROR_REASON_CONTEXT_EXCEEDED


async def test_probabilities_are_given_with_the_fields(server: LlamaServer) -> None:
    async with node_of(server) as running:
        prompt = user_prompt(POST, schema=OPINION)
        prompt.logprobs = True
        answer = await running.client.generate(prompt)
        scored = [f for frame in answer.of_kind(frame_pb2.FRAME_KIND_LOGPROBS) for f in frame.logprobs.fields]
        assert len(scored) == 7
        assert all(field.sum_logprob <= 0 for field in scored)


async def is_freed_within(
    bound_s: float, server: LlamaServer, running: NodeUnderTest, begin: Callable[[], Awaitable[Any]]
) -> bool:
    """Once in five times: other processes run here too. `begin` starts a call and gives what cancels it."""
    took_s: list[float] = []
    for _ in range(5):
        cancel = await begin()
        async with asyncio.timeout(60):
            while not await asyncio.to_thread(server.busy_slots):
                await asyncio.sleep(0.005)
        started_s = time.monotonic()
        await cancel()
        took_s.append(await freed_after_s(server, started_s))
        await eventually(lambda: not backend_of(running).generations)
        # Looked at once, since it changes with the load.
        if took_s[-1] <= stretched(bound_s):
            return True
    print(f"freed after {took_s} s")
    return False


async def begin(running: NodeUnderTest, text: str, *, messages: int) -> Callable[[], Awaitable[Any]]:
    call = AsyncExitStack()
    prompt = user_prompt(text, max_output_tokens=400, temperature=0.8)
    stream = await call.enter_async_context(running.client.open(prompt))
    for _ in range(messages):
        assert await stream.read() is not None
    return call.aclose


async def test_cancel_in_the_middle_frees_the_slot(server: LlamaServer) -> None:
    async with node_of(server) as running:
        assert await is_freed_within(FREED_WITHIN_S, server, running, lambda: begin(running, LONG, messages=4))


async def test_cancel_before_the_first_token_frees_the_slot(server: LlamaServer) -> None:
    async with node_of(server) as running:
        # The server looks between two batches of a prompt, and how long these take is not the node's to say.
        assert await is_freed_within(BATCHES_WITHIN_S, server, running, lambda: begin(running, UNREAD, messages=0))


async def test_cancel_of_a_caller_that_waits_for_the_whole_frees_the_slot(server: LlamaServer) -> None:
    async with node_of(server) as running:

        async def start() -> Callable[[], Awaitable[Any]]:
            call = asyncio.create_task(running.client.generate(user_prompt(LONG, max_output_tokens=400)))

            async def cancel() -> None:
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)

            return cancel

        assert await is_freed_within(FREED_WITHIN_S, server, running, start)


async def test_more_calls_than_slots_wait_their_turn(server: LlamaServer) -> None:
    async with node_of(server) as running:
        prompt = user_prompt("Say a word.", max_output_tokens=2)
        answers = await asyncio.gather(*(running.client.generate(prompt) for _ in range(2 * SLOTS)))
        assert {answer.end.verdict for answer in answers} <= {frame_pb2.VERDICT_OK, frame_pb2.VERDICT_INCOMPLETE}
        assert all(answer.end.usage.output_tokens for answer in answers)


async def test_answer_that_another_node_began_is_gone_on_with(server: LlamaServer) -> None:
    text = json.dumps({"main_entity": "Aurora", "sentiment": "negative"})[:-1]
    beginning = list(cut(OPINION, text))[-1]
    async with node_of(server) as running:
        answer = Answer()
        answer.decoder.feed(beginning.chunk)
        request = user_prompt(POST, schema=OPINION)
        async with running.client.open(request, continue_from=beginning) as stream:
            while (message := await stream.read()) is not None:
                answer.take(message)
        assert answer.end.verdict == frame_pb2.VERDICT_OK
        assert {**answer.decoder.result, **json.loads(text + "}")} == answer.decoder.result


async def test_calls_in_a_row_lose_no_connection(server: LlamaServer) -> None:
    async with node_of(server) as running:
        for _ in range(12):
            answer = await running.client.generate(user_prompt("Hi", max_output_tokens=1))
            assert answer.end.usage.output_tokens == 1


async def test_stopped_server_is_a_stall_and_serves_again_when_it_goes_on(server: LlamaServer) -> None:
    # Longer than a busy machine takes for a token.
    async with node_of(server, stall_timeout_ms=3_000, first_token_timeout_ms=30_000) as running:
        async with running.client.open(user_prompt(LONG, max_output_tokens=400, temperature=0.8)) as stream:
            for _ in range(3):
                await stream.read()
            server.send(signal.SIGSTOP)
            try:
                frames = [frame async for frame in frames_of(stream)]
            finally:
                server.send(signal.SIGCONT)
        assert frames[-1].end.incomplete_reason == frame_pb2.INCOMPLETE_REASON_BACKEND_FAILED
        answer = await running.client.generate(user_prompt("Hi", max_output_tokens=2))
        assert answer.end.usage.output_tokens == 2


async def frames_of(stream: Any) -> AsyncIterator[frame_pb2.Frame]:
    while (message := await stream.read()) is not None:
        for frame in frame_pb2.Chunk.FromString(message).frames:
            yield frame


async def test_killed_server_is_no_success_and_serves_again_when_it_is_back() -> None:
    with llama_server() as mortal:
        async with node_of(mortal, load_period_ms=60_000) as running:
            async with running.client.open(user_prompt(LONG, max_output_tokens=400, temperature=0.8)) as stream:
                for _ in range(3):
                    await stream.read()
                mortal.stop()
                frames = [frame async for frame in frames_of(stream)]
            assert frames[-1].end.incomplete_reason == frame_pb2.INCOMPLETE_REASON_BACKEND_FAILED
            call = running.client.generate(user_prompt("Hi", max_output_tokens=2))
            assert await reason_of(call) == R.ERROR_REASON_BACKEND_FAILED
            await asyncio.to_thread(mortal.start)
            answer = await running.client.generate(user_prompt("Hi", max_output_tokens=2))
            assert answer.end.usage.output_tokens == 2


async def test_server_that_is_gone_is_not_ready_until_it_has_generated_again() -> None:
    with llama_server() as mortal:
        async with node_of(mortal, load_period_ms=100) as running:
            model = running.node.models[0]
            mortal.stop()
            await eventually(lambda: model.state == inference_pb2.MODEL_STATE_LOADING)
            call = running.client.generate(user_prompt("Hi", max_output_tokens=2))
            assert await reason_of(call) == R.ERROR_REASON_BACKEND_NOT_READY
            await asyncio.to_thread(mortal.start)
            await eventually(lambda: model.state == inference_pb2.MODEL_STATE_READY)
            answer = await running.client.generate(user_prompt("Hi", max_output_tokens=2))
            assert answer.end.usage.output_tokens == 2


async def test_one_client_sees_no_difference_between_backends(server: LlamaServer) -> None:
    vendor = VENDORS["anthropic"]
    document = json.dumps(dict.fromkeys(WORDS["required"], "sea"))
    async with scripted_upstream(vendor.answers(vendor.stream((document[:9], document[9:])))) as theirs:
        models = (
            ModelSettings(name="embedded", path=smollm2_path(), slots=1),
            ModelSettings(name="openai", backend="openai", url=server.url, slots=1),
            ModelSettings(name="anthropic", backend="anthropic", url=theirs.url, slots=1),
        )
        node = build_node(InferenceSettings(models=models))
        try:
            await node.start(timeout_s=30)
            client = serve(node).client
            for model in models:
                answer = await client.generate(user_prompt(POST, schema=WORDS), model=model.name)
                assert answer.end.verdict == frame_pb2.VERDICT_OK
                assert set(answer.decoder.result) == set(WORDS["required"])
        finally:
            await node.close()


def test_probe_says_what_the_server_can_do(server: LlamaServer) -> None:
    result = CliRunner().invoke(app, ["backend", "probe", server.url, "--json"])
    found = json.loads(result.stdout)
    assert (found["dialect"], found["mode"], found["verdict"]) == ("llama-server", "full", "ok")
    assert found["has_logprobs"]
    assert found["cancel_in_the_middle"]["after_ms"] is not None


def test_probe_of_nothing_is_one_line() -> None:
    result = CliRunner().invoke(app, ["backend", "probe", "http://127.0.0.1:1"])
    assert (result.exit_code, result.output) == (1, "ssop: the model server can't be reached\n")


def test_mesh_of_a_settings_file_serves_from_the_server(server: LlamaServer, tmp_path: Path) -> None:
    model = {"name": "theirs", "backend": "openai", "url": server.url, "tiers": ["lite", "full"], "slots": SLOTS}
    with (
        run_mesh(tmp_path, {"inference": {"models": [model]}}) as mesh,
        SsopClient(mesh.key, mesh.target, timeout_s=60) as client,
    ):
        stream = client.generate(POST, output_schema=OPINION)
        assert set(stream.result()) == set(OPINION["required"])
        assert stream.decision is not None
        assert stream.decision.model == "theirs"
