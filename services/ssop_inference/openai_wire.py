"""OpenAI-compatible servers: finding out which one it is, requests in its dialect, its counts and its load."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_inference.backend import GenerateRequest
from ssop_inference.core.beginning import refuse_continuing
from ssop_inference.core.chat_stream import ChatStreamReader
from ssop_inference.core.constraint import Constraint, Mode
from ssop_inference.core.dialect import DIALECTS, Dialect, Form, constrain_upstream, describe_schema, dialect_of_host
from ssop_inference.core.limits import EngineLimits
from ssop_inference.core.prompt import ChatMessage
from ssop_inference.core.request import SamplingOptions
from ssop_inference.core.upstream_errors import WireError, parse_object
from ssop_inference.gate import SchemaGate
from ssop_inference.mask import TokenScorer
from ssop_inference.upstream_http import UpstreamHttp
from ssop_inference.wire import ServerFacts, ServerLoad

AUTO: Final = "auto"
# The most that OpenAI's API gives.
_CANDIDATES: Final = 20
# The first version of vLLM that takes `structured_outputs`.
_STRUCTURED_SINCE: Final = (0, 11)
_RUNNING: Final = ("llamacpp:requests_processing", "vllm:num_requests_running", "sglang:num_running_reqs")
_WAITING: Final = ("llamacpp:requests_deferred", "vllm:num_requests_waiting", "sglang:num_queue_reqs")
_PROBE: Final = (ChatMessage("user", "Hello"),)
_BEGUN: Final = "Hello! How can"
_LLGUIDANCE_PROBE: Final = '%llguidance {}\nstart: "ok"'
_FORCED: Final = "q7"
_SCHEMA_PROBE: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {_FORCED: {"type": "string", "enum": [_FORCED]}},
    "required": [_FORCED],
    "additionalProperties": False,
}
_PROBE_TIMEOUT_S: Final = 20.0


@dataclass(slots=True)
class _Server:
    """What was found out."""

    dialect: Dialect
    model: str = ""
    facts: ServerFacts = field(default_factory=ServerFacts)
    load_page: str = ""
    has_tokenizer: bool = False
    is_llama: bool = False


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
    ) -> None:
        """`model` empty: the server's first one. `dialect` is a name of DIALECTS, or `auto`."""
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
            server.facts = replace(server.facts, has_prefill=await self._goes_on(http))
        mode = {Form.NONE: Mode.ENVELOPE, Form.JSON_OBJECT: Mode.ENVELOPE}.get(server.dialect.form, Mode.FULL)
        server.facts = replace(server.facts, strictest_mode=mode)
        return server.facts

    async def _vendor(self, name: str) -> _Server:
        return _Server(DIALECTS[name])

    async def _look_around(self, http: UpstreamHttp, name: str) -> _Server:
        """Who it is, by the pages that it has."""
        props = await _page(http, "/props")
        if "default_generation_settings" in props:
            settings = props["default_generation_settings"]
            context = settings.get("n_ctx", 0) if isinstance(settings, Mapping) else 0
            facts = ServerFacts(_whole(context), _whole(props.get("total_slots")))
            dialect = name or ("llama-server" if await _takes_llguidance(http) else "llama-server-gbnf")
            return _Server(
                DIALECTS[dialect], facts=facts, load_page=await _load_page(http), has_tokenizer=True, is_llama=True
            )
        listed = await _models(http)
        first = next((entry for entry in listed if not self._model or entry.get("id") == self._model), {})
        facts = ServerFacts(_whole(first.get("max_model_len")))
        owner = str(first.get("owned_by", ""))
        version = await _page(http, "/version") if owner in {"", "vllm"} else {}
        if owner == "vllm" or (name or "").startswith("vllm"):
            dialect = name or _vllm_dialect(str(version.get("version", "")))
            return _Server(
                DIALECTS[dialect], str(first.get("id", "")), facts, await _load_page(http), has_tokenizer=True
            )
        if owner == "sglang" or name == "sglang":
            return _Server(DIALECTS["sglang"], str(first.get("id", "")), facts, await _load_page(http))
        return _Server(DIALECTS[name or "plain"], str(first.get("id", "")), facts)

    async def _first_model(self, http: UpstreamHttp) -> str:
        listed = await _models(http)
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
        for has_logprobs, has_usage in ((True, True), (False, True), (False, False)):
            if has_usage and not self._server.dialect.has_usage_option:
                continue
            self._server.dialect = replace(self._server.dialect, has_usage_option=has_usage)
            try:
                reader, _ = await self._read_all(http, _request(Constraint(Mode.TEXT), logprobs=has_logprobs), 1)
            except MeshError as error:
                if error.reason == ErrorReason.ERROR_REASON_INTERNAL and has_usage:
                    continue
                raise
            counts = reader.counts
            self._server.facts = replace(
                self._server.facts,
                has_logprobs=reader.has_logprobs,
                has_usage=counts.input_tokens is not None and counts.output_tokens is not None,
            )
            return

    async def _goes_on(self, http: UpstreamHttp) -> bool:
        """Whether an answer that was begun is gone on with, and its beginning not said again."""
        request = replace(_request(Constraint(Mode.TEXT)), beginning=_BEGUN)
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
        reader = ChatStreamReader()
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
        sampling, dialect = request.sampling, self._server.dialect
        body: dict[str, Any] = {
            "model": self._server.model,
            "messages": [{"role": message.role, "content": message.content} for message in request.messages],
            "stream": True,
            dialect.max_tokens_key: max_output_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
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
        if request.logprobs or request.confidence:
            body["logprobs"] = True
            if request.confidence and request.constraint.grammar is not None:
                body["top_logprobs"] = _CANDIDATES
            elif self._server.is_llama:
                # Its default is twenty, which is most of what it sends then.
                body["top_logprobs"] = 1
        body.update(dialect.extra or {})
        body.update(describe_schema(dialect, request.constraint))
        # What the user sets last, except what the mesh lives by.
        return {**body, **{key: value for key, value in self._extra_body.items() if key not in _OURS}}

    def reader(self, request: GenerateRequest) -> ChatStreamReader:
        """See `wire.Wire`."""
        if request.confidence and request.constraint.grammar is not None:
            return ChatStreamReader(score=TokenScorer(request.constraint.grammar))
        return ChatStreamReader()

    def constrain(self, schema: Any, *, format_assertion: bool) -> Constraint:
        """See `wire.Wire`."""
        return constrain_upstream(
            schema, self._server.dialect, self._gate, self._limits, format_assertion=format_assertion
        )

    async def count_tokens(self, http: UpstreamHttp, messages: Sequence[ChatMessage]) -> int | None:
        """See `wire.Wire`. llama-server: /apply-template and /tokenize; vLLM: /tokenize of messages."""
        if not self._server.has_tokenizer:
            return None
        turns = [{"role": message.role, "content": message.content} for message in messages]
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
        return _read_slots(text, now_s) if page == "/slots" else _read_metrics(text, now_s)


_OURS: Final = frozenset({"model", "messages", "stream", "n", "prompt", "best_of"})
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


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and 0 < value < 2**31 else 0


async def _page(http: UpstreamHttp, path: str) -> dict[str, Any]:
    """A page of the server's own; empty where it has none. Raises MeshError where the server can't be reached."""
    try:
        return await http.get_object(path, from_root=True)
    except WireError:
        return {}
    except MeshError as error:
        if "status" in error.metadata:
            return {}
        raise


async def _models(http: UpstreamHttp) -> list[dict[str, Any]]:
    try:
        listed = (await http.get_object("/models")).get("data")
    except WireError:
        return []
    except MeshError as error:
        if error.metadata.get("status") == "404":
            return []
        raise
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


async def _takes_llguidance(http: UpstreamHttp) -> bool:
    body = {"prompt": "a", "n_predict": 1, "grammar": _LLGUIDANCE_PROBE}
    try:
        answer = await http.post("/completion", body, from_root=True)
    except WireError:
        return False
    except MeshError as error:
        if error.reason in {ErrorReason.ERROR_REASON_INTERNAL, ErrorReason.ERROR_REASON_BACKEND_FAILED}:
            return False
        raise
    return str(answer.get("content", "")).startswith("o")


async def _load_page(http: UpstreamHttp) -> str:
    """The page that says the load; `/metrics` knows of waiting requests too."""
    for page in ("/metrics", "/slots"):
        try:
            text = (await http.get(page, from_root=True)).decode(errors="replace")
            load = _read_slots(text, 0.0) if page == "/slots" else _read_metrics(text, 0.0)
        except (MeshError, WireError):
            continue
        if load is not None:
            return page
    return ""


def _read_slots(text: str, now_s: float) -> ServerLoad | None:
    try:
        slots = json.loads(text)
        return ServerLoad(sum(bool(slot["is_processing"]) for slot in slots), 0, now_s)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _read_metrics(text: str, now_s: float) -> ServerLoad | None:
    """Prometheus text. Values are summed over the engines of a server."""
    values = {"running": 0.0, "waiting": 0.0}
    is_found = False
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                kind = "running" if sample.name in _RUNNING else "waiting" if sample.name in _WAITING else ""
                if kind and sample.value >= 0:
                    values[kind] += sample.value
                    is_found = True
        return ServerLoad(int(values["running"]), int(values["waiting"]), now_s) if is_found else None
    except (ValueError, KeyError, IndexError, OverflowError):
        return None


def _vllm_dialect(version: str) -> str:
    """`vllm` from the version on that takes `structured_outputs`; unknown versions are taken for new ones."""
    numbers = version.split(".")[:2]
    if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
        return "vllm" if tuple(map(int, numbers)) >= _STRUCTURED_SINCE else "vllm-guided"
    return "vllm"
