"""Counters without locks: what a reader of the registry sees."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from helpers.as_written import both_ways
from ssop_chassis.tallies import Counter, Gauge, Histogram


@pytest.fixture(autouse=True, params=both_ways("ssop_chassis.tallies"))
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("Counter", "Gauge", "Histogram"):
        monkeypatch.setitem(globals(), kind, getattr(request.param, kind))


def test_counter_shows_each_child_with_its_labels() -> None:
    registry = CollectorRegistry()
    counter = Counter("answers", "Answers.", ["tier"], registry=registry)
    counter.labels("lite").inc()
    counter.labels("full").inc(2)
    assert registry.get_sample_value("answers_total", {"tier": "lite"}) == 1
    assert registry.get_sample_value("answers_total", {"tier": "full"}) == 2


def test_counter_without_labels_begins_at_zero() -> None:
    registry = CollectorRegistry()
    Counter("answers", "Answers.", registry=registry)
    assert registry.get_sample_value("answers_total") == 0


def test_counter_never_falls() -> None:
    with pytest.raises(ValueError, match="never falls"):
        Counter("answers", "Answers.", registry=CollectorRegistry()).inc(-1)


def test_labels_of_the_wrong_number_are_refused() -> None:
    counter = Counter("answers", "Answers.", ["tier"], registry=CollectorRegistry())
    with pytest.raises(ValueError, match="has the labels"):
        counter.labels("lite", "ok")


def test_histogram_counts_a_value_on_a_bound_below_it() -> None:
    registry = CollectorRegistry()
    times = Histogram("times", "Times.", buckets=(0.1, 1), registry=registry)
    for value in (0.05, 1, 5):
        times.observe(value)
    counts = [registry.get_sample_value("times_bucket", {"le": bound}) for bound in ("0.1", "1.0", "+Inf")]
    assert counts == [1, 2, 3]
    assert registry.get_sample_value("times_sum") == 6.05


def test_gauge_asks_for_its_value_when_it_is_read() -> None:
    registry = CollectorRegistry()
    Gauge("share", "A share.", registry=registry).set_function(lambda: 0.5)
    assert registry.get_sample_value("share") == 0.5


def test_gauge_forgets_a_child() -> None:
    registry = CollectorRegistry()
    gauge = Gauge("ejected", "Nodes.", ["address"], registry=registry)
    gauge.labels("a").set(1)
    gauge.remove("a")
    assert registry.get_sample_value("ejected", {"address": "a"}) is None


def test_two_of_one_name_are_refused() -> None:
    registry = CollectorRegistry()
    Counter("answers", "Answers.", registry=registry)
    with pytest.raises(ValueError, match="Duplicated"):
        Gauge("answers_total", "Answers.", registry=registry)


def test_text_is_that_of_the_client_library() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    import prometheus_client  # noqa: PLC0415 - what is compared with

    mine = Histogram("times", "Times.", ["a"], buckets=(0.005, 10, 2.5e6), registry=ours)
    known = prometheus_client.Histogram("times", "Times.", ["a"], buckets=(0.005, 10, 2.5e6), registry=theirs)
    for value in (0.001, 3, 3e6):
        mine.labels('x"y').observe(value)
        known.labels('x"y').observe(value)
    expected = [line for line in generate_latest(theirs).decode().splitlines() if "_created" not in line]
    assert generate_latest(ours).decode().splitlines() == expected
