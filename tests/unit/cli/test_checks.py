"""What `ssop doctor` says about the classifier and the state directory."""

import importlib.metadata
import importlib.util
import tomllib
from pathlib import Path

import pytest

from ssop_cli import checks
from ssop_cli.places import find_places


def find(name: str, tmp_path: Path) -> checks.Check:
    places = find_places(tmp_path, {})
    return next(check for check in checks.run_checks(places, tmp_path) if check.name == name)


def test_every_part_of_a_request_that_can_be_compiled_is_looked_for() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    names = {extension["name"] for extension in project["tool"]["setuptools"]["ext-modules"]}
    checked_apart = ("ssop_codec.", "ssop_transport.", "ssop_rag.", "ssop_router.classification.")
    assert set(checks.COMPILED) == {name for name in names if not name.startswith(checked_apart)}


def test_every_part_of_the_transport_that_can_run_as_python_is_looked_for() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    extensions = project["tool"]["setuptools"]["ext-modules"]
    written = {extension["name"] for extension in extensions if extension["sources"][0].endswith(".py")}
    assert set(checks.COMPILED_TRANSPORT) == {name for name in written if name.startswith("ssop_transport.")}


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("services", "ssop_router.core._choice"),
        pytest.param("transport", "ssop_transport.served", marks=pytest.mark.needs("native_transport")),
    ],
)
def test_parts_that_are_not_compiled_are_named(
    name: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda found: None if found == module else find_spec(found))
    check = find(name, tmp_path)
    assert (check.state, module in check.detail) == ("lacks", True)


def test_classifier_is_named_with_what_runs_it(tmp_path: Path) -> None:
    check = find("classifier", tmp_path)
    assert (check.state, "CPU" in check.detail) == ("ok", True)


def test_two_runtimes_that_overwrite_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "distributions", lambda **_: iter([object()]))
    check = find("classifier", tmp_path)
    assert check.state == "bad"
    assert "uninstall" in check.detail


@pytest.mark.needs("vnni")
def test_embedder_is_named_with_what_runs_it(tmp_path: Path) -> None:
    assert find("embedder", tmp_path).detail == "compiled code for AVX-512 VNNI"


def test_embedder_without_compiled_code_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ssop_rag.e5_encoder._encoder", None)
    assert find("embedder", tmp_path).detail.endswith("its extension is not built")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_embedder_that_nothing_computes_is_a_fault(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _remove(package, monkeypatch)
    monkeypatch.setattr("ssop_rag.e5_encoder._encoder", None)
    check = find("embedder", tmp_path)
    assert (check.state, f"lacks {package}:" in check.detail) == ("bad", True)


@pytest.mark.needs("vnni")
def test_compiled_embedder_needs_no_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _remove("onnx", monkeypatch)
    places = find_places(tmp_path, {})
    faults = [check for check in checks.run_checks(places, tmp_path) if check.state == "bad"]
    assert not [check.name for check in faults if "onnx" in check.name or check.name == "embedder"]


def _remove(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    has = checks._has
    monkeypatch.setattr(checks, "_has", lambda module: module != package and has(module))


def test_classifier_that_can_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ssop_router.classifier.SHIPPED", tmp_path / "none.onnx")
    check = find("classifier", tmp_path)
    assert check.state == "lacks"
    assert "none.onnx" in check.detail


def test_state_directory_that_is_a_file_is_bad(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    places = find_places(tmp_path / "state", {})
    (check,) = [check for check in checks.run_checks(places, tmp_path) if check.name == "disk"]
    assert (check.state, str(tmp_path / "state") in check.detail) == ("bad", True)
