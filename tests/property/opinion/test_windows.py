"""Windows against a slow twin that keeps everything and tries every combination."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.opinion_posts import START_MS, make_facts
from ssop_opinion.core.rules import Condition, Rule
from ssop_opinion.core.windows import SPARE, Entry, Place, Windows

NEGATIVE = (Condition(field="sentiment_label", value="negative"),)


@dataclass(frozen=True)
class Step:
    """A post is judged, or judged again: number, second of its reception, entity, whether it fits, is final."""

    number: int
    at_s: int
    entity: str
    fits: bool
    is_final: bool


STEPS = st.lists(
    st.builds(Step, st.integers(0, 12), st.integers(0, 40), st.sampled_from("ab"), st.booleans(), st.booleans()),
    max_size=40,
)
RULES = st.one_of(
    st.builds(
        lambda count, within: Rule(name="r", kind="velocity", when=NEGATIVE, count=count, within_s=within),
        st.integers(2, 4),
        st.integers(1, 20),
    ),
    st.builds(
        lambda count, within: Rule(name="r", kind="sequence", when=NEGATIVE, count=count, within_s=within),
        st.integers(2, 4),
        st.sampled_from([0, 5, 15]),
    ),
    st.just(Rule(name="r", when=NEGATIVE)),
)


def twin_crosses(rule: Rule, posts: dict[str, Step], group: str, *, with_key: str | None, finals_only: bool) -> bool:
    """Whether some `count` posts of the group make a crossing: every choice of neighbours is tried."""
    found = sorted(
        (step.at_s, key, step.fits)
        for key, step in posts.items()
        if step.entity == group and (step.is_final or not finals_only)
    )
    if rule.kind != "sequence":
        found = [one for one in found if one[2]]
    for first in range(len(found) - rule.count + 1):
        run = found[first : first + rule.count]
        is_close = not rule.within_s or run[-1][0] - run[0][0] <= rule.within_s
        if all(one[2] for one in run) and is_close and (with_key is None or with_key in {one[1] for one in run}):
            return True
    return False


@given(RULES, STEPS)
def test_crossings_are_those_of_the_slow_twin(rule: Rule, steps: list[Step]) -> None:
    windows = Windows([rule])
    posts: dict[str, Step] = {}
    for asked in steps:
        key = f"p{asked.number}"
        # When a post was received does not change.
        at_s = posts[key].at_s if key in posts else asked.at_s
        step = replace(asked, at_s=at_s)
        posts[key] = step
        facts = make_facts(
            key, at_ms=START_MS + at_s * 1_000, is_final=step.is_final, main_entity=step.entity,
            sentiment_label="negative" if step.fits else "positive",
        )  # fmt: skip
        fits = rule.fits(facts)
        assert fits is step.fits
        windows.put(rule, facts, fits=step.fits)
        place = ("r", rule.group(facts))
        if step.fits:
            crossing = windows.crossing(place, key)
            assert bool(crossing) is twin_crosses(rule, posts, step.entity, with_key=key, finals_only=False)
            assert all(a.at_ms <= b.at_ms for a, b in pairwise(crossing))
        for finals_only in (True, False):
            assert windows.stands(place, START_MS, finals_only=finals_only) is twin_crosses(
                rule, posts, step.entity, with_key=None, finals_only=finals_only
            )


@settings(max_examples=20)
@given(st.integers(2, 5), st.integers(1, 400))
def test_a_group_keeps_a_bounded_number_of_posts(count: int, posts: int) -> None:
    rule = Rule(name="r", kind="velocity", when=NEGATIVE, count=count, within_s=60)
    windows = Windows([rule])
    for number in range(posts):
        windows.put(rule, make_facts(f"p{number}", at_ms=START_MS + number), fits=True)
    assert windows.size == min(posts, count + SPARE)


@settings(max_examples=20)
@given(st.integers(1, 50), st.integers(1, 200))
def test_all_groups_together_keep_a_bounded_number(most: int, posts: int) -> None:
    rule = Rule(name="r", kind="velocity", when=NEGATIVE, count=2, within_s=60)
    windows = Windows([rule], max_entries=most)
    for number in range(posts):
        facts = make_facts(f"p{number}", main_entity=f"e{number}")
        windows.put(rule, facts, fits=True)
    assert windows.size == min(most, posts)
    assert windows.forgotten == max(0, posts - most)


@settings(max_examples=50)
@given(RULES, STEPS)
def test_what_was_kept_goes_on_as_before(rule: Rule, steps: list[Step]) -> None:
    windows = Windows([rule])
    kept: dict[Place, Sequence[Entry]] = {}
    posts: dict[str, Step] = {}
    for step in steps:
        key = f"p{step.number}"
        at_s = posts.setdefault(key, step).at_s
        facts = make_facts(key, at_ms=START_MS + at_s * 1_000, main_entity=step.entity, is_final=step.is_final)
        windows.put(rule, facts, fits=step.fits)
        kept |= windows.take_changes()
    other = Windows([rule])
    for place, entries in kept.items():
        other.restore(place, entries)
    for group in "ab":
        place = ("r", rule.group(make_facts(main_entity=group)))
        for finals_only in (True, False):
            assert other.stands(place, START_MS, finals_only=finals_only) is windows.stands(
                place, START_MS, finals_only=finals_only
            )
