"""Modules that are compiled as they stand do the same where they were not: tests that go through most of them."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SUITES: Final = (
    "tests/unit/chassis/test_transports.py",
    "tests/unit/transport/test_strangers.py",
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


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path])}
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.needs("native_transport")
def test_sources_of_all_modules_can_be_imported_alone() -> None:
    extensions = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    names = [extension["name"] for extension in extensions if extension["sources"][0].endswith(".py")]
    done = run("-c", PLACES, *names)
    assert (done.stdout, done.stderr) == ("\n", "")


def test_calls_and_requests_run_on_sources_alone() -> None:
    done = run("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-p", "helpers.sources_alone", *SUITES)
    assert done.returncode == 0, done.stdout[-4_000:]
