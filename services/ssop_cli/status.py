"""`ssop status`: the supervisor's view of its children, and the router's of the mesh."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from rich.console import Group
from rich.text import Text

from ssop.v1 import inference_pb2, mesh_pb2, router_pb2
from ssop_cli.board import (
    memory_lines,
    mode_name,
    nodes_table,
    services_table,
    shared_model_note,
    short_address,
    show_age,
    trials_table,
)
from ssop_cli.cache import cache_json, cache_lines, fill_of, state_line
from ssop_cli.failure import CommandError
from ssop_cli.lock import lock_holder
from ssop_cli.mesh import Access, open_client
from ssop_cli.places import Places
from ssop_cli.report import Report, read_report
from ssop_cli.words import word


def local_report(places: Places) -> Report | None:
    """The report of the supervisor that runs on this state directory; None if none runs."""
    return read_report(places.report) if lock_holder(places.lock) is not None else None


def damage_of(report: Report | None) -> dict[str, Any] | None:
    """What the retrieval service of this mesh has lost with a damaged store that lies aside still; None for nothing."""
    try:
        document = tomllib.loads(Path(report.config).read_text(encoding="utf-8")) if report is not None else {}
        directory = Path(str(document["rag"]["directory"]))
        folder = directory.with_name(directory.name + "-damaged")
        return {"folder": str(folder), "lost": dict(json.loads((folder / "lost.json").read_text(encoding="utf-8")))}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _damage_view(damage: Mapping[str, Any]) -> Text:
    lost = ", ".join(f"{count} {what}" for what, count in sorted(damage["lost"].items()))
    text = f"documents: the store was damaged ({lost}); index them again, then remove {damage['folder']}"
    return Text(text, style="red")


def ask_status(access: Access, timeout_s: float) -> router_pb2.GetMeshStatusResponse:
    """What the router says. Raises CommandError."""
    with open_client(access, timeout_s) as client:
        return client.mesh_status()


def served_models(access: Access) -> list[str]:
    """Names of the models behind the mesh; empty where the key may not know. Replays name none themselves."""
    try:
        status = ask_status(access, 5.0)
    except CommandError:
        return []
    return sorted({model.model for node in status.nodes for model in node.status.models})


def shared_model_of(status: router_pb2.GetMeshStatusResponse) -> str:
    """Name of the model that alone serves both tiers, or empty."""
    models = [model for node in status.nodes for model in node.status.models]
    names = {model.model for model in models}
    tiers = {tier for model in models for tier in model.tiers}
    return names.pop() if len(names) == 1 and len(tiers) > 1 else ""


def status_json(
    report: Report | None, status: router_pb2.GetMeshStatusResponse | None, fault: CommandError | None
) -> dict[str, Any]:
    """All of it as JSON."""
    found: dict[str, Any] = {
        "supervisor": report.to_json() if report is not None else None,
        "damaged_documents": damage_of(report),
    }
    if fault is not None:
        found["error"] = {"reason": fault.reason, "message": fault.message}
    if status is None:
        return found | {"mesh": None}
    found["mesh"] = {
        "uptime_ms": status.uptime_ms,
        "in_flight": status.in_flight,
        "frames_sent": status.frames_sent,
        "frames_received": status.frames_received,
        "frames_verified": status.frames_verified,
        "shared_model": shared_model_of(status),
        "trials": [MessageToDict(trial, preserving_proto_field_name=True) for trial in status.trials],
        "traffic": MessageToDict(status.traffic, preserving_proto_field_name=True),
        "nodes": [
            {
                "address": node.address,
                "node": node.status.node,
                "status_age_ms": node.status_age_ms,
                "in_flight": node.in_flight,
                "is_ejected": node.is_ejected,
                "ejection_reason": node.ejection_reason,
                "sources": list(node.sources),
                "source_age_ms": node.source_age_ms,
                "is_leaving": node.is_leaving,
                "memory": _memory_json(node.status),
                "models": [
                    {
                        "model": model.model,
                        "state": word(inference_pb2.ModelState, model.state, "MODEL_STATE_"),
                        "tiers": [word(mesh_pb2.Tier, tier, "TIER_") for tier in model.tiers],
                        "mode": mode_name(model.constraint_mode),
                        "backend": model.backend,
                        "has_estimated_counts": model.has_estimated_counts,
                        "context_tokens": model.context_tokens,
                        "slots_busy": model.slots_busy.value,
                        "slots_total": model.slots_total,
                        "queue_length": model.queue_length.value,
                        "output_tokens_per_s": model.output_tokens_per_s.value,
                        "kv_used_ratio": _gauge_json(model, "kv_used_ratio"),
                    }
                    for model in node.status.models
                ],
            }
            for node in status.nodes
        ],
        "node_sources": [
            {
                "name": source.name,
                "is_available": source.is_available,
                "age_ms": source.age_ms,
                "nodes": source.nodes,
            }
            for source in status.node_sources
        ],
        "dependencies": [
            {
                "name": dependency.name,
                "address": dependency.address,
                "is_available": dependency.is_available,
                "last_answer_age_ms": dependency.last_answer_age_ms,
            }
            for dependency in status.dependencies
        ],
        "rate_limit": _limit_json(status) if status.HasField("rate_limit") else None,
        "cache": cache_json(status.cache) if status.HasField("cache") else None,
    }
    return found


def _gauge_json(message: Any, name: str) -> dict[str, Any] | None:
    """A value that is not always known, with its age."""
    if not message.HasField(name):
        return None
    gauge = getattr(message, name)
    return {"value": gauge.value, "age_ms": gauge.age_ms}


def _memory_json(status: inference_pb2.WatchStatusResponse) -> dict[str, Any]:
    return {
        "free_bytes": _gauge_json(status, "memory_free_bytes"),
        "total_bytes": _gauge_json(status, "memory_total_bytes"),
        "process_bytes": _gauge_json(status, "process_memory_bytes"),
        "oom_count": status.oom_count,
        "gpus": [
            {
                "name": gpu.name,
                "free_bytes": _gauge_json(gpu, "memory_free_bytes"),
                "total_bytes": _gauge_json(gpu, "memory_total_bytes"),
                "busy_ratio": _gauge_json(gpu, "busy_ratio"),
            }
            for gpu in status.gpus
        ],
    }


def _limit_json(status: router_pb2.GetMeshStatusResponse) -> dict[str, Any]:
    limit = status.rate_limit
    return {
        "is_known": limit.is_known,
        "mode": "dynamic" if limit.is_dynamic else "static",
        "max_rps": limit.max_rps,
        "rps": limit.rps,
        "is_local": limit.is_local,
        "local_rps": limit.local_rps,
        "is_budget_unchecked": limit.is_budget_unchecked,
    }


def _limit_view(limit: router_pb2.RateLimitView) -> Text:
    if limit.is_local:
        held = f"{limit.local_rps:g} requests per second and tenant" if limit.local_rps else "no limit"
        budget = "; token budgets are not checked" if limit.is_budget_unchecked else ""
        return Text(f"rate limit: the shared one can't be asked; this router holds {held}{budget}", style="red")
    if not limit.is_known:
        return Text("rate limit: not known before the first request")
    if not limit.max_rps:
        return Text("rate limit: none")
    if limit.is_dynamic:
        return Text(f"rate limit: {limit.rps:.3g} of {limit.max_rps:g} requests per second and tenant (dynamic)")
    return Text(f"rate limit: {limit.max_rps:g} requests per second and tenant (static)")


def status_view(
    report: Report | None, status: router_pb2.GetMeshStatusResponse | None, access: Access, now_ms: int
) -> Group:
    """All of it for people."""
    parts: list[Any] = []
    if report is not None:
        age = show_age(now_ms - report.started_ms)
        parts.append(Text(f"supervisor pid {report.pid}, {report.phase}, up {age}", style="bold"))
        parts += [services_table(report, now_ms), Text()]
        if (damage := damage_of(report)) is not None:
            parts.append(_damage_view(damage))
    if status is not None:
        parts.append(Text(f"router {short_address(access.place)}, up {show_age(status.uptime_ms)}", style="bold"))
        parts += [nodes_table(status.nodes), *map(Text, memory_lines(status.nodes)), Text()]
        if status.trials:
            parts += [trials_table(status.trials), Text()]
        for source in status.node_sources:
            state = ("can be read", "green") if source.is_available else ("can't be read; its last list holds", "red")
            detail = f"  {source.nodes} nodes, {show_age(source.age_ms)} ago"
            parts.append(Text.assemble(f"nodes by {source.name}: ", state, detail))
        for dependency in status.dependencies:
            state = ("answers", "green") if dependency.is_available else ("does not answer", "red")
            parts.append(Text.assemble(f"{dependency.name}: ", state, f"  {short_address(dependency.address)}"))
        if status.HasField("rate_limit"):
            parts.append(_limit_view(status.rate_limit))
        if status.HasField("cache"):
            parts += [Text(f"cache {line}") for line in cache_lines(status.cache)]
            fill = fill_of(status.cache)
            if line := state_line(fill):
                parts.append(Text(f"state of limits and leases: {line}", style="red" if fill.is_filling else ""))
        parts.append(
            Text(
                f"in flight {status.in_flight}; document frames: {status.frames_sent} sent, by receipts "
                f"{status.frames_received} received and {status.frames_verified} verified"
            )
        )
    model = shared_model_of(status) if status is not None else ""
    notes = [shared_model_note(model)] if model else (report.notes if report is not None else [])
    parts += [Text(note, style="yellow") for note in notes]
    return Group(*parts)
