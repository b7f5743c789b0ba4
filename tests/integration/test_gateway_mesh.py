"""The HTTP edge of a whole mesh: started by `ssop up`, killed, drained, with the real model behind it."""

import json
import operator
import signal
import threading
from collections.abc import Iterator
from typing import Any, Literal

import httpx
import openai
import pydantic
import pytest

from helpers.collector import Collector
from helpers.gateway import read_sse
from helpers.live_mesh import LiveMesh, wait_until
from helpers.machine import stretched
from ssop_sdk import SsopClient

MOOD = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"]}, "why": {"type": "string", "maxLength": 40}},
    "required": ["mood", "why"],
    "additionalProperties": False,
}


@pytest.fixture
def http(mesh: LiveMesh, client: SsopClient) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {mesh.key}", "content-type": "application/x-ssop+json"}
    with httpx.Client(base_url=mesh.url, headers=headers, timeout=60) as made:
        yield made


def test_the_real_model_answers_field_by_field(http: httpx.Client) -> None:
    response = http.post("/v1/generate", json={"prompt": "A good day.", "output_schema": MOOD})
    frames = [json.loads(data) for _, data in read_sse(response.text)]
    assert [frame["kind"] for frame in frames[:3]] == [
        "FRAME_KIND_DECISION",
        "FRAME_KIND_STATUS",
        "FRAME_KIND_HEADER",
    ]
    assert next(frame["end"]["verdict"] for frame in frames if "end" in frame) == "VERDICT_OK"
    assert frames[-1]["kind"] == "FRAME_KIND_ACCOUNTING"


def test_the_sdk_of_openai_gets_a_typed_answer_of_the_real_model(mesh: LiveMesh, client: SsopClient) -> None:
    class Mood(pydantic.BaseModel):
        mood: Literal["good", "bad"]

    messages: Any = [{"role": "user", "content": "A good day."}]
    with openai.OpenAI(base_url=f"{mesh.url}/v1", api_key=mesh.key, max_retries=0, timeout=60) as vendor:
        done = vendor.chat.completions.parse(model="auto", messages=messages, response_format=Mood)
        assert isinstance(done.choices[0].message.parsed, Mood)
        stream = vendor.chat.completions.create(
            model=vendor.models.list().data[0].id, messages=messages, stream=True, max_tokens=8, logprobs=True
        )
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        vectors = vendor.embeddings.create(model="auto", input=["a good day", "a fine day", "tax law"]).data
        good, fine, law = (entry.embedding for entry in vectors)
        assert sum(map(operator.mul, good, fine)) > sum(map(operator.mul, good, law))
        picture: Any = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}
        with pytest.raises(openai.BadRequestError) as caught:
            vendor.chat.completions.create(model="auto", messages=[{"role": "user", "content": [picture]}])
        assert caught.value.code == "content_unsupported"


def test_the_real_model_calls_the_tool_that_it_must(mesh: LiveMesh, client: SsopClient) -> None:
    class File(pydantic.BaseModel):
        """File a complaint."""

        product: str = pydantic.Field(max_length=20)
        severity: Literal["low", "high"]

    messages: Any = [{"role": "user", "content": "The X200 is broken."}]
    with openai.OpenAI(base_url=f"{mesh.url}/v1", api_key=mesh.key, max_retries=0, timeout=60) as vendor:
        done = vendor.chat.completions.parse(
            model="auto", messages=messages, tools=[openai.pydantic_function_tool(File)], tool_choice="required"
        )
        [call] = done.choices[0].message.tool_calls or []
        assert isinstance(call.function.parsed_arguments, File)
        answer: Any = {"role": "tool", "tool_call_id": call.id, "content": "filed under 7"}
        again: Any = [*messages, done.choices[0].message, answer]
        assert vendor.chat.completions.create(model="auto", messages=again, max_tokens=8).choices[0].message.content


def test_a_client_that_was_cut_off_gets_the_rest(http: httpx.Client) -> None:
    body = {"prompt": "A sad day.", "output_schema": MOOD, "resume_window_ms": 20_000, "request_id": "cut-off"}
    last_id = ""
    with http.stream("POST", "/v1/generate", json={**body, "policy": "no_cache"}) as response:
        for line in response.iter_lines():
            if line.startswith("id: "):
                last_id = line.removeprefix("id: ")
            if "string_value" in line:
                break
    rest = read_sse(http.get("/v1/generate/cut-off", headers={"last-event-id": last_id}).text)
    frames = [json.loads(data) for _, data in rest]
    seqs = [int(frame["seq"]) for frame in frames if "seq" in frame]
    assert seqs[0] == int(last_id) + 1
    assert seqs == list(range(seqs[0], seqs[-1] + 1))
    assert next(frame["end"]["verdict"] for frame in frames if "end" in frame) == "VERDICT_OK"


