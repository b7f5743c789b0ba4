"""The dashboards as they are committed, and what their expressions and those of rules speak of."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).resolve().parents[2] / "k8s-free-deploy" / "grafana"
FILES: Final = sorted(FOLDER.glob("*.json"))
_NOISE: Final = re.compile(
    r'"(?:[^"\\]|\\.)*"|\{[^}]*\}|\[[^\]]*\]|\b(?:by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)'
)
_NAME: Final = re.compile(r"[a-zA-Z_:][\w:]*(?!\w|\s*\()")
_WORDS: Final = frozenset({"and", "or", "unless", "bool", "offset", "e6", "Inf"})


def metrics_of(expression: str) -> set[str]:
    """Names of metrics in PromQL, as far as the rules and dashboards here use it."""
    plain = _NOISE.sub(" ", re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression))
    plain = re.sub(r"(?<![\w:])\d[\w.]*", " ", plain)
    return {name for name in _NAME.findall(plain) if name not in _WORDS}


def _walk(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "expr" in value:
            yield value["expr"]
        for held in value.values():
            yield from _walk(held)
    elif isinstance(value, list):
        for held in value:
            yield from _walk(held)


EXPRESSIONS: Final = tuple(expression for file in FILES for expression in _walk(json.loads(file.read_text())))
