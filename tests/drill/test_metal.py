"""Faults of a booted host that take long: every kind of unit hangs, and a release that does not serve."""

import pytest

from helpers.metal import MARKS, NEXT_VERSION, ONE_OF_EACH, WHEELS, Metal, harmless, metal, restarted

__all__ = ["metal"]
pytestmark = MARKS


@pytest.mark.timeout(1200)
def test_units_that_hang_are_ended_by_the_watchdog(metal: Metal) -> None:
    metal.wait_all_active()
    before = {unit: metal.host.show(unit, "MainPID") for unit in ONE_OF_EACH}
    with metal.load() as tally:
        metal.host.run("systemctl", "kill", "-s", "STOP", "--kill-who=main", *ONE_OF_EACH)
        restarted(metal, before)
    assert harmless(tally), tally
    assert "Failed with result 'watchdog'" in metal.host.journal("ssop-router@0.service")


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("unit", ["ssop-redis@state.service", "ssop-nginx.service", "ssop-inference@0.service"])
def test_the_other_units_come_back_when_memory_ran_out(metal: Metal, unit: str) -> None:
    """Alone of their kind, so that clients may see them missing: they are told, and nobody gets a wrong answer."""
    metal.wait_all_active()
    metal.need_memory_limits()
    before = {unit: metal.host.show(unit, "MainPID")}
    with metal.load() as tally:
        metal.fill_memory(unit)
        restarted(metal, before)
    assert not tally.wrong, tally
    assert harmless(tally) or unit == "ssop-nginx.service", tally


@pytest.mark.timeout(1200)
def test_a_release_that_does_not_serve_is_taken_back(metal: Metal) -> None:
    metal.wait_all_active()
    first = metal.release
    arguments = ["--wheelhouse", WHEELS, "--wheel", f"/next/{metal.next_wheel.name}"]
    metal.script("upgrade.sh", *arguments)
    metal.script("rollback.sh")
    broken = f"/opt/ssop/releases/{NEXT_VERSION}"
    metal.host.run(
        "bash", "-c", f"cd {broken}/lib/python*/site-packages/ssop_cache && echo 'raise SystemExit(1)' >main.py"
    )
    with metal.load() as tally:
        said = metal.script("upgrade.sh", *arguments, check=False)
    assert "serves as before" in said
    assert {metal.release_of(unit) for unit in ("ssop-cache.service", "ssop-router@0.service")} == {first}
    assert (tally.failures, tally.wrong) == ([], [])
