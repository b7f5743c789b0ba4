"""What the build makes of what pyproject.toml declares, where it leaves that, and when it makes it again."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
EXTENSIONS: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
SOURCES: Final = [Path(extension["sources"][0]) for extension in EXTENSIONS]
WRITTEN: Final = {source.with_suffix(".c") for source in SOURCES}
"""What Cython writes."""
BUILT: Final = {source.with_suffix(".cpython-311-x86_64-linux-gnu.so") for source in SOURCES}

ROOTS: Final = ("codec", "router_svc", "rag_svc", "services")
LIST_DEPENDENCIES: Final = """
import json, os, sys, tomllib
from Cython.Build.Dependencies import create_dependency_tree
from Cython.Compiler.Main import Context
from Cython.Compiler.Options import CompilationOptions
extensions = tomllib.load(open("pyproject.toml", "rb"))["tool"]["setuptools"]["ext-modules"]
roots = sorted({folder for extension in extensions for folder in extension.get("include-dirs", [])})
options = CompilationOptions(include_path=roots, language_level=3)
tree = create_dependency_tree(Context.from_options(options), quiet=True)
print(json.dumps({path: [os.path.relpath(p) for p in tree.all_dependencies(path)] for path in sys.argv[1:]}))
"""
"""What Cython takes each source to be made of, with the roots that setup.py gives it."""

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
sources = ["aside.pyx"]
optional = true
"""
FILES: Final = {
    "base.py": "class Base:\n    def __init__(self):\n        self.value = 1.0\n",
    "base.pxd": "cdef class Base:\n    cdef public double value\n",
    "above.py": "from base import Base\n\n\nclass Above(Base):\n    pass\n",
    "above.pxd": "from base cimport Base\n\ncdef class Above(Base):\n    pass\n",
    "aside.pyx": 'from libc.stdint cimport int32_t\ncdef extern from "aside.h":\n    int32_t ASIDE\n\nVALUE = ASIDE\n',
    "aside.h": "#include <stdint.h>\nstatic const int32_t ASIDE = 1;\n",
    # As interpreters do that have no other way.
    "sitecustomize.py": "import multiprocessing\nmultiprocessing.set_start_method('forkserver')\n",
}


MODULES: Final = {"above", "aside", "base"}
IN_PLACE: Final = ("setup.py", "-q", "build_ext", "--inplace")
EDITABLE: Final = ("-c", "from setuptools.build_meta import build_editable; build_editable('dist')")
"""Of an environment of its own: what pip calls for `pip install -e .`."""
WHEEL: Final = ("-c", "from setuptools.build_meta import build_wheel; build_wheel('dist')")
LYING: Final = b"what lay there"


def build(folder: Path, *command: str, orders: dict[str, str] | None = None) -> set[str]:
    """The modules that lie compiled in a folder after a command of Python, and were compiled by it."""
    environ = {name: value for name, value in os.environ.items() if name not in {"CFLAGS", "CPPFLAGS", "LDFLAGS"}}
    subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**environ, **(orders or {}), "PYTHONPATH": str(folder)},
        capture_output=True,
        timeout=120,
        check=True,
    )
    return {path.name.partition(".")[0] for path in folder.glob("*.so") if path.read_bytes() != LYING}


