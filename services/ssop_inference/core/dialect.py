"""How each kind of model server is told a schema, and how far it holds its model to it.

A schema is rewritten only where it stays the same or becomes wider; what a server is not known to enforce is left to
the codec, and the mode says so. Sources: the servers' own documentation, and for llama-server what was measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from ssop_inference.core.constraint import Constraint, Gate, Mode, choose_constraint
from ssop_inference.core.limits import EngineLimits
from ssop_inference.core.relaxation import Relaxation, child_schemas, map_schemas, relax

ANY_OBJECT: Final[Mapping[str, Any]] = {"type": "object"}
"""What a server with a JSON mode alone is told."""


class Form(StrEnum):
    """Where in a request the schema stands."""

    RESPONSE_FORMAT = "response_format json_schema"
    STRUCTURED_OUTPUTS = "structured_outputs"
    GUIDED_JSON = "guided_json"
    LLGUIDANCE = "llguidance grammar"
    JSON_OBJECT = "response_format json_object"
    OUTPUT_CONFIG = "output_config json_schema"
    TOOL = "tool input"
    NONE = "none"


_NOTES: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema", "$id"}
)
_SHAPES: Final = frozenset(
    {"type", "enum", "const", "properties", "required", "additionalProperties", "items", "anyOf", "$ref", "$defs"}
)
_COUNTS: Final = frozenset({"minItems", "maxItems"})
_LENGTHS: Final = frozenset({"minLength", "maxLength"})
_BOUNDS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
# A grammar of the server knows these; what is merely announced as supported is not enough.
_XGRAMMAR: Final = _NOTES | _SHAPES | _COUNTS | _LENGTHS | _BOUNDS | {"definitions"}

_LLAMA: Final[Mapping[str, Any]] = {
    "min_p": 0.0,
    "timings_per_token": True,
    # It notices that a client has gone when it writes: after each batch of the prompt, and not at the first token.
    "return_progress": True,
    "chat_template_kwargs": {"enable_thinking": False},
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """A kind of server. `enforced`: keywords that its grammar keeps; `refused`: those that it must not be sent."""

    name: str
    form: Form
    enforced: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    is_closed: bool = False
    """Takes only closed objects, and no recursion."""
    is_strict: bool = False
    """Takes only closed objects all of whose properties are required."""
    max_tokens_key: str = "max_tokens"
    has_top_k: bool = False
    has_sampling: bool = True
    """Takes a temperature and top_p."""
    has_seed: bool = True
    has_penalties: bool = True
    has_usage_option: bool = True
    has_tools: bool = False
    """Its documentation says that it calls tools."""
    has_tools_with_schema: bool = False
    """It takes tools together with a schema of the answer."""
    extra: Mapping[str, Any] | None = None
    """What every request of it carries."""


DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            "openai",
            Form.RESPONSE_FORMAT,
            enforced=_NOTES | _SHAPES | _COUNTS | _BOUNDS | {"multipleOf", "pattern"},
            refused=_LENGTHS
            | {"allOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties"}
            | {"unevaluatedProperties", "unevaluatedItems", "propertyNames", "minProperties", "maxProperties"}
            | {"contains", "minContains", "maxContains", "uniqueItems", "prefixItems", "default", "examples", "format"},
            is_strict=True,
            max_tokens_key="max_completion_tokens",
            has_tools=True,
            has_tools_with_schema=True,
        ),
        Dialect("vllm", Form.STRUCTURED_OUTPUTS, enforced=_XGRAMMAR, has_top_k=True),
        Dialect("vllm-guided", Form.GUIDED_JSON, enforced=_XGRAMMAR, has_top_k=True),
        Dialect("sglang", Form.RESPONSE_FORMAT, enforced=_XGRAMMAR, has_top_k=True),
        Dialect(
            "llama-server",
            Form.LLGUIDANCE,
            has_top_k=True,
            extra=_LLAMA,
        ),
        Dialect(
            # A server that was built without llguidance: its own grammar ignores bounds and any pattern.
            "llama-server-gbnf",
            Form.RESPONSE_FORMAT,
            enforced=_NOTES | _SHAPES | _COUNTS | _LENGTHS | {"definitions"},
            refused=frozenset({"allOf", "prefixItems", "not", "if", "then", "else", "pattern", "patternProperties"}),
            has_top_k=True,
            extra=_LLAMA,
        ),
        Dialect(
            "xai",
            Form.RESPONSE_FORMAT,
            enforced=_NOTES | _SHAPES,
            refused=_LENGTHS | _COUNTS | {"allOf", "minContains", "maxContains"},
            max_tokens_key="max_completion_tokens",
            # Its reasoning models refuse them.
            has_penalties=False,
            has_tools=True,
            has_tools_with_schema=True,
        ),
        Dialect("deepseek", Form.JSON_OBJECT, has_seed=False, has_tools=True),
        Dialect("qwen", Form.JSON_OBJECT, has_top_k=True, has_tools=True, extra={"enable_thinking": False}),
        # A server of which only the endpoint is known.
        Dialect("json-schema", Form.RESPONSE_FORMAT, enforced=_NOTES | _SHAPES),
        Dialect("json-object", Form.JSON_OBJECT),
        Dialect("plain", Form.NONE),
    )
}
"""By name."""

ANTHROPIC_DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            "anthropic",
            Form.OUTPUT_CONFIG,
            enforced=_NOTES | _SHAPES | {"definitions"},
            refused=_LENGTHS
            | _COUNTS
            | _BOUNDS
            | {"multipleOf", "pattern", "format", "allOf", "not", "if", "then", "else", "patternProperties"}
            | {"dependentRequired", "dependentSchemas", "propertyNames", "minProperties", "maxProperties"}
            | {"contains", "minContains", "maxContains", "uniqueItems", "prefixItems"}
            | {"unevaluatedProperties", "unevaluatedItems"},
            is_closed=True,
        ),
        # A model that takes no schema for its output.
        Dialect("anthropic-tool", Form.TOOL),
    )
}
"""By name."""

_HOSTS: Final = (
    ("api.openai.com", "openai"),
    (".openai.azure.com", "openai"),
    ("api.x.ai", "xai"),
    ("api.deepseek.com", "deepseek"),
    (".aliyuncs.com", "qwen"),
)


def dialect_of_host(host: str) -> str:
    """The dialect of a vendor by the host of its API; empty for others."""
    return next((name for ending, name in _HOSTS if host == ending or host.endswith(f".{ending.lstrip('.')}")), "")


def constrain_upstream(
    schema: Any, dialect: Dialect, gate: Gate, limits: EngineLimits, *, format_assertion: bool
) -> Constraint:
    """The strictest mode that a server of the dialect is known to keep, and the schema to send for it."""
    if dialect.form is Form.LLGUIDANCE:
        return choose_constraint(schema, gate, limits, format_assertion=format_assertion)
    target = schema if isinstance(schema, dict) else ({} if schema else {"not": {}})
    is_object = target.get("type") == "object"
    if dialect.form in {Form.JSON_OBJECT, Form.NONE}:
        told = ANY_OBJECT if dialect.form is Form.JSON_OBJECT and is_object else None
        return Constraint(Mode.ENVELOPE, told, detail=f"{dialect.name} takes no schema")
    if dialect.form is Form.TOOL:
        return _constrain_by_tool(target, "no grammar holds the input of a tool")
    if not format_assertion:
        target = relax(target, Relaxation(frozenset({"format"})))
    return _constrain_by_schema(target, dialect, is_object=is_object)


def _constrain_by_schema(target: dict[str, Any], dialect: Dialect, *, is_object: bool) -> Constraint:
    used = keywords(target)
    left_out = sorted((used - dialect.enforced) | (used & dialect.refused - _NOTES))
    refused = Relaxation(frozenset(used & dialect.refused), is_one_of_opened="oneOf" in used)
    if refused.keywords or refused.is_one_of_opened:
        target = relax(target, refused)
    added: tuple[str, ...] = ()
    if dialect.is_strict or dialect.is_closed:
        if not is_object or "anyOf" in target:
            return Constraint(Mode.ENVELOPE, detail=f"{dialect.name} takes objects only")
        closed, added = close_objects(target)
        if fault := find_open(closed, may_be_optional=dialect.is_closed) or _find_recursion(closed, dialect):
            detail = f"{dialect.name} can't be told {fault}"[:500]
            if dialect.form is Form.OUTPUT_CONFIG:
                return _constrain_by_tool(target, detail)
            return Constraint(Mode.ENVELOPE, ANY_OBJECT, detail=detail)
        target = closed
    mode = Mode.RELAXED if left_out else Mode.FULL
    detail = f"{dialect.name} is not known to enforce: {', '.join(left_out)}"[:500] if left_out else ""
    return Constraint(mode, target, engine_limits=added, detail=detail)


def _constrain_by_tool(target: Mapping[str, Any], detail: str) -> Constraint:
    is_tool = target.get("type") == "object" and not target.keys() & {"anyOf", "oneOf", "allOf"}
    return Constraint(Mode.ENVELOPE, target if is_tool else None, detail=detail)


def _find_recursion(schema: Any, dialect: Dialect) -> str:
    """What the schema says of itself inside of itself, where the dialect can't be told that; else empty."""
    if not dialect.is_closed:
        return ""
    named: dict[str, Any] = {"#": {key: value for key, value in schema.items() if key not in {"$defs", "definitions"}}}
    for keyword in ("$defs", "definitions"):
        named |= {f"#/{keyword}/{name}": inner for name, inner in schema.get(keyword, {}).items()}
    reached = {name: _references(inner) for name, inner in named.items()}
    for name, targets in reached.items():
        pending, seen = list(targets), set(targets)
        while pending:
            fresh = reached.get(pending.pop(), set()) - seen
            seen |= fresh
            pending += fresh
        if name in seen or seen - named.keys():
            return "a schema that refers to itself"
    return ""


