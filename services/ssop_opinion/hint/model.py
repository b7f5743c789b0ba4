"""The hint: sentiment of a post from the artefact `hint.onnx`, which says all that is needed about itself."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final

from ssop_chassis.onnx_runtime import import_onnxruntime
from ssop_opinion.core.hint_features import DENSE, VERSION, Extractor, Lexicon
from ssop_opinion.core.prompt import Hint
from ssop_opinion.core.wording import find_language

KIND: Final = "ssop-opinion-hint"
MAX_BYTES: Final = 8 * 1024 * 1024
PROBE_TOLERANCE: Final = 1e-3
_INPUTS: Final = {"ids": "tensor(int32)", "dense": "tensor(float)", "is_chinese": "tensor(float)"}


class HintError(ValueError):
    """An artefact that can't be used; the text says why."""


class HintModel:
    """Says how a post sounds. Deterministic; safe on several threads; raises nothing for any text."""

    def __init__(self, session: Any, extractor: Extractor, version: str) -> None:
        self._run = session.run
        self.extractor = extractor
        self.version = version

    def judge(self, text: str) -> Hint | None:
        """The hint for an evened-out text; None where it is in neither English nor Chinese, or says nothing."""
        language = find_language(text)
        if language == "other":
            return None
        import numpy as np  # noqa: PLC0415 - comes with onnxruntime, which is optional

        features = self.extractor.extract(text, language)
        if not features.ids:
            return None
        feed = {
            "ids": np.array(features.ids, np.int32),
            "dense": np.array(features.dense, np.float32),
            "is_chinese": np.array([language == "zh"], np.float32),
        }
        chances, valence = self._run(("probabilities", "valence"), feed)
        negative, neutral, positive = chances.tolist()
        return Hint(negative, neutral, positive, float(valence[0]))


def open_hint(source: Traversable | None = None, *, is_checked: bool = True) -> HintModel:
    """Read, check and probe an artefact; None is the shipped one. Raises HintError.

    Without `is_checked` what it says of its own examples is not looked at.
    """
    path = resources.files("ssop_opinion.hint") / "hint.onnx" if source is None else source
    try:
        content = path.read_bytes()
    except OSError as error:
        raise HintError(f"{path}: {error.strerror or error}") from error
    if not content or len(content) > MAX_BYTES:
        raise HintError(f"{path}: is empty or larger than {MAX_BYTES} bytes")
    try:
        onnxruntime = import_onnxruntime()
    except ImportError as error:
        raise HintError("hints need onnxruntime: pip install 'ssop-mesh[cpu]' or 'ssop-mesh[gpu]'") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        metadata = session.get_modelmeta().custom_metadata_map
    except Exception as error:  # the runtime's errors have no common base of their own
        raise HintError(f"{path}: ONNX Runtime can't read it ({type(error).__name__})") from error
    model, probe = _read(str(path), session, metadata)
    if is_checked:
        _check(str(path), model, probe)
    return model


@cache
def shipped_hint() -> HintModel:
    """The artefact that ships with the package, read once. Raises HintError."""
    return open_hint()


def _read(path: str, session: Any, metadata: Mapping[str, str]) -> tuple[HintModel, Sequence[tuple[str, float]]]:
    if metadata.get("ssop.kind") != KIND:
        raise HintError(f"{path}: an ONNX model, but no hint")
    try:
        features = json.loads(metadata["ssop.features"])
        lexicon = Lexicon(
            features["english"], features["chinese"], frozenset(features["negations"]), frozenset(features["boosters"])
        )
        bits, version = int(features["bits"]), int(features["version"])
        probe = [(str(text), float(valence)) for text, valence in json.loads(metadata["ssop.probe"])]
        name = metadata["ssop.version"]
    except (KeyError, TypeError, ValueError) as error:
        raise HintError(f"{path}: its metadata are damaged ({type(error).__name__})") from error
    if version != VERSION or not probe:
        raise HintError(f"{path}: made for features of version {version}, this program has {VERSION}")
    if {node.name: node.type for node in session.get_inputs()} != _INPUTS:
        raise HintError(f"{path}: its graph does not take {', '.join(_INPUTS)}")
    if next(node.shape for node in session.get_inputs() if node.name == "dense") != [DENSE]:
        raise HintError(f"{path}: its graph does not take {DENSE} dense features")
    return HintModel(session, Extractor(lexicon, bits), name), probe


def _check(path: str, model: HintModel, probe: Sequence[tuple[str, float]]) -> None:
    for text, wanted in probe:
        try:
            hint = model.judge(text)
        except Exception as error:  # as above
            raise HintError(f"{path}: its graph can't be run ({type(error).__name__})") from error
        if hint is None or not abs(hint.valence - wanted) <= PROBE_TOLERANCE:
            raise HintError(f"{path}: says something else of its own examples: features or runtime differ")
