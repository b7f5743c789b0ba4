"""What the build puts beside the sources: `make clean` removes it, and git and source distributions do without it."""

import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
EXTENSIONS: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
SOURCES: Final = [Path(extension["sources"][0]) for extension in EXTENSIONS]
WRITTEN: Final = {source.with_suffix(".c") for source in SOURCES}
"""What Cython writes."""
BUILT: Final = {source.with_suffix(".cpython-311-x86_64-linux-gnu.so") for source in SOURCES}


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_clean_leaves_the_sources_alone(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for path in (*SOURCES, *WRITTEN, *BUILT):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    subprocess.run(["make", "-s", "clean"], cwd=tmp_path, capture_output=True, timeout=60, check=True)
    left = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {Path("Makefile"), *SOURCES}


def test_what_is_written_is_not_distributed() -> None:
    excluded = {
        pattern
        for line in (ROOT / "MANIFEST.in").read_text().splitlines()
        if line.startswith("exclude ")
        for pattern in line.split()[1:]
    }
    assert {path for path in WRITTEN if not any(path.match(pattern) for pattern in excluded)} == set()


def test_what_is_written_is_not_versioned() -> None:
    ignored = set((ROOT / ".gitignore").read_text().splitlines())
    assert {path for path in WRITTEN if not any(path.match(pattern) for pattern in ignored)} == set()
