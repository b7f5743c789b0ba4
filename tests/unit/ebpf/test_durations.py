"""Histograms of the kernel in the form of Prometheus."""

from ssop_ebpf.core.durations import SLOTS, cumulate


def slots(**counts: int) -> list[int]:
    found = [0] * SLOTS
    for name, count in counts.items():
        found[int(name.removeprefix("s"))] = count
    return found


def test_counts_are_cumulated_and_bounds_rise() -> None:
    buckets = cumulate(slots(s0=1, s20=2, s39=4))
    bounds = [float(bound) for bound, _ in buckets]
    counts = [count for _, count in buckets]
    assert bounds == sorted(bounds)
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (1, 7)


def test_a_duration_lies_below_the_bound_of_its_slot() -> None:
    buckets = dict(cumulate(slots(s10=1)))
    assert buckets[repr(2.0**10 / 1e9)] == 0
    assert buckets[repr(2.0**11 / 1e9)] == 1
