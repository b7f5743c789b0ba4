"""SSOP over HTTP: the edge on real sockets, in front of a RouterService whose answers are scripted."""

# ruff: noqa: F401, F811 - fixtures are imported, and named again as arguments
import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from google.protobuf.json_format import Parse

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
from helpers.gateway import (
    KEY,
    SSOP,
    Gateway,
    gateway,
    http,
    open_client,
    read_sse,
    router_address,
    run_gateway,
    scripted,
)
from helpers.machine import stretched
from helpers.scripted_router import ScriptedRouter, abort, as_script
from ssop.v1 import mesh_pb2
from ssop.v1 import router_pb2 as pb
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.frame_pb2 import Chunk, Frame
from ssop_chassis.errors import MeshError
from ssop_codec import Decoder, Verdict

ASK = {"prompt": "Who?", "output_schema": PERSON_SCHEMA}
R = ErrorReason


async def post(http: httpx.AsyncClient, body: Any = ASK, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await http.post("/v1/generate", content=content, headers={"content-type": SSOP, **headers})


def decode(texts: list[str]) -> Decoder:
    """A decoder that was fed the frames of their JSON."""
    decoder = Decoder()
    for text in texts:
        decoder.feed(Chunk(frames=[Parse(text, Frame())]).SerializeToString())
    return decoder


async def hang(request: Any, context: Any) -> AsyncIterator[bytes]:
    """Sends the first field, then nothing."""
    for chunk in [decision_chunk(), status_chunk(), *document_chunks(PERSON)[:2]]:
        yield chunk
    await asyncio.Event().wait()


async def test_sse_events_are_frames_that_decode_to_the_document(http: httpx.AsyncClient) -> None:
    response = await post(http, accept="text/event-stream")
    events = read_sse(response.text)
    assert {name for name, _ in events} == {"frame"}
    decoder = decode([data for _, data in events])
    assert decoder.result == PERSON
    assert decoder.verdict == Verdict.OK


async def test_ndjson_lines_are_the_same_frames(http: httpx.AsyncClient) -> None:
    sse = await post(http, accept="text/event-stream")
    lines = await post(http, accept="application/x-ndjson")
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert lines.text.splitlines() == [data for _, data in read_sse(sse.text)]


async def test_whole_answer_comes_as_one_document(http: httpx.AsyncClient) -> None:
    response = await post(http, {**ASK, "streaming": False})
    assert response.headers["content-type"] == SSOP
    body = response.json()
    assert body["output"] == PERSON
    assert (body["status"], body["fallback_used"]) == ("OK", False)
    assert body["usage"]["output_tokens"] == 7


async def test_the_request_travels_with_key_policy_id_and_deadline(
    http: httpx.AsyncClient, scripted: ScriptedRouter
) -> None:
    left: list[float] = []

    async def script(request: Any, context: Any) -> AsyncIterator[bytes]:
        left.append(context.time_remaining())
        for chunk in delivery(document_chunks(PERSON)):
            yield chunk

    scripted.script = script
    began_s = time.monotonic()
    response = await post(
        http, {**ASK, "timeout_ms": 7_000}, **{"x-request-id": "r-1", "x-router-policy": "lite,no_cache"}
    )
    metadata = scripted.metadata[0]
    assert metadata["authorization"] == f"Bearer {KEY}"
    assert metadata["x-router-policy"] == "lite,no_cache"
    assert scripted.requests[0].request_id == response.headers["x-request-id"] == "r-1"
    # gRPC rounds deadlines up.
    assert 6.9 - (time.monotonic() - began_s) < left[0] < 7.1


async def test_x_api_key_is_a_key(gateway: Gateway, scripted: ScriptedRouter) -> None:
    async with httpx.AsyncClient(base_url=gateway.url, headers={"x-api-key": KEY}) as client:
        await post(client)
    assert scripted.metadata[0]["authorization"] == f"Bearer {KEY}"


async def test_no_key_is_401_and_never_reaches_the_router(gateway: Gateway, scripted: ScriptedRouter) -> None:
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        response = await post(client)
    assert (response.status_code, response.json()["error"]["reason"]) == (401, "KEY_MISSING")
    assert response.headers["www-authenticate"] == "Bearer"
    assert not scripted.requests


async def test_02_schema_without_the_content_type_is_415_that_says_why(
    http: httpx.AsyncClient, scripted: ScriptedRouter
) -> None:
    response = await post(http, **{"content-type": "application/json"})
    error = response.json()["error"]
    assert response.status_code == 415
    assert error["param"] == "output_schema"
    assert SSOP in error["message"]
    assert not scripted.requests


async def test_a_schema_that_is_null_is_none(http: httpx.AsyncClient, scripted: ScriptedRouter) -> None:
    body = {"prompt": "Say", "output_schema": None, "streaming": False}
    scripted.script = as_script(delivery(document_chunks("Good day.", schema=None)))
    assert (await post(http, body, **{"content-type": "application/json"})).status_code == 200


async def test_plain_text_needs_no_content_type_of_its_own(http: httpx.AsyncClient, scripted: ScriptedRouter) -> None:
    scripted.script = as_script(delivery(document_chunks("Good day.", schema=None)))
    response = await post(http, {"prompt": "Say", "streaming": False}, **{"content-type": "application/json"})
    assert response.json()["output"] == "Good day."


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (R.ERROR_REASON_REQUEST_INVALID, 400),
        (R.ERROR_REASON_KEY_INVALID, 401),
        (R.ERROR_REASON_SCOPE_MISSING, 403),
        (R.ERROR_REASON_MODEL_UNKNOWN, 404),
        (R.ERROR_REASON_REQUEST_DUPLICATE, 409),
        (R.ERROR_REASON_CONTEXT_EXCEEDED, 413),
        (R.ERROR_REASON_SCHEMA_REFUSED, 422),
        (R.ERROR_REASON_RATE_LIMITED, 429),
        (R.ERROR_REASON_NO_BACKEND, 503),
        (R.ERROR_REASON_DEADLINE_EXCEEDED, 504),
    ],
)
async def test_an_error_before_the_first_field_is_the_response(
    http: httpx.AsyncClient, scripted: ScriptedRouter, reason: Any, status: int
) -> None:
    async def script(request: Any, context: Any) -> AsyncIterator[bytes]:
        await abort(context, MeshError(reason, "not now"))
        yield b""

    scripted.script = script
    response = await post(http)
    assert response.status_code == status
    assert response.json()["error"]["reason"] == ErrorReason.Name(reason).removeprefix("ERROR_REASON_")


