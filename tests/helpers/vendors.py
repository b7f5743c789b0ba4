"""Answers of model servers as their public documentation writes them, for the table of backends."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from helpers.upstream import END, HEAD, Answer, Request, Step, event, page

DOCUMENT: Final = '{"a": 1, "b": "x"}'
PIECES: Final = ('{"a": ', "1, ", '"b": ', '"x"', "}")
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Vendor:
    """A kind of server. `begin` is its stream up to the first text, `text` one piece of it, `end` what follows."""

    name: str
    backend: str
    path: str
    begin: Callable[[Request], Sequence[Step]]
    text: Callable[[Request, str], bytes]
    end: Callable[[Request, int], Sequence[Step]]
    error: Callable[[str], Any]
    pages: dict[str, Answer]
    busy_status: str = "503 Service Unavailable"
    refused: str = ""
    """A field that requests must not have."""

    def answers(self, answer: Answer) -> dict[str, Answer]:
        """The pages of the server, and an answer to generations; those of one token are always well."""

        def generate(request: Request) -> Sequence[Step]:
            if self.refused and self.refused in request.body:
                return page(self.error("invalid_request_error"), status="400 Bad Request")
            limit = request.body.get("max_tokens") or request.body.get("max_completion_tokens")
            return self.stream(("ok",))(request) if limit == 1 else answer(request)

        return {**self.pages, self.path: generate}

    def stream(self, pieces: Sequence[str] = PIECES, *, then: Sequence[Step] | None = None) -> Answer:
        """A stream of these texts; `then` in place of its proper end."""

        def answer(request: Request) -> Sequence[Step]:
            texts = [self.text(request, piece) for piece in pieces]
            end = [*self.end(request, len(pieces)), END] if then is None else then
            return [HEAD, *self.begin(request), *texts, *end]

        return answer


def _chat(delta: Any, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **fields}


def _chat_begin(_: Request) -> Sequence[Step]:
    return [event(_chat({"role": "assistant", "content": ""}))]


def _chat_text(_: Request, text: str) -> bytes:
    return event(_chat({"content": text}))


def _chat_end(_: Request, pieces: int) -> Sequence[Step]:
    usage = {"prompt_tokens": 21, "completion_tokens": pieces, "total_tokens": 21 + pieces}
    last = {**_chat({}), "choices": [], "usage": usage}
    return [event(_chat({}, "stop")), event(last), event("[DONE]")]


def _chat_error(code: str) -> Any:
    return {"error": {"message": "it went wrong", "type": "server_error", "param": None, "code": code}}


def _models(owner: str, **fields: Any) -> Answer:
    return lambda _: page({"object": "list", "data": [{"id": "m", "object": "model", "owned_by": owner, **fields}]})


def _vllm_text(_: Request, text: str) -> bytes:
    return event(
        {**_chat({"content": text}), "choices": [{**_chat({"content": text})["choices"][0], "stop_reason": None}]}
    )


def _deepseek_begin(request: Request) -> Sequence[Step]:
    return [b"c\r\n: keep-alive\r\n", b"2\r\n\n\n\r\n", *_chat_begin(request)]


def _message(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields}, name=kind)


def _is_called(request: Request) -> bool:
    """Tools are offered and may be called: the first one is."""
    return "tools" in request.body and request.body.get("tool_choice") != {"type": "none"}


def _message_begin(request: Request) -> Sequence[Step]:
    usage = {"input_tokens": 21, "cache_read_input_tokens": 0, "output_tokens": 1}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m", "usage": usage}
    block: dict[str, Any] = {"type": "text", "text": ""}
    if _is_called(request):
        block = {"type": "tool_use", "id": "toolu_1", "name": request.body["tools"][0]["name"], "input": {}}
    return [
        _message("message_start", message=head),
        _message("content_block_start", index=0, content_block=block),
        _message("ping"),
    ]


def _message_text(request: Request, text: str) -> bytes:
    is_tool = _is_called(request)
    delta = {"type": "input_json_delta", "partial_json": text} if is_tool else {"type": "text_delta", "text": text}
    return _message("content_block_delta", index=0, delta=delta)


def _message_end(request: Request, pieces: int) -> Sequence[Step]:
    reason = "tool_use" if _is_called(request) else "end_turn"
    return [
        _message("content_block_stop", index=0),
        _message(
            "message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": pieces}
        ),
        _message("message_stop"),
    ]


def _openai(name: str, pages: dict[str, Answer], **fields: Any) -> Vendor:
    parts: dict[str, Any] = {"begin": _chat_begin, "text": _chat_text, "end": _chat_end, **fields}
    return Vendor(name, "openai", "/v1/chat/completions", error=_chat_error, pages=pages, **parts)


def _anthropic(name: str, *, refused: str = "") -> Vendor:
    return Vendor(
        name,
        "anthropic",
        "/v1/messages",
        _message_begin,
        _message_text,
        _message_end,
        error=lambda code: {"type": "error", "error": {"type": code, "message": "it went wrong"}},
        pages={"/v1/models": lambda _: page({"data": [{"id": "m", "type": "model"}]})},
        busy_status="529 Overloaded",
        refused=refused,
    )


def _props(_: Request) -> Sequence[Step]:
    return page({"default_generation_settings": {"n_ctx": 4096}, "total_slots": 4, "model_path": "m.gguf"})


VENDORS: Final = {
    vendor.name: vendor
    for vendor in (
        _openai("openai", {"/v1/models": _models("system")}),
        _openai("xai", {"/v1/models": _models("xai")}),
        _openai("deepseek", {"/v1/models": _models("deepseek")}, begin=_deepseek_begin),
        _openai("qwen", {"/v1/models": _models("system")}),
        _openai(
            "vllm",
            {
                "/v1/models": _models("vllm", max_model_len=4096),
                "/version": lambda _: page({"version": "0.14.1"}),
                "/metrics": lambda _: page(
                    'vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_waiting{engine="0"} 2.0\n'
                ),
            },
            text=_vllm_text,
        ),
        _openai("sglang", {"/v1/models": _models("sglang", max_model_len=4096)}),
        _openai(
            "llama-server",
            {
                "/v1/models": _models("llamacpp"),
                "/props": _props,
                "/completion": lambda _: page({"content": "ok"}),
                "/slots": lambda _: page([{"id": 0, "is_processing": True}, {"id": 1, "is_processing": False}]),
            },
        ),
        _anthropic("anthropic"),
        _anthropic("anthropic-tool", refused="output_config"),
    )
}
"""By name."""


def error_event(vendor: Vendor, code: str) -> bytes:
    """An error inside of a stream."""
    return event(json.dumps(vendor.error(code)), name="error" if vendor.backend == "anthropic" else "")
