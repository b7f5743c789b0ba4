"""From what a caller asks for to the request that travels, with what this side has to remember of it."""

import enum
import math
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from ssop.v1.content_pb2 import Prompt, Sampling
from ssop.v1.router_pb2 import CacheOptions, GenerateRequest, RetrievalOptions
from ssop_sdk.errors import ConfigurationError
from ssop_sdk.messages import PromptLike, read_messages, read_tool_choice, read_tools
from ssop_sdk.schema import AnswerSchema, SchemaLike, read_schema

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class Unset(enum.Enum):
    """The type of `UNSET`."""

    UNSET = "UNSET"


UNSET: Final = Unset.UNSET
"""Stands for the client's own setting, where None has a meaning (plain text)."""


class GenerateOptions(TypedDict, total=False):
    """What `generate` takes besides the prompt and the schema. Ranges are those of `ssop.v1.GenerateRequest`."""

    model: str
    """A model name, or empty for the router's choice."""
    policy: str | None
    """Words of: auto, lite, full, cache_only, no_cache, no_rag, cascade; joined by commas. None: the client's."""
    temperature: float
    """From 0, the default, to 2."""
    top_p: float | None
    """From 0, exclusive, to 1."""
    top_k: int
    """0 is no limit."""
    seed: int | None
    """Makes draws repeatable where the backend can."""
    max_output_tokens: int
    """0: the model's configured limit."""
    stop: str | Sequence[str] | None
    """Plain text only: at most 4."""
    presence_penalty: float
    """From -2 to 2."""
    frequency_penalty: float
    """From -2 to 2."""
    timeout_s: float | None
    """Deadline of the call in seconds, repetitions included. None: the client's."""
    request_id: str | None
    """1 to 64 characters of `[A-Za-z0-9._:-]`. None: a fresh one."""
    conversation_id: str
    """Keeps a conversation on its tier."""
    collections: Sequence[str]
    """Collections to search. Empty: those of the tenant's settings."""
    rag_top_k: int
    """Passages to put into the prompt; 0: the configured number."""
    rag_prefetch_ratio: float | None
    """From 0 to 1. None: the configured one."""
    allow_sampled_cache: bool
    """Cache the answer although the temperature is above 0."""
    allow_similar_cache: bool
    """Take a similar stored answer as an ordinary one, where the tenant's settings allow it."""
    max_cache_age_ms: int
    """Oldest stored answer that is taken; 0: no limit."""
    tools: Iterable[Any]
    """Tools that the model may call."""
    tool_choice: Any
    """`auto`, `none`, `required` or the name of a function in OpenAI's form."""
    debug: bool
    """Trace and log this one request at full detail. Its content is never logged."""
    logprobs: bool
    """Ask for log-probabilities of the fields; they arrive in `stream.logprobs`."""
    stream_buffer_size: int | None
    """Largest chunk in bytes, 0 (`auto`) or from 64 to 16384. None: the client's."""
    linger_ms: int | None
    """Least time between two messages of the answer, 0 to 1000, but for its first field and its end: less work for all
    who pass it on. For those who act on whole answers. None: as the node is set."""
    max_degraded_level: int | None
    """Deepest degradation that the mesh may answer with, 0 to 3. None: the client's."""
    allow_degraded: bool | None
    """Take degraded answers as they are instead of raising DegradedAnswer. None: the client's."""
    resume_window_ms: int
    """How long the mesh keeps the answer for `resume` after the connection is lost."""
    format_assertion: bool | None
    """Whether `format` in the schema is asserted. None: it is."""
    streaming: bool | None
    """False holds all frames back until the verdict is good. None: the client's."""