async def test_retry_after_is_what_the_mesh_says(http: httpx.AsyncClient, scripted: ScriptedRouter) -> None:
    async def script(request: Any, context: Any) -> AsyncIterator[bytes]:
        await abort(context, MeshError(R.ERROR_REASON_RATE_LIMITED, "slow down", retry_after_ms=1_500))
        yield b""

    scripted.script = script
    response = await post(http)
    assert (response.headers["retry-after"], response.headers["retry-after-ms"]) == ("2", "1500")
    assert response.headers["x-should-retry"] == "true"


@pytest.mark.parametrize("accept", ["text/event-stream", "application/x-ndjson"])
async def test_an_error_after_the_first_field_is_the_last_thing_in_the_stream(
    http: httpx.AsyncClient, scripted: ScriptedRouter, accept: str
) -> None:
    async def script(request: Any, context: Any) -> AsyncIterator[bytes]:
        for chunk in delivery(document_chunks(PERSON))[:5]:
            yield chunk
        await abort(context, MeshError(R.ERROR_REASON_GENERATION_INTERRUPTED, "cut", metadata={"last_seq": "2"}))

    scripted.script = script
    response = await post(http, accept=accept)
    last = read_sse(response.text)[-1][1] if accept == "text/event-stream" else response.text.splitlines()[-1]
    assert response.status_code == 200
    assert json.loads(last)["error"]["metadata"] == {"last_seq": "2"}


async def test_a_stream_that_ends_without_its_end_frame_is_an_error(
    http: httpx.AsyncClient, scripted: ScriptedRouter
) -> None:
    scripted.script = as_script(delivery(document_chunks(PERSON)[:-1]))
    events = read_sse((await post(http)).text)
    assert json.loads(events[-1][1])["error"]["reason"] == "FRAME_LOSS"
    whole = await post(http, {**ASK, "streaming": False})
    assert (whole.status_code, whole.json()["error"]["reason"]) == (502, "FRAME_LOSS")


async def test_whole_answer_that_breaks_the_schema_is_422(http: httpx.AsyncClient, scripted: ScriptedRouter) -> None:
    scripted.script = as_script(delivery(document_chunks(text=b'{"name": "Ada", "age": 999}')))
    response = await post(http, {**ASK, "streaming": False})
    assert (response.status_code, response.json()["error"]["metadata"]["pointer"]) == (422, "/age")


async def test_degraded_answer_says_so_in_header_and_body(http: httpx.AsyncClient, scripted: ScriptedRouter) -> None:
    scripted.script = as_script(delivery(document_chunks(PERSON), degraded_level=2))
    whole = await post(http, {**ASK, "streaming": False})
    assert whole.headers["x-ssop-status"] == "DEGRADED"
    assert whole.json() | {"status": "DEGRADED", "fallback_used": True} == whole.json()
    streamed = await post(http)
    assert streamed.headers["x-ssop-status"] == "DEGRADED"
    name, data = read_sse(streamed.text)[0]
    assert name == "degraded"
    assert json.loads(data) | {"status": "DEGRADED", "fallback_used": True} == json.loads(data)


