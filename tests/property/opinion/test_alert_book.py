"""Whatever comes, in whatever order: alerts take legal steps, and rest in the end on what was final."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.opinion_posts import START_MS, TENANT, make_facts
from ssop_opinion.core.alert_book import AlertBook
from ssop_opinion.core.alert_policy import AlertPolicy
from ssop_opinion.core.alerts import Alert, Notice
from ssop_opinion.core.rules import DEFAULT_RULES, Facts, Rule, fold
from ssop_opinion.core.windows import Entry, Place

NEXT = {
    "": {"provisional", "confirmed"},
    "provisional": {"provisional", "confirmed", "corrected", "withdrawn", "expired"},
    "confirmed": {"confirmed", "corrected", "expired"},
    "corrected": {"corrected", "expired"},
}


@dataclass(frozen=True)
class Said:
    """What was said of a post, by its fields or by its record."""

    number: int
    entity: str
    event: str
    severity: int
    is_final: bool
    is_valid: bool
    level: int


STEPS = st.lists(
    st.builds(
        Said, st.integers(0, 5), st.sampled_from(["a", "B"]), st.sampled_from(["x", "y"]), st.sampled_from([2, 4, 5]),
        st.booleans(), st.booleans(), st.sampled_from([0, 0, 1, 3]),
    ),
    max_size=30,
)  # fmt: skip
GRAVE = DEFAULT_RULES[:1]
ROW = (Rule(name="row", kind="sequence", when=GRAVE[0].when, count=2),)
BOTH = (*GRAVE, *ROW, Rule(name="pace", kind="velocity", when=GRAVE[0].when, count=2, within_s=9, per="event"))


def facts_of(said: Said) -> Facts:
    return make_facts(
        f"p{said.number}", at_ms=START_MS + said.number * 1_000, is_final=said.is_final,
        is_valid=said.is_valid or not said.is_final, level=said.level if said.is_final else 0, main_entity=said.entity,
        event_type=said.event, severity=said.severity,
    )  # fmt: skip


def play(book: AlertBook, steps: list[Said]) -> tuple[list[Notice], dict[int, Said]]:
    """Judge all that was said; a post that has had its verdict is heard no more. In the end all have had it."""
    finals: dict[int, Said] = {}
    notices: list[Notice] = []
    seen: dict[int, Said] = {}
    for at, said in enumerate(steps):
        if said.number in finals:
            continue
        seen[said.number] = said
        if said.is_final:
            finals[said.number] = said
        notices += book.judge(facts_of(said), START_MS + at)
    for number, said in seen.items():
        if number not in finals:
            finals[number] = Said(number, said.entity, said.event, said.severity, True, said.severity != 5, 0)
            notices += book.judge(facts_of(finals[number]), START_MS + 100)
    return notices, finals


@settings(max_examples=50)
@given(STEPS)
def test_alerts_of_a_threshold_rest_on_final_posts_that_fit(steps: list[Said]) -> None:
    book = AlertBook(TENANT, AlertPolicy(rules=GRAVE))
    _, finals = play(book, steps)
    fitting = {(fold(one.entity), one.event) for one in finals.values() if GRAVE[0].fits(facts_of(one))}
    found = {(fold(one.entity), one.event_type) for one in book.open_alerts}
    assert found == fitting
    assert all(one.phase != "provisional" for one in book.open_alerts)


ROW_BY_FIELDS = [
    Said(0, "a", "x", 2, is_final=False, is_valid=False, level=0),
    Said(0, "a", "x", 4, is_final=False, is_valid=False, level=0),
    Said(1, "a", "x", 4, is_final=False, is_valid=False, level=0),
]
"""Posts whose fields open an alert together, and whose records follow: each is one post of the alert."""


@settings(max_examples=50)
@example(ROW_BY_FIELDS, ROW)
@given(STEPS, st.sampled_from([GRAVE, ROW, BOTH]))
def test_alerts_take_legal_steps_and_none_stays_provisional(steps: list[Said], rules: tuple[Rule, ...]) -> None:
    book = AlertBook(TENANT, AlertPolicy(rules=rules))
    notices, finals = play(book, steps)
    last: dict[str, Alert] = {}
    for notice in notices:
        before = last.get(notice.alert.id)
        # One that was withdrawn may come again, when its post is judged again.
        phase = "" if before is None or before.phase == "withdrawn" else before.phase
        assert notice.alert.phase in NEXT[phase]
        assert (notice.event == "withdrawn") == (notice.alert.phase == "withdrawn")
        last[notice.alert.id] = notice.alert
    for alert in book.open_alerts:
        assert alert.phase != "provisional"
        assert 0 <= alert.degraded_posts <= alert.posts <= len(finals)


TWO_STORIES = [
    Said(1, "B", "y", 4, is_final=False, is_valid=False, level=0),
    Said(0, "B", "x", 4, is_final=False, is_valid=False, level=0),
    Said(0, "B", "y", 4, is_final=False, is_valid=False, level=0),
]
"""A post that opened an alert under one name and has its last word under that of another one's."""


@settings(max_examples=50)
@example(TWO_STORIES)
@given(STEPS)
def test_the_same_story_again_and_again_tells_nothing_new(steps: list[Said]) -> None:
    book = AlertBook(TENANT, AlertPolicy(rules=BOTH))
    _, finals = play(book, steps)
    # Where the opener of an alert took its name along to another story, those that stay are told once more.
    for _ in range(2):
        for said in finals.values():
            book.judge(facts_of(said), START_MS + 200)
    before = {one.id for one in book.open_alerts}
    for said in finals.values():
        assert book.judge(facts_of(said), START_MS + 200) == []
    assert {one.id for one in book.open_alerts} == before


@settings(max_examples=50)
@given(STEPS)
def test_a_restart_at_any_time_changes_nothing_that_is_told(steps: list[Said]) -> None:
    policy = AlertPolicy(rules=BOTH)
    whole = AlertBook(TENANT, policy)
    expected, _ = play(whole, steps)
    book = AlertBook(TENANT, policy)
    kept_alerts: dict[str, Alert] = {}
    kept_groups: dict[Place, Sequence[Entry]] = {}
    told: list[Notice] = []
    finals: set[int] = set()
    for at, said in enumerate(steps):
        if said.number in finals:
            continue
        if said.is_final:
            finals.add(said.number)
        told += book.judge(facts_of(said), START_MS + at)
        changes = book.take_changes()
        kept_alerts |= changes.alerts
        kept_groups |= changes.groups
        book = AlertBook(TENANT, policy)
        book.restore(kept_alerts.values(), kept_groups.items(), START_MS + at)
    assert {one.id for one in told} <= {one.id for one in expected}
