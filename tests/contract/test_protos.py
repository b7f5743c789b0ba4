"""The protos: linted, and their committed stubs in sync."""

import filecmp
import importlib
import os
import subprocess
from pathlib import Path

import pytest

from helpers.components import GENERATOR

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.needs("buf")
def test_buf_lint_is_clean() -> None:
    result = subprocess.run(["buf", "lint"], cwd=ROOT / "protos", capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.needs("protoc")
def test_stubs_are_those_of_the_protos(tmp_path: Path) -> None:
    environ = {**os.environ, "PATH": f"{GENERATOR.parent}:{os.environ['PATH']}"}
    tool = ROOT / "tools" / "gen_protos.py"
    subprocess.run([str(GENERATOR), str(tool), str(tmp_path)], check=True, env=environ, capture_output=True)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    committed = ROOT / "protos" / "gen"
    kept = sorted(
        path.relative_to(committed)
        for path in committed.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    assert made == kept
    _, changed, failed = filecmp.cmpfiles(tmp_path, committed, [str(path) for path in made], shallow=False)
    assert not changed + failed


@pytest.mark.parametrize("name", [path.stem for path in sorted((ROOT / "protos/ssop/v1").glob("*.proto"))])
def test_stubs_load_on_the_installed_runtime(name: str) -> None:
    assert importlib.import_module(f"ssop.v1.{name}_pb2").DESCRIPTOR.package == "ssop.v1"
