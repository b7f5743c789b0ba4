"""The SDK against a RouterService on grpc.aio whose answers are scripted, over a unix socket."""

# ruff: noqa: F401, F811 - fixtures are imported, and named again as arguments
import asyncio
import gc
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import pydantic
import pytest

import ssop_sdk
from helpers.answers import (
    PERSON,
    PERSON_SCHEMA,
    decision_chunk,
    delivery,
    document_chunks,
    status_chunk,
)
from helpers.eventually import eventually
from helpers.machine import stretched
from helpers.scripted_router import ScriptedRouter, abort, as_script
from helpers.sdk_clients import GOOD, KEY, address, client, router, sync_client
from ssop.v1 import router_pb2 as pb
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_sdk import (
    AsyncSsopClient,
    Cancelled,
    Completion,
    DeadlineExceeded,
    DegradedAnswer,
    GenerationInterrupted,
    GrokClient,
    RetryPolicy,
    SchemaRefused,
    ScopeMissing,
    SsopClient,
    Unavailable,
)


class Person(pydantic.BaseModel):
    name: str
    age: int
    tags: list[str] = []


async def hang(request: Any, context: Any) -> AsyncIterator[bytes]:
    """Sends the first field, then nothing."""
    for chunk in [decision_chunk(), status_chunk(), *document_chunks(PERSON)[:2]]:
        yield chunk
    await asyncio.Event().wait()


async def test_async_deltas_add_up(client: AsyncSsopClient) -> None:
    result: dict[str, Any] = {}
    async with client.generate("x") as stream:
        async for frame in stream:
            result.update(frame.delta)
    assert result == await stream.result() == PERSON


async def test_sync_deltas_add_up(sync_client: SsopClient) -> None:
    def use() -> dict[str, Any]:
        result: dict[str, Any] = {}
        for frame in sync_client.generate("x"):
            result.update(frame.delta)
        return result

    assert await asyncio.to_thread(use) == PERSON


async def test_key_deadline_and_request_id_travel(router: ScriptedRouter, client: AsyncSsopClient) -> None:
    left: list[float] = []

    async def script(request: Any, context: Any) -> AsyncIterator[bytes]:
        left.append(context.time_remaining())
        for chunk in GOOD:
            yield chunk

    router.script = script
    began = time.monotonic()
    await client.generate("x", request_id="mine", timeout_s=5).result()
    assert router.metadata[0]["authorization"] == f"Bearer {KEY}"
    assert router.metadata[0]["x-ssop-request-id"] == router.requests[0].request_id == "mine"
    # gRPC rounds a time-out up by some milliseconds on its way.
    assert 4.9 - (time.monotonic() - began) < left[0] < 5.5


async def test_model_class_comes_back_as_an_instance(client: AsyncSsopClient) -> None:
    person = await client.generate("x", output_schema=Person).result()
    assert person == Person(**PERSON)


async def test_receipt_travels_with_the_next_call(router: ScriptedRouter, client: AsyncSsopClient) -> None:
    await client.generate("x", request_id="first").result()
    await client.generate("x").result()
    [receipt] = router.requests[1].receipts
    assert (receipt.request_id, receipt.is_complete) == ("first", True)
    assert receipt.frames_received == receipt.frames_verified > 0


async def test_error_of_the_mesh_arrives_typed(router: ScriptedRouter, client: AsyncSsopClient) -> None:
    async def script(request: Any, context: Any) -> AsyncIterator[bytes]:
        await abort(
            context,
            MeshError(ErrorReason.ERROR_REASON_SCOPE_MISSING, "no", metadata={"scope": "tier:full"}),
        )
        yield b""

    router.script = script
    with pytest.raises(ScopeMissing) as caught:
        await client.generate("x", request_id="r1").result()
    assert (caught.value.scope, caught.value.request_id) == ("tier:full", "r1")


async def test_unavailable_node_is_tried_again_with_the_same_id(
    router: ScriptedRouter, client: AsyncSsopClient
) -> None:
    async def script(request: Any, context: Any) -> AsyncIterator[bytes]:
        if len(router.requests) == 1:
            await abort(context, MeshError(ErrorReason.ERROR_REASON_NO_BACKEND, "m", retry_after_ms=1))
        for chunk in GOOD:
            yield chunk

    router.script = script
    assert await client.generate("x").result() == PERSON
    assert len({request.request_id for request in router.requests}) == 1
    assert len(router.requests) == 2


async def test_cancel_reaches_the_mesh(router: ScriptedRouter, client: AsyncSsopClient) -> None:
    router.script = hang
    stream = client.generate("x")
    await anext(stream)
    began = time.monotonic()
    stream.cancel()
    with pytest.raises(Cancelled):
        await stream.result()
    await eventually(lambda: router.cancelled == 1 and router.in_flight == 0)
    assert time.monotonic() - began < stretched(1)


async def test_cancel_while_the_mesh_writes_reaches_it(router: ScriptedRouter, client: AsyncSsopClient) -> None:
    router.script = as_script(delivery(document_chunks({"name": "x", "age": 1, "tags": ["t" * 9] * 3_000})))
    stream = client.generate("x")
    await anext(stream)
    stream.cancel()
    with pytest.raises(Cancelled):
        await stream.result()
    await eventually(lambda: router.cancelled == 1 and router.in_flight == 0)


