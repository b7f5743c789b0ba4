"""How a mesh looks on a terminal: tables of services and nodes, and the same as plain lines."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ssop.v1 import inference_pb2, mesh_pb2, router_pb2
from ssop_cli.report import ChildReport, Report
from ssop_cli.words import word

STYLES: Final[Mapping[str, str]] = {
    "ready": "green",
    "starting": "yellow",
    "waiting": "dim",
    "backoff": "red",
    "stopping": "yellow",
    "stopped": "dim",
    "failed": "bold red",
    "degraded": "red",
}
_SOCKET_DIRECTORY_CHARS: Final = 30
_UNBOUNDED: Final = 10_000
"""Columns: wider than any table here."""
# A value that is younger is as good as now.
_FRESH_MS: Final = 5_000


def show_age(age_ms: int) -> str:
    """A duration in one or two units."""
    seconds = max(0, age_ms) // 1000
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02} min"


def show_ms(value_ms: float | None) -> str:
    """A duration for people."""
    if value_ms is None:
        return "-"
    return f"{value_ms:.0f} ms" if value_ms < 1000 else f"{value_ms / 1000:.1f} s"


def show_bytes(size: float) -> str:
    """A size in binary units."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def short_address(address: str) -> str:
    """An address that fits a column: of a socket's path, its name."""
    if address.startswith("unix:") and len(address) > _SOCKET_DIRECTORY_CHARS:
        return f"unix:…/{address.rpartition('/')[2]}"
    return address


def can_redraw(console: Console) -> bool:
    """Whether what was printed can be drawn over: neither a pipe nor a dumb terminal (TERM=dumb, a pager) can."""
    return console.is_terminal and not console.is_dumb_terminal


