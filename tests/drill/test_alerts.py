"""Who is woken by the faults of the drill: nobody, and by a total outage once. Rules run at their own pace."""

import pytest

from helpers.alert_drill import OUTAGE, run_alert_drill
from ssop_cli.drill.faults import FAULTS

pytestmark = pytest.mark.needs("prometheus")


@pytest.mark.timeout(1_800)
def test_no_fault_that_the_mesh_mends_pages_and_an_outage_pages_once(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    report = run_alert_drill(tmp_path_factory.mktemp("a"), (), scale=1, timeout_s=1_700)
    print("\n".join(["", *report.lines()]))
    assert report.wrong == []
    assert list(report.pages) == ["none", *(fault.name for fault in FAULTS), OUTAGE]
    woken = {fault: pages for fault, pages in report.pages.items() if pages}
    assert woken == {OUTAGE: ["SsopRequestsFail"]}
    before = sum(map(len, report.by_cause.values()))
    assert before > 10