async def test_sync_cancel_from_another_thread_reaches_the_mesh(
    router: ScriptedRouter, sync_client: SsopClient
) -> None:
    router.script = hang
    stream = await asyncio.to_thread(sync_client.generate, "x")
    await asyncio.to_thread(next, stream)
    waiting = asyncio.create_task(asyncio.to_thread(stream.result))
    stream.cancel()
    with pytest.raises(Cancelled):
        await waiting
    await eventually(lambda: router.in_flight == 0)


async def test_cancelled_task_cancels_the_generation(router: ScriptedRouter, client: AsyncSsopClient) -> None:
    router.script = hang
    task = asyncio.create_task(client.generate("x").result())
    await eventually(lambda: router.in_flight == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: router.in_flight == 0)


async def test_abandoned_stream_is_cancelled(router: ScriptedRouter, client: AsyncSsopClient) -> None:
    router.script = hang
    stream = client.generate("x")
    await anext(stream)
    del stream
    gc.collect()
    await eventually(lambda: router.in_flight == 0)


async def test_abandoned_sync_stream_is_cancelled(router: ScriptedRouter, sync_client: SsopClient) -> None:
    router.script = hang

    def use() -> None:
        next(sync_client.generate("x"))

    await asyncio.to_thread(use)
    gc.collect()
    await eventually(lambda: router.in_flight == 0)


async def test_given_up_batch_cancels_what_runs(router: ScriptedRouter, sync_client: SsopClient) -> None:
    async def script(request: Any, context: Any) -> AsyncIterator[bytes]:
        if request.prompt.messages[0].parts[0].text == "first":
            for chunk in GOOD:
                yield chunk
            return
        async for chunk in hang(request, context):
            yield chunk

    router.script = script

    def use() -> Any:
        return next(sync_client.generate_many(["first", *["x"] * 9], batch_size=3))

    assert await asyncio.to_thread(use) == PERSON
    await eventually(lambda: router.in_flight == 0)


async def test_deadline_ends_a_hanging_answer(router: ScriptedRouter, client: AsyncSsopClient) -> None:
    router.script = hang
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        await client.generate("x", timeout_s=0.3).result()
    assert time.monotonic() - began < stretched(2)


async def test_nothing_listening_is_unavailable_and_quick(address: str) -> None:
    retry = RetryPolicy(max_retries=1, base_delay_ms=10)
    async with AsyncSsopClient(KEY, address, timeout_s=10, retry=retry) as client:
        began = time.monotonic()
        with pytest.raises(Unavailable):
            await client.generate("x").result()
    assert time.monotonic() - began < stretched(5)


async def test_degraded_answer_raises_and_stops_the_generation(router: ScriptedRouter, client: AsyncSsopClient) -> None:
    async def script(request: Any, context: Any) -> AsyncIterator[bytes]:
        yield decision_chunk()
        yield status_chunk(2)
        await asyncio.Event().wait()

    router.script = script
    with pytest.raises(DegradedAnswer) as caught:
        await client.generate("x").result()
    assert caught.value.level == 2
    await eventually(lambda: router.in_flight == 0)


async def test_degraded_answer_is_taken_where_allowed(router: ScriptedRouter, client: AsyncSsopClient) -> None:
    router.script = as_script(delivery(document_chunks(PERSON), degraded_level=3))
    stream = client.generate("x", allow_degraded=True)
    assert await stream.result() == PERSON
    assert stream.is_degraded


async def test_resume_goes_on_after_the_last_frame(router: ScriptedRouter, client: AsyncSsopClient) -> None:
    document = document_chunks(PERSON)

    async def script(request: Any, context: Any) -> AsyncIterator[bytes]:
        if isinstance(request, pb.ResumeRequest):
            for chunk in document[request.after_seq :]:
                yield chunk
            return
        for chunk in document[:3]:
            yield chunk
        await abort(context, MeshError(ErrorReason.ERROR_REASON_GENERATION_INTERRUPTED, "m"))

    router.script = script
    broken = client.generate("x", resume_window_ms=1000)
    with pytest.raises(GenerationInterrupted):
        await broken.result()
    stream = client.resume(broken.request_id, previous=broken)
    assert min([frame.seq async for frame in stream]) == 4
    assert await stream.result() == PERSON


async def test_resume_in_a_fresh_process_shows_only_what_is_new(
    router: ScriptedRouter, client: AsyncSsopClient
) -> None:
    stream = client.resume("r", after_seq=3)
    assert min([frame.seq async for frame in stream]) == 4
    assert await stream.result() == PERSON
    assert router.requests[0].after_seq == 0


