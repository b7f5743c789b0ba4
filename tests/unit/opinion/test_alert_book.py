"""The alerts of a tenant: what opens, joins, corrects, withdraws, escalates and is over."""

from collections import Counter
from typing import Any

import pytest

from helpers.opinion_posts import START_MS, TENANT, make_facts
from ssop_opinion.core.alert_book import AlertBook
from ssop_opinion.core.alert_policy import AlertPolicy
from ssop_opinion.core.alerts import Alert, AlertError, Notice, move
from ssop_opinion.core.rules import DEFAULT_RULES, Condition, Rule

GRAVE = DEFAULT_RULES[0]
NEGATIVE = (Condition(field="sentiment_label", value="negative"),)
PACE = Rule(name="pace", kind="velocity", when=NEGATIVE, count=3, within_s=60)


def make_book(*rules: Rule, **changes: Any) -> AlertBook:
    return AlertBook(TENANT, AlertPolicy(rules=rules or (GRAVE,), **changes))


def events(notices: list[Notice]) -> list[str]:
    return [one.event for one in notices]


def only(book: AlertBook) -> Alert:
    (alert,) = book.open_alerts
    return alert


def test_a_post_opens_a_provisional_alert_that_its_verdict_confirms() -> None:
    book = make_book()
    (opened,) = book.judge(make_facts(is_final=False), START_MS)
    assert (opened.event, opened.alert.phase, opened.alert.entity) == ("opened", "provisional", "X200")
    assert events(book.judge(make_facts(), START_MS + 900)) == ["confirmed"]
    assert only(book).phase == "confirmed"


def test_a_record_that_comes_whole_opens_a_confirmed_alert() -> None:
    (opened,) = make_book().judge(make_facts(), START_MS)
    assert (opened.event, opened.alert.phase) == ("opened", "confirmed")


@pytest.mark.parametrize(
    "changes", [{"sentiment_score": 2}, {"is_valid": False}, {"level": 3}, {"severity": 1}], ids=str
)
def test_a_verdict_that_does_not_bear_it_out_withdraws_the_alert(changes: dict[str, Any]) -> None:
    book = make_book()
    book.judge(make_facts(is_final=False), START_MS)
    (notice,) = book.judge(make_facts(**changes), START_MS + 900)
    assert (notice.event, notice.alert.phase) == ("withdrawn", "withdrawn")
    assert list(book.open_alerts) == []


@pytest.mark.parametrize("changes", [{"sentiment_score": -5}, {"severity": 5}, {"event_type": "crisis"}], ids=str)
def test_a_verdict_that_changes_what_was_told_corrects_the_alert(changes: dict[str, Any]) -> None:
    book = make_book()
    (opened,) = book.judge(make_facts(is_final=False), START_MS)
    (notice,) = book.judge(make_facts(**changes), START_MS + 900)
    assert (notice.event, notice.alert.phase, notice.alert.id) == ("corrected", "corrected", opened.alert.id)


def test_a_verdict_about_another_entity_corrects_the_alert_and_moves_it() -> None:
    book = make_book()
    (opened,) = book.judge(make_facts(is_final=False), START_MS)
    (notice,) = book.judge(make_facts(main_entity="X300"), START_MS + 900)
    assert (notice.event, notice.alert.entity, notice.alert.id) == ("corrected", "X300", opened.alert.id)
    assert book.judge(make_facts("2", main_entity="X300"), START_MS + 1_000) == []
    assert events(book.judge(make_facts("3"), START_MS + 1_100)) == ["opened"]


def test_a_degraded_verdict_is_marked() -> None:
    book = make_book()
    book.judge(make_facts(is_final=False), START_MS)
    (notice,) = book.judge(make_facts(level=2), START_MS + 900)
    assert (notice.event, notice.alert.degraded_posts, notice.alert.posts) == ("corrected", 1, 1)
    assert notice.alert.told is not None
    assert notice.alert.told["degraded"] == 2