def _references(schema: Any) -> set[str]:
    found: set[str] = set()
    pending = [schema]
    while pending:
        inner = pending.pop()
        if isinstance(inner, Mapping):
            if isinstance(inner.get("$ref"), str):
                found.add(inner["$ref"])
            pending += child_schemas(inner)
    return found


def keywords(schema: Any) -> frozenset[str]:
    """The keywords of a schema and of all schemas inside of it."""
    found: set[str] = set()
    pending = [schema]
    while pending:
        inner = pending.pop()
        if isinstance(inner, Mapping):
            found |= inner.keys()
            pending += child_schemas(inner)
    return frozenset(found)


def close_objects(schema: Any) -> tuple[Any, tuple[str, ...]]:
    """The schema with `additionalProperties` false where it names properties and says nothing of others."""
    added: list[str] = []

    def close(inner: Any) -> Any:
        inner = map_schemas(inner, close)
        if isinstance(inner, Mapping) and inner.get("properties") and "additionalProperties" not in inner:
            added.append("additionalProperties=false at " + "/".join(sorted(inner["properties"])[:3]))
            return {**inner, "additionalProperties": False}
        return inner

    return close(schema), tuple(dict.fromkeys(added))


def find_open(schema: Any, *, may_be_optional: bool = False) -> str:
    """What keeps a schema from being strict, in words; empty when it is."""
    pending = [schema]
    while pending:
        inner = pending.pop()
        if not isinstance(inner, Mapping):
            continue
        pending += child_schemas(inner)
        types = inner.get("type")
        is_object = types == "object" or (isinstance(types, list) and "object" in types)
        if is_object or "properties" in inner:
            if inner.get("additionalProperties") is not False:
                return "an open object"
            optional = set(inner.get("properties", ())) - set(inner.get("required", ()))
            if optional and not may_be_optional:
                return f"an optional property ({min(optional)[:64]})"
    return ""


def describe_schema(dialect: Dialect, constraint: Constraint) -> dict[str, Any]:
    """The fields of a request that hold the model to the constraint; none where it is held to nothing."""
    schema = constraint.schema
    if constraint.grammar is not None:
        return {"grammar": constraint.grammar}
    if schema is None:
        return {}
    if constraint.mode is Mode.ENVELOPE:
        return {"response_format": {"type": "json_object"}}
    if dialect.form is Form.STRUCTURED_OUTPUTS:
        return {"structured_outputs": {"json": schema}}
    if dialect.form is Form.GUIDED_JSON:
        return {"guided_json": schema}
    form: dict[str, Any] = {"name": "answer", "schema": schema}
    # Without it OpenAI takes the schema for advice.
    form["strict"] = True
    return {"response_format": {"type": "json_schema", "json_schema": form}}
