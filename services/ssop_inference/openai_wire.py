"""OpenAI-compatible servers: finding out which one it is, requests in its dialect, its counts and its load."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_inference.backend import GenerateRequest
from ssop_inference.core.beginning import refuse_continuing
from ssop_inference.core.chat_stream import ChatStreamReader
from ssop_inference.core.constraint import Constraint, Mode
from ssop_inference.core.dialect import DIALECTS, Dialect, Form, constrain_upstream, dialect_of_host
from ssop_inference.core.limits import EngineLimits
from ssop_inference.core.prompt import ChatMessage
from ssop_inference.core.request import SamplingOptions
from ssop_inference.core.tools import Choice, ToolSpec, ToolUse
from ssop_inference.core.upstream_errors import WireError, parse_object
from ssop_inference.gate import SchemaGate
from ssop_inference.mask import TokenScorer
from ssop_inference.openai_body import OURS, write_body, write_turn
from ssop_inference.openai_pages import (
    find_load_page,
    get_page,
    list_models,
    read_metrics,
    read_slots,
    says_load,
    takes_llguidance,
    vllm_dialect,
    whole,
)
from ssop_inference.upstream_http import UpstreamHttp
from ssop_inference.wire import ServerFacts, ServerLoad

AUTO: Final = "auto"
# Which of logprobs, usage and temperature to ask a server for, until it takes what it is asked.
_ASKED: Final = ((True, True, True), (False, True, True), (False, False, True), (False, True, False), (False,) * 3)
_PROBE: Final = (ChatMessage("user", "Hello"),)
_BEGUN: Final = "Hello! How can"
_FORCED: Final = "q7"
_SCHEMA_PROBE: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {_FORCED: {"type": "string", "enum": [_FORCED]}},
    "required": [_FORCED],
    "additionalProperties": False,
}
_TOOL_PROBE: Final = ToolSpec(_FORCED, "Takes the answer.", dict(_SCHEMA_PROBE))
_TOOL_PROBE_TOKENS: Final = 64
_PROBE_TIMEOUT_S: Final = 20.0
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Server:
    """What was found out."""

    dialect: Dialect
    model: str = ""
    facts: ServerFacts = field(default_factory=ServerFacts)
    load_page: str = ""
    has_tokenizer: bool = False
    is_llama: bool = False
    has_slots_page: bool = False
    """Beside its load page; it alone says what is in its KV cache."""


class OpenAiWire:
    """See `wire.Wire`. Its requests are right only after `find_out`."""

    path = "/chat/completions"

    def __init__(
        self,
        *,
        model: str,
        dialect: str,
        gate: SchemaGate,
        limits: EngineLimits,
        extra_body: Mapping[str, Any] | None = None,
        has_tools: bool | None = None,
    ) -> None:
        """`model` empty: the server's first one. `dialect` is a name of DIALECTS, or `auto`.

        `has_tools`: whether the server calls tools, which is tried; None: those vendors do whose API says so.
        """
        self._has_tools = has_tools
        self._model = model
        self._dialect = dialect
        self._gate = gate
        self._limits = limits
        self._extra_body = dict(extra_body or {})
        self._server = _Server(DIALECTS["plain" if dialect == AUTO else dialect], model)

    @property
    def dialect(self) -> Dialect:
        """The dialect that is spoken."""
        return self._server.dialect

    @property
    def dialect_name(self) -> str:
        """See `wire.Wire`."""
        return self._server.dialect.name

    @property
    def model(self) -> str:
        """See `wire.Wire`."""
        return self._server.model

    @property
    def load_page(self) -> str:
        """See `wire.Wire`."""
        return self._server.load_page

    async def find_out(self, http: UpstreamHttp) -> ServerFacts:
        """See `wire.Wire`."""
        name = self._dialect if self._dialect != AUTO else dialect_of_host(http.base_url.host)
        # A vendor has no pages about the machine that it runs on.
        self._server = await (self._look_around(http, name) if not name or _is_own(name) else self._vendor(name))
        self._server.model = self._model or self._server.model or await self._first_model(http)
        if not name and not self._server.dialect.enforced and self._server.dialect.form is Form.NONE:
            self._server.dialect = await self._try_schema(http)
        await self._generate_one(http)
        server = self._server
        if server.dialect.form is Form.LLGUIDANCE:
            server.facts = replace(server.facts, has_prefill=await self._goes_on(http), has_marked_calls=True)
        mode = {Form.NONE: Mode.ENVELOPE, Form.JSON_OBJECT: Mode.ENVELOPE}.get(server.dialect.form, Mode.FULL)
        server.facts = replace(
            server.facts,
            strictest_mode=mode,
            has_tools=await self._calls_tools(http),
            has_tools_with_schema=server.dialect.has_tools_with_schema,
        )
        return server.facts

    async def _vendor(self, name: str) -> _Server:
        return _Server(DIALECTS[name])

    async def _look_around(self, http: UpstreamHttp, name: str) -> _Server:
        """Who it is, by the pages that it has."""
        props = await get_page(http, "/props")
        if "default_generation_settings" in props:
            settings = props["default_generation_settings"]
            context = settings.get("n_ctx", 0) if isinstance(settings, Mapping) else 0
            facts = ServerFacts(whole(context), whole(props.get("total_slots")))
            dialect = name or ("llama-server" if await takes_llguidance(http) else "llama-server-gbnf")
            return _Server(
                DIALECTS[dialect],
                facts=facts,
                load_page=await find_load_page(http),
                has_tokenizer=True,
                is_llama=True,
                has_slots_page=await says_load(http, "/slots"),
            )
        listed = await list_models(http)
        first = next((entry for entry in listed if not self._model or entry.get("id") == self._model), {})
        facts = ServerFacts(whole(first.get("max_model_len")))
        owner = str(first.get("owned_by", ""))
        version = await get_page(http, "/version") if owner in {"", "vllm"} else {}
        if owner == "vllm" or (name or "").startswith("vllm"):
            dialect = name or vllm_dialect(str(version.get("version", "")))
            return _Server(
                DIALECTS[dialect], str(first.get("id", "")), facts, await find_load_page(http), has_tokenizer=True
            )
        if owner == "sglang" or name == "sglang":
            return _Server(DIALECTS["sglang"], str(first.get("id", "")), facts, await find_load_page(http))
        return _Server(DIALECTS[name or "plain"], str(first.get("id", "")), facts)

    async def _first_model(self, http: UpstreamHttp) -> str:
        listed = await list_models(http)
        if listed and isinstance(listed[0].get("id"), str):
            return str(listed[0]["id"])
        raise MeshError(
            ErrorReason.ERROR_REASON_INTERNAL, "the model server lists no models; name one with upstream_model"
        )

    async def _try_schema(self, http: UpstreamHttp) -> Dialect:
        """What an unknown server does with a schema, seen by what it generates: its word alone is not enough."""
        for name in ("json-schema", "json-object"):
            dialect = DIALECTS[name]
            self._server.dialect = dialect
            constraint = Constraint(Mode.FULL if name == "json-schema" else Mode.ENVELOPE, dict(_SCHEMA_PROBE))
            try:
                text = await self._complete(http, constraint, max_output_tokens=32)
            except (MeshError, WireError) as error:
                if isinstance(error, MeshError) and error.reason != ErrorReason.ERROR_REASON_INTERNAL:
                    raise
                continue
            if _conforms(text, is_schema=name == "json-schema"):
                return dialect
        return DIALECTS["plain"]

    async def _complete(self, http: UpstreamHttp, constraint: Constraint, *, max_output_tokens: int) -> str:
        reader = await self._read_all(http, _request(constraint), max_output_tokens)
        return b"".join(token.text for token in reader[1]).decode()

    async def _generate_one(self, http: UpstreamHttp) -> None:
        """One real token, with everything that requests may ask for; what the server refuses is not asked again."""
        for has_logprobs, has_usage, has_sampling in _ASKED:
            self._server.dialect = replace(self._server.dialect, has_usage_option=has_usage, has_sampling=has_sampling)
            try:
                reader, _ = await self._read_all(http, _request(Constraint(Mode.TEXT), logprobs=has_logprobs), 1)
            except MeshError as error:
                if error.reason == ErrorReason.ERROR_REASON_INTERNAL and (has_logprobs or has_usage or has_sampling):
                    continue
                raise
            if not has_sampling:
                _log.warning("the model takes no temperature: it draws as it likes", extra={"model": self.model})
            counts = reader.counts
            self._server.facts = replace(
                self._server.facts,
                has_logprobs=reader.has_logprobs,
                has_usage=counts.input_tokens is not None and counts.output_tokens is not None,
            )
            return

    async def _calls_tools(self, http: UpstreamHttp) -> bool:
        """Whether the server calls tools by itself. What it was set to is seen by what it does: many take the fields
        and answer with text."""
        if not self._has_tools:
            return self._has_tools is None and self._server.dialect.has_tools
        must = _request(Constraint(Mode.TEXT))._replace(tools=ToolUse((_TOOL_PROBE,), Choice.REQUIRED, _FORCED))
        may = must._replace(tools=ToolUse((_TOOL_PROBE,)))
        try:
            _, tokens = await self._read_all(http, must, _TOOL_PROBE_TOKENS)
            is_called = any(token.call and token.name == _FORCED for token in tokens)
            if is_called:
                await self._read_all(http, may, 1)
        except MeshError as error:
            if error.reason != ErrorReason.ERROR_REASON_INTERNAL:
                raise
            is_called = False
        except WireError:
            is_called = False
        if not is_called:
            _log.error("the model server does not call tools, which it is set to", extra={"model": self.model})
        return is_called

    async def _goes_on(self, http: UpstreamHttp) -> bool:
        """Whether an answer that was begun is gone on with, and its beginning not said again."""
        request = _request(Constraint(Mode.TEXT))._replace(beginning=_BEGUN)
        try:
            _, tokens = await self._read_all(http, request, 1)
        except MeshError as error:
            if error.reason == ErrorReason.ERROR_REASON_INTERNAL:
                return False
            raise
        text = b"".join(token.text for token in tokens).decode()
        return bool(text) and not text.lstrip().startswith(_BEGUN)

    async def _read_all(
        self, http: UpstreamHttp, request: GenerateRequest, max_output_tokens: int
    ) -> tuple[ChatStreamReader, list[Any]]:
        reader = ChatStreamReader(has_tools=request.tools is not None)
        tokens: list[Any] = []
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_S):
                async with http.stream(self.path, self.body(request, max_output_tokens)) as events:
                    async for event in events:
                        tokens += reader.feed(event.event, event.data)
                    reader.close()
        except TimeoutError as error:
            raise MeshError(
                ErrorReason.ERROR_REASON_BACKEND_FAILED, "the model server generated nothing in time"
            ) from error
        return reader, tokens

    def body(self, request: GenerateRequest, max_output_tokens: int) -> Mapping[str, Any]:
        """See `wire.Wire`."""
        server = self._server
        written = write_body(request, server.dialect, max_output_tokens, is_llama=server.is_llama)
        # What a user sets goes before the dialect's habits, and behind what a request asks for.
        extra = {key: value for key, value in self._extra_body.items() if key not in OURS}
        return {**(server.dialect.extra or {}), **extra, **written, "model": server.model}

    def reader(self, request: GenerateRequest) -> ChatStreamReader:
        """See `wire.Wire`."""
        if request.confidence and request.constraint.grammar is not None:
            return ChatStreamReader(score=TokenScorer(request.constraint.grammar))
        return ChatStreamReader(has_tools=request.tools is not None)

    def constrain(self, schema: Any, *, format_assertion: bool) -> Constraint:
        """See `wire.Wire`."""
        return constrain_upstream(
            schema, self._server.dialect, self._gate, self._limits, format_assertion=format_assertion
        )

    def check_grammar(self, grammar: str) -> str:
        """See `wire.Wire`."""
        return self._gate.try_grammar(grammar)

    async def count_tokens(self, http: UpstreamHttp, messages: Sequence[ChatMessage]) -> int | None:
        """See `wire.Wire`. llama-server: /apply-template and /tokenize; vLLM: /tokenize of messages."""
        if not self._server.has_tokenizer:
            return None
        turns = [write_turn(message) for message in messages]
        if self._server.is_llama:
            rendered = await http.post("/apply-template", {"messages": turns}, from_root=True)
            body = {"content": str(rendered.get("prompt", "")), "add_special": True, "parse_special": True}
            tokens = (await http.post("/tokenize", body, from_root=True)).get("tokens")
            if not isinstance(tokens, list):
                raise WireError("`tokens` is no list")
            return len(tokens)
        count = (await http.post("/tokenize", {"model": self.model, "messages": turns}, from_root=True)).get("count")
        if not isinstance(count, int):
            raise WireError("`count` is no number")
        return count

    async def try_beginning(self, http: UpstreamHttp, request: GenerateRequest) -> int:
        """See `wire.Wire`."""
        grammar = request.constraint.grammar
        if not self._server.facts.has_prefill:
            raise refuse_continuing("the model server does not go on from a text")
        # The server would go on without a word, and without the grammar.
        if grammar is not None and (refusal := self._gate.try_grammar(grammar)):
            raise refuse_continuing(f"the engine can't compile the rest of the schema: {refusal}"[:500])
        body = {"content": request.beginning, "add_special": False, "parse_special": False}
        tokens = (await http.post("/tokenize", body, from_root=True)).get("tokens")
        if not isinstance(tokens, list):
            raise WireError("`tokens` is no list")
        return len(tokens)

    async def read_load(self, http: UpstreamHttp, now_s: float) -> ServerLoad | None:
        """See `wire.Wire`."""
        page = self._server.load_page
        if not page:
            return None
        text = (await http.get(page, from_root=True)).decode(errors="replace")
        if page == "/slots":
            return read_slots(text, now_s)
        load = read_metrics(text, now_s)
        if load is None or not self._server.has_slots_page:
            return load
        slots = read_slots((await http.get("/slots", from_root=True)).decode(errors="replace"), now_s)
        return replace(load, kv_used_ratio=slots.kv_used_ratio if slots is not None else None)


_OWN: Final = ("llama-server", "vllm", "sglang", "json-", "plain")


def _is_own(name: str) -> bool:
    """A server of the user's own, by its dialect."""
    return name.startswith(_OWN)


def _request(constraint: Constraint, *, logprobs: bool = False) -> GenerateRequest:
    return GenerateRequest(_PROBE, 0.0, SamplingOptions(), constraint, logprobs=logprobs)


def _conforms(text: str, *, is_schema: bool) -> bool:
    try:
        value = parse_object(text)
    except WireError:
        return False
    return value == {_FORCED: _FORCED} if is_schema else True
