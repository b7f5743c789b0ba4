"""A log under another policy."""

from typing import Any

import pytest

from helpers.decision_log import line
from ssop.v1.mesh_pb2 import Tier
from ssop_router.core.complexity import Complexity
from ssop_router.core.record import Record, RecordError, read_record
from ssop_router.core.replay import Comparison, Price, Replayer, compare, sweep
from ssop_router.policy_settings import PolicySettings

PRICES = {"lite": Price(1.0, 2.0), "full": Price(10.0, 20.0)}


def policy(**values: Any) -> PolicySettings:
    return PolicySettings.model_validate({"rules": [], "score": {"threshold": 0.5, "hysteresis": 0}, **values})


def records(*lines: dict[str, Any]) -> list[Record]:
    return [read_record(entry) for entry in lines]


def run(*lines: dict[str, Any], **values: Any) -> Comparison:
    return compare(records(*lines), policy(**values).decision(), PRICES)


def test_threshold_moves_requests() -> None:
    lines = [line(0.6), line(0.9), line(0.2, tier="lite")]
    found = run(*lines, score={"threshold": 0.7})
    assert (found.before.tiers, found.after.tiers) == ({"full": 2, "lite": 1}, {"full": 1, "lite": 2})
    assert (found.to_lite, found.to_full) == (1, 0)


def test_same_policy_changes_nothing() -> None:
    lines = [line(0.6), line(0.9), line(0.2, tier="lite", times_ms=(50, 300))]
    found = run(*lines)
    assert found.before == found.after


def test_cost_is_of_tokens_at_the_price_of_the_tier() -> None:
    found = run(line(0.6, tokens=(100, 50)), score={"threshold": 0.7})
    assert found.before.cost == 100 * 10 + 50 * 20
    assert found.after.cost == 100 * 1 + 50 * 2


def test_times_of_a_moved_request_are_those_of_its_new_tier() -> None:
    lite = line(0.2, tier="lite", times_ms=(50, 300), tokens=(10, 50))
    found = run(line(0.6, times_ms=(200, 1200), tokens=(10, 100)), lite, score={"threshold": 0.7})
    assert sorted(found.before.total_ms) == [300, 1200]
    assert sorted(found.after.total_ms) == [300, 50 + 5 * 100]


def test_times_that_nobody_knows_are_said_to_be_unknown() -> None:
    found = run(line(0.6), score={"threshold": 0.7})
    assert found.after.untimed == 1
    assert list(found.after.total_ms) == []


def test_stored_answers_cost_nothing() -> None:
    found = run(line(0.6, served_by="", cache="hit"))
    assert found.before.cost == found.after.cost == 0


def test_abstention_takes_the_default() -> None:
    assert run(line(None, reason="default"), default_tier="lite").after.tiers == {"lite": 1}


def test_forced_requests_stay() -> None:
    entry = line(0.1, reason="policy_forced", policy="full")
    assert run(entry, score={"threshold": 0.9}).after.tiers == {"full": 1}


def test_tier_that_could_not_serve_is_not_chosen() -> None:
    entry = line(0.6, losses={"lite": "context_fit"})
    found = run(entry, score={"threshold": 0.9})
    assert (found.after.tiers, found.after.reasons) == ({"full": 1}, {"context_fit": 1})


def test_request_that_the_policy_refuses() -> None:
    assert run(line(0.6, model="old-name")).after.refused == 1


def test_rule_by_length_needs_no_text() -> None:
    rules = [{"tier": "lite", "max_chars": 600}]
    assert run(line(0.9), rules=rules).after.tiers == {"lite": 1}


def rule_with(*words: str) -> list[dict[str, Any]]:
    return [{"tier": "lite", "words": list(words)}]


def digest(*words: str) -> str:
    found = policy(rules=rule_with(*words)).decision().rules[0].words
    assert found is not None
    return found.digest


@pytest.mark.parametrize("is_found", [True, False])
def test_words_that_were_looked_for_are_known(is_found: bool) -> None:
    found = run(line(0.9, words={digest("sum", "list"): is_found}), rules=rule_with("list", "sum"))
    assert found.after.tiers == ({"lite": 1} if is_found else {"full": 1})
    assert found.undecidable == 0


def test_words_that_the_log_knows_nothing_of_are_counted() -> None:
    found = run(line(0.9), rules=rule_with("sum"))
    assert (found.after.tiers, found.undecidable) == ({"full": 1}, 1)


def test_text_decides_where_the_log_has_it() -> None:
    found = run(line(0.9, text="Sum it up"), rules=rule_with("sum"))
    assert (found.after.tiers, found.undecidable) == ({"lite": 1}, 0)


def test_conversations_are_led_by_the_new_policy() -> None:
    lines = [line(0.6, conversation="c", chars=500), line(0.1, conversation="c", chars=10)]
    assert run(*lines).after.tiers == {"full": 2}
    assert run(*lines, score={"threshold": 0.9}).after.tiers == {"lite": 2}


def test_scores_can_be_made_anew() -> None:
    replayer = Replayer(policy().decision(), lambda _: Complexity(0.9))
    assert replayer.choose(records(line(0.1, tier="lite"))[0]).tier == Tier.TIER_FULL


def test_sweep_goes_from_all_to_none() -> None:
    lines = [line(score / 10) for score in range(1, 10)]
    shares = [tally.full_share for _, tally in sweep(records(*lines), policy().decision(), PRICES, [0, 0.5, 1])]
    assert shares == [1.0, pytest.approx(5 / 9), 0.0]


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"v": 1, "request": None},
        {"complexity": {}},
        {"tiers": {"huge": {}}},
        {"decision": {"tier": "full", "reason": "nonsense"}},
        {"result": {}},
    ],
)
def test_damaged_line_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        read_record({**line(), **change})


def test_policy_words_of_a_damaged_line_are_refused() -> None:
    with pytest.raises(RecordError):
        read_record(line(policy="lite,full"))
