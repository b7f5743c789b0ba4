"""The official `openai` SDK for Python, unchanged, against the edge in front of a scripted router."""

# ruff: noqa: F401, F811 - fixtures are imported, and named again as arguments
import asyncio
import json
import struct
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pydantic
import pytest

from helpers.answers import (
    PERSON,
    PERSON_SCHEMA,
    continued_delivery,
    decision_chunk,
    delivery,
    document_chunks,
    status_chunk,
)
from helpers.eventually import eventually
from helpers.gateway import KEY, SSOP, Gateway, gateway, http, read_sse, router_address, run_gateway, scripted
from helpers.scripted_router import ScriptedRouter, abort, as_script
from ssop.v1 import content_pb2, mesh_pb2, rag_pb2
from ssop.v1 import router_pb2 as pb
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_codec import FrameKind, mesh_chunk

R = ErrorReason
ASK: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON_SCHEMA}}
TEXT = "Good day, and good night."


class Person(pydantic.BaseModel):
    name: str
    age: int
    tags: list[str] = []


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{gateway.url}/v1", max_retries=0, timeout=10) as client:
        yield client


def text_answer() -> list[bytes]:
    return delivery(document_chunks(TEXT, schema=None))


def failing(error: MeshError, after: int = 0) -> Any:
    async def script(request: Any, context: Any) -> AsyncIterator[bytes]:
        for chunk in delivery(document_chunks(PERSON))[:after]:
            yield chunk
        await abort(context, error)

    return script


async def test_text(client: openai.AsyncOpenAI, scripted: ScriptedRouter) -> None:
    scripted.script = as_script(text_answer())
    done = await client.chat.completions.create(model="auto", messages=ASK, max_completion_tokens=50, temperature=0.2)
    assert done.choices[0].message.content == TEXT
    assert (done.choices[0].finish_reason, done.model) == ("stop", "small")
    assert done.usage is not None
    assert (done.usage.prompt_tokens, done.usage.completion_tokens, done.usage.total_tokens) == (11, 7, 18)
    request = scripted.requests[0]
    assert (request.model, request.prompt.sampling.max_output_tokens) == ("", 50)
    assert len(request.prompt.messages) == 2


