"""Modules that are compiled as they stand do the same where they were not: tests that go through most of them."""

import ast
import importlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SUITES: Final = (
    "tests/unit/chassis/test_transports.py",
    "tests/unit/transport/test_strangers.py",
    "tests/unit/inference/test_servicer.py",
    "tests/unit/router/test_cascade.py",
    "tests/unit/router/test_failover.py",
    "tests/unit/router/test_reports.py",
    "tests/unit/cache/test_local_level.py",
    "tests/integration/test_cache_batches.py",
)
PLACES: Final = """
import importlib, sys, helpers.sources_alone
print(*(name for name in sys.argv[1:] if not str(importlib.import_module(name).__file__).endswith(".py")))
"""


EXTENSIONS: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
SOURCES: Final = {
    extension["name"]: ROOT / extension["sources"][0]
    for extension in EXTENSIONS
    if extension["sources"][0].endswith(".py")
}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path])}
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.needs("native_transport")
def test_sources_of_all_modules_can_be_imported_alone() -> None:
    done = run("-c", PLACES, *SOURCES)
    assert (done.stdout, done.stderr) == ("\n", "")


def test_calls_and_requests_run_on_sources_alone() -> None:
    done = run("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-p", "helpers.sources_alone", *SUITES)
    assert done.returncode == 0, done.stdout[-4_000:]


def read_classes(source: Path) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.parse(source.read_text()).body if isinstance(node, ast.ClassDef)}


def own_names(kind: ast.ClassDef, context: type[ast.expr_context]) -> set[str]:
    """What its methods call or read of themselves (`ast.Load`), or set (`ast.Store`)."""
    attributes = [node for node in ast.walk(kind) if isinstance(node, ast.Attribute) and isinstance(node.ctx, context)]
    return {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "self"}


def made_names(kind: ast.ClassDef) -> set[str]:
    methods = {node.name for node in kind.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return methods | own_names(kind, ast.Store)


def inherited_names() -> Iterator[tuple[str, str, str]]:
    """Module, class and name of all that another module's class takes from there by itself."""
    for source in SOURCES.values():
        imports = [node for node in ast.parse(source.read_text()).body if isinstance(node, ast.ImportFrom)]
        origins = {alias.name: str(node.module) for node in imports for alias in node.names}
        for kind in read_classes(source).values():
            for base in kind.bases:
                if isinstance(base, ast.Name) and (module := origins.get(base.id, "")) in SOURCES:
                    taken = own_names(kind, ast.Load) - made_names(kind)
                    for name in taken & made_names(read_classes(SOURCES[module])[base.id]):
                        yield module, base.id, name


def is_hidden(module: str, kind: str, name: str) -> bool:
    imported = importlib.import_module(module)
    return not str(imported.__file__).endswith(".py") and not hasattr(getattr(imported, kind), name)


def test_what_is_inherited_can_be_had_where_the_heir_alone_was_not_compiled() -> None:
    names = set(inherited_names())
    assert names
    assert {found for found in names if is_hidden(*found)} == set()
