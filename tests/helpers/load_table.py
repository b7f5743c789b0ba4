"""Loads as a table for people, and as JSON for programs."""

import datetime as dt
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from helpers.instructions import Cost
from helpers.load_figures import LoadOrder, LoadResult

FULL_SHARE: Final = 0.9
"""A client that uses more of a core than this is what was measured."""
OTHERS_SHARE: Final = 0.1
"""Where other processes had more of the cores, rates and latencies are those of a loaded machine."""
_STORES: Final = ("redis-state", "redis-cache")


@dataclass(frozen=True, slots=True)
class Bar:
    """What is asked of a row: a least rate, or the most of a percentile in milliseconds; 0 asks nothing."""

    rate: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0

    def verdict(self, result: LoadResult) -> str:
        """`met` or `not met` with what was asked; empty where nothing was."""
        asked = {
            f"{self.rate:,.0f}/s": self.rate,
            f"p50 {self.p50_ms:g}": self.p50_ms,
            f"p99 {self.p99_ms:g}": self.p99_ms,
        }
        wanted = ", ".join(text for text, value in asked.items() if value)
        if not wanted:
            return ""
        is_met = result.rate >= self.rate and not result.is_saturated and not result.failed and not result.flaws
        is_met = is_met and (not self.p50_ms or result.p50_ms <= self.p50_ms)
        is_met = is_met and (not self.p99_ms or result.p99_ms <= self.p99_ms)
        return f"{wanted}: {'met' if is_met else 'not met'}"


@dataclass(frozen=True, slots=True)
class Row:
    """A load that was measured. `path` is what was between client and model, `transport` what carried it."""

    path: str
    transport: str
    order: LoadOrder
    result: LoadResult
    bar: Bar = Bar()

    @property
    def load(self) -> str:
        """What was asked, in words."""
        order = self.order
        return f"{order.client}, {order.rate:,.0f}/s" if order.rate else f"{order.client}, {order.width} at a time"

    def to_json(self) -> dict[str, Any]:
        """For programs; without what would be a secret elsewhere, the key."""
        order = {name: value for name, value in self.order.to_json().items() if name not in {"key", "pids"}}
        return {
            "path": self.path,
            "transport": self.transport,
            "load": order,
            "result": self.result.to_json(),
            "bar": self.bar.verdict(self.result),
        }


def describe_machine() -> dict[str, Any]:
    """Where and when a run was made."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "cpu": models[0].partition(":")[2].strip() if models else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 1),
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d"),
    }


def print_rows(
    rows: Sequence[Row], machine: dict[str, Any], console: Console, costs: Mapping[str, Cost] | None = None
) -> None:
    """The table. Latencies of a load that was more than could be done are not shown: they grow with its length.

    `costs`: instructions of each service, where they were counted.
    """
    table = Table(title=", ".join(f"{name} {value}" for name, value in machine.items()))
    for name in ("path", "load", "rate/s", "p50 ms", "p99", "first p50"):
        table.add_column(name, justify="left" if name in {"path", "load"} else "right")
    for name in ("client", "router", "node", "cache", "Redis", "all"):
        table.add_column(f"{name} µs", justify="right")
    for name in ("busy, others, stolen %", "failed", "bar"):
        table.add_column(name)
    for row in rows:
        table.add_row(*_cells(row))
    if rows:
        console.print(table)
    for name, cost in (costs or {}).items():
        console.print(f"{name}: {cost}", highlight=False)
    others = max((row.result.others_share for row in rows), default=0.0)
    if others > OTHERS_SHARE:
        text = f"Other processes had up to {100 * others:.0f} % of the cores: this is no quiet machine."
        console.print(text, highlight=False)
    full = [row for row in rows if row.result.client_share > FULL_SHARE]
    if full:
        names = "; ".join(f"{row.path} ({row.transport}), {row.load}" for row in full)
        console.print(f"The client was the limit, with a core of its own: {names}", highlight=False)


def _cells(row: Row) -> list[str]:
    result, cpu_us = row.result, row.result.cpu_us
    times = [f"{value:.2f}" for value in (result.p50_ms, result.p99_ms, result.first_p50_ms)]
    if result.is_saturated or not result.rate:
        times = ["saturated" if result.is_saturated else "none", "", ""]
    routers = sum(value for name, value in cpu_us.items() if name.startswith("router"))
    others = sum(value for name, value in cpu_us.items() if name in {"echo", "proxy"})
    shares = [
        cpu_us.get("client", 0.0),
        routers + others,
        cpu_us.get("inference", cpu_us.get("upstream", 0.0)),
        cpu_us.get("cache", 0.0),
        sum(cpu_us.get(name, 0.0) for name in _STORES),
        result.total_cpu_us,
    ]
    bad = {**result.faults, **{f"flaw: {name}": count for name, count in result.flaws.items()}}
    failed = ", ".join(f"{count} {name}" for name, count in bad.items()) or f"0 of {result.done:,}"
    return [
        f"{row.path} ({row.transport})",
        row.load,
        f"{result.rate:,.0f}",
        *times,
        *(f"{value:,.0f}" if value else "" for value in shares),
        f"{100 * result.busy_share:.0f}, {100 * result.others_share:.0f}, {100 * result.steal_share:.1f}",
        failed,
        row.bar.verdict(result),
    ]


def write_rows(
    path: str, rows: Sequence[Row], machine: dict[str, Any], costs: Mapping[str, Cost] | None = None
) -> None:
    """The same as JSON; `-` is the standard output."""
    kinstr = {name: asdict(cost) for name, cost in (costs or {}).items()}
    found = {"machine": machine, "rows": [row.to_json() for row in rows], "kinstr": kinstr}
    text = json.dumps(found, indent=1)
    if path == "-":
        print(text)
    else:
        Path(path).write_text(text + "\n", encoding="utf-8")
