"""What the build makes of what pyproject.toml declares, and where it leaves that."""

import os
import re
import shutil
import subprocess
import sys
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

PROJECT: Final = """
[project]
name = "three"
version = "0"
[tool.setuptools]
py-modules = []
[[tool.setuptools.ext-modules]]
name = "base"
sources = ["base.py"]
optional = true
extra-compile-args = ["{flag}"]
[[tool.setuptools.ext-modules]]
name = "above"
sources = ["above.py"]
depends = ["above.pxd", "base.pxd"]
optional = true
[[tool.setuptools.ext-modules]]
name = "aside"
sources = ["aside.py"]
optional = true
"""
FILES: Final = {
    "base.py": "class Base:\n    def __init__(self):\n        self.value = 1.0\n",
    "base.pxd": "cdef class Base:\n    cdef public double value\n",
    "above.py": "from base import Base\n\n\nclass Above(Base):\n    pass\n",
    "above.pxd": "from base cimport Base\n\ncdef class Above(Base):\n    pass\n",
    "aside.py": "",
    # As interpreters do that have no other way.
    "sitecustomize.py": "import multiprocessing\nmultiprocessing.set_start_method('forkserver')\n",
}


def build(folder: Path, flag: str) -> set[str]:
    """The modules that are compiled of three, one of which stands above another, which is compiled with a flag."""
    shutil.copy(ROOT / "setup.py", folder)
    for name, text in {**FILES, "pyproject.toml": PROJECT.format(flag=flag)}.items():
        (folder / name).write_text(text)
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        timeout=120,
        check=True,
    )
    return {path.name.partition(".")[0] for path in folder.glob("*.so")}


@pytest.mark.needs("cython")
def test_modules_are_compiled_whatever_way_processes_start(tmp_path: Path) -> None:
    assert build(tmp_path, "-O0") == {"above", "aside", "base"}


@pytest.mark.needs("cython")
def test_module_above_one_that_can_not_be_compiled_runs_as_it_is_written(tmp_path: Path) -> None:
    assert build(tmp_path, "--no-such-flag") == {"aside"}
    said = subprocess.run(
        [sys.executable, "-c", "import above; print(above.Above().value)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert said.stdout == "1.0\n"


def test_what_a_module_is_compiled_with_is_declared() -> None:
    optional = {extension["name"] for extension in EXTENSIONS if extension.get("optional")}
    undeclared = set()
    for extension, source in zip(EXTENSIONS, SOURCES, strict=True):
        if source.suffix == ".py":
            types = (ROOT / source.with_suffix(".pxd")).read_text()
            below = set(re.findall(r"^from (\S+) cimport", types, re.MULTILINE)) & optional
            declared = ["." + str(Path(path).with_suffix("")).replace("/", ".") for path in extension["depends"]]
            undeclared |= {
                (extension["name"], name) for name in below if not any(path.endswith(f".{name}") for path in declared)
            }
    assert undeclared == set()


@pytest.mark.needs("make")
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
