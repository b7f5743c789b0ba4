"""Anthropic's Messages API. A schema is that of the output, or of the input of a tool that the model must call."""

import asyncio
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
from ssop_inference.core.prompt import ChatMessage
from ssop_inference.core.request import SamplingOptions
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

    def __init__(self, *, model: str, dialect: str = AUTO, extra_body: Mapping[str, Any] | None = None) -> None:
        """`model` empty: the first one that the API lists. `dialect` is a name of ANTHROPIC_DIALECTS, or `auto`."""
        self._model = model
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
        return ServerFacts(has_usage=reader.counts.output_tokens is not None, strictest_mode=mode)

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
            **_turns(request.messages),
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
        elif request.constraint.schema is not None:
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
        return MessageStreamReader(is_tool=constraint.mode is Mode.ENVELOPE and constraint.schema is not None)

    def constrain(self, schema: Any, *, format_assertion: bool) -> Constraint:
        """See `wire.Wire`."""
        return constrain_upstream(
            schema, self._dialect, lambda _: "", EngineLimits(), format_assertion=format_assertion
        )

    async def count_tokens(self, http: UpstreamHttp, messages: Sequence[ChatMessage]) -> int | None:
        """See `wire.Wire`."""
        answer = await http.post("/messages/count_tokens", {"model": self._model, **_turns(messages)})
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


def _turns(messages: Sequence[ChatMessage]) -> dict[str, Any]:
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    turns: list[dict[str, str]] = []
    for message in messages:
        if message.role == "system":
            continue
        if turns and turns[-1]["role"] == message.role:
            turns[-1]["content"] += f"\n\n{message.content}"
        else:
            turns.append({"role": message.role, "content": message.content})
    # It wants a turn of the user's, and a text in each.
    return {"messages": turns or [{"role": "user", "content": "."}], **({"system": system} if system else {})}
