"""Training: measures against figures done by hand, labels that can't be used, artefacts that are the same twice."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ssop_router.classification.training.fitting import BalancedRidge, fit_ridge, weigh_groups
from ssop_router.classification.training.measures import (
    measure_apgr,
    measure_balance,
    measure_cpt,
    measure_routing,
    rank_within,
    recover_quality,
)
from ssop_router.classification.training.own import train_on_labels
from ssop_router.classification.training.recipe import leave_out, train
from ssop_router.classification.training.rows import LabelsError, Row, cap_sources, read_labels
from ssop_router.classifier import load_classifier

WEAK = np.array([0.0, 0.0, 1.0, 1.0])
STRONG = np.ones(4)


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def labelled(count: int) -> list[dict[str, Any]]:
    rows = []
    for at in range(count):
        rows.append({"text": f"Translate word number {at} to French.", "label": "lite"})
        text = f"Prove that if n = {at} then n + 1 > n, and explain why it follows step by step for all integers."
        rows.append({"text": text, "label": "full"})
    return rows


def test_a_perfect_order_recovers_the_gap_first() -> None:
    assert recover_quality(np.array([4.0, 3, 2, 1]), WEAK, STRONG).tolist() == [0, 0.5, 1, 1, 1]


def test_apgr_is_the_area() -> None:
    assert measure_apgr(np.array([4.0, 3, 2, 1]), WEAK, STRONG) == pytest.approx(0.75)
    assert measure_apgr(np.array([1.0, 2, 3, 4]), WEAK, STRONG) == pytest.approx(0.25)


def test_equal_scores_count_as_in_random_order() -> None:
    assert measure_apgr(np.zeros(4), WEAK, STRONG) == pytest.approx(0.5)


def test_cpt_is_the_share_of_strong_calls() -> None:
    score = np.array([4.0, 3, 2, 1])
    assert measure_cpt(score, WEAK, STRONG, 0.5) == pytest.approx(25)
    assert measure_cpt(score, WEAK, STRONG, 0.8) == pytest.approx(40)
    assert measure_cpt(np.zeros(4), WEAK, STRONG, 0.8) == pytest.approx(80)


def test_no_gap_is_a_fault() -> None:
    with pytest.raises(ValueError, match="equally good"):
        measure_apgr(np.zeros(2), np.ones(2), np.ones(2))


def test_intervals_hold_the_value_and_the_lead_of_a_score_over_itself_is_nothing() -> None:
    generator = np.random.default_rng(0)
    weak, score = (generator.random(200) < 0.5).astype(float), generator.random(200)
    found = measure_routing(score, weak, np.ones(200), reference=score, draws=50)
    assert found.apgr.low <= found.apgr.value <= found.apgr.high
    assert found.lead is not None
    assert (found.lead.low, found.lead.value, found.lead.high) == (0, 0, 0)


def test_balance_is_the_mean_of_recalls() -> None:
    is_full = np.array([True, True, False, False, False, False])
    assert measure_balance(is_full, np.array([True, False, False, False, False, True])) == pytest.approx(0.625)


def test_ranks_are_counted_inside_groups() -> None:
    found = rank_within(np.array([1.0, 9, 2, 8]), np.array(["a", "a", "b", "b"]))
    assert found.tolist() == [0.25, 0.75, 0.25, 0.75]


def test_sources_are_capped_the_same_way_each_time() -> None:
    rows = [Row(str(at), "a", "a", is_full=True) for at in range(50)] + [Row("x", "b", "b", is_full=True)]
    assert cap_sources(rows, 10) == cap_sources(rows, 10)
    assert len(cap_sources(rows, 10)) == 11


def test_a_blend_without_length_keeps_the_proportions() -> None:
    assert leave_out((0.5, 0.1, 0.3, 0.1)) == pytest.approx((0, 0.25, 0.75, 0))
    assert leave_out((1.0, 0, 0, 0)) == (0, 0.5, 0.5, 0)


def test_cells_count_alike_whatever_is_left_out() -> None:
    generator = np.random.default_rng(0)
    columns = np.hstack([np.ones((60, 1)), generator.normal(size=(60, 3))])
    target, weights = generator.normal(size=60), generator.random(60) + 0.5
    cells, out = np.repeat([0, 1, 2], [10, 20, 30]), np.arange(60) % 7 == 0
    balanced = np.zeros(60)
    for cell in range(3):
        at = (cells == cell) & ~out
        balanced[at] = weights[at] / weights[at].sum() * (~out).sum() / 3
    wanted = fit_ridge(columns[~out], target[~out], balanced[~out], 5.0)
    assert BalancedRidge(columns, target, weights, cells, 5.0).fit(out) == pytest.approx(wanted)


def test_a_cell_that_is_left_out_whole_leaves_the_others() -> None:
    columns, target, cells = np.ones((6, 1)), np.array([1.0, 1, 1, 5, 5, 5]), np.array([0, 0, 0, 1, 1, 1])
    assert BalancedRidge(columns, target, np.ones(6), cells, 0.0).fit(cells == 1) == pytest.approx([1], abs=1e-4)


def test_predictions_saw_nothing_of_their_group() -> None:
    ridge = BalancedRidge(np.ones((4, 1)), np.array([1.0, 1, 5, 5]), np.ones(4), np.zeros(4, np.intp), 0.0)
    assert ridge.predict_held_out(np.array(["a", "a", "b", "b"])) == pytest.approx([5, 5, 1, 1], abs=1e-4)


def test_the_weight_of_a_group_may_differ_in_its_power() -> None:
    groups, power = np.array(["a", "a", "b", "b", "b"]), np.array([0.0, 0, 1, 1, 1])
    assert weigh_groups(groups, power) == pytest.approx(np.array([0.5, 0.5, 1, 1, 1]) * 5 / 4)


def test_what_qualities_say_of_a_task_type_goes_before_its_label() -> None:
    assert Row("a", "s", "s", is_full=False, is_gainful=True).needs_full
    assert Row("a", "s", "s", is_full=True).needs_full
    assert not Row("a", "s", "s", is_full=False).needs_full


def test_shares_that_are_given_are_not_chosen() -> None:
    rows = [
        Row(line["text"], "s", f"part-{at % 3}", float(line["label"] == "lite"), 1.0, line["label"] == "full")
        for at, line in enumerate(labelled(30))
    ]
    shares = (0.5, 0.125, 0.375, 0.0)
    trained = train(rows, rows, tries_grams=False, is_chinese_seen=True, notes={}, shares=shares)
    assert trained.blend == shares
    assert trained.parameters.blend.tolist() == [list(shares)] * 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "no JSON"),
        ("[]", "not an object"),
        ('{"text": ""}', "'text' is"),
        ('{"text": 1, "label": "full"}', "'text' is"),
        ('{"text": "a"}', "needs 'label'"),
        ('{"text": "a", "label": "medium"}', "lite or full"),
        ('{"text": "a", "weak": 0.5}', "come together"),
        ('{"text": "a", "weak": 2, "strong": 1}', "from 0 to 1"),
        ('{"text": "a", "weak": true, "strong": 1}', "from 0 to 1"),
        ('{"text": "a", "weak": NaN, "strong": 1}', "from 0 to 1"),
        ('{"text": "a", "label": "full", "source": 1}', "'source'"),
        ("[" * 100_000, "no JSON"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(json.dumps({"text": "a", "label": "full"}) + "\n" + line + "\n")
    with pytest.raises(LabelsError, match=message) as caught:
        read_labels(path)
    assert "line 2" in str(caught.value)


def test_no_file_no_rows_and_broken_archives_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a", "label": "full"}\n' * 100)[:40])
    for name in ("none.jsonl", "empty.jsonl", "cut.jsonl.gz"):
        with pytest.raises(LabelsError):
            read_labels(tmp_path / name)


def test_training_twice_gives_the_same_bytes_and_a_classifier_that_has_learned(tmp_path: Path) -> None:
    path = write(tmp_path / "labels.jsonl", labelled(60))
    trained, report = train_on_labels(path, 50)
    again, _ = train_on_labels(path, 50)
    assert trained.artefact == again.artefact
    assert report["model"]["between"] > 0.7
    artefact = tmp_path / "own.onnx"
    artefact.write_bytes(trained.artefact)
    classifier = load_classifier(artefact)
    low, high = classifier.score("Translate word number 7 to French."), classifier.score(labelled(1)[1]["text"])
    assert low.score is not None
    assert high.score is not None
    assert low.score < high.score


def test_an_artefact_holds_none_of_the_texts_it_was_trained_on(tmp_path: Path) -> None:
    trained, _ = train_on_labels(write(tmp_path / "labels.jsonl", labelled(60)), 50)
    assert b"Translate word number" not in trained.artefact


def test_qualities_alone_are_enough(tmp_path: Path) -> None:
    rows = [{"text": row["text"], "weak": float(row["label"] == "lite"), "strong": 1} for row in labelled(60)]
    trained, report = train_on_labels(write(tmp_path / "labels.jsonl", rows), 50)
    assert trained.blend[2] == 0
    assert report["tier_rows"] == 0


def test_too_few_rows_and_no_gain_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LabelsError, match="50 are needed"):
        train_on_labels(write(tmp_path / "few.jsonl", labelled(10)), 50)
    rows = [{"text": f"{at}", "weak": 1, "strong": 1} for at in range(60)]
    with pytest.raises(LabelsError, match="nothing to route for"):
        train_on_labels(write(tmp_path / "even.jsonl", rows), 50)