async def test_streamed_text_adds_up(client: openai.AsyncOpenAI, scripted: ScriptedRouter) -> None:
    scripted.script = as_script(text_answer())
    stream = await client.chat.completions.create(
        model="small", messages=ASK, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == TEXT
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 7


async def test_usage_comes_only_where_it_is_asked_for(client: openai.AsyncOpenAI, scripted: ScriptedRouter) -> None:
    scripted.script = as_script(text_answer())
    stream = await client.chat.completions.create(model="small", messages=ASK, stream=True)
    assert all(chunk.usage is None and chunk.choices for chunk in [chunk async for chunk in stream])


async def test_a_schema_is_held_and_the_pieces_are_the_document(
    client: openai.AsyncOpenAI, scripted: ScriptedRouter
) -> None:
    done = await client.chat.completions.create(model="small", messages=ASK, response_format=FORMAT)
    assert json.loads(done.choices[0].message.content or "") == PERSON
    assert json.loads(scripted.requests[0].prompt.output_schema.json_schema) == PERSON_SCHEMA
    stream = await client.chat.completions.create(model="small", messages=ASK, response_format=FORMAT, stream=True)
    pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert json.loads("".join(pieces)) == PERSON
    assert len([piece for piece in pieces if piece]) > 3


async def test_parse_gives_the_callers_own_type(client: openai.AsyncOpenAI) -> None:
    done = await client.chat.completions.parse(model="small", messages=ASK, response_format=Person)
    assert done.choices[0].message.parsed == Person(**PERSON)


async def test_a_parsing_stream_gives_it_too(client: openai.AsyncOpenAI) -> None:
    async with client.chat.completions.stream(model="small", messages=ASK, response_format=Person) as stream:
        async for _ in stream:
            pass
        done = await stream.get_final_completion()
    assert done.choices[0].message.parsed == Person(**PERSON)


async def test_json_object_is_any_object(client: openai.AsyncOpenAI, scripted: ScriptedRouter) -> None:
    done = await client.chat.completions.create(model="small", messages=ASK, response_format={"type": "json_object"})
    assert json.loads(done.choices[0].message.content or "") == PERSON
    assert json.loads(scripted.requests[0].prompt.output_schema.json_schema) == {"type": "object"}


async def test_logprobs_are_those_of_the_values(client: openai.AsyncOpenAI, scripted: ScriptedRouter) -> None:
    chunks = document_chunks(PERSON)
    told = mesh_pb2.FieldLogprobs(fields=[mesh_pb2.FieldLogprob(seq=2, sum_logprob=-0.5, min_logprob=-0.25, tokens=3)])
    scripted.script = as_script(delivery([*chunks, mesh_chunk(FrameKind.LOGPROBS, told.SerializeToString())]))
    done = await client.chat.completions.create(model="small", messages=ASK, response_format=FORMAT, logprobs=True)
    found = done.choices[0].logprobs
    assert found is not None
    assert found.content is not None
    assert [(entry.token, entry.logprob) for entry in found.content] == [('"Ada"', -0.5)]
    assert scripted.requests[0].prompt.logprobs


async def test_tool_calls_that_the_mesh_makes_arrive(client: openai.AsyncOpenAI, scripted: ScriptedRouter) -> None:
    tools: Any = [{"type": "function", "function": {"name": "find", "parameters": PERSON_SCHEMA}}]
    call = document_chunks(PERSON, document=1, tool_name="find", tool_call_id="c1")
    scripted.script = as_script(delivery([*document_chunks("", schema=None), *call]))
    done = await client.chat.completions.create(model="small", messages=ASK, tools=tools)
    calls: Any = done.choices[0].message.tool_calls
    assert (calls[0].id, calls[0].function.name, json.loads(calls[0].function.arguments)) == ("c1", "find", PERSON)
    assert done.choices[0].finish_reason == "tool_calls"
    stream = await client.chat.completions.create(model="small", messages=ASK, tools=tools, stream=True)
    pieces = [call async for chunk in stream for call in chunk.choices[0].delta.tool_calls or []]
    assert [piece.id for piece in pieces if piece.id] == ["c1"]
    # The arguments leave as they are completed, and not at the end.
    assert len(pieces) > 3
    assert json.loads("".join(piece.function.arguments or "" for piece in pieces if piece.function)) == PERSON


async def test_an_answer_of_calls_alone_comes_as_frames_and_as_a_document(
    http: httpx.AsyncClient, scripted: ScriptedRouter
) -> None:
    call = document_chunks(PERSON, document=1, tool_name="find", tool_call_id="c1")
    scripted.script = as_script(delivery(call))
    body = {"prompt": "Who?", "tools": [{"name": "find", "parameters": PERSON_SCHEMA}]}
    events = read_sse((await http.post("/v1/generate", json=body, headers={"content-type": SSOP})).text)
    assert {name for name, _ in events} == {"frame"}
    whole = (await http.post("/v1/generate", json={**body, "streaming": False}, headers={"content-type": SSOP})).json()
    assert whole["output"] is None
    assert whole["tool_calls"] == [{"id": "c1", "name": "find", "arguments": PERSON}]
    # One that is cut in the middle of a call says so.
    scripted.script = as_script(delivery(call[:-1]))
    cut = read_sse((await http.post("/v1/generate", json=body, headers={"content-type": SSOP})).text)
    assert cut[-1][0] == "error"


async def test_two_calls_and_a_text_arrive_apart(client: openai.AsyncOpenAI, scripted: ScriptedRouter) -> None:
    tools: Any = [{"type": "function", "function": {"name": "find", "parameters": PERSON_SCHEMA}}]
    one = document_chunks(PERSON, document=1, tool_name="find", tool_call_id="c1")
    two = document_chunks({"name": "Bo", "age": 3}, document=2, tool_name="find", tool_call_id="c2")
    scripted.script = as_script(delivery([*document_chunks(TEXT, schema=None), *one, *two]))
    async with client.chat.completions.stream(model="small", messages=ASK, tools=tools) as stream:
        message = (await stream.get_final_completion()).choices[0].message
    assert message.content == TEXT
    calls: Any = message.tool_calls
    assert [(call.id, json.loads(call.function.arguments)["name"]) for call in calls] == [("c1", "Ada"), ("c2", "Bo")]


async def test_arguments_that_break_their_schema_are_an_error_and_no_call(
    client: openai.AsyncOpenAI, scripted: ScriptedRouter
) -> None:
    tools: Any = [{"type": "function", "function": {"name": "find", "parameters": PERSON_SCHEMA}}]
    broken = document_chunks(text=b'{"name": "Ada", "age": 200}', document=1, tool_name="find", tool_call_id="c1")
    scripted.script = as_script(delivery(broken))
    with pytest.raises(openai.UnprocessableEntityError):
        await client.chat.completions.create(model="small", messages=ASK, tools=tools)
    stream = await client.chat.completions.create(model="small", messages=ASK, tools=tools, stream=True)
    with pytest.raises(openai.APIError, match="maximum"):
        async for _ in stream:
            pass


@pytest.mark.parametrize("parallel", [True, False])
async def test_at_most_one_call_is_asked_for(
    client: openai.AsyncOpenAI, scripted: ScriptedRouter, parallel: bool
) -> None:
    scripted.script = as_script(text_answer())
    tools: Any = [{"type": "function", "function": {"name": "find", "parameters": PERSON_SCHEMA}}]
    await client.chat.completions.create(
        model="small", messages=ASK, tools=tools, tool_choice="required", parallel_tool_calls=parallel
    )
    choice = scripted.requests[0].prompt.tool_choice
    assert (choice.mode, choice.is_single) == (content_pb2.TOOL_MODE_REQUIRED, not parallel)


async def test_tools_that_no_model_can_take_are_an_error_that_names_them(
    client: openai.AsyncOpenAI, scripted: ScriptedRouter
) -> None:
    scripted.script = failing(MeshError(R.ERROR_REASON_CONTENT_UNSUPPORTED, "no node of the tier takes tools"))
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(
            model="small", messages=ASK, tools=[{"type": "function", "function": {"name": "f"}}]
        )
    assert caught.value.code == "content_unsupported"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("n", 2),
        ("top_logprobs", 3),
        ("logit_bias", {"1": 1}),
        ("modalities", ["text", "audio"]),
        ("reasoning_effort", "high"),
        ("store", True),
        ("web_search_options", {}),
        ("functions", [{"name": "f"}]),
    ],
)
async def test_what_is_not_served_is_refused_by_name(
    client: openai.AsyncOpenAI, scripted: ScriptedRouter, option: str, value: Any
) -> None:
    options: Any = {option: value or {"search_context_size": "low"}}
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="small", messages=ASK, **options)
    assert (caught.value.param, caught.value.code) == (option, "unsupported")
    assert not scripted.requests


