"""Turns, whatever comes and ends in whatever order: nothing is lost, nobody is passed twice, nobody has it all."""

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from ssop_opinion.core.turns import SHARE, Turns

TENANTS = "abcd"
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(TENANTS), st.integers(1, 30)),
        st.tuples(st.just("end"), st.sampled_from(TENANTS), st.integers(1, 30)),
        st.tuples(st.just("begin"), st.just(""), st.integers(1, 30)),
    ),
    max_size=60,
)


@given(slots=st.integers(1, 40), is_shared=st.booleans(), steps=STEPS)
def test_turns_are_fair_and_lose_nothing(slots: int, *, is_shared: bool, steps: list[tuple[str, str, int]]) -> None:
    turns: Turns[tuple[str, int]] = Turns(slots)
    turns.is_shared = is_shared
    added: Counter[str] = Counter()
    begun: dict[str, list[int]] = defaultdict(list)
    running: Counter[str] = Counter()
    passed: dict[str, Counter[str]] = defaultdict(Counter)
    for what, tenant, count in steps:
        if what == "add":
            for _ in range(count):
                turns.add(tenant, (tenant, added[tenant]))
                added[tenant] += 1
        elif what == "end":
            for _ in range(min(count, running[tenant])):
                turns.end(tenant)
                running[tenant] -= 1
        else:
            for _ in range(count):
                free = slots - running.total()
                may = {one for one in turns.waiting if free > 0 and (not is_shared or running[one] < SHARE * free)}
                item = turns.begin(0.0)
                if item is None:
                    assert not may
                    break
                whose = item[0]
                assert whose in may
                begun[whose].append(item[1])
                running[whose] += 1
                passed.pop(whose, None)
                for other in may - {whose}:
                    passed[other][whose] += 1
                    # Once: it goes behind all who wait.
                    assert passed[other][whose] == 1
        assert turns.free == slots - running.total() >= 0
    for numbers in begun.values():
        assert numbers == list(range(len(numbers)))
    assert turns.waiting == {tenant for tenant in added if added[tenant] > len(begun[tenant])}


REFUSALS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(TENANTS)),
        st.tuples(st.sampled_from(("refuse", "serve", "fail")), st.sampled_from(TENANTS)),
        st.tuples(st.sampled_from(("begin", "wait")), st.just("")),
    ),
    max_size=120,
)


@given(slots=st.integers(1, 5), steps=REFUSALS)
def test_whoever_is_refused_loses_nothing_and_gets_on_when_it_is_served(
    slots: int, steps: list[tuple[str, str]]
) -> None:
    turns: Turns[tuple[str, int]] = Turns(slots)
    turns.is_shared = True
    now_s, added, served = 0.0, 0, 0
    running: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for what, tenant in steps:
        if what == "add":
            turns.add(tenant, (tenant, added))
            added += 1
        elif what == "wait":
            now_s += 1.0
        elif what == "begin":
            if (item := turns.begin(now_s)) is not None:
                running[item[0]].append(item)
        elif running[tenant]:
            item = running[tenant].pop(0)
            if what == "refuse":
                turns.put_back(tenant, item)
                turns.pause(tenant, now_s + 1.5)
            else:
                served += 1
                if what == "serve":
                    turns.resume(tenant)
            turns.end(tenant)
        assert turns.free == slots - sum(map(len, running.values()))
    # From here on all are served.
    while turns.waiting or any(running.values()):
        now_s += 1.5
        for tenant, items in running.items():
            for _ in items:
                served += 1
                turns.resume(tenant)
                turns.end(tenant)
            items.clear()
        while (item := turns.begin(now_s)) is not None:
            running[item[0]].append(item)
        assert any(running.values()) or not turns.waiting
    assert served == added