async def test_unary_calls(router: ScriptedRouter, client: AsyncSsopClient) -> None:
    router.unary = {
        "ListModels": pb.ListModelsResponse(models=[pb.ModelInfo(model="m")]),
        "GetMeshStatus": pb.GetMeshStatusResponse(in_flight=3),
        "ExplainDecision": pb.ExplainDecisionResponse(explanation=["because"]),
        "CheckSchema": MeshError(
            ErrorReason.ERROR_REASON_SCHEMA_REFUSED, "m", metadata={"pointer": "/a", "keyword": "$ref"}
        ),
    }
    assert [model.model for model in await client.models()] == ["m"]
    assert (await client.mesh_status()).in_flight == 3
    assert list((await client.explain("x")).explanation) == ["because"]
    with pytest.raises(SchemaRefused) as caught:
        await client.check_schema({"$ref": "https://example.org"})
    assert caught.value.pointer == "/a"


async def test_sync_unary_call(router: ScriptedRouter, sync_client: SsopClient) -> None:
    router.unary = {"ListModels": pb.ListModelsResponse(models=[pb.ModelInfo(model="m")])}
    models = await asyncio.to_thread(sync_client.models)
    assert models[0].model == "m"


@pytest.mark.parametrize("batch_size", [1, 4])
async def test_batch_keeps_order_and_bound(batch_size: int, router: ScriptedRouter, client: AsyncSsopClient) -> None:
    is_full = asyncio.Event()

    async def script(request: Any, context: Any) -> AsyncIterator[bytes]:
        name = request.prompt.messages[0].parts[0].text
        if router.in_flight == batch_size:
            is_full.set()
        await is_full.wait()
        # As long as a model thinks, so that a request too many would be seen; uneven, so that order is at stake.
        await asyncio.sleep(0.01 * (1 + int(name) % 3))
        for chunk in delivery(document_chunks({"name": name, "age": 1})):
            yield chunk

    router.script = script
    prompts = [str(n) for n in range(24)]
    results = [r["name"] async for r in client.generate_many(prompts, batch_size=batch_size)]
    assert results == prompts
    assert router.max_in_flight == batch_size


async def test_sync_batch_keeps_order_and_bound(router: ScriptedRouter, sync_client: SsopClient) -> None:
    is_full = asyncio.Event()

    async def script(request: Any, context: Any) -> AsyncIterator[bytes]:
        if router.in_flight == 3:
            is_full.set()
        await is_full.wait()
        await asyncio.sleep(0.02)
        for chunk in GOOD:
            yield chunk

    router.script = script
    items = [{"prompt": "x", "request_id": f"r{n}"} for n in range(12)]
    results = await asyncio.to_thread(lambda: list(sync_client.generate_many(items, batch_size=3)))
    assert results == [PERSON] * 12
    assert router.max_in_flight == 3
    assert {request.request_id for request in router.requests} == {f"r{n}" for n in range(12)}


async def test_threads_share_a_client(router: ScriptedRouter, sync_client: SsopClient) -> None:
    results = await asyncio.gather(*(asyncio.to_thread(lambda: sync_client.generate("x").result()) for _ in range(16)))
    assert results == [PERSON] * 16


async def test_existing_application_runs_unchanged(router: ScriptedRouter, address: str) -> None:
    def application() -> dict[str, Any]:
        result: dict[str, Any] = {}
        client = GrokClient(api_key=KEY, target=address, streaming=True, output_schema=PERSON_SCHEMA)
        for frame in client.chat.completions.create(
            model="grok-3", messages=[{"role": "user", "content": "..."}], stream=True
        ):
            if hasattr(frame, "delta") and frame.delta:
                result.update(frame.delta)
        client.close()
        return result

    assert await asyncio.to_thread(application) == PERSON
    assert router.requests[0].model == "grok-3"


async def test_example_of_the_package_runs(router: ScriptedRouter, address: str) -> None:
    [example] = re.findall(r"```python\n(.*?)```", ssop_sdk.__doc__ or "", re.DOTALL)
    reply = {"summary": "all well", "score": 0.5}
    schema = {
        "type": "object",
        "properties": {"summary": {"type": "string"}, "score": {"type": "number"}},
        "required": ["summary", "score"],
    }
    router.script = as_script(delivery(document_chunks(reply, schema=schema)))
    scope: dict[str, Any] = {}
    await asyncio.to_thread(exec, example.replace("127.0.0.1:7300", address), scope)
    assert scope["result"] == scope["answer"] == reply


async def test_completion_has_text_parsed_and_usage(client: AsyncSsopClient) -> None:
    completion = await client.chat.completions.create(messages="x", stream=False, max_tokens=99)
    assert isinstance(completion, Completion)
    assert completion.choices[0].message.content == '{"name": "Ada", "age": 36, "tags": ["math", "engines"]}'
    assert completion.parsed == PERSON
    assert (completion.usage.total_tokens, completion.model) == (18, "small")
    assert completion.choices[0].finish_reason == "stop"


async def test_response_format_is_a_schema(router: ScriptedRouter, client: AsyncSsopClient) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "p", "schema": {"type": "object", "title": "P"}}}
    await client.chat.completions.create(messages="x", stream=False, response_format=form)
    assert '"title":"P"' in router.requests[0].prompt.output_schema.json_schema


async def test_unknown_option_of_the_facade_is_an_error(client: AsyncSsopClient) -> None:
    with pytest.raises(TypeError, match="logit_bias"):
        await client.chat.completions.create(messages="x", logit_bias={})