async def test_a_member_that_nobody_knows_is_refused_by_name(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="small", messages=ASK, extra_body={"tempurature": 1})
    assert caught.value.param == "tempurature"


async def test_members_that_change_no_answer_are_taken(client: openai.AsyncOpenAI, scripted: ScriptedRouter) -> None:
    scripted.script = as_script(text_answer())
    await client.chat.completions.create(
        model="small", messages=ASK, user="u", metadata={"a": "b"}, store=False, n=1, service_tier="auto",
        parallel_tool_calls=True,
    )  # fmt: skip
    assert len(scripted.requests) == 1


async def test_options_of_the_mesh_go_in_the_body_and_the_header(
    client: openai.AsyncOpenAI, scripted: ScriptedRouter
) -> None:
    scripted.script = as_script(text_answer())
    await client.chat.completions.create(
        model="small",
        messages=ASK,
        extra_body={"ssop": {"collections": ["faq"], "max_degraded_level": 1}},
        extra_headers={"x-router-policy": "lite"},
    )
    assert list(scripted.requests[0].retrieval.collections) == ["faq"]
    assert scripted.requests[0].max_degraded_level == 1
    assert scripted.metadata[0]["x-router-policy"] == "lite"


async def test_output_schema_is_415_here_too(client: openai.AsyncOpenAI, scripted: ScriptedRouter) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        await client.chat.completions.create(
            model="small", messages=ASK, extra_body={"output_schema": PERSON_SCHEMA, "stream": True}
        )
    assert caught.value.status_code == 415
    assert not scripted.requests


