"""The hint: sentiment and event type of a post from the artefact `hint.onnx`, which says all about itself."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final

from ssop_chassis.onnx_runtime import import_onnxruntime
from ssop_opinion.core.hint_features import DENSE, VERSION, Extractor, Features, Lexicon
from ssop_opinion.core.prompt import EVENTS, Hint
from ssop_opinion.core.wording import find_language

KIND: Final = "ssop-opinion-hint"
MAX_BYTES: Final = 8 * 1024 * 1024
PROBE_TOLERANCE: Final = 1e-3
_INPUTS: Final = {"ids": "tensor(int32)", "dense": "tensor(float)", "is_chinese": "tensor(float)"}


class HintError(ValueError):
    """An artefact that can't be used; the text says why."""


class HintModel:
    """Says how a post sounds, and of what event type it is. Deterministic; safe on several threads; raises nothing for
    any text.

    `events_version` is empty for an artefact that knows of no event types.
    """

    def __init__(self, session: Any, extractor: Extractor, version: str, events_version: str = "") -> None:
        self._run = session.run
        self._outputs = ("probabilities", "valence", "events") if events_version else ("probabilities", "valence")
        self.extractor = extractor
        self.version = version
        self.events_version = events_version

    def judge(self, text: str) -> Hint | None:
        """The hint for an evened-out text; None where it is in neither English nor Chinese, or says nothing."""
        language = find_language(text)
        if language == "other":
            return None
        features = self.extractor.extract(text, language)
        if not features.ids:
            return None
        chances, valence, *events = self._ask(features, is_chinese=language == "zh")
        negative, neutral, positive = chances.tolist()
        return Hint(negative, neutral, positive, float(valence[0]), tuple(events[0].tolist()) if events else ())

    def has_row(self, place: int) -> bool:
        """Whether the table reaches so far: a text that asks for more would be an error of the runtime."""
        try:
            self._ask(Features((place,), (0.0,) * DENSE), is_chinese=True)
        except Exception:  # noqa: BLE001 - the runtime's errors have no common base of their own
            return False
        return True

    def _ask(self, features: Features, *, is_chinese: bool) -> Any:
        import numpy as np  # noqa: PLC0415 - comes with onnxruntime, which is optional

        feed = {
            "ids": np.array(features.ids, np.int32),
            "dense": np.array(features.dense, np.float32),
            "is_chinese": np.array([is_chinese], np.float32),
        }
        return self._run(self._outputs, feed)


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
    model, probe, event_probe = _read(str(path), session, metadata)
    if is_checked:
        _check(str(path), model, probe, event_probe)
    return model


@cache
def shipped_hint() -> HintModel:
    """The artefact that ships with the package, read once. Raises HintError."""
    return open_hint()


Probe = Sequence[tuple[str, float]]
EventProbe = Sequence[tuple[str, str, float]]


def _read(path: str, session: Any, metadata: Mapping[str, str]) -> tuple[HintModel, Probe, EventProbe]:
    if metadata.get("ssop.kind") != KIND:
        raise HintError(f"{path}: an ONNX model, but no hint")
    try:
        features = json.loads(metadata["ssop.features"])
        lexicon = Lexicon(
            features["english"], features["chinese"], frozenset(features["negations"]), frozenset(features["boosters"])
        )
        bits, version = int(features["bits"]), int(features["version"])
        grams = str(features.get("grams", "")).split()
        probe = [(str(text), float(valence)) for text, valence in json.loads(metadata["ssop.probe"])]
        name = metadata["ssop.version"]
        events = json.loads(metadata.get("ssop.events", "{}"))
        events_version, labels = str(events.get("version", "")), tuple(events.get("labels", ()))
        event_probe = [(str(text), str(label), float(chance)) for text, label, chance in events.get("probe", ())]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise HintError(f"{path}: its metadata are damaged ({type(error).__name__})") from error
    if version != VERSION or not probe:
        raise HintError(f"{path}: made for features of version {version}, this program has {VERSION}")
    if {node.name: node.type for node in session.get_inputs()} != _INPUTS:
        raise HintError(f"{path}: its graph does not take {', '.join(_INPUTS)}")
    if next(node.shape for node in session.get_inputs() if node.name == "dense") != [DENSE]:
        raise HintError(f"{path}: its graph does not take {DENSE} dense features")
    shape = {node.name: node.shape for node in session.get_outputs()}.get("events")
    is_whole = shape == [len(EVENTS)] and labels == EVENTS and bool(events_version and event_probe)
    if not is_whole and (shape is not None or events):
        raise HintError(f"{path}: its event types are not {', '.join(EVENTS)}")
    extractor = Extractor(lexicon, bits, grams)
    model = HintModel(session, extractor, name, events_version)
    if not model.has_row(extractor.span("zh")[-1]):
        raise HintError(f"{path}: its table is too short for its {len(grams)} n-grams")
    return model, probe, event_probe


def _check(path: str, model: HintModel, probe: Probe, event_probe: EventProbe) -> None:
    try:
        is_same = _says_again(model, probe, event_probe)
    except Exception as error:  # as above
        raise HintError(f"{path}: its graph can't be run ({type(error).__name__})") from error
    if not is_same:
        raise HintError(f"{path}: says something else of its own examples: features or runtime differ")


def _says_again(model: HintModel, probe: Probe, event_probe: EventProbe) -> bool:
    for text, wanted in probe:
        hint = model.judge(text)
        if hint is None or not abs(hint.valence - wanted) <= PROBE_TOLERANCE:
            return False
    for text, label, wanted in event_probe:
        hint = model.judge(text)
        if hint is None or not abs(hint.events[EVENTS.index(label)] - wanted) <= PROBE_TOLERANCE:
            return False
    return True
