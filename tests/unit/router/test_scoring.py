"""The classifier can be absent, fail, or be slow; requests are routed all the same."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from prometheus_client import CollectorRegistry

from helpers.classifiers import FixedClassifier
from helpers.scripted_mesh import ask, run_router
from ssop_router.core.complexity import Complexity
from ssop_router.metrics import RouterMetrics
from ssop_router.policy_settings import PolicySettings
from ssop_router.scoring import Classifier, Scorer, open_classifier


class Clock:
    """Each reading is `step_ns` later than the one before."""

    now_ns = 0
    step_ns = 1_000

    def __call__(self) -> int:
        self.now_ns += self.step_ns
        return self.now_ns


def scorer(model: FixedClassifier | None, clock: Clock | None = None, fault: str = "off") -> Scorer:
    classifier = Classifier(model, "" if model is not None else fault)
    return Scorer(classifier, RouterMetrics(CollectorRegistry()), timeout_us=100, clock_ns=clock or Clock())


def test_score_passes_through() -> None:
    assert scorer(FixedClassifier(0.7, spread=0.1))("x") == Complexity(0.7, 0.1)


def test_text_that_comes_again_is_not_scored_again() -> None:
    model = FixedClassifier(0.7)
    ask = scorer(model)
    assert [ask(text).score for text in ("x", "x", "y")] == [0.7] * 3
    assert model.asked == ["x", "y"]


def test_failure_is_not_remembered() -> None:
    model = FixedClassifier(error=RuntimeError("x"))
    ask = scorer(model)
    assert [ask("x").abstention for _ in range(2)] == ["failed"] * 2
    assert len(model.asked) == 2


def test_scores_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ssop_router.scoring._MOST_KNOWN", 2)
    model = FixedClassifier(0.7)
    ask = scorer(model)
    for text in ("a", "b", "c", "a"):
        ask(text)
    assert model.asked == ["a", "b", "c", "a"]


@pytest.mark.parametrize("fault", ["off", "missing", "unreadable"])
def test_absent_classifier_says_why(fault: str) -> None:
    assert scorer(None, fault=fault)("x").abstention == fault


@pytest.mark.parametrize("text", ["", "  \n"])
def test_nothing_to_score(text: str) -> None:
    assert scorer(FixedClassifier())(text).abstention == "empty"


def test_classifier_that_raises() -> None:
    assert scorer(FixedClassifier(error=RuntimeError("x")))("x").abstention == "failed"


@pytest.mark.parametrize(("score", "spread"), [(float("nan"), 0.0), (1.5, 0.0), (-0.1, 0.0), (0.5, float("nan"))])
def test_number_that_is_no_score(score: float, spread: float) -> None:
    assert scorer(FixedClassifier(score, spread=spread))("x").abstention == "invalid"


class Odd(NamedTuple):
    """As a complexity, and with a field more."""

    score: float = 0.5
    spread: float = 0.0
    abstention: str = ""
    more: str = ""


@pytest.mark.parametrize(
    "found",
    [None, 0.5, (0.5, 0.0, ""), SimpleNamespace(score=0.5, spread=0.0, abstention=""), Odd(), Complexity("high")],  # type: ignore[arg-type]
    ids=lambda found: type(found).__name__,
)
async def test_what_is_no_complexity_stops_no_request(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = FixedClassifier()
    monkeypatch.setattr(model, "score", lambda _: found)
    assert scorer(model)("x").abstention == "invalid"
    async with run_router(classifier=model) as mesh:
        assert (await mesh.generate(ask(policy="no_cache"))).error is None


def test_abstention_without_a_word_gets_one() -> None:
    assert scorer(FixedClassifier(None))("x").abstention == "unsure"


def test_score_that_came_too_late_is_not_used() -> None:
    clock = Clock()
    clock.step_ns = 200_000
    assert scorer(FixedClassifier(0.7), clock)("x").abstention == "deadline"


def test_slow_classifier_is_left_alone_for_a_second() -> None:
    clock, model = Clock(), FixedClassifier(0.7)
    clock.step_ns = 200_000
    ask = scorer(model, clock)
    assert [ask("x").abstention for _ in range(5)] == ["deadline"] * 3 + ["paused"] * 2
    assert len(model.asked) == 3
    clock.now_ns += 1_000_000_000
    clock.step_ns = 1_000
    assert ask("x").score == 0.7
    assert ask("x").score == 0.7


def test_text_is_cut_before_it_is_scored() -> None:
    model = FixedClassifier()
    scorer(model)("x" * 1_000_000)
    assert len(model.asked[0]) == 20_000


def test_no_file_named_is_off() -> None:
    assert open_classifier(PolicySettings(classifier_file="")).fault == "off"


def test_missing_file_is_an_answer(tmp_path: Path) -> None:
    found = open_classifier(PolicySettings(classifier_file=str(tmp_path / "none.onnx")))
    assert found.model is None
    assert found.fault in {"missing", "not_installed"}


def test_garbage_is_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"\0garbage" * 100)
    found = open_classifier(PolicySettings(classifier_file=str(path)))
    assert found.model is None
    assert found.fault in {"unreadable", "not_installed"}
