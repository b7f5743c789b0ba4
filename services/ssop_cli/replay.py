"""`ssop route replay`: a decision log under another policy."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ssop_chassis.settings import SettingsError
from ssop_cli.board import show_ms
from ssop_cli.failure import EXIT_FAILED, EXIT_SETTINGS, EXIT_USAGE, CommandError
from ssop_cli.summary import percentile
from ssop_router.core.complexity import Complexity
from ssop_router.core.record import Record, RecordError, read_record
from ssop_router.core.replay import Comparison, Price, ScoreRecord, Tally, compare, sweep
from ssop_router.policy_file import read_policy
from ssop_router.scoring import open_classifier

MAX_LINE_BYTES: Final = 8 * 1024 * 1024
MAX_FAULTS: Final = 5
_STEPS: Final = 20
_BAR: Final = 40
_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay found. `faults` are lines that were left out; `sweep` is the same log by threshold."""

    comparison: Comparison
    sweep: Sequence[tuple[float, Tally]]
    threshold: float
    faults: Sequence[str]
    notes: Sequence[str]


def run_replay(log: Path, policy_path: Path, *, rescore: bool) -> Replay:
    """Read a log and decide it anew under the policy of a file. Raises CommandError."""
    try:
        policy = read_policy(policy_path)
    except SettingsError as error:
        raise CommandError(str(error), exit_code=EXIT_SETTINGS, reason="SETTINGS") from error
    records, faults = read_log(log)
    if not records:
        raise CommandError(
            f"{log} holds no decisions" + (f"; {faults[0]}" if faults else ""),
            advice="set decision_log in [router] to record some",
            exit_code=EXIT_FAILED,
        )
    notes: list[str] = []
    classifier = open_classifier(policy)
    score: ScoreRecord | None = None
    if rescore:
        if classifier.model is None:
            raise CommandError(f"no classifier: {classifier.detail or classifier.fault}", exit_code=EXIT_SETTINGS)
        if not any(record.has_text for record in records):
            raise CommandError(
                "the log holds no texts to score anew", advice="decision_log_text = true records them",
                exit_code=EXIT_USAGE,
            )  # fmt: skip
        model = classifier.model

        def score_anew(record: Record) -> Complexity:
            return model.score(record.features.user_text) if record.has_text else record.complexity

        score = score_anew
    settings = policy.decision(classifier.threshold)
    prices: dict[str, Price] = {
        word: Price(p.input / _MILLION, p.output / _MILLION) for word, p in policy.prices.items()
    }
    comparison = compare(records, settings, prices, score)
    if comparison.undecidable:
        notes.append(
            f"{comparison.undecidable} requests: a rule of the policy has words that the log knows nothing of; "
            "they count as absent. A log with texts (decision_log_text) has no such gaps."
        )
    if comparison.after.untimed:
        notes.append(f"{comparison.after.untimed} requests moved to a tier of which the log has no times")
    if comparison.after.refused:
        notes.append(f"{comparison.after.refused} requests would be refused")
    curve = sweep(records, settings, prices, [step / _STEPS for step in range(_STEPS + 1)], score)
    return Replay(comparison, curve, settings.score.threshold, faults, notes)


def read_log(path: Path) -> tuple[list[Record], list[str]]:
    """The records of a log, and what is wrong with lines that are none. Raises CommandError."""
    records: list[Record] = []
    faults: list[str] = []
    number = 0
    try:
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                if not line.strip():
                    continue
                try:
                    document = json.loads(line)
                    if not isinstance(document, dict):
                        raise RecordError("is no JSON object")  # noqa: TRY301 - one place tells of bad lines
                    records.append(read_record(document))
                except RecordError as error:
                    faults.append(f"line {number} {error}")
                except (ValueError, RecursionError):
                    faults.append(f"line {number} is no JSON")
    except OSError as error:
        raise CommandError(f"{path} can't be read: {error.strerror}", exit_code=EXIT_USAGE) from error
    return records, faults


def replay_json(replay: Replay) -> dict[str, Any]:
    """A replay as JSON."""
    comparison = replay.comparison
    return {
        "before": tally_json(comparison.before),
        "after": tally_json(comparison.after),
        "to_lite": comparison.to_lite,
        "to_full": comparison.to_full,
        "threshold": replay.threshold,
        "sweep": [{"threshold": threshold, **tally_json(tally)} for threshold, tally in replay.sweep],
        "skipped_lines": len(replay.faults),
        "faults": list(replay.faults[:MAX_FAULTS]),
        "notes": list(replay.notes),
    }


def tally_json(tally: Tally) -> dict[str, Any]:
    """A tally as JSON; times in milliseconds."""
    return {
        "requests": tally.requests,
        "tiers": dict(tally.tiers),
        "full_share": tally.full_share,
        "reasons": dict(tally.reasons),
        "cost": tally.cost,
        "first_field_ms": {"p50": percentile(tally.first_field_ms, 0.5), "p95": percentile(tally.first_field_ms, 0.95)},
        "total_ms": {"p50": percentile(tally.total_ms, 0.5), "p95": percentile(tally.total_ms, 0.95)},
        "untimed": tally.untimed,
        "refused": tally.refused,
    }


