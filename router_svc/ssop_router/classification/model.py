"""The classifier on ONNX Runtime: text in, complexity out."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ssop_chassis.onnx_runtime import import_onnxruntime
from ssop_router.classification.artefact import ArtefactError, Card, check_signature, read_bytes, read_card
from ssop_router.classification.evaluation import UnknownGraphError, make_evaluator
from ssop_router.classification.extraction import IS_COMPILED, FeaturesMismatchError, make_extractor
from ssop_router.core.complexity import Complexity

PROVIDERS: Final = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
PROBE_TOLERANCE: Final = 1e-4
"""How far a probe's score may lie from the one in the artefact; beyond, features or runtime are not its own."""
EVALUATOR_TOLERANCE: Final = 1e-5
"""How far the evaluator's scores of the probes may lie from ONNX Runtime's."""
MAX_FOREIGN_SHARE: Final = 0.3
"""Share of letters that are neither Latin nor Chinese from which the classifier abstains."""

_log = logging.getLogger(__name__)
_Features = tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Provider:
    """What runs the graph. `missing` says why a wanted provider does not; empty where all is as wanted."""

    name: str
    missing: str = ""


class OnnxComplexityModel:
    """A ComplexityModel. Deterministic; safe on several threads; raises nothing for any text.

    Texts are scored by ONNX Runtime, and by the compiled evaluator where `use_evaluator` found that it knows the graph;
    `slow_because` says why not, and is empty then.
    """

    def __init__(self, session: Any, card: Card, provider: Provider, *, is_slow: bool = False) -> None:
        """`is_slow` takes the Python twin of the feature code. Raises FeaturesMismatchError."""
        self._run = session.run
        self._evaluate: Callable[[str], Complexity] | None = None
        self.slow_because = "not asked for"
        self._card = card
        self._extractor = make_extractor(card.features, is_slow=is_slow)
        self._extract = self._extractor.extract
        self._has_grams = bool(card.features["bits"])
        self._words, self._foreign = (card.features["base"].index(name) for name in ("log_words", "foreign_share"))
        self.provider = provider
        self.is_compiled = IS_COMPILED and not is_slow

    @property
    def version(self) -> str:
        """Names weights and features; stands in decisions and metrics."""
        return self._card.version

    @property
    def card(self) -> Card:
        """What the artefact says of itself."""
        return self._card

    @property
    def width(self) -> int:
        """Number of dense features."""
        return self._extractor.width

    @property
    def has_grams(self) -> bool:
        """Whether n-grams are among the features."""
        return self._has_grams

    def threshold_of(self, full_share: float) -> float:
        """The score from which on such a share of the training texts lies, from 0 to 1.

        Scores are ranks among them; `ssop route calibrate` finds the threshold for texts of one's own.
        """
        return min(1.0, max(0.0, 1.0 - full_share))

    def use_evaluator(self, content: bytes) -> None:
        """Score by the compiled evaluator if it knows the file's graph and agrees with the runtime on the probes."""
        try:
            evaluator = make_evaluator(
                content, self._extractor, words=self._words, foreign=self._foreign, foreign_share=MAX_FOREIGN_SHARE
            )
        except UnknownGraphError as error:
            self.slow_because = str(error)
            return
        texts = [text for text, _ in self._card.probe]
        wanted = self.score_batch(texts)
        if all(_agree(evaluator.score(text), one) for text, one in zip(texts, wanted, strict=True)):
            self._evaluate, self.slow_because = evaluator.score, ""
        else:
            self.slow_because = "the compiled evaluator scores its probes otherwise"

    def score(self, text: str) -> Complexity:
        """The complexity of one text."""
        if self._evaluate is not None:
            return self._evaluate(text)
        ids, weights, dense = self._extract(text)
        if abstention := self._abstention(dense):
            return Complexity(abstention=abstention)
        feed: dict[str, NDArray[Any]] = {"dense": dense[None]}
        if self._has_grams:
            feed |= {"ids": ids[None], "weights": weights[None]}
        score, spread = self._run(("score", "spread"), feed)
        return Complexity(float(score[0]), float(spread[0]))

    def score_batch(self, texts: Sequence[str]) -> list[Complexity]:
        """The complexities of several texts; by ONNX Runtime in one run of the graph."""
        if self._evaluate is not None:
            return [self._evaluate(text) for text in texts]
        rows = [self._extract(text) for text in texts]
        found = [Complexity(abstention=self._abstention(row[2])) for row in rows]
        wanted = [at for at, complexity in enumerate(found) if not complexity.abstention]
        if wanted:
            score, spread = self._run(("score", "spread"), self._pad([rows[at] for at in wanted]))
            for at, one, width in zip(wanted, score, spread, strict=True):
                found[at] = Complexity(float(one), float(width))
        return found

    def prepare(self, texts: Sequence[str]) -> dict[str, NDArray[Any]]:
        """What the graph takes for these texts, at least one."""
        return self._pad([self._extract(text) for text in texts])

    def run_graph(self, feed: dict[str, NDArray[Any]]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Scores and spreads for what `prepare` gave, abstentions not minded."""
        score, spread = self._run(("score", "spread"), feed)
        return score, spread

    def score_heads(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """For evaluation, a row a text: ranks of length, gain, need and n-grams, and the margin of the task type."""
        heads: NDArray[np.float32] = self._run(("heads",), self.prepare(texts))[0]
        return heads

    def _abstention(self, dense: NDArray[np.float32]) -> str:
        if dense[self._foreign] > MAX_FOREIGN_SHARE:
            return "language"
        return "" if dense[self._words] or dense[self._foreign] else "empty"

    def _pad(self, rows: Sequence[_Features]) -> dict[str, NDArray[Any]]:
        feed: dict[str, NDArray[Any]] = {"dense": np.stack([row[2] for row in rows])}
        if self._has_grams:
            longest = max(1, *(len(row[0]) for row in rows))
            feed["ids"] = np.zeros((len(rows), longest), np.int32)
            feed["weights"] = np.zeros((len(rows), longest), np.float32)
            for at, row in enumerate(rows):
                feed["ids"][at, : len(row[0])] = row[0]
                feed["weights"][at, : len(row[1])] = row[1]
        return feed


def open_model(path: Path, providers: Sequence[str], *, is_slow: bool = False) -> OnnxComplexityModel:
    """Read, check and probe an artefact. Raises ArtefactError."""
    content = read_bytes(path)
    try:
        onnxruntime = import_onnxruntime()
    except ImportError as error:
        raise ArtefactError(f"{path}: no onnxruntime here: pip install 'ssop-mesh[cpu]' or 'ssop-mesh[gpu]'") from error
    provider, names = _choose(onnxruntime, providers)
    try:
        session = onnxruntime.InferenceSession(content, _options(onnxruntime), providers=names)
    except Exception as error:  # the runtime's errors have no common base of their own
        raise ArtefactError(f"{path}: ONNX Runtime can't read it: {_first_line(error)}") from error
    if PROVIDERS[provider.name] not in session.get_providers():
        provider = Provider("cpu", "CUDA could not be started, see the runtime's log")
    try:
        metadata = session.get_modelmeta().custom_metadata_map
    except UnicodeDecodeError as error:
        raise ArtefactError(f"{path}: its metadata are damaged ({error})") from error
    card = read_card(path, metadata)
    try:
        model = OnnxComplexityModel(session, card, provider, is_slow=is_slow)
    except FeaturesMismatchError as error:
        raise ArtefactError(f"{path}: {error}") from error
    check_signature(path, session.get_inputs(), session.get_outputs(), width=model.width, has_grams=model.has_grams)
    _probe(path, model)
    if provider.name == "cpu" and not is_slow:
        model.use_evaluator(content)
        if model.slow_because:
            _log.warning("the classifier is scored by ONNX Runtime, 10 times as dear: %s", model.slow_because)
    if provider.missing:
        _log.warning("the classifier runs on the CPU: %s", provider.missing)
    return model


def _choose(onnxruntime: Any, wanted: Sequence[str]) -> tuple[Provider, list[Any]]:
    unknown = [name for name in wanted if name not in PROVIDERS]
    if unknown or not wanted:
        raise ArtefactError(f"classifier providers are {', '.join(PROVIDERS)}; given: {', '.join(wanted) or 'none'}")
    if wanted[0] == "cpu":
        return Provider("cpu"), [PROVIDERS["cpu"]]
    if PROVIDERS["cuda"] not in onnxruntime.get_available_providers():
        return Provider("cpu", "this onnxruntime has no CUDA: pip install 'ssop-mesh[gpu]'"), [PROVIDERS["cpu"]]
    # CUDA's libraries may lie in wheels beside this one, where the loader does not look by itself.
    if (preload := getattr(onnxruntime, "preload_dlls", None)) is not None:
        preload()
    # TensorFloat-32 would move scores by more than 1e-5.
    return Provider("cuda"), [(PROVIDERS["cuda"], {"use_tf32": "0"}), PROVIDERS["cpu"]]


def _options(onnxruntime: Any) -> Any:
    options = onnxruntime.SessionOptions()
    # One text is too little work to share out; threads that spin would take the cores of the loop.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return options


def _probe(path: Path, model: OnnxComplexityModel) -> None:
    try:
        scores, _ = model.run_graph(model.prepare([text for text, _ in model.card.probe]))
    except Exception as error:  # as above: the runtime's own errors
        raise ArtefactError(f"{path}: its graph can't be run: {_first_line(error)}") from error
    for score, (_, wanted) in zip(scores.tolist(), model.card.probe, strict=True):
        if not abs(score - wanted) <= PROBE_TOLERANCE:
            raise ArtefactError(
                f"{path}: scores {score:.4f} where {wanted:.4f} was written: features or runtime differ"
            )


def _agree(one: Complexity, other: Complexity) -> bool:
    if one.score is None or other.score is None:
        return one == other
    return max(abs(one.score - other.score), abs(one.spread - other.spread)) <= EVALUATOR_TOLERANCE


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
