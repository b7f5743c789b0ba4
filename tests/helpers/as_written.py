"""Modules that are compiled as they stand (a .pxd lies beside them): both ways they run, for the same tests."""

import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def both_ways(name: str) -> list[object]:
    """Parameters for a fixture: the module as it is imported and, where that is compiled, as its source runs."""
    imported = importlib.import_module(name)
    path = Path(str(imported.__file__))
    if path.suffix == ".py":
        return [pytest.param(imported, id="as-written")]
    return [pytest.param(imported, id="compiled"), pytest.param(_run_source(name, path), id="as-written")]


def run_both_ways(name: str, *classes: str) -> Any:
    """A fixture that a test module keeps as `way`: its tests run with these classes of a module both ways."""

    @pytest.fixture(autouse=True, scope="module", params=both_ways(name))
    def way(request: pytest.FixtureRequest) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for one in classes:
                patch.setattr(request.module, one, getattr(request.param, one))
            yield

    return way


def _run_source(name: str, compiled: Path) -> ModuleType:
    source = compiled.with_name(f"{compiled.name.partition('.')[0]}.py")
    spec = importlib.util.spec_from_file_location(f"{name}_as_written", source)
    if spec is None or spec.loader is None:
        raise ImportError(f"{source} is no module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
