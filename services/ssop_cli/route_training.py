"""`ssop route calibrate` and `ssop route train`: a threshold for a share of strong calls, a classifier of one's own."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from ssop_cli.failure import EXIT_FAILED, EXIT_SETTINGS, EXIT_USAGE, CommandError
from ssop_router.classifier import SHIPPED, ArtefactError, OnnxComplexityModel, load_classifier

MAX_TEXTS: Final = 200_000
MAX_LINE_BYTES: Final = 4_194_304
MIN_LABELS: Final = 50
"""Fewer labelled rows, or fewer of one tier, say nothing about a classifier."""
_SHARES: Final = (0.1, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Thresholds for a file's texts. `rows` are (threshold, share of strong calls that it makes of these texts)."""

    version: str
    texts: int
    abstained: int
    rows: tuple[tuple[float, float], ...]


def open_classifier(path: Path | None) -> OnnxComplexityModel:
    """The classifier of a file, or the shipped one. Raises CommandError."""
    try:
        return load_classifier(path or SHIPPED)
    except ArtefactError as error:
        raise CommandError(str(error), exit_code=EXIT_SETTINGS, reason="CLASSIFIER_UNUSABLE") from error


def calibrate(file: Path, share: float | None, classifier: OnnxComplexityModel) -> Calibration:
    """Find the threshold with which a share of the file's texts goes to full. Raises CommandError.

    The file is JSON Lines with `text`, or with the `complexity` that a decision log holds, or plain text with one
    prompt a line. A score at the threshold goes to full, so equal scores can make the share larger.
    """
    if share is not None and not 0 <= share <= 1:
        raise CommandError("--share is from 0 to 1", exit_code=EXIT_USAGE)
    scores, texts = _read(file)
    found = classifier.score_batch(texts)
    scores += [one.score for one in found if one.score is not None]
    abstained = sum(one.score is None for one in found)
    if not scores:
        raise CommandError(f"{file} holds no text that can be scored")
    ordered = sorted(scores, reverse=True)
    rows = []
    for wanted in (share,) if share is not None else _SHARES:
        threshold = _threshold(ordered, wanted)
        rows.append((threshold, sum(score >= threshold for score in ordered) / len(ordered)))
    return Calibration(classifier.version, len(ordered), abstained, tuple(rows))


def _threshold(ordered: Sequence[float], share: float) -> float:
    """Half-way between the last score that goes to full and the first that does not: rounding can't move either."""
    count = round(share * len(ordered))
    above = ordered[count - 1] if count else 1.0
    below = ordered[count] if count < len(ordered) else 0.0
    return (above + below) / 2 if above > below else above


def _read(file: Path) -> tuple[list[float], list[str]]:
    scores: list[float] = []
    texts: list[str] = []
    try:
        with file.open("rb") as lines:
            while line := lines.readline(MAX_LINE_BYTES):
                _take(line, scores, texts)
                if len(scores) + len(texts) > MAX_TEXTS:
                    raise CommandError(f"{file}: more than {MAX_TEXTS} texts", advice="take a sample")
    except OSError as error:
        raise CommandError(f"{file} can't be read: {error.strerror}", exit_code=EXIT_FAILED) from error
    return scores, texts


def _take(line: bytes, scores: list[float], texts: list[str]) -> None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        if plain := line.decode("utf-8", "replace").strip():
            texts.append(plain)
        return
    decision = found.get("decision")
    complexity = (decision if isinstance(decision, dict) else found).get("complexity")
    text = found.get("text")
    if isinstance(text, str):
        texts.append(text)
    elif isinstance(complexity, int | float) and not isinstance(complexity, bool) and 0 <= complexity <= 1:
        scores.append(float(complexity))


def calibration_json(found: Calibration) -> dict[str, Any]:
    """As JSON."""
    return {
        "classifier": found.version,
        "texts": found.texts,
        "abstained": found.abstained,
        "thresholds": [{"threshold": round(one, 6), "full_share": share} for one, share in found.rows],
    }


def calibration_view(found: Calibration) -> Table:
    """For people."""
    title = f"{found.texts} texts scored by {found.version}; it abstained on {found.abstained}"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("score.threshold", justify="right")
    table.add_column("share to full", justify="right")
    for threshold, share in found.rows:
        table.add_row(f"{threshold:.4f}", f"{share:.1%}")
    return table


def train_classifier(labels: Path, out: Path, *, force: bool) -> dict[str, Any]:
    """Train on a deployment's labels, and write the artefact. What it is worth, as JSON. Raises CommandError."""
    missing = [name for name in ("onnx", "scipy", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise CommandError(
            f"training needs more packages; missing: {', '.join(missing)}",
            advice="pip install 'ssop-mesh[cpu,train]'",
            reason="EXTRA_MISSING",
        )
    from ssop_router.classification.training.own import LabelsError, train_on_labels  # noqa: PLC0415 - extra [train]

    if out.exists() and not force:
        raise CommandError(f"{out} exists", advice="--force overwrites it", exit_code=EXIT_USAGE)
    try:
        trained, report = train_on_labels(labels, MIN_LABELS)
    except LabelsError as error:
        raise CommandError(str(error), exit_code=EXIT_SETTINGS, reason="LABELS_UNUSABLE") from error
    part = out.with_name(f".{out.name}.part")
    try:
        part.write_bytes(trained.artefact)
        part.replace(out)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise CommandError(f"{out} can't be written: {error.strerror}") from error
    open_classifier(out)
    return {"classifier": trained.version, "file": str(out), "bytes": len(trained.artefact), **report}


def training_view(found: dict[str, Any]) -> Table:
    """For people."""
    title = f"{found['classifier']}: {found['file']}, {found['bytes']} bytes, from {found['rows']} rows"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("held out", "between", "within", "tier"):
        table.add_column(name, justify="left" if name == "held out" else "right")
    for name, label in (("model", "this classifier"), ("length", "length alone")):
        cells = [found[name][part] for part in ("between", "within", "tier")]
        table.add_row(label, *("-" if cell is None else f"{cell:.3f}" for cell in cells))
    return table