async def test_with_the_ssop_content_type_frames_come_here_too(http: httpx.AsyncClient) -> None:
    body = {"model": "small", "messages": ASK, "output_schema": PERSON_SCHEMA, "stream": True}
    response = await http.post("/v1/chat/completions", json=body, headers={"content-type": SSOP})
    assert {name for name, _ in read_sse(response.text)} == {"frame"}


@pytest.mark.parametrize(
    ("reason", "kind", "code"),
    [
        (R.ERROR_REASON_KEY_INVALID, openai.AuthenticationError, "invalid_api_key"),
        (R.ERROR_REASON_SCOPE_MISSING, openai.PermissionDeniedError, "scope_missing"),
        (R.ERROR_REASON_MODEL_UNKNOWN, openai.NotFoundError, "model_not_found"),
        (R.ERROR_REASON_SCHEMA_REFUSED, openai.UnprocessableEntityError, "schema_refused"),
        (R.ERROR_REASON_RATE_LIMITED, openai.RateLimitError, "rate_limit_exceeded"),
        (R.ERROR_REASON_QUOTA_EXHAUSTED, openai.RateLimitError, "insufficient_quota"),
        (R.ERROR_REASON_NO_BACKEND, openai.InternalServerError, "no_backend"),
    ],
)
async def test_errors_are_those_that_the_sdk_knows(
    client: openai.AsyncOpenAI, scripted: ScriptedRouter, reason: Any, kind: type[openai.APIStatusError], code: str
) -> None:
    scripted.script = failing(MeshError(reason, "no"))
    with pytest.raises(kind) as caught:
        await client.chat.completions.create(model="small", messages=ASK, stream=True)
    assert caught.value.code == code
    assert caught.value.request_id


async def test_the_sdk_repeats_what_may_succeed_and_nothing_else(gateway: Gateway, scripted: ScriptedRouter) -> None:
    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{gateway.url}/v1", max_retries=1) as client:
        scripted.script = failing(MeshError(R.ERROR_REASON_QUOTA_EXHAUSTED, "no"))
        with pytest.raises(openai.RateLimitError):
            await client.chat.completions.create(model="small", messages=ASK)
        assert len(scripted.requests) == 1
        scripted.script = failing(MeshError(R.ERROR_REASON_OVERLOADED, "no", retry_after_ms=1))
        with pytest.raises(openai.RateLimitError):
            await client.chat.completions.create(model="small", messages=ASK)
        assert len(scripted.requests) == 3


async def test_a_stream_that_breaks_raises(client: openai.AsyncOpenAI, scripted: ScriptedRouter) -> None:
    scripted.script = failing(MeshError(R.ERROR_REASON_GENERATION_INTERRUPTED, "cut"), after=5)
    stream = await client.chat.completions.create(model="small", messages=ASK, response_format=FORMAT, stream=True)
    with pytest.raises(openai.APIError, match="cut"):
        async for _ in stream:
            pass


