"""The patterns of MaskBench: all but a few compile, and they judge its instances as its labels do."""

import json
import lzma
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from helpers.components import suites_dir
from ssop_codec import SchemaError
from ssop_codec._pattern import Pattern
from ssop_codec.pattern import compile_pattern

pytestmark = pytest.mark.needs("suites")

REFUSED = {"max_pattern_states": 1, "pattern": 1}
"""Patterns that are refused, by the name: counts within counts before a lookahead, and a backreference."""


def entries(name: str) -> Iterator[dict[str, Any]]:
    folder = suites_dir()
    assert folder is not None
    for path in sorted((folder / "suites" / name).glob("*.jsonl.xz")):
        with lzma.open(path, "rt") as lines:
            yield from map(json.loads, lines)


def patterns_of(schema: object) -> Iterator[str]:
    if isinstance(schema, list):
        for member in schema:
            yield from patterns_of(member)
    elif isinstance(schema, dict):
        for key, member in schema.items():
            if key == "pattern" and isinstance(member, str):
                yield member
            if key == "patternProperties" and isinstance(member, dict):
                yield from member
            yield from patterns_of(member)


@cache
def compiled(text: str) -> Pattern | None:
    """None where it is refused."""
    try:
        return compile_pattern(text)
    except SchemaError:
        return None


def matches(text: str, sample: str) -> bool:
    pattern = compiled(text)
    return pattern is None or pattern.search(sample)


def breaches(schema: Any, value: Any) -> Iterator[str]:
    """Patterns that must match and don't, as far as no union and no reference is between."""
    if not isinstance(schema, dict):
        return
    text = schema.get("pattern")
    if isinstance(value, str) and isinstance(text, str) and not matches(text, value):
        yield text
    if isinstance(value, dict):
        for key, member in value.items():
            named = schema.get("properties", {})
            groups = [inner for text, inner in schema.get("patternProperties", {}).items() if matches(text, key)]
            for inner in (named[key], *groups) if key in named else groups or [schema.get("additionalProperties")]:
                yield from breaches(inner, member)
    if isinstance(value, list):
        for item in value:
            yield from breaches(schema.get("items"), item)


def test_patterns_of_maskbench_compile_or_are_refused_by_name() -> None:
    texts = {text for entry in entries("maskbench") for text in patterns_of(entry["schema"])}
    refused: Counter[str] = Counter()
    for text in texts:
        try:
            compile_pattern(text)
        except SchemaError as error:
            refused[error.keyword] += 1
    print(f"\n{len(texts)} patterns, {refused.total()} refused: {dict(refused)}")  # the figures asked for
    assert refused == REFUSED


def test_patterns_judge_the_instances_of_maskbench_as_labelled() -> None:
    verdicts = {entry["id"]: entry["tests"] for entry in entries("maskbench_ref")}
    wrong = []
    counts: Counter[str] = Counter()
    for entry in entries("maskbench"):
        if not any(patterns_of(entry["schema"])):
            continue
        for number, case in enumerate(entry["tests"]):
            broken = list(breaches(entry["schema"], case["data"]))
            if case["valid"]:
                counts["valid"] += 1
                wrong += [(entry["id"], number, text) for text in broken]
            elif verdicts[entry["id"]][number][2] == ["pattern"]:
                counts["caught" if broken else "behind a union or a reference"] += 1
    print(f"\n{dict(counts)}")
    assert wrong == []
    assert counts["caught"] >= 1_700