def test_posts_about_the_same_entity_and_event_join_one_alert() -> None:
    book = make_book()
    notices = [one for number in range(9) for one in book.judge(make_facts(str(number)), START_MS + number)]
    assert events(notices) == ["opened"]
    assert only(book).posts == 9
    assert events(book.judge(make_facts("x", event_type="crisis"), START_MS + 50)) == ["opened"]


def test_an_alert_that_grows_is_told_at_powers_of_ten() -> None:
    book = make_book()
    notices = [one for number in range(100) for one in book.judge(make_facts(str(number)), START_MS + number)]
    assert [(one.event, one.alert.posts) for one in notices] == [("opened", 1), ("grown", 10), ("grown", 100)]


def test_judging_the_same_facts_again_changes_nothing() -> None:
    book = make_book()
    for is_final in (False, True):
        book.judge(make_facts(is_final=is_final), START_MS)
    before = only(book)
    assert book.judge(make_facts(), START_MS + 5) == []
    assert only(book) == before


def test_a_post_judged_again_after_a_withdrawal_makes_the_same_messages() -> None:
    book = make_book()
    first = book.judge(make_facts(is_final=False), START_MS) + book.judge(make_facts(severity=1), START_MS + 1)
    again = book.judge(make_facts(is_final=False), START_MS + 9) + book.judge(make_facts(severity=1), START_MS + 9)
    assert [one.id for one in first] == [one.id for one in again]


def test_a_graver_rule_raises_an_open_alert() -> None:
    mild = Rule(name="mild", severity="info", when=NEGATIVE)
    book = make_book(mild, GRAVE)
    book.judge(make_facts("1", severity=1), START_MS)
    (notice,) = book.judge(make_facts("2"), START_MS + 1)
    assert (notice.event, notice.alert.severity, notice.alert.rule) == ("raised", "critical", "grave")


def test_a_velocity_is_crossed_by_the_last_of_enough_posts() -> None:
    book = make_book(PACE)
    crossed = [
        events(book.judge(make_facts(str(n), at_ms=START_MS + n * 1_000), START_MS + n * 1_000)) for n in (0, 1, 2)
    ]
    assert crossed == [[], [], ["opened"]]
    assert (only(book).first_post_ms, only(book).posts) == (START_MS, 3)


def test_a_velocity_that_rests_on_fields_is_confirmed_by_the_last_verdict() -> None:
    book = make_book(PACE)
    for number in range(3):
        book.judge(make_facts(str(number), is_final=False), START_MS)
    assert only(book).phase == "provisional"
    assert [events(book.judge(make_facts(str(n)), START_MS)) for n in range(3)] == [[], [], ["confirmed"]]


def test_a_velocity_without_one_of_its_posts_is_withdrawn() -> None:
    book = make_book(PACE)
    for number in range(3):
        book.judge(make_facts(str(number), is_final=False), START_MS)
    book.judge(make_facts("0"), START_MS)
    assert events(book.judge(make_facts("1", sentiment_label="positive"), START_MS)) == ["withdrawn"]


def test_an_opener_that_was_wrong_corrects_an_alert_that_others_bear_out() -> None:
    book = make_book(PACE)
    for number in range(4):
        book.judge(make_facts(str(number), is_final=number != 2), START_MS)
    (notice,) = book.judge(make_facts("2", is_valid=False), START_MS)
    assert (notice.event, notice.alert.told) == ("corrected", {})


def test_three_bad_scores_in_a_row_cross_a_sequence() -> None:
    row = DEFAULT_RULES[2]
    book = make_book(row)
    scores = [-4, -4, 1, -4, -5, -4]
    crossed = [
        bool(book.judge(make_facts(str(n), at_ms=START_MS + n, sentiment_score=score), START_MS + n))
        for n, score in enumerate(scores)
    ]
    assert crossed == [False, False, False, False, False, True]


def test_nobody_acknowledging_escalates_a_bounded_number_of_times() -> None:
    book = make_book(escalate_after_s={"critical": 60}, max_escalations=2)
    book.judge(make_facts(), START_MS)
    told = [events(book.tick(START_MS + second * 1_000)) for second in (59, 60, 61, 120, 180, 240)]
    assert told == [[], ["escalated"], [], ["escalated"], [], []]