async def test_an_answer_that_is_degraded_half_way_says_so_then(
    http: httpx.AsyncClient, scripted: ScriptedRouter
) -> None:
    scripted.script = as_script(continued_delivery(degraded_level=2))
    streamed = await post(http)
    events = [name for name, _ in read_sse(streamed.text)]
    assert streamed.headers["x-ssop-status"] == "OK"
    assert events.count("degraded") == 1
    assert events.index("degraded") > 2


async def test_an_answer_as_it_should_be_says_ok(http: httpx.AsyncClient) -> None:
    assert (await post(http)).headers["x-ssop-status"] == "OK"


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_client_that_goes_away_cancels_the_generation_within_100_ms(
    gateway: Gateway, scripted: ScriptedRouter, streaming: bool
) -> None:
    scripted.script = hang
    body = json.dumps({**ASK, "streaming": streaming}).encode()
    head = f"POST /v1/generate HTTP/1.1\r\nhost: e\r\nauthorization: Bearer {KEY}\r\ncontent-type: {SSOP}\r\n"

    async def took_s() -> float:
        reader, writer = await gateway.open()
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        if streaming:
            await reader.readuntil(b"FRAME_KIND_VALUE")
        else:
            await eventually(lambda: scripted.in_flight == 1)
        writer.close()
        gone_s = time.monotonic()
        await eventually(lambda: scripted.in_flight == 0)
        return time.monotonic() - gone_s

    tries = 1
    # Other processes run here too.
    while not (is_at_once := await took_s() < stretched(0.1)) and tries < 3:
        tries += 1
    assert is_at_once
    labels = {"http_route": "/v1/generate", "http_request_method": "POST", "http_response_status_code": "499"}
    await eventually(lambda: gateway.metric("http_server_request_duration_seconds_count", **labels) == tries)
    await eventually(lambda: gateway.metric("http_server_active_requests") == 0)


async def test_the_first_field_arrives_while_the_rest_is_being_written(
    http: httpx.AsyncClient, scripted: ScriptedRouter
) -> None:
    scripted.script = hang
    async with http.stream("POST", "/v1/generate", json=ASK, headers={"content-type": SSOP}) as response:
        async for line in response.aiter_lines():
            if "string_value" in line:
                break
    assert json.loads(line.removeprefix("data: "))["string_value"] == "Ada"


async def test_document_frames_have_their_number_as_the_id_of_the_event(http: httpx.AsyncClient) -> None:
    events = (await post(http)).text.split("\n\n")
    ids = [line for event in events for line in event.splitlines() if line.startswith("id: ")]
    assert ids == [f"id: {seq}" for seq in range(1, len(ids) + 1)]
    assert not events[0].startswith("id")


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/v1/generate/r-1", {"last-event-id": "3"}), ("/v1/generate/r-1?after_seq=3", {})],
)
async def test_a_client_that_reconnects_goes_on_after_its_last_event(
    http: httpx.AsyncClient, scripted: ScriptedRouter, path: str, headers: dict[str, str]
) -> None:
    async def script(request: Any, context: Any) -> AsyncIterator[bytes]:
        frames = [frame for chunk in document_chunks(PERSON) for frame in Chunk.FromString(chunk).frames]
        yield decision_chunk() + status_chunk()
        yield Chunk(frames=[frame for frame in frames if frame.seq > request.after_seq]).SerializeToString()

    scripted.script = script
    events = read_sse((await http.get(path, headers=headers)).text)
    assert scripted.requests[0] == pb.ResumeRequest(request_id="r-1", after_seq=3)
    seqs = [int(frame["seq"]) for _, data in events if "seq" in (frame := json.loads(data))]
    assert seqs[0] == 4


async def test_an_answer_that_is_not_kept_is_404(http: httpx.AsyncClient, scripted: ScriptedRouter) -> None:
    async def script(request: Any, context: Any) -> AsyncIterator[bytes]:
        await abort(context, MeshError(R.ERROR_REASON_REQUEST_UNKNOWN, "not kept"))
        yield b""

    scripted.script = script
    assert (await http.get("/v1/generate/r-1")).status_code == 404
    assert (await http.get("/v1/generate/r-1?after_seq=x")).status_code == 400
    assert (await http.get("/v1/generate/%20")).status_code == 400


async def test_a_silent_stream_is_kept_alive_by_comments(scripted: ScriptedRouter, router_address: str) -> None:
    scripted.script = hang
    async with (
        run_gateway(router_address, keepalive_ms=30) as gateway,
        open_client(gateway) as client,
        client.stream("POST", "/v1/generate", json=ASK, headers={"content-type": SSOP}) as response,
    ):
        comments = 0
        async for line in response.aiter_lines():
            comments += line == ": keep-alive"
            if comments == 3:
                break


