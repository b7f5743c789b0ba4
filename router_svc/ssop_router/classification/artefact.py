"""Reads and checks the artefact of a classifier: one ONNX file, with what its features need in its metadata.

Reading runs no code of the file: no pickle, no custom operators, and no tensor that lies in another file.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FORMAT: Final = "1"
KIND: Final = "ssop-complexity"
MAX_BYTES: Final = 64 * 1024 * 1024
"""No classifier that keeps its time limit is larger."""
DENSE_INPUT: Final = {"dense": "tensor(float)"}
GRAM_INPUTS: Final = {"ids": "tensor(int32)", "weights": "tensor(float)"}
OUTPUTS: Final = {"score": "tensor(float)", "spread": "tensor(float)", "heads": "tensor(float)"}
# The key of a tensor's entry that names another file, as protobuf writes it.
_EXTERNAL: Final = b"\x0a\x08location"


class ArtefactError(ValueError):
    """An artefact that can't be used; the text names the file and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Card:
    """What an artefact says of itself. `probe` holds texts with the scores that they had when it was made."""

    version: str
    features: dict[str, Any]
    probe: tuple[tuple[str, float], ...]
    notes: Mapping[str, str]


def read_bytes(path: Path) -> bytes:
    """The file's content. Raises ArtefactError."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ArtefactError(f"{path}: larger than {MAX_BYTES} bytes: no classifier")
        content = path.read_bytes()
    except OSError as error:
        raise ArtefactError(f"{path}: {error.strerror or error}") from error
    if not content:
        raise ArtefactError(f"{path}: the file is empty")
    if _EXTERNAL in content:
        raise ArtefactError(f"{path}: holds tensors that lie in another file; one file is all that is read")
    return content


def read_card(path: Path, metadata: Mapping[str, str]) -> Card:
    """Check what a file's metadata say. Raises ArtefactError."""
    if metadata.get("ssop.kind") != KIND:
        raise ArtefactError(f"{path}: an ONNX model, but no classifier of this mesh")
    if metadata.get("ssop.format") != FORMAT:
        raise ArtefactError(f"{path}: format {metadata.get('ssop.format')!r}, this program reads {FORMAT!r}")
    try:
        features = json.loads(metadata["ssop.features"])
        probe = tuple((str(text), float(score)) for text, score in json.loads(metadata["ssop.probe"]))
        version = metadata["ssop.version"]
    except (KeyError, TypeError, ValueError) as error:
        raise ArtefactError(f"{path}: its metadata are damaged ({type(error).__name__}: {error})") from error
    if not isinstance(features, dict) or not version or not probe:
        raise ArtefactError(f"{path}: its metadata are damaged")
    notes = {name.removeprefix("ssop."): text for name, text in metadata.items() if name.startswith("ssop.")}
    return Card(version, features, probe, {name: notes[name] for name in ("licence", "sources") if name in notes})


def check_signature(path: Path, inputs: Sequence[Any], outputs: Sequence[Any], *, width: int, has_grams: bool) -> None:
    """Check names, types and shapes of what the graph takes and gives. Raises ArtefactError."""
    taken = {node.name: node.type for node in inputs}
    given = {node.name: node.type for node in outputs}
    wanted = DENSE_INPUT | GRAM_INPUTS if has_grams else DENSE_INPUT
    if taken != wanted or any(given.get(name) != kind for name, kind in OUTPUTS.items()):
        raise ArtefactError(f"{path}: its graph takes {taken} and gives {given}: no classifier of this mesh")
    shape = next(node.shape for node in inputs if node.name == "dense")
    if len(shape) != 2 or shape[1] != width:
        raise ArtefactError(f"{path}: its graph takes dense features of shape {shape}, {width} are computed")
