"""The clients in the shape of OpenAI's: `client.chat.completions.create(...)`.

What is asked for and what comes back has the names that users of that client know; what SSOP has no place for is a
TypeError and never ignored.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, overload

from ssop.v1 import mesh_pb2
from ssop_sdk.json_text import dump_json
from ssop_sdk.messages import PromptLike
from ssop_sdk.request import UNSET, Unset
from ssop_sdk.schema import SchemaLike
from ssop_sdk.stream_base import StreamBase

if TYPE_CHECKING:
    from ssop_sdk.async_client import AsyncSsopClient
    from ssop_sdk.async_stream import AsyncStream
    from ssop_sdk.client import SsopClient
    from ssop_sdk.stream import Stream

_FINISH_REASONS: Final[Mapping[str, str]] = {
    "LENGTH": "length",
    "TOOL_CALLS": "tool_calls",
    "CONTENT_FILTER": "content_filter",
}


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionCall:
    """The function of a tool call; `arguments` is JSON text."""

    name: str
    arguments: str


@dataclasses.dataclass(frozen=True, slots=True)
class CompletionToolCall:
    """A tool that the model calls."""

    id: str
    function: FunctionCall
    type: str = "function"


@dataclasses.dataclass(frozen=True, slots=True)
class CompletionMessage:
    """The answer: as text (JSON where there is a schema), and parsed."""

    content: str | None
    parsed: Any
    tool_calls: Sequence[CompletionToolCall] = ()
    role: str = "assistant"


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """The one choice of a completion."""

    message: CompletionMessage
    finish_reason: str
    index: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class CompletionUsage:
    """Tokens, counted with the tokenizer of the model that ran."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


