"""`k8s-free-deploy` on a booted systemd: installed on a fresh root, asked through nginx, rebooted, harmed, upgraded.

One host for all, since an installation takes half a minute; each test leaves it serving. A node runs the real model,
for the tier `lite`; two replay a recording for the tier `full`, so that the load costs no more than it must.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from helpers.booted_host import BootedHost, run_host, wait_for
from helpers.front_load import RECORDING, SCHEMA, Tally
from helpers.live_mesh import MODEL, models_cache
from helpers.wheelhouse import ROOT, Wheelhouse, change_version
from ssop_inference.models import CATALOG

pytestmark = [pytest.mark.needs("systemd_nspawn"), pytest.mark.needs("nginx"), pytest.mark.timeout(1200)]

DEPLOY: Final = "/src/k8s-free-deploy"
WHEELS: Final = "/wheels"
LIMIT_S: Final = 120.0
INSTALL_TIMEOUT_S: Final = 900.0
NEXT_VERSION: Final = "0.1.999"
SERVICES: Final = (
    "ssop-redis@cache.service",
    "ssop-redis@state.service",
    "ssop-cache.service",
    "ssop-rag.service",
    "ssop-inference@0.service",
    "ssop-inference@1.service",
    "ssop-inference@2.service",
    "ssop-router@0.service",
    "ssop-router@1.service",
    "ssop-nginx.service",
    "ssop-gateway.service",
)
ONE_OF_EACH: Final = (
    "ssop-redis@cache.service",
    "ssop-cache.service",
    "ssop-rag.service",
    "ssop-inference@1.service",
    "ssop-router@0.service",
    "ssop-gateway.service",
)
"""A unit of each kind that has a watchdog, beside which others of its kind go on."""


@dataclass(frozen=True)
class Metal:
    """An installed host."""

    host: BootedHost
    folder: Path
    wheel: Path
    next_wheel: Path

    def script(self, name: str, *arguments: str, check: bool = True) -> str:
        """Run a script of the deployment; what it said."""
        done = self.host.run(f"{DEPLOY}/{name}", *arguments, timeout_s=INSTALL_TIMEOUT_S, check=check)
        return done.stderr + done.stdout

    def install(self, *, check: bool = True) -> str:
        """Run the installer as the fixture did."""
        return self.script("install.sh", *self.options(), check=check)

    def options(self) -> list[str]:
        """What the installer is told."""
        model = f"/models/{CATALOG[MODEL].file_name}"
        options = ["--role", "all", "--nodes", "3", "--wheelhouse", WHEELS, "--wheel", f"{WHEELS}/{self.wheel.name}"]
        return [*options, "--model-file", model]

    @property
    def release(self) -> str:
        """Version that is current."""
        return self.host.run("readlink", "-f", "/opt/ssop/current").stdout.strip().rpartition("/")[2]

    def release_of(self, unit: str) -> str:
        """Version that a unit's process runs from."""
        pid = self.host.show(unit, "MainPID")
        return self.host.run("cat", f"/proc/{pid}/cmdline").stdout.partition("/bin/python")[0].rpartition("/")[2]

    def wait_active(self, unit: str, before: str = "") -> None:
        """A unit serves, by another process than before."""

        def is_there() -> bool:
            return self.host.is_active(unit) and self.host.show(unit, "MainPID") not in {"0", before}

        wait_for(is_there, LIMIT_S, f"{unit} is active: {self.host.show(unit, 'StatusText')}")

    def wait_all_active(self) -> None:
        """Every unit serves, and the routers ask every node."""
        for unit in SERVICES:
            self.wait_active(unit)
        routers = ["127.0.0.1:9400", "127.0.0.1:9401"]
        python = "/opt/ssop/current/bin/python"
        self.host.run(python, f"{DEPLOY}/lib/wait_nodes.py", str(LIMIT_S), "", *routers, timeout_s=LIMIT_S + 30)

    @contextmanager
    def load(self) -> Iterator[Tally]:
        """Clients ask until the block ends; then the tally is filled."""
        tally = Tally()
        ca, key = self.folder / "ca.pem", self.folder / "key"
        ca.write_text(self.host.read("/etc/ssop/tls/front.pem"))
        key.write_text(self.host.read("/etc/ssop/credentials/client.key"))
        path = os.pathsep.join([str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])])
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SSOP_")}
        command = [sys.executable, "-m", "helpers.front_load", str(ca), str(key)]
        clients = self.host.start_beside(command, environ | {"PYTHONPATH": path})
        try:
            yield tally
            out, errors = clients.communicate(b"", timeout=LIMIT_S)
        finally:
            clients.kill()
            clients.wait()
        assert clients.returncode == 0, errors.decode()[-3000:]
        vars(tally).update(json.loads(out))

    def ask(self) -> Tally:
        """A few requests of each kind of client."""
        with self.load() as tally:
            self.host.run("sleep", "3")
        return tally


