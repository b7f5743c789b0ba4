"""Anthropic's Messages API. A schema is that of the output, or of the input of a tool that the model must call."""

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_inference.backend import GenerateRequest
from ssop_inference.core.beginning import refuse_continuing
from ssop_inference.core.constraint import TEXT, Constraint, Mode
from ssop_inference.core.dialect import ANTHROPIC_DIALECTS, Form, constrain_upstream
from ssop_inference.core.limits import EngineLimits
from ssop_inference.core.message_stream import MessageStreamReader
from ssop_inference.core.prompt import ChatMessage, Image
from ssop_inference.core.request import SamplingOptions
from ssop_inference.core.tools import Choice, ToolUse
from ssop_inference.core.upstream_errors import WireError
from ssop_inference.upstream_http import UpstreamHttp
from ssop_inference.wire import ServerFacts, ServerLoad

VERSION: Final = "2023-06-01"
AUTO: Final = "auto"
_SCHEMA_PROBE: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
_TOOL: Final = "answer"
_PROBE_TIMEOUT_S: Final = 20.0
_OURS: Final = frozenset({"model", "messages", "system", "stream", "tools", "tool_choice", "output_config"})


class AnthropicWire:
    """See `wire.Wire`."""

    path = "/messages"

    def __init__(
        self,
        *,
        model: str,
        dialect: str = AUTO,
        extra_body: Mapping[str, Any] | None = None,
        has_tools: bool = True,
    ) -> None:
        """`model` empty: the first one that the API lists. `dialect` is a name of ANTHROPIC_DIALECTS, or `auto`."""
        self._model = model
        self._has_tools = has_tools
        self._is_auto = dialect == AUTO
        self._dialect = ANTHROPIC_DIALECTS["anthropic" if dialect == AUTO else dialect]
        self._extra_body = dict(extra_body or {})

    @property
    def dialect_name(self) -> str:
        """See `wire.Wire`."""
        return self._dialect.name

    @property
    def model(self) -> str:
        """See `wire.Wire`."""
        return self._model

    @property
    def load_page(self) -> str:
        """See `wire.Wire`."""
        return ""

    async def find_out(self, http: UpstreamHttp) -> ServerFacts:
        """See `wire.Wire`."""
        if not self._model:
            listed = (await http.get_object("/models")).get("data")
            first = listed[0].get("id") if isinstance(listed, list) and listed and isinstance(listed[0], dict) else None
            if not isinstance(first, str):
                raise MeshError(
                    ErrorReason.ERROR_REASON_INTERNAL, "the model server lists no models; name one with upstream_model"
                )
            self._model = first
        reader = await self._generate_one(http)
        mode = Mode.FULL if self._dialect.form is Form.OUTPUT_CONFIG else Mode.ENVELOPE
        return ServerFacts(
            has_usage=reader.counts.output_tokens is not None,
            strictest_mode=mode,
            has_tools=self._has_tools,
            has_tools_with_schema=self._dialect.form is Form.OUTPUT_CONFIG,
        )

    async def _generate_one(self, http: UpstreamHttp) -> MessageStreamReader:
        """One token, held to a schema where it is to be seen whether the model takes one."""
        if self._is_auto:
            try:
                reader = await self._try(http, Constraint(Mode.FULL, _SCHEMA_PROBE))
            except MeshError as error:
                if error.reason != ErrorReason.ERROR_REASON_INTERNAL:
                    raise
                self._dialect = ANTHROPIC_DIALECTS["anthropic-tool"]
            else:
                self._dialect = ANTHROPIC_DIALECTS["anthropic"]
                return reader
        return await self._try(http, TEXT)

    async def _try(self, http: UpstreamHttp, constraint: Constraint) -> MessageStreamReader:
        request = GenerateRequest((ChatMessage("user", "Hello"),), 0.0, SamplingOptions(), constraint)
        reader = self.reader(request)
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_S), http.stream(self.path, self.body(request, 1)) as events:
                async for event in events:
                    reader.feed(event.event, event.data)
                reader.close()
        except TimeoutError as error:
            raise MeshError(
                ErrorReason.ERROR_REASON_BACKEND_FAILED, "the model server generated nothing in time"
            ) from error
        return reader

    def body(self, request: GenerateRequest, max_output_tokens: int) -> Mapping[str, Any]:
        """See `wire.Wire`. The API knows no penalties and no seed; it has one `system` text, and turns alternate."""
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": max_output_tokens,
            "stream": True,
            # Its range ends at 1, and it takes only one of the two.
            "temperature": min(sampling.temperature, 1.0),
            **_turns(request.messages, has_tools=request.tools is not None),
        }
        if sampling.top_p < 1 and sampling.temperature:
            del body["temperature"]
            body["top_p"] = sampling.top_p
        if sampling.top_k:
            body["top_k"] = sampling.top_k
        if sampling.stop:
            body["stop_sequences"] = list(sampling.stop)
        if request.constraint.schema is not None and request.constraint.mode is not Mode.ENVELOPE:
            body["output_config"] = {"format": {"type": "json_schema", "schema": request.constraint.schema}}
        if request.tools is not None:
            body |= _write_tools(request.tools)
        elif request.constraint.schema is not None and request.constraint.mode is Mode.ENVELOPE:
            body["tools"] = [
                {
                    "name": _TOOL,
                    "description": "Takes the whole answer.",
                    "input_schema": request.constraint.schema,
                }
            ]
            body["tool_choice"] = {"type": "tool", "name": _TOOL, "disable_parallel_tool_use": True}
        return {**body, **{key: value for key, value in self._extra_body.items() if key not in _OURS}}

    def reader(self, request: GenerateRequest) -> MessageStreamReader:
        """See `wire.Wire`."""
        constraint = request.constraint
        has_tools = request.tools is not None
        is_tool = not has_tools and constraint.mode is Mode.ENVELOPE and constraint.schema is not None
        return MessageStreamReader(is_tool=is_tool, has_tools=has_tools)

    def constrain(self, schema: Any, *, format_assertion: bool) -> Constraint:
        """See `wire.Wire`."""
        return constrain_upstream(
            schema, self._dialect, lambda _: "", EngineLimits(), format_assertion=format_assertion
        )

    def check_grammar(self, grammar: str) -> str:  # noqa: ARG002 - the port's
        """See `wire.Wire`."""
        return "the API takes no grammar"

    async def count_tokens(self, http: UpstreamHttp, messages: Sequence[ChatMessage]) -> int | None:
        """See `wire.Wire`."""
        answer = await http.post("/messages/count_tokens", {"model": self._model, **_turns(messages, has_tools=False)})
        count = answer.get("input_tokens")
        if not isinstance(count, int):
            raise WireError("`input_tokens` is no number")
        return count

    async def try_beginning(self, http: UpstreamHttp, request: GenerateRequest) -> int:  # noqa: ARG002 - the port's
        """See `wire.Wire`."""
        raise refuse_continuing("the API does not go on from a text")

    async def read_load(self, http: UpstreamHttp, now_s: float) -> ServerLoad | None:  # noqa: ARG002 - the port's
        """See `wire.Wire`. The API does not say it."""
        return None


