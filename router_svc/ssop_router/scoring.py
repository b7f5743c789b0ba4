# cython: annotation_typing=False
"""The classifier as decisions see it: loaded or not, measured, and never able to stop a request.

`scoring.pxd` gives the types with which this very file is compiled.
"""

import logging
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from ssop_router.core.complexity import Complexity, ComplexityModel
from ssop_router.metrics import RouterMetrics
from ssop_router.policy_settings import PACKAGED, PolicySettings

# A classifier reads the head of a text; this only bounds what a slow one can be given.
_MAX_CHARS: Final = 20_000
_MOST_KNOWN: Final = 4_096
_OVERRUNS_TO_PAUSE: Final = 3
_PAUSE_NS: Final = 1_000_000_000
_log = logging.getLogger(__name__)


class Classifier(NamedTuple):
    """A classifier, or why there is none: `off`, `missing`, `not_installed` or `unreadable`.

    `threshold` is what its calibration says for the wanted share of the full tier; None where it has none. `provider`
    is what runs it; `detail` says why, where it is not the one that was wanted.
    """

    model: ComplexityModel | None = None
    fault: str = "off"
    detail: str = ""
    threshold: float | None = None
    provider: str = ""
    slow_because: str = ""


def open_classifier(settings: PolicySettings) -> Classifier:
    """Load what `classifier_file` names. A failure is an answer: requests are routed without it."""
    name = settings.classifier_file
    if not name:
        return Classifier()
    if name != PACKAGED and not Path(name).is_file():
        return Classifier(fault="missing", detail=f"{name} is no file")
    if find_spec("onnxruntime") is None or find_spec("numpy") is None:
        return Classifier(fault="not_installed", detail="no onnxruntime: pip install 'ssop-mesh[cpu]' or [gpu]")
    return _load(name, settings)


def _load(name: str, settings: PolicySettings) -> Classifier:
    from ssop_router.classifier import SHIPPED, load_classifier  # noqa: PLC0415 - NumPy, only where it is used

    path = SHIPPED if name == PACKAGED else Path(name)
    if not path.is_file():
        return Classifier(fault="missing", detail=f"{path} is no file")
    provider = settings.classifier_provider
    try:
        model = load_classifier(path, providers=("cpu",) if provider == "cpu" else (provider, "cpu"))
    except Exception as error:  # noqa: BLE001 - an artefact is a file of anybody's, and its reader a large library
        return Classifier(fault="unreadable", detail=f"{type(error).__name__}: {error}"[:500])
    # Scores are ranks, so that a share is a threshold.
    threshold = 1 - settings.score.full_share
    slow_because = model.slow_because if model.provider.name == "cpu" else ""
    return Classifier(model, "", model.provider.missing, threshold, model.provider.name, slow_because)


class Scorer:
    """Asks the classifier, and abstains for it where it is absent, fails, or has just been too slow.

    `clock_ns` is monotonic. A score that came too late is not used: the time is spent, but whoever set the limit hears
    of it. After three in a row the classifier is left alone for a second. Scores are remembered.
    """

    def __init__(
        self,
        classifier: Classifier,
        metrics: RouterMetrics,
        *,
        timeout_us: int,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._model = classifier.model
        self._absent = Complexity(abstention=classifier.fault or "off")
        self._metrics = metrics
        self._timeout_ns = timeout_us * 1_000
        self._clock_ns = clock_ns
        self._overruns = 0
        self._ask_again_ns = 0
        self._known: dict[int, Complexity] = {}

    @property
    def version(self) -> str:
        """Version of the classifier; empty where there is none."""
        return self._model.version if self._model is not None else ""

    def __call__(self, text: str) -> Complexity:
        """The complexity of a text, or an abstention with its reason."""
        if self._model is None:
            return self._absent
        if not text or text.isspace():
            return Complexity(abstention="empty")
        text = text[:_MAX_CHARS]
        # Random for each process, so that nobody can choose texts that collide; texts themselves are not kept.
        name = hash(text)
        if (known := self._known.get(name)) is not None:
            return known
        started_ns = self._clock_ns()
        if self._overruns >= _OVERRUNS_TO_PAUSE and started_ns < self._ask_again_ns:
            return Complexity(abstention="paused")
        found = _ask(self._model, text)
        now_ns = self._clock_ns()
        self._metrics.classifier_seconds.observe((now_ns - started_ns) / 1e9)
        if now_ns - started_ns > self._timeout_ns:
            self._overruns += 1
            self._ask_again_ns = now_ns + _PAUSE_NS
            return found if found.abstention else Complexity(abstention="deadline")
        self._overruns = 0
        if found.score is not None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[name] = found
        return found


def _ask(model: ComplexityModel, text: str) -> Complexity:
    try:
        found = model.score(text)
    except Exception as error:  # noqa: BLE001 - it promises to raise nothing, and no request hangs on that promise
        _log.warning("the classifier failed", extra={"kind": type(error).__name__})
        return Complexity(abstention="failed")
    if not _is_complexity(found):
        return Complexity(abstention="invalid")
    return found if found.score is not None or found.abstention else Complexity(abstention="unsure")


def _is_complexity(found: object) -> bool:
    """Whether a classifier returned what it is to return: decisions read it by place."""
    if not isinstance(found, Complexity):
        return False
    try:
        # Written so that a NaN is caught.
        return found.score is None or bool(0 <= found.score <= 1 and 0 <= found.spread <= 1)
    except TypeError:
        return False