@dataclasses.dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer, validated. `decision`, `status` and `accounting` are what the mesh said about it."""

    id: str
    model: str
    choices: Sequence[Choice]
    usage: CompletionUsage
    created: int
    decision: mesh_pb2.Decision | None
    status: mesh_pb2.DeliveryStatus | None
    accounting: mesh_pb2.Accounting | None
    object: str = "chat.completion"

    @property
    def parsed(self) -> Any:
        """The answer as a dict or Pydantic model."""
        return self.choices[0].message.parsed


def _schema_of_format(response_format: Any) -> "SchemaLike | Unset":
    if isinstance(response_format, Mapping):
        kind = response_format.get("type")
        if kind == "text":
            return None
        if kind == "json_object":
            return {"type": "object"}
        if kind == "json_schema":
            body = response_format.get("json_schema")
            if isinstance(body, Mapping) and "schema" in body:
                return body["schema"]
        raise ValueError("response_format is text, json_object, or json_schema with json_schema.schema")
    return response_format


def _arguments(
    messages: PromptLike,
    model: str,
    output_schema: "SchemaLike | Unset",
    response_format: Any,
    options: dict[str, Any],
) -> dict[str, Any]:
    if response_format is not None:
        if output_schema is not UNSET:
            raise ValueError("give output_schema or response_format, not both")
        output_schema = _schema_of_format(response_format)
    if options.pop("n", None) not in (None, 1):
        raise ValueError("n is 1: one request has one answer")
    # Usage always comes, so that this wish is granted already.
    options.pop("stream_options", None)
    limits = [
        value for name in ("max_tokens", "max_completion_tokens") if (value := options.pop(name, None)) is not None
    ]
    if limits:
        options["max_output_tokens"] = limits[-1]
    if "timeout" in options:
        options["timeout_s"] = options.pop("timeout")
    arguments = {name: value for name, value in options.items() if value is not None}
    return {"prompt": messages, "model": model, "output_schema": output_schema, **arguments}


def _completion(stream: StreamBase, parsed: Any) -> Completion:
    calls = tuple(
        CompletionToolCall(call.id, FunctionCall(call.name, dump_json(call.arguments))) for call in stream.tool_calls
    )
    document = stream.document
    content = document if isinstance(document, str) else dump_json(document)
    usage = stream.usage or mesh_pb2.Usage()
    return Completion(
        id=stream.request_id,
        model=stream.decision.model if stream.decision is not None else "",
        choices=(
            Choice(
                CompletionMessage(None if calls and document is None else content, parsed, calls),
                _FINISH_REASONS.get(stream.finish_reason, "stop"),
            ),
        ),
        usage=CompletionUsage(usage.input_tokens, usage.output_tokens, usage.cached_input_tokens),
        created=int(time.time()),
        decision=stream.decision,
        status=stream.status,
        accounting=stream.accounting,
    )


class Completions:
    """`client.chat.completions` of a sync client."""

    def __init__(self, client: "SsopClient") -> None:
        self._client = client

    @overload
    def create(
        self,
        *,
        messages: PromptLike,
        model: str = "",
        stream: Literal[True],
        output_schema: "SchemaLike | Unset" = UNSET,
        response_format: Any = None,
        **options: Any,
    ) -> "Stream[Any]": ...
    @overload
    def create(
        self,
        *,
        messages: PromptLike,
        model: str = "",
        stream: Literal[False],
        output_schema: "SchemaLike | Unset" = UNSET,
        response_format: Any = None,
        **options: Any,
    ) -> Completion: ...
    @overload
    def create(
        self,
        *,
        messages: PromptLike,
        model: str = "",
        stream: bool | None = None,
        output_schema: "SchemaLike | Unset" = UNSET,
        response_format: Any = None,
        **options: Any,
    ) -> "Stream[Any] | Completion": ...
    def create(
        self,
        *,
        messages: PromptLike,
        model: str = "",
        stream: bool | None = None,
        output_schema: "SchemaLike | Unset" = UNSET,
        response_format: Any = None,
        **options: Any,
    ) -> "Stream[Any] | Completion":
        """Ask for an answer: a Stream of frames, or with `stream=False` a Completion.

        `stream` is the client's `streaming` unless given. Options are those of `generate`, and `max_tokens`,
        `max_completion_tokens`, `timeout`, `response_format`, `n` (1) under their known names.
        """
        arguments = _arguments(messages, model, output_schema, response_format, options)
        if stream:
            # Who asks for frames gets them as they come, whatever the client holds back otherwise.
            arguments.setdefault("streaming", True)
        if self._client.streaming if stream is None else stream:
            return self._client.generate(**arguments)
        with self._client.generate(**arguments) as answer:
            return _completion(answer, answer.result())


class AsyncCompletions:
    """`client.chat.completions` of an async client."""

    def __init__(self, client: "AsyncSsopClient") -> None:
        self._client = client

    @overload
    async def create(
        self,
        *,
        messages: PromptLike,
        model: str = "",
        stream: Literal[True],
        output_schema: "SchemaLike | Unset" = UNSET,
        response_format: Any = None,
        **options: Any,
    ) -> "AsyncStream[Any]": ...
    @overload
    async def create(
        self,
        *,
        messages: PromptLike,
        model: str = "",
        stream: Literal[False],
        output_schema: "SchemaLike | Unset" = UNSET,
        response_format: Any = None,
        **options: Any,
    ) -> Completion: ...
    @overload
    async def create(
        self,
        *,
        messages: PromptLike,
        model: str = "",
        stream: bool | None = None,
        output_schema: "SchemaLike | Unset" = UNSET,
        response_format: Any = None,
        **options: Any,
    ) -> "AsyncStream[Any] | Completion": ...
    async def create(
        self,
        *,
        messages: PromptLike,
        model: str = "",
        stream: bool | None = None,
        output_schema: "SchemaLike | Unset" = UNSET,
        response_format: Any = None,
        **options: Any,
    ) -> "AsyncStream[Any] | Completion":
        """See `Completions.create`."""
        arguments = _arguments(messages, model, output_schema, response_format, options)
        if stream:
            # Who asks for frames gets them as they come, whatever the client holds back otherwise.
            arguments.setdefault("streaming", True)
        if self._client.streaming if stream is None else stream:
            return self._client.generate(**arguments)
        async with self._client.generate(**arguments) as answer:
            return _completion(answer, await answer.result())


class Chat:
    """`client.chat` of a sync client."""

    def __init__(self, client: "SsopClient") -> None:
        self.completions = Completions(client)


class AsyncChat:
    """`client.chat` of an async client."""

    def __init__(self, client: "AsyncSsopClient") -> None:
        self.completions = AsyncCompletions(client)