def _turns(messages: Sequence[ChatMessage], *, has_tools: bool) -> dict[str, Any]:
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "user" if message.role == "tool" else message.role
        content = _content(message, has_tools=has_tools)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] = _join(turns[-1]["content"], content)
        else:
            turns.append({"role": role, "content": content})
    # It wants a turn of the user's, and a text in each.
    return {"messages": turns or [{"role": "user", "content": "."}], **({"system": system} if system else {})}


def _content(message: ChatMessage, *, has_tools: bool) -> str | list[dict[str, Any]]:
    """A text, or blocks where there is more."""
    if message.role == "tool":
        if not has_tools:
            # The API refuses results where no tools are given.
            return f"Result of a tool:\n{message.content}"
        return [{"type": "tool_result", "tool_use_id": message.call_id, "content": message.content}]
    if message.calls and not has_tools:
        calls = "\n".join(f"Call of {call.name}: {call.arguments}" for call in message.calls)
        return f"{message.content}\n\n{calls}" if message.content else calls
    if not message.parts and not message.calls:
        return message.content
    return [
        *(_block(part) for part in message.parts or (message.content,) if part),
        *(
            {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)}
            for call in message.calls
        ),
    ]


def _block(part: str | Image) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    source = {"type": "base64", "media_type": part.mime_type, "data": base64.b64encode(part.data).decode()}
    return {"type": "image", "source": source}


def _input(arguments: str) -> Any:
    """The arguments of an earlier call, which the API takes as an object only."""
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"arguments": arguments}


def _join(one: str | list[dict[str, Any]], two: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if isinstance(one, str) and isinstance(two, str):
        return f"{one}\n\n{two}"
    first, second = ([_block(text)] if isinstance(text, str) else text for text in (one, two))
    return [*first, *second]


def _write_tools(use: ToolUse) -> dict[str, Any]:
    tools = [
        {"name": spec.name, "description": spec.description, "input_schema": spec.parameters} for spec in use.specs
    ]
    choice: dict[str, Any] = {"type": {Choice.REQUIRED: "any"}.get(use.choice, use.choice.value)}
    if use.name:
        choice = {"type": "tool", "name": use.name}
    if use.is_single and use.callable:
        choice["disable_parallel_tool_use"] = True
    return {"tools": tools, "tool_choice": choice}
