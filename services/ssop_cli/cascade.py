"""`ssop route cascade`: which threshold sends which share of a log's cascades to the full tier."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from ssop_cli.failure import EXIT_FAILED, EXIT_USAGE, CommandError
from ssop_cli.replay import MAX_LINE_BYTES
from ssop_router.core.cascade import share_below, threshold_for

_SHARES: Final = (0.1, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a log says of cascades. `rows` are pairs of a threshold and the share that it sends to full."""

    judged: int
    escalated: int
    rows: tuple[tuple[float, float], ...]


def calibrate(log: Path, share: float | None) -> Calibration:
    """Read a decision log, and find the threshold for a share, or for several. Raises CommandError."""
    if share is not None and not 0 <= share <= 1:
        raise CommandError("--share is from 0 to 1", exit_code=EXIT_USAGE)
    confidences, escalated = _read(log)
    if not confidences:
        raise CommandError(
            f"{log} holds no cascade that was judged by a confidence",
            advice="set decision_log in [router], and send requests with the policy cascade",
            exit_code=EXIT_FAILED,
        )
    thresholds = [threshold_for(confidences, wanted) for wanted in ((share,) if share is not None else _SHARES)]
    rows = tuple((threshold, share_below(confidences, threshold)) for threshold in thresholds)
    return Calibration(len(confidences), escalated, rows)


def calibration_json(found: Calibration) -> dict[str, Any]:
    """As JSON."""
    return {
        "judged": found.judged,
        "escalated": found.escalated,
        "thresholds": [{"cascade_min_confidence": threshold, "full_share": share} for threshold, share in found.rows],
    }


def calibration_view(found: Calibration) -> Table:
    """For people."""
    title = f"{found.judged} cascades judged by a confidence, {found.escalated} went to full"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("cascade_min_confidence", justify="right")
    table.add_column("share to full", justify="right")
    for threshold, share in found.rows:
        table.add_row(f"{threshold:.4f}", f"{share:.1%}")
    return table


def _read(log: Path) -> tuple[list[float], int]:
    confidences: list[float] = []
    escalated = 0
    try:
        with log.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES):
                result = _result(line)
                confidence = result.get("cascade_confidence")
                if isinstance(confidence, float | int) and not isinstance(confidence, bool) and 0 <= confidence <= 1:
                    confidences.append(float(confidence))
                    escalated += result.get("cascade") != "kept_confident"
    except OSError as error:
        raise CommandError(f"{log} can't be read: {error.strerror}", exit_code=EXIT_FAILED) from error
    return confidences, escalated


def _result(line: bytes) -> dict[str, Any]:
    """The outcome that a line holds; empty for a line that is none."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    result = found.get("result") if isinstance(found, dict) else None
    return result if isinstance(result, dict) else {}