def lay(folder: Path, flag: str = "-O0") -> Path:
    """Write a project of three modules, one of which stands above another, which is compiled with a flag."""
    shutil.copy(ROOT / "setup.py", folder)
    for name, text in {**FILES, "pyproject.toml": PROJECT.format(flag=flag)}.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with its modules in place."""
    folder = lay(tmp_path_factory.mktemp("built"))
    assert build(folder, *IN_PLACE) == MODULES
    shutil.rmtree(folder / "build")
    return folder


@pytest.fixture
def compiled(built: Path, tmp_path: Path) -> Path:
    """The same, of which one sees whether it is compiled again. Whatever is made is newer than what it is made of."""
    for path in (file for file in built.iterdir() if file.is_file()):
        copy = Path(shutil.copy(path, tmp_path))
        if path.suffix == ".so":
            copy.write_bytes(LYING)
        set_age(copy, {".so": 1, ".c": 2}.get(path.suffix, 3))
    return tmp_path


def set_age(path: Path, hours: int) -> None:
    """Say that a file was written so long ago."""
    os.utime(path, (time.time() - hours * 3600,) * 2)


@pytest.mark.needs("cython")
def test_modules_are_compiled_whatever_way_processes_start(built: Path) -> None:
    assert {path.name.partition(".")[0] for path in built.glob("*.so")} == MODULES


@pytest.mark.needs("cython")
def test_module_above_one_that_can_not_be_compiled_runs_as_it_is_written(tmp_path: Path) -> None:
    assert build(lay(tmp_path, "--no-such-flag"), *IN_PLACE) == {"aside"}
    said = subprocess.run(
        [sys.executable, "-c", "import above; print(above.Above().value)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert said.stdout == "1.0\n"


@pytest.mark.needs("cython")
@pytest.mark.parametrize("command", [EDITABLE, IN_PLACE], ids=["editable", "in place"])
def test_what_lies_compiled_is_taken(compiled: Path, command: tuple[str, ...]) -> None:
    assert build(compiled, *command) == set()


@pytest.mark.needs("cython")
def test_what_lies_compiled_is_taken_by_an_environment_that_was_just_made(compiled: Path, tmp_path: Path) -> None:
    installed = importlib.util.find_spec("Cython")
    assert installed is not None
    assert installed.origin is not None
    # What pip installs was written when it did so.
    shutil.copytree(Path(installed.origin).parent, tmp_path / "Cython", copy_function=shutil.copy)
    assert build(compiled, *EDITABLE) == set()


@pytest.mark.needs("cython")
@pytest.mark.parametrize(
    ("changed", "made_of_it"),
    [
        ("base.py", {"base"}),
        ("base.pxd", {"base", "above"}),
        ("aside.h", {"aside"}),
        ("pyproject.toml", MODULES),
        ("setup.py", MODULES),
    ],
)
def test_what_is_older_than_what_it_is_made_of_is_compiled_again(
    compiled: Path, changed: str, made_of_it: set[str]
) -> None:
    set_age(compiled / changed, 0)
    assert build(compiled, *EDITABLE) == made_of_it


@pytest.mark.needs("cython")
def test_wheel_is_compiled_always(compiled: Path) -> None:
    build(compiled, *WHEEL)
    (wheel,) = (compiled / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist() if name.endswith(".so")}
    assert len(contents) == len(MODULES)
    assert LYING not in contents.values()


@pytest.mark.needs("cython")
@pytest.mark.parametrize("variable", ["CFLAGS", "LDFLAGS"])
def test_who_has_orders_gets_what_is_compiled_by_them(compiled: Path, variable: str) -> None:
    assert build(compiled, *EDITABLE, orders={variable: "-O1"}) == MODULES


@pytest.mark.needs("cython")
@pytest.mark.parametrize("command", [EDITABLE, IN_PLACE], ids=["editable", "in place"])
def test_what_is_compiled_by_orders_is_taken_by_nobody_else(compiled: Path, command: tuple[str, ...]) -> None:
    build(compiled, *IN_PLACE, orders={"CFLAGS": "-O1"})
    for path in compiled.glob("**/*.so"):
        written = path.stat()
        path.write_bytes(LYING)
        os.utime(path, (written.st_atime, written.st_mtime))
    assert build(compiled, *command) == MODULES


@pytest.mark.needs("cython")
def test_module_that_can_not_be_compiled_any_more_is_not_left_as_it_was(compiled: Path) -> None:
    (compiled / "pyproject.toml").write_text(PROJECT.format(flag="--no-such-flag"))
    assert build(compiled, *EDITABLE) == {"aside"}
    assert [path.name.partition(".")[0] for path in compiled.glob("*.so")] == ["aside"]


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


def drawn_on(source: Path) -> set[Path]:
    """The declarations of the tree that a source draws on, by those between, its own among them."""
    found: set[Path] = set()
    left = [source, source.with_suffix(".pxd")]
    while left:
        path = left.pop()
        if path in found or not (ROOT / path).exists():
            continue
        found.add(path)
        names = re.findall(r"^\s*(?:from|cimport) (ssop[\w.]+)(?: cimport|$)", (ROOT / path).read_text(), re.MULTILINE)
        left += [Path(root, *name.split(".")).with_suffix(".pxd") for root in ROOTS for name in names]
    return found


@pytest.mark.needs("cython")
def test_every_declaration_that_a_module_draws_on_is_seen() -> None:
    listed = subprocess.run(
        [sys.executable, "-c", LIST_DEPENDENCIES, *map(str, SOURCES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    seen = {Path(source): set(map(Path, paths)) for source, paths in json.loads(listed.stdout).items()}
    assert Path("services/ssop_transport/_stream.pxd") in drawn_on(Path("services/ssop_transport/_connection.pyx"))
    assert {source: drawn_on(source) - seen[source] for source in SOURCES if drawn_on(source) - seen[source]} == {}


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
