"""Budgets of prefetches, and whether they are worth it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssop_rag.core.account import MAX_TENANTS, Accounts
from ssop_rag.core.budget import Budget, BudgetLimits
from ssop_rag.core.memo import QueryMemo
from ssop_rag.core.worth import Mode, Worth, WorthLimits

LIMITS = WorthLimits(window=8, least=4, probe=2, off_ms=100, max_off_ms=400, waste_weight=0.5)


def record(worth: Worth, now_ms: int, *outcomes: tuple[float, float]) -> list[Mode | None]:
    return [worth.record(now_ms, saved_ms=saved, wasted_ms=wasted) for saved, wasted in outcomes]


def test_nothing_is_judged_before_enough_have_ended() -> None:
    assert record(Worth(LIMITS), 0, *[(0, 10)] * 3) == [None] * 3


def test_waste_switches_off_and_says_so_once() -> None:
    worth = Worth(LIMITS)
    assert record(worth, 0, *[(0, 10)] * 6) == [None, None, None, Mode.OFF, None, None]
    assert worth.probe_in_ms(30) == 70


@pytest.mark.parametrize(("saved_ms", "mode"), [(15.1, Mode.ON), (14.9, Mode.OFF)])
def test_waste_weighs_less_than_waiting(saved_ms: float, mode: Mode) -> None:
    worth = Worth(LIMITS)
    record(worth, 0, (saved_ms, 0), *[(0, 10)] * 3)
    assert worth.mode is mode


def test_old_outcomes_are_forgotten() -> None:
    worth = Worth(LIMITS)
    assert record(worth, 0, *[(100, 0)] * 8, *[(0, 10)] * 8) == [None] * 15 + [Mode.OFF]


def test_some_are_tried_after_a_while() -> None:
    worth = Worth(LIMITS)
    record(worth, 0, *[(0, 10)] * 4)
    assert not worth.may_probe(99)
    started = 0
    while worth.may_probe(100):
        worth.start()
        started += 1
    assert started == LIMITS.probe


def test_good_probes_switch_on() -> None:
    worth = Worth(LIMITS)
    record(worth, 0, *[(0, 10)] * 4)
    assert worth.may_probe(100)
    assert record(worth, 110, (10, 0), (10, 0)) == [None, Mode.ON]


def test_bad_probes_switch_off_for_twice_as_long_up_to_a_bound() -> None:
    worth = Worth(LIMITS)
    record(worth, 0, *[(0, 10)] * 4)
    now_ms, waits = 0, []
    for _ in range(4):
        waits.append(worth.probe_in_ms(now_ms))
        now_ms += waits[-1]
        assert worth.may_probe(now_ms)
        record(worth, now_ms, (0, 10), (0, 10))
    assert waits == [100, 200, 400, 400]


def test_weight_of_0_never_switches_off() -> None:
    worth = Worth(WorthLimits(waste_weight=0))
    record(worth, 0, *[(0, 1_000)] * 200)
    assert worth.mode is Mode.ON


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 100), st.integers(0, 400)), max_size=200))
def test_prefetches_are_always_tried_again(steps: list[tuple[bool, int, int]]) -> None:
    worth, now_ms = Worth(LIMITS), 0
    for is_used, cost_ms, wait_ms in steps:
        now_ms += wait_ms
        if worth.mode is Mode.ON or worth.may_probe(now_ms):
            worth.start()
            worth.record(now_ms, saved_ms=cost_ms if is_used else 0, wasted_ms=0 if is_used else cost_ms)
    assert worth.mode is not Mode.OFF or worth.may_probe(now_ms + LIMITS.max_off_ms)


def test_budget_refills_evenly() -> None:
    budget = Budget(BudgetLimits(10, 1_000), 0)
    for _ in range(10):
        budget.take(0)
    assert [budget.has(now_ms) for now_ms in (0, 99, 100)] == [False, False, True]
    assert budget.left(10_000) == 10


def test_budget_of_0_is_no_limit() -> None:
    budget = Budget(BudgetLimits(0, 1_000), 0)
    budget.take(0)
    assert budget.has(0)


def test_what_was_spent_stays_spent_under_another_budget() -> None:
    budget = Budget(BudgetLimits(10, 1_000), 0)
    for _ in range(4):
        budget.take(0)
    budget.change(BudgetLimits(5, 1_000), 0)
    assert budget.left(0) == 1
    budget.change(BudgetLimits(20, 1_000), 0)
    assert budget.left(0) == 16


@given(st.lists(st.integers(0, 300), max_size=100))
def test_no_window_starts_more_than_twice_its_budget(waits_ms: list[int]) -> None:
    budget, now_ms, started = Budget(BudgetLimits(5, 1_000), 0), 0, []
    for wait_ms in waits_ms:
        now_ms += wait_ms
        if budget.has(now_ms):
            budget.take(now_ms)
            started.append(now_ms)
    assert all(sum(at <= other < at + 1_000 for other in started) <= 10 for at in started)


def test_tenants_are_bounded_and_apart() -> None:
    accounts = Accounts(BudgetLimits(), LIMITS)
    accounts.waste("acme", 0, 10)
    assert accounts.of("other", 0).tally.wasted == 0
    for n in range(MAX_TENANTS + 5):
        accounts.of(f"t{n}", 0)
    assert len(accounts._accounts) == MAX_TENANTS


def test_memo_keeps_the_newest_of_each_tenant() -> None:
    memo = QueryMemo(2)
    one, two = np.ones(2, np.float32), np.zeros(2, np.float32)
    memo.put("a", "q", one)
    memo.put("b", "q", two)
    assert memo.get("a", "q") is one
    memo.put("a", "r", one)
    assert memo.get("b", "q") is None
    assert (memo.get("a", "q") is one, len(memo)) == (True, 2)
