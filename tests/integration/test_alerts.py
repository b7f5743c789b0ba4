"""Who is woken by one node's death, and by a total outage; every fault of the drill is in tests/drill."""

import pytest

from helpers.alert_drill import OUTAGE, AlertReport, run_alert_drill

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
