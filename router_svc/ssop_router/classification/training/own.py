"""A classifier from a deployment's own labels."""

from pathlib import Path
from typing import Any, Final

from ssop_router.classification.training.recipe import Trained, train
from ssop_router.classification.training.rows import LabelsError, Row, digest, read_labels

__all__ = ["FOLDS", "LabelsError", "train_on_labels"]

FOLDS: Final = 5
"""Where labels name fewer than three sources, rows are held out in so many parts instead, by a digest of the text."""


def train_on_labels(path: Path, min_rows: int) -> tuple[Trained, dict[str, Any]]:
    """Train on a file's labels; also what it is worth on rows that it did not see. Raises LabelsError.

    A tier counts as a gain of 1 (full) or 0 (lite) where no qualities are given. The criterion and the choice are
    those of the shipped classifier.
    """
    rows = _held_apart(read_labels(path))
    tiers = [row.is_full for row in rows if row.is_full is not None]
    if len(rows) < min_rows:
        raise LabelsError(f"{path}: {len(rows)} rows, {min_rows} are needed")
    gains = [_with_gain(row) for row in rows]
    if sum(row.gain or 0 for row in gains) <= 0:
        raise LabelsError(f"{path}: the full model is no better than the lite one: there is nothing to route for")
    has_tiers = min(sum(tiers), len(tiers) - sum(tiers)) >= min_rows // 2
    tasks = [row for row in rows if row.is_full is not None] if has_tiers else []
    trained = train(gains, tasks, tries_grams=True, is_chinese_seen=True, notes={"sources": "a deployment's labels"})
    best = trained.chosen
    report = {
        "rows": len(rows),
        "tier_rows": len(tasks),
        "penalty": trained.penalty,
        "blend": dict(zip(("length", "gain", "need", "grams"), trained.blend, strict=True)),
        "model": {"between": best.between, "within": best.within, "tier": best.tier},
        "length": {name: getattr(trained.length, name) for name in ("between", "within", "tier")},
    }
    return trained, report


def _held_apart(rows: list[Row]) -> list[Row]:
    if len({row.source for row in rows}) >= 3:
        return rows
    return [
        Row(row.text, row.source, f"part-{digest(row.text)[0] % FOLDS}", row.weak, row.strong, row.is_full)
        for row in rows
    ]


def _with_gain(row: Row) -> Row:
    if row.gain is not None:
        return row
    return Row(row.text, row.source, row.group, 0.0 if row.is_full else 1.0, 1.0, row.is_full)