def test_an_acknowledged_alert_is_not_escalated() -> None:
    book = make_book(escalate_after_s={"critical": 60})
    book.judge(make_facts(), START_MS)
    seen = book.acknowledge(only(book).id, "ann", START_MS + 5)
    assert (seen.acknowledged_by, seen.acknowledged_ms) == ("ann", START_MS + 5)
    assert book.tick(START_MS + 90_000) == []
    assert book.acknowledge(seen.id, "bob", START_MS + 9).acknowledged_by == "ann"


def test_an_alert_without_new_posts_is_over() -> None:
    book = make_book(expires_after_s=3_600, escalate_after_s={})
    book.judge(make_facts(), START_MS)
    assert events(book.tick(START_MS + 3_601_000)) == ["expired"]
    with pytest.raises(AlertError):
        book.acknowledge("x", "ann", START_MS)


def test_after_the_time_of_joining_a_new_alert_is_opened() -> None:
    book = make_book(dedup_s=60)
    book.judge(make_facts("1"), START_MS)
    assert events(book.judge(make_facts("2"), START_MS + 61_000)) == ["opened"]


@pytest.mark.parametrize("phase", ["withdrawn", "expired"])
def test_an_alert_that_has_ended_moves_no_more(phase: Any) -> None:
    book = make_book()
    (opened,) = book.judge(make_facts(is_final=False), START_MS)
    ended = move(opened.alert, phase)
    with pytest.raises(AlertError):
        move(ended, "confirmed")


def test_a_flood_of_ten_thousand_posts_makes_a_bounded_number_of_messages() -> None:
    book = make_book(*DEFAULT_RULES, storm_alerts=20, storm_s=600, escalate_after_s={})
    notices: list[Notice] = []
    for number in range(10_000):
        # Each about another entity: nothing joins. 200 posts a second.
        now_ms = START_MS + number * 5
        facts = make_facts(str(number), at_ms=now_ms, main_entity=f"entity {number}")
        notices += book.judge(facts, now_ms)
    notices += book.tick(START_MS + 700_000)
    assert Counter(events(notices)) == {"opened": 20, "storm": 2}
    assert notices[-1].alert.more == 9_980
    assert notices[-1].alert.told is not None
    assert len(notices[-1].alert.told["entities"]) == 5


def test_a_flood_about_one_entity_is_one_alert() -> None:
    book = make_book(*DEFAULT_RULES, escalate_after_s={})
    notices = [
        one
        for number in range(10_000)
        for one in book.judge(make_facts(str(number), at_ms=START_MS + number * 5), START_MS + number * 5)
    ]
    assert Counter(events(notices)) == {"opened": 1, "grown": 4}


def test_a_storm_of_warnings_hides_no_critical_alert() -> None:
    mild = Rule(name="mild", when=NEGATIVE)
    book = make_book(mild, GRAVE, storm_alerts=2)
    for number in range(9):
        book.judge(make_facts(str(number), main_entity=f"e{number}", severity=1), START_MS)
    assert any(one.alert.severity == "critical" for one in book.judge(make_facts("x"), START_MS))


def test_a_book_goes_on_where_another_ended() -> None:
    book = make_book(PACE)
    for number in range(2):
        book.judge(make_facts(str(number)), START_MS)
    changes = book.take_changes()
    other = make_book(PACE)
    other.restore(changes.alerts.values(), changes.groups.items(), START_MS)
    (opened,) = other.judge(make_facts("2"), START_MS + 5)
    (same,) = book.judge(make_facts("2"), START_MS + 5)
    assert (opened.event, opened.id) == ("opened", same.id)
    after = make_book(PACE)
    changes = other.take_changes()
    after.restore(changes.alerts.values(), changes.groups.items(), START_MS)
    assert events(after.judge(make_facts("2"), START_MS + 6)) == []


def test_posts_that_a_queue_held_back_for_days_are_judged_like_others() -> None:
    book = make_book(PACE)
    late_ms = START_MS + 5 * 86_400_000
    crossed = [events(book.judge(make_facts(str(n), at_ms=START_MS + n), late_ms)) for n in range(3)]
    assert crossed == [[], [], ["opened"]]
