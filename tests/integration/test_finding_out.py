"""What a node finds out about a model server before it serves."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers.eventually import eventually
from helpers.inference import serve, user_prompt
from helpers.upstream import END, HEAD, Answer, Request, Step, event, page, scripted_upstream
from helpers.upstream_node import UpstreamNode, model_settings, upstream_node
from helpers.vendors import SCHEMA, VENDORS, Vendor
from ssop.v1 import inference_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_cli.embedded import free_port
from ssop_inference.assembly import build_node
from ssop_inference.models import ModelError
from ssop_inference.settings import InferenceSettings

VLLM = VENDORS["vllm"]
NAMELESS: Answer = lambda _: page({"object": "list", "data": [{"id": "m", "object": "model"}]})  # noqa: E731
BAD: Answer = lambda _: page({"error": {"message": "no", "code": "bad"}}, status="400 Bad Request")  # noqa: E731


def vendor(name: str, **pages: Answer) -> Vendor:
    """A server with other pages than the documented ones; `_` stands for `/`."""
    base = VENDORS[name]
    changed = {**base.pages, **{path.replace("_", "/"): answer for path, answer in pages.items()}}
    return Vendor(name, base.backend, base.path, base.begin, base.text, base.end, base.error, changed)


def dialect(node: UpstreamNode) -> str:
    return node.backend.wire.dialect_name


@pytest.mark.parametrize("name", ["vllm", "sglang", "llama-server"])
async def test_server_is_known_by_its_pages(name: str) -> None:
    async with upstream_node(VENDORS[name], VENDORS[name].stream()) as node:
        assert dialect(node) == name


@pytest.mark.parametrize(("version", "expected"), [("0.10.1", "vllm-guided"), ("0.11.0", "vllm"), ("dev", "vllm")])
async def test_vllm_is_spoken_to_by_its_version(version: str, expected: str) -> None:
    server = vendor("vllm", _version=lambda _: page({"version": version}))
    async with upstream_node(server, server.stream()) as node:
        assert dialect(node) == expected


async def test_llama_server_without_llguidance_is_held_by_its_own_grammar() -> None:
    server = vendor("llama-server", _completion=BAD)
    async with upstream_node(server, server.stream()) as node:
        assert dialect(node) == "llama-server-gbnf"


def answering(text: str, *, only_for: str = "") -> Answer:
    """Always this text; with `only_for`, requests of other response formats are refused."""

    def answer(request: Request) -> Sequence[Step]:
        kind = request.body.get("response_format", {}).get("type", "")
        if only_for and kind not in {"", only_for}:
            return BAD(request)
        return VLLM.stream((text,))(request)

    return answer


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (answering('{"q7": "q7"}'), "json-schema"),
        (answering('{"greeting": "Hello"}'), "json-object"),
        (answering('{"greeting": "Hello"}', only_for="json_object"), "json-object"),
        (answering("Hello! How can I help?"), "plain"),
        (answering("Hello!", only_for="text"), "plain"),
    ],
    ids=["schema", "ignores the schema", "json mode alone", "ignores all", "refuses all"],
)
async def test_unknown_server_is_believed_by_what_it_generates(answer: Answer, expected: str) -> None:
    server = Vendor("vllm", "openai", VLLM.path, VLLM.begin, VLLM.text, VLLM.end, VLLM.error, {"/v1/models": NAMELESS})
    async with upstream_node(server, answer) as node:
        assert dialect(node) == expected


def refusing(key: str) -> Answer:
    """A server that takes no such field."""

    def answer(request: Request) -> Sequence[Step]:
        return BAD(request) if key in request.body else VLLM.stream(("ok",))(request)

    return answer


@pytest.mark.parametrize("key", ["stream_options", "logprobs", "temperature"])
async def test_field_that_the_server_refuses_is_not_sent_again(key: str) -> None:
    class Strict(Vendor):
        def answers(self, answer: Answer) -> dict[str, Answer]:
            return {**self.pages, self.path: answer}

    server = Strict("vllm", "openai", VLLM.path, VLLM.begin, VLLM.text, VLLM.end, VLLM.error, VLLM.pages)
    async with upstream_node(server, refusing(key)) as node:
        answer = await node.running.client.generate(user_prompt("Say it."))
        assert answer.decoder.text == "ok"
        assert not node.backend.facts.has_logprobs


async def test_server_that_loads_its_model_is_waited_for() -> None:
    refusals = [page({"error": {"code": 503, "message": "Loading model"}}, status="503 Service Unavailable")] * 2
    server = vendor(
        "llama-server", _props=lambda r: refusals.pop() if refusals else VENDORS["llama-server"].pages["/props"](r)
    )
    async with upstream_node(server, server.stream()) as node:
        assert node.running.node.models[0].state == inference_pb2.MODEL_STATE_READY


async def test_node_serves_before_its_server_and_with_it_when_it_comes() -> None:
    port = free_port()
    node = build_node(InferenceSettings(models=(model_settings(VLLM, f"http://127.0.0.1:{port}"),)))
    node.retry_s = 0.02
    client = serve(node).client
    try:
        await node.start(timeout_s=0.05)
        with pytest.raises(MeshError) as caught:
            await client.generate(user_prompt("Say it."))
        assert caught.value.reason == ErrorReason.ERROR_REASON_BACKEND_NOT_READY
        async with scripted_upstream(VLLM.answers(VLLM.stream(("ok",))), port=port):
            await eventually(lambda: node.models[0].state == inference_pb2.MODEL_STATE_READY)
            assert (await client.generate(user_prompt("Say it."))).decoder.text == "ok"
            await node.close()
    finally:
        await node.close()


async def test_server_without_models_is_refused_with_the_reason() -> None:
    server = vendor("openai", _v1_models=lambda _: page({"data": []}))
    with pytest.raises(MeshError, match="upstream_model"):
        async with upstream_node(server, server.stream()):
            pass


def write_key(tmp_path: Path, text: str, *, mode: int = 0o600) -> Path:
    path = tmp_path / "upstream.key"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("name", "header", "value"), [("openai", "authorization", "Bearer k1"), ("anthropic", "x-api-key", "k1")]
)
async def test_key_goes_where_the_server_looks_for_it(name: str, header: str, value: str, tmp_path: Path) -> None:
    server = VENDORS[name]
    async with upstream_node(server, server.stream(), api_key_file=write_key(tmp_path, "k1\n")) as node:
        assert {request.headers.get(header) for request in node.upstream.requests} == {value}


async def test_refused_key_stops_the_start_and_is_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    refusal: Answer = lambda _: page({"error": {"message": "Incorrect: hush-hush"}}, status="401 Unauthorized")  # noqa: E731
    server = vendor("openai", _v1_models=refusal)
    with pytest.raises(MeshError) as caught:
        async with upstream_node(server, refusal, api_key_file=write_key(tmp_path, "hush-hush")):
            pass
    assert caught.value.reason == ErrorReason.ERROR_REASON_INTERNAL
    assert "hush-hush" not in caught.value.message + caplog.text


@pytest.mark.parametrize(
    ("text", "mode"), [("", 0o600), ("two words", 0o600), ("k1", 0o644), ("é", 0o600), ("a\x00b", 0o600)]
)
async def test_key_file_that_can_not_be_used_is_refused(text: str, mode: int, tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        async with upstream_node(VLLM, VLLM.stream(), api_key_file=write_key(tmp_path, text, mode=mode)):
            pass


async def test_fields_of_the_user_s_go_with_every_request_except_the_mesh_s_own() -> None:
    extra: dict[str, Any] = {"repetition_penalty": 1.1, "stream": False, "n": 5, "structured_outputs": {}}
    async with upstream_node(VLLM, VLLM.stream(), extra_body=extra) as node:
        await node.running.client.generate(user_prompt("Say it.", schema=SCHEMA))
        body = node.upstream.of(VLLM.path)[-1].body
        assert (body["repetition_penalty"], body["stream"], "n" in body) == (1.1, True, False)
        assert body["structured_outputs"] == {"json": SCHEMA}


async def test_sampling_goes_to_the_server_as_it_was_asked() -> None:
    async with upstream_node(VLLM, VLLM.stream(("ok",))) as node:
        prompt = user_prompt("Say it.", temperature=0.5, top_p=0.5, top_k=7, seed=3, max_output_tokens=9, stop=["x"])
        await node.running.client.generate(prompt)
        body = node.upstream.of(VLLM.path)[-1].body
        sent = {key: body[key] for key in ("temperature", "top_p", "top_k", "seed", "max_tokens", "stop")}
        assert json.dumps(sent) == json.dumps(
            {"temperature": 0.5, "top_p": 0.5, "top_k": 7, "seed": 3, "max_tokens": 9, "stop": ["x"]}
        )


async def test_tokenizer_that_a_proxy_hides_is_done_without() -> None:
    async with upstream_node(VLLM, VLLM.stream()) as node:
        counted = await node.running.client.count_tokens(user_prompt("word " * 100))
        assert 100 <= counted <= 200


async def test_redirect_is_not_followed() -> None:
    away: Answer = lambda _: page({}, status="307 Away", headers={"location": "http://127.0.0.1:1/"})  # noqa: E731
    async with upstream_node(VLLM, away) as node:
        with pytest.raises(MeshError) as caught:
            await node.running.client.generate(user_prompt("Say it."))
        assert caught.value.reason == ErrorReason.ERROR_REASON_BACKEND_FAILED


async def test_page_that_never_ends_is_bounded() -> None:
    block = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    head = HEAD.replace(b"text/event-stream", b"application/json")
    server = vendor("vllm", _props=lambda _: [head, *[block] * 80, END])
    async with upstream_node(server, server.stream()) as node:
        assert dialect(node) == "vllm"


async def test_event_of_nonsense_numbers_is_no_crash() -> None:
    chunk = event({"choices": [{"index": 0, "delta": {"content": "a"}}], "usage": {"prompt_tokens": 10**40}})
    async with upstream_node(VLLM, lambda r: [HEAD, chunk, *VLLM.end(r, 1), END]) as node:
        answer = await node.running.client.generate(user_prompt("Say it."))
        assert answer.end.usage.input_tokens == 21
