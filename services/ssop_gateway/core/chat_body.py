"""The body of POST /v1/chat/completions, and the request that it becomes.

What the mesh has no place for is refused by name; only members that say nothing about the answer are passed over.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from ssop.v1.content_pb2 import ToolChoice
from ssop_gateway.core.faults import EdgeError, invalid, unsupported
from ssop_gateway.core.generate_body import UInt32, plan
from ssop_sdk.messages import read_tool_choice
from ssop_sdk.request import Plan

_UNLIMITED: Final = 0


class JsonSchemaFormat(BaseModel):
    """`response_format.json_schema`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field("", max_length=64)
    description: str = ""
    schema_: dict[str, Any] | bool = Field(alias="schema")
    strict: bool | None = Field(None, description="Taken as true: the answer always conforms.")


class ResponseFormat(BaseModel):
    """`response_format`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class StreamOptions(BaseModel):
    """`stream_options`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool = False
    include_obfuscation: bool | None = None


class MeshOptions(BaseModel):
    """`ssop`: options of the mesh, which other servers do not have. See POST /v1/generate."""

    model_config = ConfigDict(extra="forbid", strict=True)

    policy: str | None = Field(None, max_length=256)
    conversation_id: str = Field("", max_length=64)
    collections: list[str] = []
    rag_top_k: UInt32 = 0
    allow_sampled_cache: bool = False
    allow_similar_cache: bool = False
    max_cache_age_ms: int = Field(0, ge=0, lt=2**63)
    max_degraded_level: int | None = Field(None, ge=0, le=3)
    debug: bool = False


class ChatBody(BaseModel):
    """What OpenAI's clients send."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str = Field("", max_length=256, description="A model's name; empty or `auto`: the router's choice.")
    messages: list[dict[str, Any]] = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    temperature: float | None = Field(None, ge=0, le=2, description="0 unless given, so that answers can be cached.")
    top_p: float | None = Field(None, ge=0, le=1)
    seed: int | None = Field(None, ge=0, lt=2**64)
    max_tokens: UInt32 | None = None
    max_completion_tokens: UInt32 | None = None
    stop: str | list[str] | None = None
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logprobs: bool | None = Field(None, description="One entry for each field of the answer, not for each token.")
    top_logprobs: int | None = Field(None, description="0: alternatives of a token are not kept.")
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = Field(None, description="False: at most one call.")
    n: int | None = Field(None, description="1: a request has one answer.")
    # They name the caller's things and change no answer.
    user: str | None = None
    metadata: dict[str, Any] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    service_tier: str | None = None
    store: bool | None = None
    ssop: MeshOptions | None = None
    # Known, and refused by name where they ask for something.
    logit_bias: dict[str, Any] | None = None
    modalities: list[str] | None = None
    audio: dict[str, Any] | None = None
    prediction: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    web_search_options: dict[str, Any] | None = None
    functions: list[Any] | None = None
    function_call: Any = None


_NOT_SERVED: Final[Mapping[str, str]] = {
    "logit_bias": "is not served",
    "audio": "is not served: answers are text",
    "prediction": "is not served",
    "reasoning_effort": "is not served; the policy (x-router-policy) chooses the tier",
    "verbosity": "is not served; max_completion_tokens bounds the length",
    "web_search_options": "is not served; collections of documents are (`ssop.collections`)",
    "functions": "is not served; send `tools`",
    "function_call": "is not served; send `tool_choice`",
}


def plan_chat(body: ChatBody, *, request_id: str, timeout_ms: int) -> Plan:
    """The request of a body. Raises UNSUPPORTED, which names the member, and REQUEST_INVALID."""
    _refuse(body)
    options = body.ssop.model_dump(exclude_unset=True) if body.ssop is not None else {}
    names = ("temperature", "top_p", "seed", "stop", "presence_penalty", "frequency_penalty", "tools", "tool_choice")
    options |= {name: value for name in names if (value := getattr(body, name)) is not None}
    if body.top_p == 0:
        # The most probable token: what a share of nothing means elsewhere.
        options |= {"top_p": None, "top_k": 1}
    limits = [limit for limit in (body.max_tokens, body.max_completion_tokens) if limit is not None]
    if 0 in limits:
        raise invalid("max_completion_tokens", "must be above 0")
    options["max_output_tokens"] = min(limits, default=_UNLIMITED)
    options["logprobs"] = bool(body.logprobs)
    options["model"] = "" if body.model == "auto" else body.model
    if body.parallel_tool_calls is False and body.tools:
        options["tool_choice"] = _single(body.tool_choice)
    schema = _schema(body.response_format)
    return plan(body.messages, schema, options, request_id=request_id, timeout_ms=timeout_ms)


def _single(choice: Any) -> ToolChoice:
    try:
        found = read_tool_choice(choice) or ToolChoice()
    except (TypeError, ValueError) as error:
        raise EdgeError("REQUEST_INVALID", str(error)) from None
    found.is_single = True
    return found


def _refuse(body: ChatBody) -> None:
    if body.n not in (None, 1):
        raise unsupported("n", "must be 1: a request has one answer")
    if body.top_logprobs:
        raise unsupported("top_logprobs", "must be 0: alternatives of a token are not kept")
    if body.modalities not in (None, ["text"]):
        raise unsupported("modalities", 'must be ["text"]')
    if body.store:
        raise unsupported("store", "must be false: answers are not kept for later")
    for name, text in _NOT_SERVED.items():
        if getattr(body, name):
            raise unsupported(name, text)


def _schema(wanted: ResponseFormat | None) -> dict[str, Any] | bool | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {"type": "object"}
    if wanted.json_schema is None:
        raise EdgeError(
            "REQUEST_INVALID",
            "response_format.json_schema: is missing",
            fields=(("response_format.json_schema", "is missing"),),
        )
    return wanted.json_schema.schema_
