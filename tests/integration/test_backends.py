"""The table of backends: each kind of model server, and each thing that can happen to a generation on it."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from helpers.eventually import eventually
from helpers.inference import serve, user_prompt
from helpers.machine import stretched
from helpers.upstream import END, HEAD, Cut, Hang, Request, Step, event, page, scripted_upstream
from helpers.upstream_node import UpstreamNode, model_settings, upstream_node
from helpers.vendors import DOCUMENT, SCHEMA, VENDORS, Vendor, error_event
from ssop.v1 import frame_pb2, inference_pb2, mesh_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_cli.embedded import free_port
from ssop_inference.assembly import build_node
from ssop_inference.backend import GenerateRequest
from ssop_inference.core.prompt import ChatMessage
from ssop_inference.core.request import SamplingOptions
from ssop_inference.settings import InferenceSettings
from ssop_inference.upstream_http import HttpOptions, UpstreamHttp

R = ErrorReason
FREED_WITHIN_S = 0.1
PING = event({"type": "ping"}, name="ping")
HALF = ('{"a": ', "1, ", '"b": ')

every_vendor = pytest.mark.parametrize("vendor", VENDORS.values(), ids=VENDORS)


async def failure(node: UpstreamNode, *, schema: Any = SCHEMA) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await node.running.client.generate(user_prompt("Say it.", schema=schema))
    return caught.value


def generation_of(node: UpstreamNode, vendor: Vendor) -> Request:
    return node.upstream.of(vendor.path)[-1]


async def begin(node: UpstreamNode, schema: Any, *, messages: int) -> AsyncExitStack:
    """A call that has got so many messages; closing it is what a client does that goes away."""
    call = AsyncExitStack()
    stream = await call.enter_async_context(node.running.client.open(user_prompt("Say it.", schema=schema)))
    for _ in range(messages):
        assert await stream.read() is not None
    return call


async def is_idle(node: UpstreamNode) -> None:
    await eventually(lambda: not node.backend.generations)


Begin = Callable[[], Awaitable[Callable[[], Awaitable[Any]]]]


async def is_freed_at_once(node: UpstreamNode, vendor: Vendor, begin: Begin) -> bool:
    """Whether the server saw its client go right after a cancel, once in three times: other processes run here too.

    `begin` starts a call and gives what cancels it.
    """
    took_s: list[float] = []
    for _ in range(3):
        cancel = await begin()
        request = generation_of(node, vendor)
        started_s = time.monotonic()
        await cancel()
        await is_idle(node)
        took_s.append(await request.when_freed() - started_s)
        # Looked at once, since it changes with the load.
        if took_s[-1] <= stretched(FREED_WITHIN_S):
            return True
    print(f"freed after {took_s} s")
    return False


@asynccontextmanager
async def hanging(vendor: Vendor, *pieces: str) -> AsyncIterator[UpstreamNode]:
    """A node whose server says so much and then nothing."""
    async with upstream_node(vendor, vendor.stream(pieces, then=[Hang()])) as node:
        yield node


@every_vendor
async def test_plain(vendor: Vendor) -> None:
    async with upstream_node(vendor, vendor.stream(("Hello ", "wörld", " 😀"))) as node:
        answer = await node.running.client.generate(user_prompt("Say it."))
        assert answer.decoder.text == "Hello wörld 😀"
        assert answer.end.verdict == frame_pb2.VERDICT_OK
        assert (answer.end.usage.input_tokens, answer.end.usage.output_tokens) == (21, 3)


@every_vendor
async def test_schema(vendor: Vendor) -> None:
    async with upstream_node(vendor, vendor.stream()) as node:
        answer = await node.running.client.generate(user_prompt("Say it.", schema=SCHEMA))
        assert answer.decoder.result == {"a": 1, "b": "x"}
        is_held = vendor.name in {"openai", "xai", "vllm", "sglang", "llama-server", "anthropic"}
        expected = mesh_pb2.CONSTRAINT_MODE_FULL if is_held else mesh_pb2.CONSTRAINT_MODE_ENVELOPE
        assert answer.status.constraint_mode == expected


async def waiting_call(node: UpstreamNode, vendor: Vendor) -> Callable[[], Awaitable[Any]]:
    """A call that has reached the server and got no token."""
    before = len(node.upstream.of(vendor.path))
    call = await begin(node, None, messages=0)
    await eventually(lambda: len(node.upstream.of(vendor.path)) > before)
    return call.aclose


@every_vendor
async def test_cancel_before_the_first_token_frees_the_server(vendor: Vendor) -> None:
    async with hanging(vendor) as node:
        assert await is_freed_at_once(node, vendor, lambda: waiting_call(node, vendor))


@every_vendor
async def test_cancel_before_the_head_of_the_answer_frees_the_server(vendor: Vendor) -> None:
    async with upstream_node(vendor, lambda _: [Hang()]) as node:
        assert await is_freed_at_once(node, vendor, lambda: waiting_call(node, vendor))


@every_vendor
async def test_cancel_in_the_middle_frees_the_server(vendor: Vendor) -> None:
    async with hanging(vendor, *HALF) as node:

        async def start() -> Callable[[], Awaitable[Any]]:
            return (await begin(node, SCHEMA, messages=1)).aclose

        assert await is_freed_at_once(node, vendor, start)


@every_vendor
async def test_cancel_of_a_caller_that_waits_for_the_whole_frees_the_server(vendor: Vendor) -> None:
    async with hanging(vendor, *HALF) as node:

        async def start() -> Callable[[], Awaitable[Any]]:
            before = len(node.upstream.of(vendor.path))
            call = asyncio.create_task(node.running.client.generate(user_prompt("Say it.", schema=SCHEMA)))
            await eventually(lambda: len(node.upstream.of(vendor.path)) > before)

            async def cancel() -> None:
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)

            return cancel

        assert await is_freed_at_once(node, vendor, start)


@every_vendor
async def test_cut_before_the_first_field_is_a_failure(vendor: Vendor) -> None:
    async with upstream_node(vendor, vendor.stream(('{"a"',), then=[Cut()])) as node:
        assert (await failure(node)).reason == R.ERROR_REASON_BACKEND_FAILED


@every_vendor
@pytest.mark.parametrize("end", [Cut(), END], ids=["broken", "closed"])
async def test_cut_after_a_field_is_never_a_success(vendor: Vendor, end: Any) -> None:
    async with upstream_node(vendor, vendor.stream(HALF, then=[end])) as node:
        answer = await node.running.client.generate(user_prompt("Say it.", schema=SCHEMA))
        assert answer.end.verdict == frame_pb2.VERDICT_INCOMPLETE
        assert answer.end.incomplete_reason == frame_pb2.INCOMPLETE_REASON_BACKEND_FAILED


@every_vendor
@pytest.mark.parametrize("end", [Cut(), END], ids=["broken", "closed"])
async def test_cut_text_is_never_a_success(vendor: Vendor, end: Any) -> None:
    async with upstream_node(vendor, vendor.stream(("All is ",), then=[end])) as node:
        answer = await node.running.client.generate(user_prompt("Say it."))
        assert answer.end.incomplete_reason == frame_pb2.INCOMPLETE_REASON_BACKEND_FAILED


@every_vendor
async def test_stall_before_the_first_token_is_a_failure_and_frees_the_server(vendor: Vendor) -> None:
    async with upstream_node(vendor, vendor.stream((), then=[Hang()]), first_token_timeout_ms=150) as node:
        assert (await failure(node)).reason == R.ERROR_REASON_BACKEND_FAILED
        await eventually(lambda: generation_of(node, vendor).is_cut)


@every_vendor
async def test_stall_in_the_middle_ends_the_answer_and_frees_the_server(vendor: Vendor) -> None:
    async with upstream_node(vendor, vendor.stream(HALF, then=[Hang()]), stall_timeout_ms=150) as node:
        answer = await node.running.client.generate(user_prompt("Say it.", schema=SCHEMA))
        assert answer.end.incomplete_reason == frame_pb2.INCOMPLETE_REASON_BACKEND_FAILED
        await eventually(lambda: generation_of(node, vendor).is_cut)


@every_vendor
@pytest.mark.parametrize("status", ["429 Too Many Requests", "busy"])
async def test_full_server_is_overloaded_and_says_when_to_come_back(vendor: Vendor, status: str) -> None:
    status = vendor.busy_status if status == "busy" else status
    answer = page(vendor.error("rate_limit_exceeded"), status=status, headers={"Retry-After": "2"})
    async with upstream_node(vendor, lambda _: answer) as node:
        error = await failure(node)
        assert (error.reason, error.retry_after_ms) == (R.ERROR_REASON_OVERLOADED, 2000)


@every_vendor
async def test_500_is_a_failure(vendor: Vendor) -> None:
    async with upstream_node(vendor, lambda _: page(vendor.error("x"), status="500 Oh")) as node:
        assert (await failure(node)).reason == R.ERROR_REASON_BACKEND_FAILED


@every_vendor
async def test_400_is_the_node_s_own_mistake(vendor: Vendor) -> None:
    async with upstream_node(vendor, lambda _: page(vendor.error("x"), status="400 Bad Request")) as node:
        assert (await failure(node)).reason == R.ERROR_REASON_INTERNAL


@every_vendor
async def test_error_inside_of_the_stream_is_a_failure(vendor: Vendor) -> None:
    async with upstream_node(vendor, vendor.stream((), then=[error_event(vendor, "server_error")])) as node:
        assert (await failure(node)).reason == R.ERROR_REASON_BACKEND_FAILED


MALFORMED = {
    "no json": event('{"choices": [{"del'),
    "no object": event("[1]"),
    "wrong types": event({"type": "content_block_delta", "delta": 5, "choices": [{"delta": 5}]}),
    "half a character": event(
        {
            "type": "message_delta",
            "delta": {"type": "text_delta", "text": "\udc00", "stop_reason": 7},
            "choices": [{"delta": {"content": "\udc00"}}],
        }
    ),
    "not utf-8": b"9\r\ndata: \xff\n\n\r\n",
    "broken chunk": b"zz\r\nwhat\r\n",
    "deep": event("[" * 100_000),
}


@every_vendor
@pytest.mark.parametrize("chunk", MALFORMED.values(), ids=MALFORMED)
async def test_malformed_chunk_is_a_failure(vendor: Vendor, chunk: bytes) -> None:
    async with upstream_node(vendor, vendor.stream((), then=[chunk, Hang()])) as node:
        assert (await failure(node)).reason == R.ERROR_REASON_BACKEND_FAILED
        await eventually(lambda: generation_of(node, vendor).is_cut)


@every_vendor
async def test_answer_that_is_no_stream_is_a_failure(vendor: Vendor) -> None:
    async with upstream_node(vendor, lambda _: page({"choices": []})) as node:
        assert (await failure(node)).reason == R.ERROR_REASON_BACKEND_FAILED


@every_vendor
async def test_first_invalid_byte_frees_the_server(vendor: Vendor) -> None:
    async with upstream_node(vendor, vendor.stream(('{"a": "no',), then=[Hang()])) as node:
        answer = await node.running.client.generate(user_prompt("Say it.", schema=SCHEMA))
        assert answer.end.verdict == frame_pb2.VERDICT_INVALID
        await eventually(lambda: generation_of(node, vendor).is_cut)


@pytest.mark.parametrize(("name", "sign"), [("deepseek", b"e\r\n: keep-alive\n\n\r\n"), ("anthropic", PING)])
async def test_sign_of_life_that_is_no_token_does_not_hide_a_stall(name: str, sign: bytes) -> None:
    vendor = VENDORS[name]
    endless: list[Step] = [step for _ in range(100) for step in (sign, 0.05)]
    async with upstream_node(vendor, vendor.stream((), then=endless), first_token_timeout_ms=200) as node:
        assert (await failure(node, schema=None)).reason == R.ERROR_REASON_BACKEND_FAILED
        await eventually(lambda: generation_of(node, vendor).is_cut)


@every_vendor
async def test_answer_that_passes_its_limit_is_cut(vendor: Vendor) -> None:
    pieces = ("a word and more ",) * 100
    async with upstream_node(vendor, vendor.stream(pieces, then=[Hang()])) as node:
        answer = await node.running.client.generate(user_prompt("Say it.", max_output_tokens=20))
        assert answer.end.incomplete_reason == frame_pb2.INCOMPLETE_REASON_MAX_OUTPUT_TOKENS
        assert answer.end.usage.output_tokens <= 30
        await eventually(lambda: generation_of(node, vendor).is_cut)


async def test_endless_event_is_bounded() -> None:
    vendor = VENDORS["vllm"]
    block = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    async with upstream_node(vendor, lambda _: [HEAD, b"6\r\ndata: \r\n", *[block] * 64, Hang()]) as node:
        assert (await failure(node)).reason == R.ERROR_REASON_BACKEND_FAILED
        await eventually(lambda: generation_of(node, vendor).is_cut)


async def test_whole_text_whose_end_is_lost_is_a_success_with_estimated_counts() -> None:
    vendor = VENDORS["vllm"]
    end = vendor.end(Request("POST", vendor.path, {}, {}), 1)
    async with upstream_node(vendor, vendor.stream(("All.",), then=[end[0], Cut()])) as node:
        answer = await node.running.client.generate(user_prompt("Say it."))
        assert (answer.end.verdict, answer.end.usage.output_tokens) == (frame_pb2.VERDICT_OK, 1)
        assert node.running.metric("ssop_inference_estimated_usages_total", gen_ai_request_model="m") == 1


async def test_text_after_the_finish_reason_is_no_success_without_it() -> None:
    vendor = VENDORS["vllm"]
    request = Request("POST", vendor.path, {}, {})
    late = [vendor.end(request, 1)[0], vendor.text(request, " More."), END]
    async with upstream_node(vendor, vendor.stream(("All.",), then=late)) as node:
        answer = await node.running.client.generate(user_prompt("Say it."))
        assert answer.end.incomplete_reason == frame_pb2.INCOMPLETE_REASON_BACKEND_FAILED


async def test_done_without_a_finish_reason_is_a_failure() -> None:
    vendor = VENDORS["vllm"]
    async with upstream_node(vendor, vendor.stream((), then=[event("[DONE]"), END])) as node:
        assert (await failure(node, schema=None)).reason == R.ERROR_REASON_BACKEND_FAILED


@every_vendor
async def test_counts_of_a_document_are_the_server_s(vendor: Vendor) -> None:
    async with upstream_node(vendor, vendor.stream()) as node:
        answer = await node.running.client.generate(user_prompt("Say it.", schema=SCHEMA))
        assert (answer.end.usage.input_tokens, answer.end.usage.output_tokens) == (21, 5)


async def test_prose_after_a_document_is_not_waited_for() -> None:
    vendor = VENDORS["deepseek"]
    prose = [vendor.text(Request("", "", {}, {}), " and so on") for _ in range(3)]
    async with upstream_node(vendor, vendor.stream(then=[*prose, Hang()])) as node:
        answer = await node.running.client.generate(user_prompt("Say it.", schema=SCHEMA))
        assert (answer.decoder.result, answer.end.verdict) == ({"a": 1, "b": "x"}, frame_pb2.VERDICT_OK)
        await eventually(lambda: generation_of(node, vendor).is_cut)


@every_vendor
async def test_status_says_what_runs_the_model(vendor: Vendor) -> None:
    async with upstream_node(vendor, vendor.stream()) as node:
        (model,) = (await node.running.client.status()).models
        assert (model.backend, model.has_estimated_counts) == (vendor.name, False)


async def test_load_of_the_server_is_in_the_status() -> None:
    async with upstream_node(VENDORS["vllm"], VENDORS["vllm"].stream(), load_period_ms=100) as node:
        await is_idle(node)
        await eventually(lambda: node.backend.load_now().slots_busy == 3)
        (model,) = (await node.running.client.status()).models
        assert (model.slots_busy.value, model.queue_length.value) == (3, 2)


async def test_server_without_a_load_page_that_is_gone_is_not_ready_until_it_is_back() -> None:
    vendor = VENDORS["openai"]
    answers = vendor.answers(vendor.stream())
    # One that no connection gets while nobody listens: the node's own calls might come from there.
    port = free_port()
    async with AsyncExitStack() as first:
        upstream = await first.enter_async_context(scripted_upstream(answers, port=port))
        node = build_node(InferenceSettings(models=(model_settings(vendor, upstream.url, load_period_ms=100),)))
        node.retry_s = 0.05
        try:
            await node.start(timeout_s=10)
            assert (await serve(node).client.status()).models[0].state == inference_pb2.MODEL_STATE_READY
            await first.aclose()
            # Nobody has called it meanwhile.
            await eventually(lambda: node.models[0].state == inference_pb2.MODEL_STATE_LOADING, 60)
            async with scripted_upstream(answers, port=port):
                await eventually(lambda: node.models[0].state == inference_pb2.MODEL_STATE_READY, 60)
        finally:
            await node.close()


async def test_server_without_a_load_page_that_answers_stays_ready() -> None:
    async with upstream_node(VENDORS["openai"], VENDORS["openai"].stream(), load_period_ms=100) as node:
        reached = node.upstream.connections
        await eventually(lambda: node.upstream.connections >= reached + 5, 60)
        assert node.running.node.models[0].state == inference_pb2.MODEL_STATE_READY


async def test_server_that_closes_kept_connections_costs_no_request() -> None:
    vendor = VENDORS["vllm"]
    async with upstream_node(vendor, vendor.stream()) as node:
        for _ in range(3):
            answer = await node.running.client.generate(user_prompt("Say it.", schema=SCHEMA))
            assert answer.decoder.result == {"a": 1, "b": "x"}
            for writer in list(node.upstream.writers):
                writer.close()


async def test_document_is_read_to_its_last_byte() -> None:
    vendor = VENDORS["openai"]
    async with upstream_node(vendor, vendor.stream(tuple(DOCUMENT))) as node:
        answer = await node.running.client.generate(user_prompt("Say it.", schema=SCHEMA))
        assert answer.decoder.result == {"a": 1, "b": "x"}


async def test_storm_of_cancels_leaves_nothing_behind() -> None:
    vendor = VENDORS["vllm"]
    rng = random.Random(7)
    steps: list[Step] = [*(vendor.text(Request("", "", {}, {}), "a") for _ in range(20)), 0.02, Cut()]

    async def call(node: UpstreamNode) -> None:
        with suppress(TimeoutError, MeshError):
            async with asyncio.timeout(rng.random() * 0.2):
                await node.running.client.generate(user_prompt("Say it."))

    async with upstream_node(vendor, vendor.stream((), then=steps), slots=8) as node:
        await asyncio.gather(*(call(node) for _ in range(200)))
        await is_idle(node)
        assert node.backend.load_now().queue_length <= 2
        await eventually(lambda: len(node.upstream.writers) <= 2)
        again = VENDORS["vllm"].stream(("well",))
        node.upstream.answers[vendor.path] = again
        answer = await node.running.client.generate(user_prompt("Say it."))
        assert answer.decoder.text == "well"


async def test_caller_that_does_not_read_is_no_stall_of_the_server() -> None:
    vendor = VENDORS["openai"]
    async with upstream_node(vendor, vendor.stream(("a",) * 6_000), stall_timeout_ms=100) as node:
        deadline_s = asyncio.get_running_loop().time() + 60
        sampling = SamplingOptions(max_output_tokens=6_000)
        request = GenerateRequest((ChatMessage("user", "Say it."),), deadline_s, sampling)
        async with node.backend.generate(request) as generation:
            await generation.read()
            # The buffer is full by now, and stays so for longer than a server may stall.
            await asyncio.sleep(0.4)
            # The server is in this process too, and what holds both of them up is no pause of the caller's.
            node.backend._options = replace(node.backend._options, stall_timeout_s=60.0)
            text = b""
            while tokens := await generation.read():
                text += b"".join(token.text for token in tokens)
            assert generation.outcome.output_tokens == 6_000
            assert len(text) > 1_000


async def test_calls_over_the_queue_are_overloaded() -> None:
    vendor = VENDORS["vllm"]
    async with hanging(vendor) as node:
        queue = node.backend._queue
        # The first thing that a node asks its server is what it can do.
        await eventually(lambda: not queue.busy)
        calls = [await begin(node, None, messages=0) for _ in range(4)]
        await eventually(lambda: queue.busy == 4)
        queue._max_waiting = 0
        assert (await failure(node)).reason == R.ERROR_REASON_OVERLOADED
        for call in calls:
            await call.aclose()


async def test_connection_is_kept_from_call_to_call(monkeypatch: pytest.MonkeyPatch) -> None:
    vendor = VENDORS["vllm"]
    # The end of a body comes late where the server, which is in this process, is held up.
    monkeypatch.setattr("ssop_inference.upstream._END_S", 60.0)

    def answer(request: Request) -> list[Step]:
        *steps, end = vendor.stream(("ok",))(request)
        return [*steps, 0.005, end]

    async with upstream_node(vendor, answer, load_period_ms=60_000) as node:
        before = node.upstream.connections
        for _ in range(10):
            await node.running.client.generate(user_prompt("Say it."))
            await is_idle(node)
        assert node.upstream.connections <= before + 1


async def test_connections_are_given_back_wherever_a_call_is_cancelled() -> None:
    """Cancelling is looked for at every turn of the loop: also while the connection is being closed."""
    vendor = VENDORS["vllm"]
    async with scripted_upstream(vendor.answers(vendor.stream(("ok",)))) as upstream:
        http = UpstreamHttp(HttpOptions(upstream.url, connections=4))

        async def read() -> None:
            async with http.stream("/chat/completions", {"messages": []}) as events:
                async for _ in events:
                    pass

        for turns in range(120):
            call = asyncio.create_task(read())
            for _ in range(turns):
                await asyncio.sleep(0)
            call.cancel()
            # A deadline and a caller may both give up.
            await asyncio.sleep(0)
            call.cancel()
            with suppress(asyncio.CancelledError):
                await call
        await eventually(lambda: not http.open_requests)
        # As many at once as there are connections.
        await asyncio.gather(*(read() for _ in range(4)))
        await http.close()
