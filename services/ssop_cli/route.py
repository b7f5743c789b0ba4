"""`ssop route explain`: why a request would go where it goes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ssop.v1 import mesh_pb2, router_pb2
from ssop_cli.failure import EXIT_SETTINGS, EXIT_USAGE, CommandError
from ssop_cli.mesh import Access, decision_json, open_client
from ssop_cli.words import word


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """What to explain."""

    prompt: str
    schema: Mapping[str, Any] | None
    model: str
    policy: str
    collections: tuple[str, ...]
    conversation: str
    timeout_s: float


def ask_explanation(access: Access, options: ExplainOptions) -> dict[str, Any]:
    """What the mesh says, as JSON. Raises CommandError."""
    with open_client(access, options.timeout_s) as client:
        found = client.explain(
            options.prompt,
            output_schema=options.schema,
            model=options.model,
            policy=options.policy,
            collections=options.collections,
            conversation_id=options.conversation,
        )
    return _mesh_json(found)


def _mesh_json(found: router_pb2.ExplainDecisionResponse) -> dict[str, Any]:
    score = None
    if found.HasField("score"):
        score = {
            "value": found.score.value,
            "spread": found.score.spread,
            "threshold": found.score.threshold,
            "parts": [
                {
                    "signal": part.signal,
                    "value": part.value,
                    "spread": part.spread,
                    "weight": part.weight,
                    "age_ms": part.age_ms if part.HasField("age_ms") else None,
                    "weakness": part.weakness,
                }
                for part in found.score.parts
            ],
        }
    return {
        "source": "mesh",
        "decision": decision_json(found.decision),
        "classifier": found.classifier,
        "score": score,
        "rules": [
            {"name": rule.name, "tier": word(mesh_pb2.Tier, rule.tier, "TIER_"), "is_speaking": rule.is_speaking}
            for rule in found.rules
        ],
        "nodes": [
            {
                "node": verdict.node,
                "address": verdict.address,
                "tier": word(mesh_pb2.Tier, verdict.tier, "TIER_"),
                "model": verdict.model,
                "filter": verdict.filter,
                "load": verdict.load,
                "success": verdict.success,
                "status_age_ms": verdict.status_age_ms if verdict.HasField("status_age_ms") else None,
            }
            for verdict in found.verdicts
        ],
        "explanation": list(found.explanation),
    }


def explain_locally(options: ExplainOptions, config: Path | None) -> dict[str, Any]:
    """What the core says in this process, as JSON: one idle node a tier, the policy of a file. Raises CommandError."""
    from ssop_chassis.errors import MeshError  # noqa: PLC0415 - needs the extra [server]
    from ssop_chassis.settings import SettingsError  # noqa: PLC0415
    from ssop_router.local import LocalNode, LocalRouter  # noqa: PLC0415
    from ssop_router.policy_file import read_policy  # noqa: PLC0415

    try:
        policy = read_policy(config) if config is not None else None
        router = LocalRouter([LocalNode("lite", "lite"), LocalNode("full", "full")], settings=policy)
    except SettingsError as error:
        raise CommandError(str(error), exit_code=EXIT_SETTINGS, reason="SETTINGS") from error
    try:
        found = router.explain(options.prompt, policy=options.policy, model=options.model)
        choice = router.route(options.prompt, policy=options.policy, model=options.model)
    except MeshError as error:
        raise CommandError(
            f"{error.reason_name}: {error.message}", exit_code=EXIT_USAGE, reason=error.reason_name
        ) from error
    choice.was_cancelled()
    return {
        "source": "local",
        "decision": {"tier": choice.tier, "tier_reason": choice.reason, "rule": choice.rule,
                     "abstention": choice.abstention, "decision_us": choice.decision_us},
        "classifier": router.classifier_version,
        "score": None if found.score is None else {
            "value": found.score.value,
            "spread": found.score.spread,
            "threshold": found.score.threshold,
            "parts": [part._asdict() for part in found.score.parts],
        },
        "rules": [
            {"name": rule.name, "tier": word(mesh_pb2.Tier, rule.tier, "TIER_"), "is_speaking": rule.is_speaking}
            for rule in found.rules
        ],
        "nodes": [],
        "explanation": list(found.lines[:-2]),
    }  # fmt: skip


def explanation_view(found: Mapping[str, Any]) -> Group:
    """An explanation for people."""
    decision = found["decision"]
    head = f"{decision['tier'] or 'no tier'}, because of {decision['tier_reason'].replace('_', ' ')}"
    where = " (this process: no nodes, no cache)" if found["source"] == "local" else ""
    parts: list[Any] = [Text.assemble((head, "bold"), where, f", decided in {decision['decision_us']} µs"), Text()]
    if found["score"]:
        parts += [_score_table(found["score"], found["classifier"]), Text()]
    if found["rules"]:
        table = _table("rule", "prefers", "speaks")
        for rule in found["rules"]:
            table.add_row(rule["name"], rule["tier"], Text("yes", style="green") if rule["is_speaking"] else "no")
        parts += [table, Text()]
    if found["nodes"]:
        table = _table("node", "tier", "model", "filter", "load", "success", "status age")
        for node in found["nodes"]:
            age = "never seen" if node["status_age_ms"] is None else f"{node['status_age_ms']} ms"
            out = Text(node["filter"], style="red") if node["filter"] else Text("may serve", style="green")
            table.add_row(
                node["node"], node["tier"], node["model"], out, f"{node['load']:.2f}", f"{node['success']:.2f}", age
            )
        parts += [table, Text()]
    parts += [Text(line) for line in found["explanation"]]
    return Group(*parts)


def _score_table(score: Mapping[str, Any], classifier: str) -> Table:
    table = _table("signal", "value", "±", "weight", "adds", "age", "weakness")
    for part in score["parts"]:
        age = "none" if part["age_ms"] is None else f"{part['age_ms']} ms"
        table.add_row(
            part["signal"],
            f"{part['value']:+.3f}",
            f"{part['spread']:.3f}",
            f"{part['weight']:g}",
            f"{part['value'] * part['weight']:+.3f}",
            age,
            Text(part["weakness"], style="yellow"),
        )
    table.add_section()
    table.add_row("score", f"{score['value']:.3f}", f"{score['spread']:.3f}", "", "", "", "")
    table.add_row("threshold", f"{score['threshold']:.3f}", "", "", "", "", "")
    table.caption = f"classifier {classifier or 'none'}; the full tier is meant from the threshold up"
    table.caption_justify = "left"
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table
