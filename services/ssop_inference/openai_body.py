"""Requests to OpenAI-compatible servers."""

import base64
from typing import Any, Final

from ssop_inference.backend import GenerateRequest
from ssop_inference.core.dialect import Dialect, describe_schema
from ssop_inference.core.prompt import ChatMessage, Image
from ssop_inference.core.tools import ToolUse

# The most that OpenAI's API gives.
_CANDIDATES: Final = 20
OURS: Final = frozenset(
    {"model", "messages", "stream", "stream_options", "n", "prompt", "best_of", "logprobs"}
    | {"tools", "tool_choice", "parallel_tool_calls"}
    | {"response_format", "grammar", "json_schema", "structured_outputs", "guided_json", "guided_grammar", "stop"}
)
"""Fields that no setting gives a request: what they hold a model to would be lost without a word."""


def write_body(request: GenerateRequest, dialect: Dialect, max_output_tokens: int, *, is_llama: bool) -> dict[str, Any]:
    """What a request asks for, in the words of a dialect. The model is not named."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "messages": [write_turn(message) for message in request.messages],
        "stream": True,
        dialect.max_tokens_key: max_output_tokens,
    }
    if dialect.has_sampling:
        body |= {"temperature": sampling.temperature, "top_p": sampling.top_p}
    if request.beginning:
        body["messages"].append({"role": "assistant", "content": request.beginning})
    if dialect.has_usage_option:
        body["stream_options"] = {"include_usage": True}
    if dialect.has_top_k:
        # 0 is all of them to llama-server and vLLM, -1 to SGLang; the servers' own defaults are neither.
        body["top_k"] = sampling.top_k or (-1 if dialect.name == "sglang" else 0)
    if dialect.has_penalties and (sampling.presence_penalty or sampling.frequency_penalty):
        body["presence_penalty"] = sampling.presence_penalty
        body["frequency_penalty"] = sampling.frequency_penalty
    if dialect.has_seed and sampling.seed is not None:
        body["seed"] = sampling.seed
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    body |= _write_logprobs(request, is_llama=is_llama)
    body |= describe_schema(dialect, request.constraint)
    if request.tools is not None:
        body |= _write_tools(request.tools)
    return body


def write_turn(message: ChatMessage) -> dict[str, Any]:
    """One message."""
    turn: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.parts:
        turn["content"] = [_write_part(part) for part in message.parts]
    if message.calls:
        turn["content"] = message.content or None
        turn["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    if message.role == "tool":
        turn["tool_call_id"] = message.call_id
    return turn


def _write_part(part: str | Image) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    data = base64.b64encode(part.data).decode()
    return {"type": "image_url", "image_url": {"url": f"data:{part.mime_type};base64,{data}"}}


def _write_tools(use: ToolUse) -> dict[str, Any]:
    tools = [
        {
            "type": "function",
            "function": {"name": spec.name, "description": spec.description, "parameters": spec.parameters},
        }
        for spec in use.specs
    ]
    choice: Any = use.choice.value
    if use.name:
        choice = {"type": "function", "function": {"name": use.name}}
    body: dict[str, Any] = {"tools": tools, "tool_choice": choice}
    if use.is_single and use.callable:
        body["parallel_tool_calls"] = False
    return body


def _write_logprobs(request: GenerateRequest, *, is_llama: bool) -> dict[str, Any]:
    if not (request.logprobs or request.confidence):
        return {}
    if request.confidence and request.constraint.grammar is not None:
        return {"logprobs": True, "top_logprobs": _CANDIDATES}
    # The default of llama-server is twenty, which is most of what it sends then.
    return {"logprobs": True, "top_logprobs": 1} if is_llama else {"logprobs": True}
