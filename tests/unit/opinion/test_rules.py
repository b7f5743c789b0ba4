"""Rules: which posts fit."""

from typing import Any

import pytest
from pydantic import ValidationError

from helpers.opinion_posts import make_facts, make_post, make_record
from ssop_opinion.core.rules import DEFAULT_RULES, Condition, Rule, facts_of_fields, facts_of_record

GRAVE = DEFAULT_RULES[0]


@pytest.mark.parametrize(
    ("op", "value", "found", "holds"),
    [
        (">=", 4, 4, True),
        (">=", 4, 3, False),
        ("<", -3.5, -4, True),
        ("<", -3.5, -3, False),
        (">", 1, True, False),
        (">", 1, "2", False),
        ("=", "Crisis", "crisis", True),
        ("=", 1, 1.0, True),
        ("=", True, 1, False),
        ("!=", "praise", "crisis", True),
        ("in", ("crisis", "failure"), "FAILURE", True),
        ("in", (1, 2), 3, False),
        ("<=", 3, None, False),
    ],
)
def test_comparison(op: Any, value: Any, found: Any, holds: bool) -> None:
    assert Condition(field="f", op=op, value=value).holds(found) is holds


@pytest.mark.parametrize(
    "document",
    [
        {"field": "f", "op": ">", "value": "text"},
        {"field": "f", "op": "in", "value": 1},
        {"field": "f", "op": "=", "value": [1]},
        {"field": "f;drop", "op": "=", "value": 1},
        {"field": "f", "op": "like", "value": "x"},
        {"field": "f", "op": ">", "value": True},
    ],
)
def test_a_comparison_that_means_nothing_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Condition.model_validate(document)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "velocity"},
        {"kind": "velocity", "count": 3},
        {"kind": "sequence", "count": 1},
        {"count": 2},
        {"within_s": 5},
        {"name": "Not A Name"},
        {"when": []},
    ],
)
def test_a_rule_that_means_nothing_is_refused(changes: dict[str, Any]) -> None:
    document = {"name": "r", "when": [{"field": "severity", "op": ">", "value": 3}], **changes}
    with pytest.raises(ValidationError):
        Rule.model_validate(document)


def test_nothing_is_said_before_the_fields_that_decide_are_there() -> None:
    post = make_post()
    fields = {"main_entity": "X200", "event_type": "failure", "severity": 4}
    assert GRAVE.fits(facts_of_fields(post, fields)) is None
    assert GRAVE.fits(facts_of_fields(post, {**fields, "sentiment_score": -4})) is True


def test_a_final_record_without_a_field_does_not_fit() -> None:
    record = make_record(make_post())
    facts = facts_of_record(record)
    values = {name: value for name, value in facts.values.items() if name != "severity"}
    assert GRAVE.fits(facts) is True
    assert GRAVE.fits(type(facts)(facts.key, facts.tenant, values, 0, is_final=True)) is False


@pytest.mark.parametrize("verdict", ["invalid", "incomplete", "failed"])
def test_an_answer_that_is_not_whole_fits_nothing(verdict: Any) -> None:
    assert GRAVE.fits(facts_of_record(make_record(make_post(), verdict=verdict))) is False


def test_a_canned_document_fits_nothing() -> None:
    assert GRAVE.fits(make_facts(level=3)) is False
    assert GRAVE.fits(make_facts(level=2)) is True


def test_a_rule_may_leave_degraded_answers_out() -> None:
    rule = GRAVE.model_copy(update={"takes_degraded": False})
    assert rule.fits(make_facts(level=1)) is False
    assert rule.fits(make_facts()) is True


@pytest.mark.parametrize(
    ("scope", "holds"),
    [
        ({"entities": ("x200 ",)}, True),
        ({"entities": ("X300",)}, False),
        ({"regions": ("East",)}, True),
        ({"regions": ("west",)}, False),
        ({"product_lines": ("tablets",)}, False),
    ],
)
def test_scope(scope: dict[str, Any], holds: bool) -> None:
    assert GRAVE.model_copy(update=scope).fits(make_facts()) is holds


def test_an_answer_cannot_take_the_place_of_a_posts_metadata() -> None:
    facts = facts_of_fields(make_post(region="east"), {"region": "west", "product_line": "other"})
    assert (facts.label("region"), facts.label("product_line")) == ("east", "phones")
