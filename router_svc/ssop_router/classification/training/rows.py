"""Labelled texts: what a classifier is trained on, and how a deployment's own labels are read."""

import gzip
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MAX_TEXT_CHARS: Final = 1_000_000
MAX_ROWS: Final = 1_000_000


class LabelsError(ValueError):
    """Labels that can't be used; the text names the file and the line."""


@dataclass(frozen=True, slots=True)
class Row:
    """A labelled text. `weak` and `strong` are the qualities, 0 to 1, of a lite and a full model's answers;
    `is_full` is the tier that it needs. What is not known is None; one of the two is known.

    `is_gainful` says what measured qualities tell of the whole task type, where they contradict its label.
    `source` says where it comes from; `group` holds together sources that share texts, and is left out as a whole.
    """

    text: str
    source: str
    group: str
    weak: float | None = None
    strong: float | None = None
    is_full: bool | None = None
    is_gainful: bool | None = None

    @property
    def needs_full(self) -> bool:
        """Whether its task type needs the full tier, by measured qualities first, by its label else."""
        return bool(self.is_full if self.is_gainful is None else self.is_gainful)

    @property
    def gain(self) -> float | None:
        """What the full model adds, from -1 to 1."""
        return None if self.weak is None or self.strong is None else self.strong - self.weak


def read_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """(number, document) of each line of a JSON Lines file, gzip or plain. Raises LabelsError."""
    number = 0
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, json.loads(line)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise LabelsError(f"{path}: {error}") from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise LabelsError(f"{path}, line {number}: no JSON: {error}") from error


def read_labels(path: Path) -> list[Row]:
    """A deployment's labels: `text` with `label` (lite or full), or with `weak` and `strong`, and maybe `source`.

    Raises LabelsError, for the first line that can't be used.
    """
    rows = []
    for number, line in read_lines(path):
        try:
            rows.append(_read_row(line))
        except ValueError as error:
            raise LabelsError(f"{path}, line {number}: {error}") from error
        if len(rows) > MAX_ROWS:
            raise LabelsError(f"{path}: more than {MAX_ROWS} rows")
    if not rows:
        raise LabelsError(f"{path}: no rows")
    return rows


def _read_row(line: Any) -> Row:
    if not isinstance(line, dict):
        raise ValueError("not an object")  # noqa: TRY004 - a fault of the file, as all others
    text, label, source = line.get("text"), line.get("label"), line.get("source", "labels")
    if not isinstance(text, str) or not text.strip() or len(text) > MAX_TEXT_CHARS:
        raise ValueError(f"'text' is a text of 1 to {MAX_TEXT_CHARS} characters")
    if not isinstance(source, str):
        raise ValueError("'source' is a text")  # noqa: TRY004
    if label not in {None, "lite", "full"}:
        raise ValueError("'label' is lite or full")
    weak, strong = (_read_quality(line, name) for name in ("weak", "strong"))
    if (weak is None) != (strong is None):
        raise ValueError("'weak' and 'strong' come together")
    if label is None and weak is None:
        raise ValueError("needs 'label', or 'weak' and 'strong'")
    return Row(text, source, source, weak, strong, None if label is None else label == "full")


def _read_quality(line: dict[str, Any], name: str) -> float | None:
    value = line.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"'{name}' is a number from 0 to 1")
    return float(value)


def digest(text: str) -> bytes:
    """An order of texts that has nothing to do with what they say: the same on every machine, without a seed."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def cap_sources(rows: Sequence[Row], most: int) -> list[int]:
    """Indices, rising, of at most `most` rows of each source: those that come first by digest."""
    taken: dict[str, int] = {}
    kept = []
    for at in sorted(range(len(rows)), key=lambda at: digest(rows[at].text)):
        source = rows[at].source
        if taken.get(source, 0) < most:
            taken[source] = taken.get(source, 0) + 1
            kept.append(at)
    return sorted(kept)
