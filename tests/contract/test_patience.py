"""Tests don't take a machine that is slow for a mesh that is wrong.

A bound on a time is `stretched` by what the machine has to do; what is waited for has a minute; and a pause says what
it is for. Where the bound itself is the statement, `stretched(bound)` is it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).resolve().parents[1]
FILES: Final = sorted(
    path for folder in ("integration", "polyglot", "contract", "helpers") for path in (TESTS / folder).glob("*.py")
)
LEAST_S: Final = 20.0
"""A limit of a wait below this is one that a loaded machine meets."""
LONGEST_PAUSE_S: Final = 0.05
TIMES: Final = re.compile(r"_s\b|_ms\b|\b(monotonic|perf_counter|time)\(\)|\bbegan\b")
SAID: Final = re.compile(r"\b(retry_after_ms|age_ms)\b")
"""What a service says of time, which is no time that the machine took."""
GUARD_S: Final = 60.0
"""A bound from here on only ends a test that hangs."""


def _number(node: ast.expr) -> float | None:
    """The value of an expression of numbers and of names of constants' products; None: it is something else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return float(node.value)
    if isinstance(node, ast.BinOp):
        left, right = _number(node.left), _number(node.right)
        return None if left is None or right is None else max(left, right)
    return None


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _limit(call: ast.Call) -> ast.expr | None:
    """What bounds a wait, where the call is one."""
    name, named = _name(call), {word.arg: word.value for word in call.keywords}
    if name in {"eventually", "wait_until"}:
        numbers = [argument for argument in call.args[1:] if _number(argument) is not None]
        return named.get("timeout_s", numbers[0] if numbers else None)
    if name == "wait_for" and len(call.args) > 1:
        return call.args[1]
    if ast.unparse(call.func) == "asyncio.timeout":
        return call.args[0]
    return None


def _short_waits(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (limit := _limit(node)) is not None:
            bound_s = _number(limit)
            if bound_s is not None and bound_s < LEAST_S:
                yield node.lineno


def _hard_bounds(tree: ast.Module) -> Iterator[int]:
    """Asserts that a measured time is below a number."""
    for node in (found.test for found in ast.walk(tree) if isinstance(found, ast.Assert)):
        for compare in (found for found in ast.walk(node) if isinstance(found, ast.Compare)):
            sides = [compare.left, *compare.comparators]
            for operator, left, right in zip(compare.ops, sides, sides[1:], strict=False):
                text = ast.unparse(left)
                bound = _number(right)
                if bound is None or not isinstance(operator, ast.Lt | ast.LtE):
                    continue
                is_time = TIMES.search(text) and not SAID.search(text)
                if is_time and bound < GUARD_S * (1000 if "_ms" in text else 1):
                    yield compare.lineno


def _mute_pauses(tree: ast.Module, lines: list[str]) -> Iterator[int]:
    """Pauses of a constant length without a comment, outside of loops, which look again, and of scripts of servers."""
    looks = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.While | ast.For) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or _name(node) != "sleep" or id(node) in looks or not node.args:
            continue
        pause_s = _number(node.args[0])
        is_said = any("#" in line for line in lines[node.lineno - 2 : node.lineno])
        if pause_s is not None and pause_s >= LONGEST_PAUSE_S and not is_said:
            yield node.lineno


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_slow_machine_is_no_failure(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    faults = {
        "a wait with a short limit": list(_short_waits(tree)),
        "a time below a number that no load stretches": list(_hard_bounds(tree)),
        # What helpers pause for is what they are.
        "a pause that does not say what it is for": list(_mute_pauses(tree, text.splitlines()))
        if path.name.startswith("test_")
        else [],
    }
    assert {what: lines for what, lines in faults.items() if lines} == {}


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("assert time.monotonic() - began_s < 2", 1),
        ("assert time.monotonic() - began_s < stretched(2)", 0),
        ("assert time.monotonic() - began_s < 60, 'hangs'", 0),
        ("assert 0 < waited_ms <= 100", 1),
        ("assert 1 < error.retry_after_ms <= 2000", 0),
        ("await eventually(lambda: x, timeout_s=5)", 1),
        ("wait_until(is_up, 10, 'it is up')", 1),
        ("await asyncio.wait_for(call, 5)", 1),
        ("await eventually(lambda: x)", 0),
        ("await asyncio.sleep(0.2)", 1),
        ("while True:\n    await asyncio.sleep(0.2)", 0),
    ],
)
def test_the_looker_sees(code: str, found: int) -> None:
    tree = ast.parse(code)
    assert len([*_short_waits(tree), *_hard_bounds(tree), *_mute_pauses(tree, code.splitlines())]) == found
