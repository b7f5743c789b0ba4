"""A drill for people, and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from ssop_cli.drill.drill import Report
from ssop_cli.drill.faults import left_out
from ssop_cli.drill.ledger import Tally


def drill_json(report: Report, seed: int, *, has_rig: bool) -> dict[str, Any]:
    """A drill as JSON."""
    return {
        "is_good": report.is_good,
        "seed": seed,
        "seconds": round(report.seconds, 3),
        "faults": [{**asdict(found), "is_good": found.is_good} for found in report.tallies],
        "wrong": report.wrong,
        "skipped": left_out(has_rig=has_rig),
    }


def drill_table(tallies: Sequence[Tally]) -> Table:
    """What clients saw, a row a fault."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("fault", "ok", "degraded", "errors", "in flight", "wrong", "worst ok", "back", "clean", "bound", ""):
        is_number = name in {"ok", "in flight", "wrong", "worst ok", "back", "clean", "bound"}
        table.add_column(name, justify="right" if is_number else "left", no_wrap=name != "errors")
    for found in tallies:
        table.add_row(
            found.name,
            str(found.ok),
            _counts(found.degraded, "level "),
            _counts(found.errors),
            str(found.errors_in_flight),
            str(len(found.wrong)),
            _seconds(found.worst_ok_s),
            _seconds(found.back_s),
            _seconds(found.recovered_s),
            _seconds(found.bound_s),
            Text("held", style="green") if found.is_good else Text("BROKEN", style="bold red"),
        )
    return table


def complaints(report: Report) -> list[str]:
    """What was wrong, a line each."""
    lines = [f"{found.name}: {text}" for found in report.tallies for text in (*found.failures, *found.wrong)]
    return [*lines, *report.wrong]


def remarks(report: Report) -> list[str]:
    """What else was seen, a line each."""
    return [f"{found.name}: {text}" for found in report.tallies for text in found.notes]


def verdict(report: Report, seed: int, *, has_rig: bool) -> str:
    """The drill in one line."""
    skipped = left_out(has_rig=has_rig)
    asked = sum(found.requests for found in report.tallies)
    held = sum(found.is_good for found in report.tallies)
    line = f"{held} of {len(report.tallies)} rows held; {asked} requests in {report.seconds:.0f} s, seed {seed}."
    return f"{line} Not done to a mesh that is not the drill's own: {', '.join(skipped)}." if skipped else line


def _counts(counts: Mapping[str, int], prefix: str = "") -> str:
    return ", ".join(f"{prefix}{name} {count}" for name, count in sorted(counts.items())) or "-"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
