"""A router's own share of a limit: never more than its rate and burst, whatever comes."""

from hypothesis import given
from hypothesis import strategies as st

from ssop_router.core.share import LocalMeter, TenantLimits

GAPS_US = st.lists(st.integers(0, 2_000_000), max_size=200)


@given(GAPS_US, st.floats(0.1, 500), st.integers(1, 20))
def test_no_stretch_of_time_gets_more_than_burst_and_rate(gaps_us: list[int], rps: float, burst: int) -> None:
    meter, now_us = LocalMeter(), 0
    admitted: list[int] = []
    for gap_us in gaps_us:
        now_us += gap_us
        if meter.admit("a", rps, burst, now_us) == 0:
            admitted.append(now_us)
    for first, first_us in enumerate(admitted):
        for last in range(first, len(admitted)):
            assert last - first + 1 <= burst + rps * (admitted[last] - first_us) / 1e6 + 1e-3


@given(GAPS_US, st.floats(0.1, 500), st.integers(1, 20))
def test_who_waits_as_long_as_told_is_let_in(gaps_us: list[int], rps: float, burst: int) -> None:
    meter, now_us = LocalMeter(), 0
    for gap_us in gaps_us:
        now_us += gap_us
        if wait_ms := meter.admit("a", rps, burst, now_us):
            now_us += wait_ms * 1000
            assert meter.admit("a", rps, burst, now_us) == 0


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 50_000)), max_size=300))
def test_tenants_do_not_meet_and_memory_is_bounded(calls: list[tuple[int, int]]) -> None:
    meter, now_us = LocalMeter(most_tenants=8), 0
    for tenant, gap_us in calls:
        now_us += gap_us
        meter.admit(f"t{tenant}", 10, 2, now_us)
        assert len(meter) <= 8


@given(st.floats(0.001, 1), st.floats(0.1, 1000), st.floats(0.1, 1000))
def test_the_dynamic_rate_lies_between_its_bounds(share: float, least: float, most: float) -> None:
    limits = TenantLimits(max(least, most), 1, min(least, most), is_dynamic=True)
    assert limits.min_rps <= limits.rate(share) <= limits.max_rps


@given(st.floats(0.001, 1), st.floats(0, 1000))
def test_the_static_rate_never_moves(share: float, most: float) -> None:
    assert TenantLimits(most, 1, 1.0).rate(share) == most
