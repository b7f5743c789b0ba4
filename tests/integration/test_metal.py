"""`k8s-free-deploy` on a booted systemd: installed on a fresh root, asked through nginx, rebooted, harmed, upgraded.

One host for all, since an installation takes half a minute; each test leaves it serving.
"""

import json
from typing import Any, Final

import pytest

from helpers.front_load import SCHEMA, Tally
from helpers.metal import MARKS, NEXT_VERSION, ONE_OF_EACH, SERVICES, WHEELS, Metal, harmless, metal, restarted

__all__ = ["metal"]
pytestmark = MARKS


def test_every_unit_is_active_after_the_installation(metal: Metal) -> None:
    assert [unit for unit in SERVICES if not metal.host.is_active(unit)] == []
    assert metal.host.is_active("ssop.target")


def test_a_second_installation_changes_nothing(metal: Metal) -> None:
    files = "/etc/ssop/ssop.toml", "/etc/ssop/keys.toml", "/etc/ssop/tls/front.pem", "/etc/ssop/credentials/mesh/secret"
    before = [metal.host.read(path) for path in files], [metal.host.show(unit, "MainPID") for unit in SERVICES]
    metal.install()
    after = [metal.host.read(path) for path in files], [metal.host.show(unit, "MainPID") for unit in SERVICES]
    assert after == before


def test_secrets_are_for_the_services_alone(metal: Metal) -> None:
    read = metal.host.run(
        *("setpriv", "--reuid=ssop-gateway", "--regid=ssop-gateway", "--clear-groups", "cat"),
        "/etc/ssop/credentials/mesh/secret",
        check=False,
    )
    assert read.returncode != 0
    assert metal.host.run("stat", "-c", "%a %U", "/etc/ssop/credentials").stdout.split() == ["700", "root"]


@pytest.mark.timeout(1200)
def test_clients_get_checked_answers_through_the_front_and_after_a_reboot(metal: Metal) -> None:
    def check(tally: Tally) -> None:
        assert (tally.failures, tally.wrong, tally.degraded) == ([], [], 0)
        assert all(tally.answers.values()), tally.answers

    metal.wait_all_active()
    check(metal.ask())
    metal.host.reboot()
    metal.wait_all_active()
    check(metal.ask())


def test_the_real_model_runs_within_its_limits(metal: Metal) -> None:
    key = metal.host.read("/etc/ssop/credentials/client.key").strip()
    schema = metal.folder / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    metal.host.write("/run/schema.json", json.dumps(SCHEMA))
    asked = metal.host.run(
        *("env", f"SSOP_API_KEY={key}", "/opt/ssop/current/bin/ssop", "ask", "How is it?", "--json"),
        *("--schema", "/run/schema.json", "--policy", "lite", "--target", "127.0.0.1:7300", "--timeout", "100"),
    )
    answer: dict[str, Any] = json.loads(asked.stdout.splitlines()[-1])
    assert set(answer["result"]) == {"mood", "ok"}, asked.stdout


@pytest.mark.timeout(1200)
def test_units_that_are_killed_are_started_again_and_the_sdk_sees_nothing(metal: Metal) -> None:
    metal.wait_all_active()
    before = {unit: metal.host.show(unit, "MainPID") for unit in ONE_OF_EACH}
    with metal.load() as tally:
        metal.host.run("systemctl", "kill", "-s", "KILL", "--kill-who=main", *ONE_OF_EACH)
        restarted(metal, before)
    assert harmless(tally), tally
    assert tally.answers["sdk"] == tally.requests["sdk"] > 0


def test_the_place_where_a_unit_hung_is_in_the_journal(metal: Metal) -> None:
    pid = metal.host.show("ssop-router@1.service", "MainPID")
    metal.host.run("kill", "-ABRT", pid)
    restarted(metal, {"ssop-router@1.service": pid})
    assert "most recent call first" in metal.host.journal("ssop-router@1.service")


@pytest.mark.timeout(1200)
def test_units_that_take_too_much_memory_are_killed_alone(metal: Metal) -> None:
    metal.wait_all_active()
    if metal.host.run("test", "-e", "/sys/fs/cgroup/memory/memory.limit_in_bytes", check=False).returncode:
        pytest.skip("control groups of version 2: the host has no controller for memory")
    before = {unit: metal.host.show(unit, "MainPID") for unit in ONE_OF_EACH}
    others = {unit: metal.host.show(unit, "MainPID") for unit in SERVICES if unit not in ONE_OF_EACH}
    with metal.load() as tally:
        for unit in ONE_OF_EACH:
            metal.host.run("bash", "-c", _FILL, unit, check=False)
        restarted(metal, before)
    assert harmless(tally), tally
    assert {unit: metal.host.show(unit, "MainPID") for unit in others} == others


# Pages of a shared memory count for the group and for nobody's own size, so that the kernel ends the service.
_FILL: Final = """
set -eu
limit=$(($(systemctl show -P MemoryCurrent "$0") + (32 << 20)))
systemctl set-property --runtime "$0" MemoryMax=$limit
group=/sys/fs/cgroup/memory$(systemctl show -P ControlGroup "$0")
(echo $BASHPID >"$group/cgroup.procs"; exec dd if=/dev/zero of="/dev/shm/fill-$0" bs=1M count=64) || true
rm -f "/dev/shm/fill-$0"
systemctl set-property --runtime "$0" MemoryMax=
"""


@pytest.mark.timeout(1200)
def test_upgrade_and_rollback_lose_no_request(metal: Metal) -> None:
    metal.wait_all_active()
    first = metal.release
    moved = [unit for unit in SERVICES if not unit.startswith(("ssop-redis", "ssop-nginx"))]
    with metal.load() as tally:
        arguments = ["--wheelhouse", WHEELS, "--wheel", f"/next/{metal.next_wheel.name}"]
        metal.script("upgrade.sh", *arguments)
        assert {metal.release_of(unit) for unit in moved} == {NEXT_VERSION}
        metal.script("rollback.sh")
        assert {metal.release_of(unit) for unit in moved} == {first}
    assert (tally.failures, tally.wrong, tally.degraded) == ([], [], 0)
    assert all(tally.answers.values()), tally.answers


def test_uninstalling_keeps_the_data_unless_it_is_told_to_purge(metal: Metal) -> None:
    secret = metal.host.read("/etc/ssop/credentials/mesh/secret")
    metal.script("uninstall.sh")
    assert metal.host.run("systemctl", "list-units", "--no-legend", "ssop*").stdout == ""
    assert metal.host.read("/etc/ssop/credentials/mesh/secret") == secret
    metal.script("uninstall.sh", "--purge")
    left = metal.host.run(
        "sh", "-c", "ls -d /etc/ssop /opt/ssop /var/lib/ssop* 2>/dev/null; getent passwd | grep ssop-", check=False
    )
    assert left.stdout == ""