@dataclass(frozen=True, slots=True)
class FittingTable:
    """A table that leaves columns out where not all fit, instead of cutting the words of each.

    `dispensable` has the headers of those that may go, the first one first.
    """

    table: Table
    dispensable: Sequence[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        fitting = copy(self.table)
        for header in self.dispensable:
            if Measurement.get(console, options.update_width(_UNBOUNDED), fitting).maximum <= options.max_width:
                break
            fitting.columns = [column for column in fitting.columns if column.header != header]
        yield fitting


def services_table(report: Report, now_ms: int) -> FittingTable:
    """The children of a supervisor."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("service", "state", "for", "restarts", "pid", "address"):
        table.add_column(name, justify="right" if name in {"restarts", "pid", "for"} else "left", no_wrap=True)
    for child in report.children:
        state = Text(child.state, style=STYLES.get(child.state, ""))
        if child.detail:
            state.append(f" ({child.detail})", style="dim")
        table.add_row(
            child.name,
            state,
            show_age(now_ms - child.since_ms),
            Text(str(child.restarts), style="red" if child.restarts else "dim"),
            str(child.pid or "-"),
            Text(short_address(child.address), style="dim"),
        )
    return FittingTable(table, ["pid", "address", "for", "restarts"])


def child_line(child: ChildReport) -> str:
    """A child on one line."""
    parts = [f"{child.name}: {child.state}"]
    if child.pid:
        parts.append(f"pid {child.pid}")
    if child.restarts:
        parts.append(f"{child.restarts} restart{'s' if child.restarts > 1 else ''}")
    if child.exit_code is not None and child.state in {"backoff", "failed"}:
        parts.append(show_exit(child.exit_code))
    if child.detail:
        parts.append(child.detail)
    return ", ".join(parts)


def show_exit(code: int) -> str:
    """An exit code in words."""
    if code < 0:
        return f"ended by signal {-code}"
    return "settings that can't be used (exit code 78)" if code == 78 else f"exit code {code}"


def nodes_table(nodes: Sequence[router_pb2.NodeView]) -> FittingTable:
    """The nodes and their models, as the router sees them."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    columns = ["model", "state", "tiers", "mode", "busy", "waiting", "tokens/s"]
    has_names = len(nodes) > 1
    has_sources = any(list(node.sources) not in ([], ["static"]) for node in nodes)
    columns += ["from"] if has_sources else []
    for name in (["node"] if has_names else []) + columns:
        table.add_column(name, justify="right" if name in {"busy", "waiting", "tokens/s"} else "left", no_wrap=True)
    for node in nodes:
        head = [node.status.node or short_address(node.address)] if has_names else []
        tail = [_source(node)] if has_sources else []
        if not node.HasField("status"):
            table.add_row(*head, "-", Text("unknown", style="red"), *[""] * 5, *tail)
        for model in node.status.models:
            state = word(inference_pb2.ModelState, model.state, "MODEL_STATE_") or "unknown"
            if node.is_ejected:
                state = f"ejected: {node.ejection_reason}"
            if node.is_leaving:
                state = "leaving"
            table.add_row(
                *head,
                f"{model.model} ({model.backend})" if model.backend not in {"", "embedded"} else model.model,
                Text(state, style=STYLES.get(state, "red")),
                "+".join(word(mesh_pb2.Tier, tier, "TIER_") for tier in model.tiers),
                mode_name(model.constraint_mode),
                f"{model.slots_busy.value:.0f}/{model.slots_total}",
                f"{model.queue_length.value:.0f}",
                f"{model.output_tokens_per_s.value:.0f}",
                *tail,
            )
    return FittingTable(table, ["mode", "tokens/s", "from", "tiers", "waiting", "busy"])


def memory_lines(nodes: Sequence[router_pb2.NodeView]) -> Iterator[str]:
    """What is left of each node's memory, of its GPUs' and of its models' KV caches; a line for each node."""
    for node in nodes:
        status = node.status
        parts = []
        if status.memory_total_bytes.value:
            parts.append(f"memory {_share(status.memory_free_bytes, status.memory_total_bytes, node)}")
        if status.process_memory_bytes.value:
            parts.append(f"the process holds {show_bytes(status.process_memory_bytes.value)}")
        parts += [
            f"{gpu.name} {_share(gpu.memory_free_bytes, gpu.memory_total_bytes, node)}"
            + (f", {gpu.busy_ratio.value:.0%} busy" if gpu.HasField("busy_ratio") else "")
            for gpu in status.gpus
        ]
        parts += [
            f"KV cache of {model.model} {model.kv_used_ratio.value:.0%} used"
            for model in status.models
            if model.HasField("kv_used_ratio")
        ]
        if status.oom_count:
            parts.append(f"killed for memory {status.oom_count} times")
        if parts:
            yield f"{status.node or short_address(node.address)}: {'; '.join(parts)}"


def _share(free: inference_pb2.Gauge, total: inference_pb2.Gauge, node: router_pb2.NodeView) -> str:
    """What is free, and how old that is where it is not fresh."""
    age_ms = free.age_ms + node.status_age_ms
    age = f" ({show_age(age_ms)} ago)" if age_ms >= _FRESH_MS else ""
    return f"{show_bytes(free.value)} of {show_bytes(total.value)} free{age}"


def _source(node: router_pb2.NodeView) -> str:
    """Where the router has a node from; of what can go stale, how long ago it was said."""
    names = ", ".join(node.sources) or "nowhere"
    return names if "static" in node.sources else f"{names} {show_age(node.source_age_ms)} ago"


def trials_table(trials: Sequence[router_pb2.TrialView]) -> Table:
    """Models on trial, each side on a line."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("trial", "side", "answers", "ok", "first field p50", "p95"):
        table.add_column(name, justify="left" if name in {"trial", "side"} else "right", no_wrap=True)
    for trial in trials:
        tier = word(mesh_pb2.Tier, trial.tier, "TIER_")
        name = f"{trial.model} for {tier}: {trial.share:.0%}, copies {trial.shadow:.0%}"
        for arm in trial.arms:
            answers = sum(count for verdict, count in arm.verdicts.items() if verdict != "shed")
            good = f"{arm.verdicts['ok'] / answers:.1%}" if answers else "-"
            times = [f"{value:,.0f} ms" if value else "-" for value in (arm.first_field_p50_ms, arm.first_field_p95_ms)]
            table.add_row(name, arm.arm, f"{answers:,}", good, *times)
            name = ""
    return table


def mode_name(mode: mesh_pb2.ConstraintMode.ValueType) -> str:
    """A constraint mode in one word."""
    return word(mesh_pb2.ConstraintMode, mode, "CONSTRAINT_MODE_") or "text"


def shared_model_note(model: str) -> str:
    """What to say when one model serves both tiers."""
    return (
        f"One model ({model}) serves both tiers: 'lite' and 'full' give the same answers here. "
        "A model of your own: ssop models add FILE.gguf --tier full, then ssop up."
    )