@pytest.mark.parametrize("text", [b'{"name": "Ada", "age": 999}', b'{"name": "Ada", nonsense'])
async def test_output_that_breaks_the_schema_is_never_a_success(
    client: openai.AsyncOpenAI, scripted: ScriptedRouter, text: bytes
) -> None:
    scripted.script = as_script(delivery(document_chunks(text=text)))
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        await client.chat.completions.create(model="small", messages=ASK, response_format=FORMAT)
    assert caught.value.code == "output_invalid"
    stream = await client.chat.completions.create(model="small", messages=ASK, response_format=FORMAT, stream=True)
    with pytest.raises(openai.APIError):
        async for _ in stream:
            pass


async def test_an_answer_that_is_cut_by_a_limit_ends_with_length(
    client: openai.AsyncOpenAI, scripted: ScriptedRouter
) -> None:
    scripted.script = as_script(delivery(document_chunks(text=b'{"name": "Ada", ')))
    done = await client.chat.completions.create(model="small", messages=ASK, response_format=FORMAT)
    assert done.choices[0].finish_reason == "length"
    with pytest.raises(openai.LengthFinishReasonError):
        await client.chat.completions.parse(model="small", messages=ASK, response_format=Person)


async def test_a_stream_whose_end_is_missing_raises(client: openai.AsyncOpenAI, scripted: ScriptedRouter) -> None:
    scripted.script = as_script(delivery(document_chunks(PERSON)[:-1]))
    stream = await client.chat.completions.create(model="small", messages=ASK, response_format=FORMAT, stream=True)
    with pytest.raises(openai.APIError):
        async for _ in stream:
            pass


async def test_degraded_answers_say_so_in_header_and_body(client: openai.AsyncOpenAI, scripted: ScriptedRouter) -> None:
    scripted.script = as_script(delivery(document_chunks(PERSON), degraded_level=2))
    raw = await client.chat.completions.with_raw_response.create(model="small", messages=ASK, response_format=FORMAT)
    assert raw.headers["x-ssop-status"] == "DEGRADED"
    body = raw.http_response.json()
    assert (body["status"], body["fallback_used"], body["degraded_level"]) == ("DEGRADED", True, 2)


async def test_a_stream_that_is_degraded_half_way_says_so_in_its_last_chunk(
    client: openai.AsyncOpenAI, scripted: ScriptedRouter
) -> None:
    scripted.script = as_script(continued_delivery(degraded_level=2))
    stream = await client.chat.completions.create(model="small", messages=ASK, response_format=FORMAT, stream=True)
    *_, last = [chunk async for chunk in stream]
    assert last.choices[0].finish_reason == "stop"
    told = last.model_dump()
    assert (told["status"], told["ssop"]["delivery"]["continuations"][0]["node"]) == ("DEGRADED", "n-2")


async def test_closing_a_stream_cancels_the_generation(client: openai.AsyncOpenAI, scripted: ScriptedRouter) -> None:
    async def hang(request: Any, context: Any) -> AsyncIterator[bytes]:
        for chunk in [decision_chunk(), status_chunk(), *document_chunks(PERSON)[:4]]:
            yield chunk
        await asyncio.Event().wait()

    scripted.script = hang
    stream = await client.chat.completions.create(model="small", messages=ASK, response_format=FORMAT, stream=True)
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    await stream.close()
    await eventually(lambda: scripted.in_flight == 0)


async def test_models_are_listed_and_shown(client: openai.AsyncOpenAI, scripted: ScriptedRouter) -> None:
    scripted.unary["ListModels"] = pb.ListModelsResponse(
        models=[pb.ModelInfo(model="vendor/small", tier=mesh_pb2.TIER_LITE, context_tokens=2048)]
    )
    assert [model.id async for model in client.models.list()] == ["vendor/small"]
    assert (await client.models.retrieve("vendor/small")).owned_by == "ssop"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("none")


