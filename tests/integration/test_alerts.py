"""Who is woken by one node's death, and by a total outage; every fault of the drill is in tests/drill."""

import time
from pathlib import Path

import pytest
import yaml

from helpers.alert_drill import OUTAGE, AlertReport, run_alert_drill
from helpers.live_mesh import wait_until
from helpers.prometheus import run_prometheus

pytestmark = [pytest.mark.needs("prometheus"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> AlertReport:
    """Pages of a node that is killed, and of an outage, with rules six times as quick as they are."""
    return run_alert_drill(tmp_path_factory.mktemp("a"), ("kill-inference",), scale=1 / 6, timeout_s=500)


def test_a_node_that_dies_wakes_nobody(report: AlertReport) -> None:
    assert (report.pages["none"], report.pages["kill-inference"]) == ([], [])


def test_a_total_outage_wakes_somebody_once(report: AlertReport) -> None:
    assert report.pages[OUTAGE] == ["SsopRequestsFail"]


def test_rules_by_cause_would_wake_more_often(report: AlertReport) -> None:
    print("\n".join(["", *report.lines()]))
    before = sum(map(len, report.by_cause.values()))
    assert before > sum(map(len, report.pages.values()))


def test_an_alert_counts_from_its_first_sample_and_where_it_began(tmp_path: Path) -> None:
    rule = {"alert": "Always", "expr": "vector(1)", "labels": {"severity": "page"}}
    rules = yaml.safe_dump({"groups": [{"name": "one", "rules": [rule]}]})
    from_s = time.time()
    with run_prometheus(tmp_path / "p", {}, change=lambda _: rules, interval_s=0.1) as prometheus:
        wait_until(lambda: prometheus.value("ALERTS") is not None, 60.0, "an alert fires")
        seen_s = time.time()
        assert prometheus.firings(from_s, seen_s) == ["Always"]
        wait_until(lambda: (prometheus.value("count_over_time(ALERTS[1m])") or 0) > 5, 60.0, "it goes on")
        assert prometheus.firings(seen_s, time.time()) == []