def test_a_schema_that_is_refused_is_422_with_the_pointer(http: httpx.Client) -> None:
    response = http.post("/v1/generate", json={"prompt": "x", "output_schema": {"$ref": "https://example.com/s"}})
    assert (response.status_code, response.json()["error"]["reason"]) == (422, "SCHEMA_REFUSED")
    assert response.json()["error"]["metadata"]["pointer"] == "/$ref"


def test_a_wrong_key_is_401(mesh: LiveMesh, http: httpx.Client) -> None:
    response = httpx.post(f"{mesh.url}/v1/generate", json={"prompt": "x"}, headers={"x-api-key": "ssop_no_such"})
    assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")


def test_the_status_of_the_mesh_names_its_nodes(http: httpx.Client) -> None:
    assert http.get("/v1/mesh/status").json()["nodes"][0]["status"]["node"] == "local"


def test_a_request_is_one_trace_that_begins_with_the_caller(http: httpx.Client, collector: Collector) -> None:
    trace = "0af7651916cd43dd8448eb211c80319d"
    headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    assert http.post("/v1/generate", json={"prompt": "Hello."}, headers=headers).status_code == 200

    def names() -> set[str]:
        return {service for service, _ in collector.of_trace(trace)}

    wait_until(lambda: {"ssop-gateway", "ssop-router", "ssop-inference"} <= names(), 60, "the spans have arrived")
    root = next(span for service, span in collector.of_trace(trace) if service == "ssop-gateway")
    assert (root.name, root.parent_span_id.hex()) == ("POST /v1/generate", "b7ad6b7169203331")


def test_readiness_follows_a_router_that_dies_and_comes_back(mesh: LiveMesh, http: httpx.Client) -> None:
    assert http.get("/readyz").status_code == 200
    # Nobody starts it again before it was missed.
    mesh.process.send_signal(signal.SIGSTOP)
    try:
        pid = mesh.signal("router", signal.SIGKILL)
        wait_until(lambda: http.get("/readyz").status_code == 503, 60, "the edge is not ready without its router")
    finally:
        mesh.process.send_signal(signal.SIGCONT)
    mesh.wait_restarted("router", pid)
    wait_until(lambda: http.get("/readyz").status_code == 200, 60, "the edge is ready again")


def test_an_edge_that_is_killed_half_way_leaves_nothing_running(
    mesh: LiveMesh, http: httpx.Client, client: SsopClient
) -> None:
    long = {"type": "object", "properties": {"text": {"type": "string", "minLength": 900, "maxLength": 1000}}}
    body = {"prompt": "Tell a long story.", "output_schema": {**long, "required": ["text"]}, "policy": "no_cache"}
    wait_until(lambda: client.mesh_status().in_flight == 0, 60, "nothing else runs")
    with http.stream("POST", "/v1/generate", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        pid = mesh.signal("gateway", signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            list(lines)
    wait_until(lambda: client.mesh_status().in_flight == 0, stretched(2), "the router has noticed")
    mesh.wait_restarted("gateway", pid)


def test_an_edge_that_drains_lets_a_running_answer_finish_and_comes_back(mesh: LiveMesh, http: httpx.Client) -> None:
    long = {"type": "object", "properties": {"text": {"type": "string", "minLength": 200, "maxLength": 240}}}
    body = {"prompt": "Tell a story.", "output_schema": {**long, "required": ["text"]}, "policy": "no_cache"}
    texts: list[str] = []
    is_running = threading.Event()

    def ask() -> None:
        with http.stream("POST", "/v1/generate", json=body) as response:
            for line in response.iter_lines():
                is_running.set()
                texts.append(line)

    asking = threading.Thread(target=ask)
    asking.start()
    assert is_running.wait(60)
    pid = mesh.signal("gateway", signal.SIGTERM)
    asking.join(60)
    assert any("VERDICT_OK" in text for text in texts)
    mesh.wait_restarted("gateway", pid)
    assert '"serving"' in mesh.log("gateway")
    assert mesh.key not in mesh.log("gateway")