async def test_a_reader_that_stops_stops_the_model_and_is_dropped_in_time(
    scripted: ScriptedRouter, router_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    sent = 0

    async def flood(request: Any, context: Any) -> AsyncIterator[bytes]:
        nonlocal sent
        yield decision_chunk() + status_chunk()
        chunk = document_chunks("x" * 8_000, schema=None, token_bytes=8_000, buffer_bytes=16_384)[0]
        while True:
            sent += len(chunk)
            yield chunk

    scripted.script = flood
    async with run_gateway(router_address, write_timeout_ms=300) as gateway:
        reader, writer = await gateway.open()
        body = json.dumps({"prompt": "x"}).encode()
        head = f"POST /v1/generate HTTP/1.1\r\nhost: e\r\nauthorization: Bearer {KEY}\r\ncontent-type: {SSOP}\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        # The default limit of the reader is all that this side takes.
        await eventually(lambda: scripted.in_flight == 1)
        await eventually(lambda: scripted.in_flight == 0)
        # Dropped, not waited for: what had been sent can be read, and then there is no connection.
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionResetError):
                await reader.read()
        writer.close()
    assert sent < 20_000_000
    assert "without completing" not in caplog.text


async def test_the_deadline_is_504(scripted: ScriptedRouter, router_address: str) -> None:
    async def never(request: Any, context: Any) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    scripted.script = never
    async with run_gateway(router_address, default_timeout_ms=100) as gateway, open_client(gateway) as client:
        assert (await post(client)).status_code == 504


async def test_no_router_is_503(router_address: str) -> None:
    async with run_gateway(router_address) as gateway, open_client(gateway) as client:
        response = await post(client)
        assert (response.status_code, response.headers["x-should-retry"]) == (503, "true")
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/healthz")).status_code == 200


async def test_more_requests_than_the_bound_are_429(scripted: ScriptedRouter, router_address: str) -> None:
    scripted.script = hang
    async with (
        run_gateway(router_address, max_in_flight=1) as gateway,
        open_client(gateway) as client,
        client.stream("POST", "/v1/generate", json=ASK, headers={"content-type": SSOP}) as response,
    ):
        await anext(response.aiter_lines())
        refused = await post(client)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert (await client.get("/healthz")).status_code == 200


async def test_schema_check_and_explain_are_served(http: httpx.AsyncClient, scripted: ScriptedRouter) -> None:
    scripted.unary["CheckSchema"] = pb.CheckSchemaResponse(caps=[pb.CapUse(cap="max_depth", used=2, limit=64)])
    scripted.unary["ExplainDecision"] = pb.ExplainDecisionResponse(explanation=["a short text"])
    headers = {"content-type": SSOP}
    checked = await http.post("/v1/schema/check", json={"output_schema": PERSON_SCHEMA}, headers=headers)
    assert checked.json()["caps"][0]["cap"] == "max_depth"
    explained = await http.post("/v1/explain", json=ASK, headers=headers)
    assert explained.json() == {"explanation": ["a short text"]}


async def test_model_of_a_tier_of_a_later_version_is_listed_with_its_number(
    http: httpx.AsyncClient, scripted: ScriptedRouter
) -> None:
    models = [pb.ModelInfo(model="m", tier=tier) for tier in (mesh_pb2.TIER_LITE, mesh_pb2.Tier.ValueType(9))]
    scripted.unary["ListModels"] = pb.ListModelsResponse(models=models)
    listed = (await http.get("/v1/models")).json()["data"]
    assert [model["ssop"]["tier"] for model in listed] == ["lite", "9"]


async def test_mesh_status_without_the_scope_is_403_that_names_it(
    http: httpx.AsyncClient, scripted: ScriptedRouter
) -> None:
    scripted.unary["GetMeshStatus"] = MeshError(R.ERROR_REASON_SCOPE_MISSING, "no", metadata={"scope": "admin"})
    response = await http.get("/v1/mesh/status")
    assert (response.status_code, response.json()["error"]["metadata"]) == (403, {"scope": "admin"})


async def test_keys_and_prompts_are_in_no_log(
    http: httpx.AsyncClient, scripted: ScriptedRouter, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(request: Any, context: Any) -> AsyncIterator[bytes]:
        yield b"\xff\xff no chunk"

    scripted.script = script
    with caplog.at_level("DEBUG", logger="ssop_gateway"):
        assert (await post(http, {"prompt": "the secret prompt"})).status_code == 502
    assert KEY not in caplog.text
    assert "secret prompt" not in caplog.text
