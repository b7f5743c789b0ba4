"""`ssop ask` and `ssop schema check`."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ssop.v1 import frame_pb2, mesh_pb2, router_pb2
from ssop_cli.board import mode_name, show_age, show_ms
from ssop_cli.mesh import Access, accounting_json, decision_json, explain, open_client
from ssop_cli.terminal import visible
from ssop_cli.words import word
from ssop_sdk import OutputError, SsopError, Stream

_TOP_K: Final = 4
_TYPE_BITS = tuple(
    (value.number, value.name.removeprefix("FIELD_TYPE_").lower())
    for value in frame_pb2.FieldType.DESCRIPTOR.values
    if value.number
)


@dataclass(frozen=True, slots=True)
class AskOptions:
    """What to ask."""

    prompt: str
    schema: Mapping[str, Any] | None
    model: str
    policy: str
    timeout_s: float
    collections: tuple[str, ...] = ()
    top_k: int = 0
    is_cited: bool = False


_CITE: Final = "Answer from the numbered passages, and cite the numbers of those that the answer comes from."


def cite_schema(top_k: int) -> dict[str, Any]:
    """The schema of an answer that cites passages by their numbers, 1 to `top_k`."""
    number = {"type": "integer", "minimum": 1, "maximum": top_k}
    return {
        "type": "object",
        "properties": {
            # First, so that the answer is written after its passages are named.
            "citations": {"type": "array", "items": number, "minItems": 1, "maxItems": top_k},
            "answer": {"type": "string", "maxLength": 800},
        },
        "required": ["citations", "answer"],
        "additionalProperties": False,
    }


def run_ask(access: Access, options: AskOptions, console: Console, *, is_json: bool) -> dict[str, Any]:
    """Ask once, show the answer as it arrives, and return all of it. Raises CommandError."""
    started_s = time.monotonic()
    schema = cite_schema(options.top_k or _TOP_K) if options.is_cited else options.schema
    with (
        open_client(access, options.timeout_s) as client,
        client.generate(
            _messages(options),
            output_schema=schema,
            model=options.model,
            policy=options.policy,
            collections=options.collections,
            rag_top_k=options.top_k,
        ) as stream,
    ):
        try:
            if is_json:
                stream.result()
            elif schema is None:
                _show_text(stream, console)
            else:
                _show_fields(stream, console, started_s)
        except OutputError as error:
            return {
                "verdict": "incomplete" if error.reason == "OUTPUT_INCOMPLETE" else "invalid",
                "error": explain(error, access).message,
                "result": error.partial,
                "sources": [asdict(source) for source in stream.sources],
                "decision": decision_json(stream.decision),
                "delivery": delivery_json(stream.status),
                "accounting": accounting_json(stream.accounting),
            }
        return {
            "verdict": "ok",
            "result": stream.result(),
            "sources": [asdict(source) for source in stream.sources],
            "decision": decision_json(stream.decision),
            "delivery": delivery_json(stream.status),
            "accounting": accounting_json(stream.accounting),
        }


def delivery_json(status: mesh_pb2.DeliveryStatus | None) -> dict[str, Any]:
    """What the answer came from, as JSON."""
    if status is None:
        return {}
    return {
        "served_by": status.served_by,
        "cache_level": word(mesh_pb2.CacheLevel, status.cache_level, "CACHE_LEVEL_"),
        "age_ms": status.age_ms,
        "similarity": round(status.similarity, 4),
        "unavailable": list(status.unavailable),
    }


def _messages(options: AskOptions) -> Any:
    if not options.is_cited:
        return options.prompt
    # Not in the question itself, which is what passages are looked for with.
    return [{"role": "system", "content": _CITE}, {"role": "user", "content": options.prompt}]


def _show_text(stream: Stream[Any], console: Console) -> None:
    for frame in stream:
        console.print(Text(visible(frame.value) if isinstance(frame.value, str) else ""), end="", soft_wrap=True)
    console.print()


def _show_fields(stream: Stream[Any], console: Console, started_s: float) -> None:
    """Fields with the time of their arrival: a live table on a terminal, a line each elsewhere."""
    rows: dict[str, tuple[float, str]] = {}

    def render() -> Group:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("arrived", justify="right", no_wrap=True)
        table.add_column("field", no_wrap=True)
        table.add_column("value", overflow="fold")
        for name, (arrived_ms, value) in rows.items():
            table.add_row(Text(show_ms(arrived_ms), style="dim"), Text(visible(name)), Text(visible(value)))
        if not rows:
            waited_ms = (time.monotonic() - started_s) * 1000
            table.add_row(Text(show_ms(waited_ms), style="dim"), Text("waiting for the first one", style="dim"))
        return Group(table)

    live = Live(get_renderable=render, console=console, refresh_per_second=12)
    with live if console.is_terminal else console.capture():
        error: SsopError | None = None
        try:
            for frame in stream:
                arrived_ms = (time.monotonic() - started_s) * 1000
                for name, value in frame.delta.items():
                    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                    rows[name] = (arrived_ms, shown)
        except SsopError as failure:
            error = failure
    if not console.is_terminal:
        console.print(render())
    if error is not None:
        raise error


def source_lines(answer: Mapping[str, Any], *, is_cited: bool) -> list[str]:
    """The passages that the model saw, and which of them the answer cites."""
    result = answer["result"]
    cited = list(dict.fromkeys(result.get("citations", ()))) if is_cited and isinstance(result, Mapping) else []
    lines = []
    for source in answer["sources"]:
        mark = "cited  " if source["number"] in cited else "source "
        place = f"{source['collection']}/{source['document_id']}, passage {source['passage']}"
        lines.append(f"{mark} [{source['number']}] {place}")
    numbers = {source["number"] for source in answer["sources"]}
    lines += [f"cited   [{number}] is no passage" for number in cited if number not in numbers]
    return lines


def delivery_line(answer: Mapping[str, Any]) -> str:
    """Where an answer came from, on one line."""
    decision, accounting = answer["decision"], answer["accounting"]
    if not decision:
        return ""
    parts = [
        f"{decision['tier'] or 'no tier'} ({decision['tier_reason']})",
        decision["model"] or "no model",
        f"cache {decision['cache']}",
    ]
    delivery = answer.get("delivery")
    if delivery and delivery["cache_level"]:
        level = "the cache's host" if delivery["cache_level"] == "local" else "Redis"
        parts.append(f"from {level}, {show_age(delivery['age_ms'])} old")
    if delivery and delivery["similarity"]:
        parts.append(f"answer to a similar question ({delivery['similarity']:.3f})")
    if decision["cascade"]:
        parts.append(f"cascade {decision['cascade']}")
    if accounting:
        parts.append(f"first field {show_ms(accounting['first_field_ms'])}")
        parts.append(f"total {show_ms(accounting['total_ms'])}")
        parts.append(f"{accounting['input_tokens']} + {accounting['output_tokens']} tokens")
    parts.append(f"request {decision['request_id']}")
    line = ", ".join(parts)
    if decision["is_shared_model"]:
        line += "; one model serves both tiers"
    return line


def check_schema(access: Access, schema: Mapping[str, Any], timeout_s: float) -> router_pb2.CheckSchemaResponse:
    """What the mesh makes of a schema. Raises CommandError."""
    with open_client(access, timeout_s) as client:
        return client.check_schema(schema)


def schema_json(response: router_pb2.CheckSchemaResponse) -> dict[str, Any]:
    """The answer of the mesh as JSON."""
    header = response.header
    return {
        "schema_hash": header.schema_hash.hex(),
        "stream_buffer_size": header.stream_buffer_size,
        "nodes": [
            {
                "node": node.node,
                "parent": node.parent,
                "step": word(frame_pb2.FieldStep, node.step, "FIELD_STEP_"),
                "key": node.key,
                "types": type_names(node.types),
                "required": node.required,
                "ref_node": node.ref_node if node.HasField("ref_node") else None,
            }
            for node in header.nodes
        ],
        "annotations": list(header.annotations),
        "caps": {cap.cap: {"used": cap.used, "limit": cap.limit} for cap in response.caps},
        "backends": [
            {
                "model": backend.model,
                "mode": mode_name(backend.constraint_mode),
                "detail": backend.detail,
                "engine_limits": list(backend.engine_limits),
            }
            for backend in response.backends
        ],
    }


def type_names(types: int) -> list[str]:
    """The types of a node; an integer is a number."""
    names = [name for bit, name in _TYPE_BITS if types & bit]
    return [name for name in names if name != "integer" or "number" not in names]


def schema_view(found: Mapping[str, Any]) -> Group:
    """A checked schema, for people."""
    fields = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("node", "field", "types", "required"):
        fields.add_column(name, justify="right" if name == "node" else "left", no_wrap=name != "field")
    depth: dict[int, int] = {}
    for node in found["nodes"]:
        number = node["node"]
        depth[number] = 0 if number == 0 else depth.get(node["parent"], 0) + 1
        label = {"root": "(document)", "item": "[items]", "map_value": "{values}"}.get(node["step"], node["key"])
        if node["ref_node"] is not None:
            label += f" -> node {node['ref_node']}"
        fields.add_row(
            str(number),
            Text("  " * depth[number] + label),
            "|".join(node["types"]),
            "yes" if node["required"] else "",
        )
    caps = ", ".join(f"{name} {cap['used']}/{cap['limit']}" for name, cap in found["caps"].items())
    lines = [
        Text(f"hash {found['schema_hash']}", style="dim"),
        Text(f"buffer {found['stream_buffer_size']} bytes; {caps}"),
    ]
    if found["annotations"]:
        lines.append(Text(f"not checked: {', '.join(found['annotations'])}", style="yellow"))
    for backend in found["backends"]:
        extra = f" ({backend['detail']})" if backend["detail"] else ""
        lines.append(Text(f"{backend['model']}: {backend['mode']}{extra}"))
        lines += [Text(f"  engine limit: {limit}", style="dim") for limit in backend["engine_limits"]]
    return Group(fields, Text(), *lines)
