"""A host with all of `k8s-free-deploy` on it, for the tests of a module: the fixture `metal`.

A node runs the real model, for the tier `lite`; two replay a recording, for `full`, so that a load costs little.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from helpers.booted_host import BootedHost, run_host, wait_for
from helpers.front_load import RECORDING, Tally
from helpers.live_mesh import MODEL, models_cache
from helpers.wheelhouse import ROOT, Wheelhouse, change_version
from ssop_inference.models import CATALOG

MARKS: Final = [pytest.mark.needs("systemd_nspawn"), pytest.mark.needs("nginx"), pytest.mark.timeout(1200)]
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


def restarted(metal: Metal, before: Mapping[str, str]) -> None:
    """Wait until other processes serve as these units."""
    for unit, pid in before.items():
        metal.wait_active(unit, pid)
    metal.wait_all_active()


def harmless(tally: Tally) -> bool:
    """Nobody got a wrong answer, or none without being told; whoever can try again got his answer."""
    told = (
        "GENERATION_INTERRUPTED",
        "the generation was cut",
        "unavailable",
        "UNAVAILABLE",
        "502",
        "503",
        "no router",
        "reset",
        "disconnected",
    )
    is_told = all(any(text.lower() in failure.lower() for text in told) for failure in tally.failures)
    return not tally.wrong and is_told and not [failure for failure in tally.failures if failure.startswith("sdk")]