def replay_view(replay: Replay) -> Group:
    """A replay for people: a table, and bars of what other thresholds would have made of it."""
    before, after = tally_json(replay.comparison.before), tally_json(replay.comparison.after)
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    for column in ("", "as it was", "under the policy", "change"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    table.add_row("requests", str(before["requests"]), str(after["requests"]), "")
    for tier in ("lite", "full"):
        one, other = before["tiers"].get(tier, 0), after["tiers"].get(tier, 0)
        table.add_row(tier, _share(one, before), _share(other, after), f"{other - one:+d}")
    table.add_row("cost", f"{before['cost']:.4g}", f"{after['cost']:.4g}", _change(before["cost"], after["cost"]))
    for name, label in (("first_field_ms", "first field"), ("total_ms", "total")):
        for share in ("p50", "p95"):
            one, other = before[name][share], after[name][share]
            table.add_row(f"{label} {share}", show_ms(one), show_ms(other), _change(one or 0, other or 0))
    moved = f"{replay.comparison.to_full} moved to full, {replay.comparison.to_lite} to lite"
    parts: list[Any] = [table, Text(), Text(moved), Text(), _reasons(before, after), Text(), _curve(replay)]
    parts += [Text(note, style="yellow") for note in replay.notes]
    if replay.faults:
        parts.append(Text(f"{len(replay.faults)} lines left out; {'; '.join(replay.faults[:MAX_FAULTS])}", style="red"))
    return Group(*parts)


def _share(count: int, tally: Mapping[str, Any]) -> str:
    total = sum(tally["tiers"].values())
    return f"{count} ({count / total:.1%})" if total else str(count)


def _change(one: float, other: float) -> str:
    return f"{(other - one) / one:+.1%}" if one else ""


def _reasons(before: Mapping[str, Any], after: Mapping[str, Any]) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("reason", no_wrap=True)
    table.add_column("as it was", justify="right")
    table.add_column("under the policy", justify="right")
    for reason in sorted(set(before["reasons"]) | set(after["reasons"])):
        table.add_row(
            reason.replace("_", " "), str(before["reasons"].get(reason, 0)), str(after["reasons"].get(reason, 0))
        )
    return table


def _curve(replay: Replay) -> Table:
    most = max((tally.cost for _, tally in replay.sweep), default=0.0)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", title_justify="left")
    table.add_column("threshold", justify="right")
    table.add_column("to full", justify="right")
    table.add_column("", no_wrap=True)
    table.add_column("cost", justify="right")
    table.add_column("", no_wrap=True)
    nearest = min(range(len(replay.sweep)), key=lambda at: abs(replay.sweep[at][0] - replay.threshold), default=-1)
    for at, (threshold, tally) in enumerate(replay.sweep):
        style = "bold green" if at == nearest else ""
        table.add_row(
            Text(f"{threshold:.2f}", style=style),
            f"{tally.full_share:.1%}",
            Text(_bar(tally.full_share), style=style or "cyan"),
            f"{tally.cost:.4g}",
            Text(_bar(tally.cost / most if most else 0.0), style=style or "magenta"),
        )
    return table


def _bar(share: float) -> str:
    return "█" * round(share * _BAR) or "▏"


def write_plot(replay: Replay, path: Path) -> None:
    """Share of the full tier, cost and time by threshold, as an image. Raises CommandError."""
    if path.suffix not in {".svg", ".png", ".pdf"}:
        raise CommandError("--plot takes a file that ends in .svg, .png or .pdf", exit_code=EXIT_USAGE)
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - the extra [plot]
    except ImportError as error:
        raise CommandError(
            "--plot needs matplotlib", advice="pip install 'ssop-mesh[plot]'", reason="EXTRA_MISSING"
        ) from error
    thresholds = [threshold for threshold, _ in replay.sweep]
    before = replay.comparison.before
    figure = Figure(figsize=(9, 7), layout="constrained")
    share, cost, time = figure.subplots(3, 1, sharex=True)
    share.plot(thresholds, [tally.full_share * 100 for _, tally in replay.sweep], color="tab:cyan")
    share.axhline(before.full_share * 100, color="grey", linestyle="--", label="as it was")
    share.set_ylabel("to full, %")
    cost.plot(thresholds, [tally.cost for _, tally in replay.sweep], color="tab:purple")
    cost.axhline(before.cost, color="grey", linestyle="--")
    cost.set_ylabel("cost")
    for part, style in ((0.5, "-"), (0.95, ":")):
        values = [percentile(tally.total_ms, part) for _, tally in replay.sweep]
        shown = [value if value is not None else float("nan") for value in values]
        time.plot(thresholds, shown, style, color="tab:orange", label=f"p{part * 100:.0f}")
    time.set_ylabel("total, ms")
    time.set_xlabel("threshold")
    for axes in (share, cost, time):
        axes.axvline(replay.threshold, color="tab:green", linewidth=1, label="the policy")
    share.legend()
    time.legend()
    try:
        figure.savefig(path)
    except OSError as error:
        raise CommandError(f"{path} can't be written: {error.strerror}", exit_code=EXIT_FAILED) from error
