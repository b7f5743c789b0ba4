"""`k8s-free-deploy` on Debian 13, whose root mmdebstrap makes (a minute and a network, the first time)."""

from collections.abc import Iterator

import pytest

from helpers.debian_root import RootWheelhouse, debian_root
from helpers.front_load import Tally
from helpers.metal import MARKS, NEXT_VERSION, SERVICES, WHEELS, Metal, run_metal

pytestmark = [*MARKS, pytest.mark.needs("mmdebstrap")]


@pytest.fixture(scope="module")
def metal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metal]:
    folder = tmp_path_factory.mktemp("trixie")
    root = debian_root("trixie")
    with run_metal(folder, RootWheelhouse(folder, root), root) as made:
        yield made


def is_well(tally: Tally) -> bool:
    return (tally.failures, tally.wrong, tally.degraded) == ([], [], 0) and all(tally.answers.values())


def test_it_is_debian_13(metal: Metal) -> None:
    assert 'VERSION_ID="13"' in metal.host.read("/etc/os-release")


def test_clients_get_checked_answers_through_the_front_and_after_a_reboot(metal: Metal) -> None:
    metal.wait_all_active()
    assert [unit for unit in SERVICES if not metal.host.is_active(unit)] == []
    before = metal.ask()
    assert is_well(before), before
    metal.host.reboot()
    metal.wait_all_active()
    after = metal.ask()
    assert is_well(after), after


def test_upgrade_loses_no_request(metal: Metal) -> None:
    metal.wait_all_active()
    with metal.load() as tally:
        metal.script("upgrade.sh", "--wheelhouse", WHEELS, "--wheel", f"/next/{metal.next_wheel.name}")
    assert metal.release == NEXT_VERSION
    assert is_well(tally), tally


def test_units_are_as_closed_as_on_debian_12(metal: Metal) -> None:
    lines = metal.host.run("systemd-analyze", "security", "--no-pager", *SERVICES, check=False).stdout
    scores = [float(line.split()[-3]) for line in lines.splitlines() if "Overall exposure level" in line]
    assert len(scores) == len(SERVICES)
    assert max(scores) <= 2.0, lines