_OPTIONS: Final = frozenset(GenerateOptions.__annotations__)
_RETRIEVAL_OPTIONS: Final = frozenset({"collections", "rag_top_k", "rag_prefetch_ratio"})
_CACHE_OPTIONS: Final = frozenset({"allow_sampled_cache", "allow_similar_cache", "max_cache_age_ms"})


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a client was set up with."""

    schema: AnswerSchema | None = None
    timeout_s: float = 30.0
    policy: str = ""
    max_degraded_level: int | None = None
    allow_degraded: bool = False
    stream_buffer_size: int = 0
    streaming: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """A request, ready to travel, and what the caller expects of its answer."""

    request: GenerateRequest
    schema: AnswerSchema | None
    timeout_s: float
    allow_degraded: bool
    max_degraded_level: int | None
    streaming: bool


def new_request_id() -> str:
    """A fresh request id: 32 hexadecimal digits."""
    return uuid.uuid4().hex


def check_timeout(timeout_s: float) -> float:
    """The time-out, if it is a deadline at all. Raises ValueError."""
    if not math.isfinite(timeout_s) or timeout_s <= 0:
        raise ValueError("timeout_s is a finite number of seconds above 0: every call has a deadline")
    return timeout_s


def check_request_id(request_id: str) -> str:
    """The id, if it is one. Raises ValueError."""
    if not _REQUEST_ID.fullmatch(request_id):
        raise ValueError("a request id is 1 to 64 characters of [A-Za-z0-9._:-]")
    return request_id


def check_level(level: int | None) -> int | None:
    """A level of degradation, if it is one. Raises ConfigurationError."""
    if level is not None and level not in range(4):
        raise ConfigurationError("max_degraded_level is 0, 1, 2 or 3")
    return level


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def plan_request(
    defaults: Defaults,
    prompt: PromptLike,
    output_schema: "SchemaLike | Unset" = UNSET,
    *,
    new_id: Callable[[], str] = new_request_id,
    options: Mapping[str, Any],
) -> Plan:
    """Make the request. Raises TypeError for unknown options and wrong types, ValueError for impossible values."""
    if not options.keys() <= _OPTIONS:
        unknown = options.keys() - _OPTIONS
        raise TypeError(f"generate has no option {', '.join(sorted(unknown))}")
    get = options.get
    schema = (
        defaults.schema
        if output_schema is UNSET
        else read_schema(output_schema, format_assertion=get("format_assertion"))
    )
    max_level = check_level(_or(get("max_degraded_level"), defaults.max_degraded_level))
    stop = get("stop") or ()
    request_id = get("request_id")
    request = GenerateRequest(
        request_id=new_id() if request_id is None else check_request_id(request_id),
        model=get("model", ""),
        prompt=Prompt(
            messages=read_messages(prompt),
            output_schema=schema.message if schema is not None else None,
            sampling=Sampling(
                temperature=get("temperature", 0.0),
                top_p=get("top_p"),
                top_k=get("top_k", 0),
                seed=get("seed"),
                max_output_tokens=get("max_output_tokens", 0),
                stop=[stop] if isinstance(stop, str) else stop,
                presence_penalty=get("presence_penalty", 0.0),
                frequency_penalty=get("frequency_penalty", 0.0),
            ),
            tools=read_tools(get("tools") or ()),
            tool_choice=read_tool_choice(get("tool_choice")),
            stream_buffer_size=_or(get("stream_buffer_size"), defaults.stream_buffer_size),
            logprobs=get("logprobs", False),
            linger_ms=get("linger_ms"),
        ),
        policy=_or(get("policy"), defaults.policy),
        max_degraded_level=max_level,
        resume_window_ms=get("resume_window_ms", 0),
        conversation_id=get("conversation_id", ""),
        debug=get("debug", False),
    )
    collections = get("collections", ())
    if isinstance(collections, str):
        raise TypeError("collections is a sequence of names, not one str")
    if _RETRIEVAL_OPTIONS & options.keys():
        retrieval = RetrievalOptions(
            collections=collections,
            top_k=get("rag_top_k", 0),
            rag_prefetch_ratio=get("rag_prefetch_ratio"),
        )
        if retrieval.ByteSize():
            request.retrieval.CopyFrom(retrieval)
    if _CACHE_OPTIONS & options.keys():
        cache = CacheOptions(
            allow_sampled=get("allow_sampled_cache", False),
            allow_similar=get("allow_similar_cache", False),
            max_age_ms=get("max_cache_age_ms", 0),
        )
        if cache.ByteSize():
            request.cache.CopyFrom(cache)
    return Plan(
        request,
        schema,
        check_timeout(_or(get("timeout_s"), defaults.timeout_s)),
        bool(_or(get("allow_degraded"), defaults.allow_degraded)),
        max_level,
        bool(_or(get("streaming"), defaults.streaming)),
    )
