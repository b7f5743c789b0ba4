"""Usage of tenants: what is counted, and what a day's counters say."""

from hypothesis import example, given
from hypothesis import strategies as st

from helpers.script_calls import Admit
from ssop.v1.mesh_pb2 import Tier, Usage
from ssop.v1.usage_pb2 import RequestCounts
from ssop_cache.core import scripts
from ssop_cache.core.asked import Settlement
from ssop_cache.core.keys import Layout
from ssop_cache.core.scripts import Limits
from ssop_cache.core.twin import StateTwin
from ssop_cache.core.usage import count_request, read_days

DAY_MS = 86_400_000
NOW_MS = 20_786 * DAY_MS + 5  # 2026-11-29
KEYS = Layout(1, "test").of_tenant("acme")
LITE = RequestCounts(tier=Tier.TIER_LITE, prefetches=2, prefetch_hits=1, prefetch_tokens=30)


def settle(twin: StateTwin, request_id: str, now_ms: int, usage: Usage, counts: RequestCounts = LITE) -> None:
    twin.run(scripts.admit(KEYS, Limits(), [Admit(request_id, b"", 0)], lease_ms=1000), now_ms * 1000)
    call = scripts.conclude(KEYS, Limits(), [Settlement(request_id, 0, count_request(usage, counts))])
    twin.run(call, now_ms * 1000)


def test_day_adds_up() -> None:
    twin = StateTwin()
    for name in "abc":
        settle(twin, name, NOW_MS, Usage(input_tokens=10, output_tokens=5))
    settle(twin, "d", NOW_MS, Usage(input_tokens=7), RequestCounts(tier=Tier.TIER_FULL, is_failed=True))
    (day,) = read_days(twin.usage[KEYS.usage], days=1, now_ms=NOW_MS)
    assert day.day == "2026-11-29"
    assert [(t.tier, t.requests, t.input_tokens, t.output_tokens) for t in day.tiers] == [
        (Tier.TIER_LITE, 3, 30, 15),
        (Tier.TIER_FULL, 1, 7, 0),
    ]
    assert (day.failed, day.prefetches, day.prefetch_hits, day.prefetch_tokens) == (1, 6, 3, 90)


def test_request_that_is_settled_twice_counts_once() -> None:
    twin = StateTwin()
    settle(twin, "a", NOW_MS, Usage(output_tokens=5))
    again = scripts.conclude(KEYS, Limits(), [Settlement("a", 0, count_request(Usage(output_tokens=5), LITE))])
    twin.run(again, NOW_MS * 1000)
    (day,) = read_days(twin.usage[KEYS.usage], days=1, now_ms=NOW_MS)
    assert day.tiers[0].requests == 1


def test_old_days_go() -> None:
    twin = StateTwin()
    for day in range(100):
        settle(twin, f"r{day}", NOW_MS + day * DAY_MS, Usage(output_tokens=1))
    found = read_days(twin.usage[KEYS.usage], days=1000, now_ms=NOW_MS + 99 * DAY_MS)
    assert len(found) == scripts.USAGE_DAYS


def test_days_before_those_that_were_asked_for_are_left_out() -> None:
    twin = StateTwin()
    settle(twin, "a", NOW_MS - DAY_MS, Usage(output_tokens=1))
    settle(twin, "b", NOW_MS, Usage(output_tokens=1))
    assert [day.day for day in read_days(twin.usage[KEYS.usage], days=1, now_ms=NOW_MS)] == ["2026-11-29"]


@given(st.dictionaries(st.text(max_size=12).map(lambda text: f"20786/{text}"), st.integers(0, 9)))
@example({"20786/day": 1, "20786/tiers": 1, "20786/lite.tier": 2})
def test_counters_of_another_version_are_left_out(fields: dict[str, int]) -> None:
    for day in read_days(fields, days=1, now_ms=NOW_MS):
        assert day.day == "2026-11-29"


def test_answer_that_a_cascade_discarded_counts_for_lite() -> None:
    counts = RequestCounts(tier=Tier.TIER_FULL, discarded_usage=Usage(input_tokens=70, output_tokens=5))
    found = count_request(Usage(input_tokens=80, output_tokens=8), counts)
    assert (found["full.input_tokens"], found["full.output_tokens"]) == (10, 3)
    assert (found["lite.input_tokens"], found["lite.output_tokens"]) == (70, 5)
    assert found["full.requests"] == 1
    assert "lite.requests" not in found


def test_only_a_budget_needs_reservations() -> None:
    held = {}
    for name, limits in (("free", Limits()), ("bound", Limits(budget_tokens=100))):
        twin = StateTwin()
        twin.run(scripts.admit(KEYS, limits, [Admit("r", b"", 7)], lease_ms=1000), NOW_MS * 1000)
        held[name] = twin.reserved_tokens(KEYS.reserved)
    assert held == {"free": 0, "bound": 7}
