"""The protos: linted, and their committed stubs in sync."""

import filecmp
import importlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.components import GENERATOR

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.needs("buf")
def test_buf_lint_is_clean() -> None:
    result = subprocess.run(["buf", "lint"], cwd=ROOT / "protos", capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def breaking(folder: Path) -> "subprocess.CompletedProcess[str]":
    """What a change of the protos breaks for those who have the stubs of the last release."""
    command = ["buf", "breaking", "--against", str(ROOT / "protos" / "baseline.binpb")]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.needs("buf")
def test_nothing_that_was_released_is_broken() -> None:
    result = breaking(ROOT / "protos")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.needs("buf")
@pytest.mark.parametrize(
    ("released", "changed"),
    [
        ("uint32 document = 6;", "uint32 document = 30;"),
        ("uint64 seq = 1;", "string seq = 1;"),
        ("rpc Resume(ResumeRequest) returns (stream Chunk);", ""),
    ],
    ids=["number", "type", "method"],
)
def test_a_break_is_found(tmp_path: Path, released: str, changed: str) -> None:
    shutil.copytree(ROOT / "protos" / "ssop", tmp_path / "ssop")
    shutil.copy(ROOT / "protos" / "buf.yaml", tmp_path)
    for path in (tmp_path / "ssop/v1/frame.proto", tmp_path / "ssop/v1/router.proto"):
        path.write_text(path.read_text().replace(released, changed))
    assert breaking(tmp_path).returncode == 100


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