def _answer_with_tools(request: pb.GenerateRequest) -> list[bytes]:
    """A call where tools are offered; a text once it has been answered."""
    if not request.prompt.tools:
        return document_chunks(PERSON)
    if request.prompt.messages[-1].role == content_pb2.ROLE_TOOL:
        return document_chunks(TEXT, schema=None)
    return document_chunks(PERSON, document=1, tool_name="find", tool_call_id="c1")


@pytest.mark.needs("openai_node")
async def test_the_sdk_for_node_works_unchanged(gateway: Gateway, scripted: ScriptedRouter) -> None:
    scripted.unary["ListModels"] = pb.ListModelsResponse(models=[pb.ModelInfo(model="small")])

    async def answer(request: pb.GenerateRequest, _: Any) -> AsyncIterator[bytes]:
        for chunk in delivery(_answer_with_tools(request)):
            yield chunk

    scripted.script = answer
    program = Path(__file__).parents[1] / "helpers" / "openai_client.cjs"
    node = await asyncio.create_subprocess_exec(
        "node", str(program), f"{gateway.url}/v1", KEY, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await node.communicate()
    assert node.returncode == 0, err.decode()
    assert json.loads(out) == {
        "whole": PERSON,
        "usage": 18,
        "streamed": PERSON,
        "streamUsage": 18,
        "models": ["small"],
        "answered": TEXT,
        "heard": [PERSON],
        "call": {"name": "find", "finish": "tool_calls"},
        "arguments": PERSON,
        "refused": {"kind": "BadRequestError", "status": 400, "param": "n", "code": "unsupported"},
    }


async def test_embeddings_are_the_vectors_of_the_embedder(client: openai.AsyncOpenAI, scripted: ScriptedRouter) -> None:
    vectors = [struct.pack("<2f", 1.0, 0.5), struct.pack("<2f", 0.0, -1.0)]
    scripted.unary["Embed"] = rag_pb2.EmbedResponse(embedder="e5/1", vectors=vectors)
    for form in ("base64", "float"):
        done = await client.embeddings.create(model="auto", input=["a", "b"], encoding_format=form)
        assert done.model == "e5/1"
    plain = await client.embeddings.create(model="e5/1", input=["a", "b"])
    assert [entry.embedding for entry in plain.data] == [[1.0, 0.5], [0.0, -1.0]]
    assert list(scripted.requests[-1].texts) == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "kind", "param"),
    [
        ({"model": "other", "input": "a"}, openai.NotFoundError, "model"),
        ({"model": "auto", "input": "a", "dimensions": 7}, openai.BadRequestError, "dimensions"),
        ({"model": "auto", "input": ["a"] * 257}, openai.BadRequestError, "input"),
        ({"model": "auto", "input": ""}, openai.BadRequestError, "input"),
    ],
)
async def test_embeddings_that_are_not_served_are_named(
    client: openai.AsyncOpenAI, scripted: ScriptedRouter, options: Any, kind: type[openai.APIStatusError], param: str
) -> None:
    scripted.unary["Embed"] = rag_pb2.EmbedResponse(embedder="e5/1", vectors=[bytes(8)])
    with pytest.raises(kind) as caught:
        await client.embeddings.create(**options)
    assert (caught.value.param or "").split(".")[0] == param.split(".", maxsplit=1)[0]


async def test_embeddings_without_the_scope_are_refused(client: openai.AsyncOpenAI, scripted: ScriptedRouter) -> None:
    scripted.unary["Embed"] = MeshError(R.ERROR_REASON_SCOPE_MISSING, "no", metadata={"scope": "rag"})
    with pytest.raises(openai.PermissionDeniedError):
        await client.embeddings.create(model="auto", input="a")


async def test_the_responses_api_is_a_404_that_says_so(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="Responses API"):
        await client.responses.create(model="small", input="x")


async def test_images_and_wrong_parts_are_named_errors(client: openai.AsyncOpenAI) -> None:
    message: Any = {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}],
    }
    with pytest.raises(openai.BadRequestError, match="the mesh fetches no addresses"):
        await client.chat.completions.create(model="small", messages=[message])