@pytest.fixture(scope="module")
def metal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metal]:
    """A host with everything on it."""
    folder = tmp_path_factory.mktemp("metal")
    wheelhouse = Wheelhouse(folder)
    wheelhouse.fill("embedded")
    next_wheel = change_version(wheelhouse.wheel, NEXT_VERSION, folder / "next")
    binds = {ROOT: "/src", wheelhouse.folder: WHEELS, folder / "next": "/next", models_cache(): "/models"}
    with run_host(folder, binds) as host:
        host.write("/var/lib/ssop/models/replay.jsonl", json.dumps(RECORDING) + "\n")
        lite = [{"name": MODEL, "tiers": ["lite"]}]
        path = "/var/lib/ssop/models/replay.jsonl"
        full = [{"name": "replay", "backend": "replay", "path": path, "tiers": ["full"], "slots": 32}]
        for number, models in enumerate([lite, full, full]):
            host.write(f"/etc/ssop/instances/inference-{number}.env", f"SSOP_INFERENCE_MODELS={json.dumps(models)}\n")
        made = Metal(host, folder, wheelhouse.wheel, next_wheel)
        made.install()
        yield made


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


def restarted(metal: Metal, before: dict[str, str]) -> None:
    """Wait until other processes serve as these units."""
    for unit, pid in before.items():
        metal.wait_active(unit, pid)
    metal.wait_all_active()


def harmless(tally: Tally) -> bool:
    """Nobody got a wrong answer, or none without being told; whoever can try again got his answer."""
    told = ("GENERATION_INTERRUPTED", "unavailable", "UNAVAILABLE", "502", "503", "no router", "reset", "disconnected")
    is_told = all(any(text.lower() in failure.lower() for text in told) for failure in tally.failures)
    return not tally.wrong and is_told and not [failure for failure in tally.failures if failure.startswith("sdk")]


@pytest.mark.timeout(1200)
def test_units_that_are_killed_are_started_again_and_the_sdk_sees_nothing(metal: Metal) -> None:
    metal.wait_all_active()
    before = {unit: metal.host.show(unit, "MainPID") for unit in ONE_OF_EACH}
    with metal.load() as tally:
        metal.host.run("systemctl", "kill", "-s", "KILL", "--kill-who=main", *ONE_OF_EACH)
        restarted(metal, before)
    assert harmless(tally), tally
    assert tally.answers["sdk"] == tally.requests["sdk"] > 0


@pytest.mark.timeout(1200)
def test_units_that_hang_are_ended_by_the_watchdog(metal: Metal) -> None:
    metal.wait_all_active()
    before = {unit: metal.host.show(unit, "MainPID") for unit in ONE_OF_EACH}
    with metal.load() as tally:
        metal.host.run("systemctl", "kill", "-s", "STOP", "--kill-who=main", *ONE_OF_EACH)
        restarted(metal, before)
    assert harmless(tally), tally
    assert "Failed with result 'watchdog'" in metal.host.journal("ssop-router@0.service")


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


@pytest.mark.timeout(1200)
def test_a_release_that_does_not_serve_is_taken_back(metal: Metal) -> None:
    metal.wait_all_active()
    first = metal.release
    broken = f"/opt/ssop/releases/{NEXT_VERSION}"
    metal.host.run(
        "bash", "-c", f"cd {broken}/lib/python*/site-packages/ssop_cache && echo 'raise SystemExit(1)' >main.py"
    )
    with metal.load() as tally:
        arguments = ["--wheelhouse", WHEELS, "--wheel", f"/next/{metal.next_wheel.name}"]
        said = metal.script("upgrade.sh", *arguments, check=False)
    assert "serves as before" in said
    assert {metal.release_of(unit) for unit in ("ssop-cache.service", "ssop-router@0.service")} == {first}
    assert (tally.failures, tally.wrong) == ([], [])


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
