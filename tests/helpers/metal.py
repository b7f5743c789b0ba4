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
from typing import Any, Final

import pytest

from helpers.booted_host import BootedHost, run_host, wait_for
from helpers.front_load import AT_ONCE, RECORDING, Tally
from helpers.live_mesh import MODEL, models_cache
from helpers.log_lines import read_records
from helpers.polyglot import LANGUAGES, build_client
from helpers.wheelhouse import ROOT, Wheelhouse, change_version
from ssop_inference.models import CATALOG
from ssop_sdk.errors import GenerationInterrupted

MARKS: Final = [pytest.mark.needs("systemd_nspawn"), pytest.mark.needs("nginx"), pytest.mark.timeout(1200)]
DEPLOY: Final = "/src/k8s-free-deploy"
WHEELS: Final = "/wheels"
LIMIT_S: Final = 120.0
_BY_NODE: Final = "the generation was cut"
_BY_ROUTER: Final = "the connection was lost"
GO_RECORDING: Final = {"tokens": [[10, '{"mood": "fine", '], [10, '"score": 3}']], "input_tokens": 12, "match": "mood"}
"""What the client in Go gets from the tier `full`; the real model judges for itself."""
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
    "ssop-opinion.service",
)
ONE_OF_EACH: Final = (
    "ssop-redis@cache.service",
    "ssop-cache.service",
    "ssop-rag.service",
    "ssop-inference@1.service",
    "ssop-router@0.service",
    "ssop-gateway.service",
    "ssop-opinion.service",
)
"""A unit of each kind that has a watchdog, beside which others of its kind go on."""


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


_FETCH: Final = """
import json, ssl, sys, urllib.request
url, headers, body = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3].encode() or None
context = ssl.create_default_context(cafile="/etc/ssop/tls/front.pem")
request = urllib.request.Request(url, data=body, headers=headers)
print(urllib.request.urlopen(request, timeout=60, context=context).read().decode())
"""


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
        options = [
            "--role",
            "all,opinion",
            "--nodes",
            "3",
            "--wheelhouse",
            WHEELS,
            "--wheel",
            f"{WHEELS}/{self.wheel.name}",
        ]
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

    @property
    def key(self) -> str:
        """The first API key."""
        return self.host.read("/etc/ssop/credentials/client.key").strip()

    @property
    def certificate(self) -> str:
        """The front's."""
        return self.host.read("/etc/ssop/tls/front.pem")

    @contextmanager
    def load(self, *, next_certificate: str = "") -> Iterator[Tally]:
        """Clients ask until the block ends; then the tally is filled. They believe `next_certificate` too."""
        tally = Tally()
        ca, key = self.folder / "ca.pem", self.folder / "key"
        ca.write_text(self.certificate + next_certificate)
        key.write_text(self.key)
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

    def ask_in_go(self) -> list[dict[str, Any]]:
        """What the client in Go says of an answer through the front."""
        build_client("go")
        ca = self.folder / "go-ca.pem"
        ca.write_text(self.certificate)
        environ = {**os.environ, "SSOP_API_KEY": self.key, "SSOP_TEST_CA": str(ca)}
        client = self.host.start_beside([*LANGUAGES["go"], "generate", "127.0.0.1:443"], environ)
        try:
            out, errors = client.communicate(b"", timeout=LIMIT_S)
        finally:
            client.kill()
            client.wait()
        assert client.returncode == 0, out.decode() + errors.decode()
        return [json.loads(line) for line in out.splitlines()]

    def said(self, unit: str, message: str, **words: str) -> int:
        """How many INFO lines of a unit say this, since the host booted."""
        lines = read_records(self.host.journal(unit))
        wanted = {"level": "info", "message": message, **words}.items()
        return sum(wanted <= {name: line.get(name) for name, _ in wanted}.items() for line in lines)

    def fetch(self, url: str, headers: Mapping[str, str] | None = None, body: str | None = None) -> str:
        """What an address of the host's network answers; fails on an error. TLS is checked as the front's."""
        python = "/opt/ssop/current/bin/python"
        return self.host.run(python, "-c", _FETCH, url, json.dumps(dict(headers or {})), body or "").stdout

    def need_memory_limits(self) -> None:
        """Skip the test where limits of memory are none."""
        if self.host.run("test", "-e", "/sys/fs/cgroup/memory/memory.limit_in_bytes", check=False).returncode:
            pytest.skip("control groups of version 2: the host has no controller for memory")

    def fill_memory(self, unit: str) -> None:
        """Have the kernel end a unit, which takes more than it may."""
        self.host.run("bash", "-c", _FILL, unit, check=False)

    def ask(self) -> Tally:
        """A few requests of each kind of client."""
        with self.load() as tally:
            self.host.run("sleep", "3")
        return tally


@contextmanager
def run_metal(folder: Path, wheelhouse: Wheelhouse, root: Path = Path("/")) -> Iterator[Metal]:
    """Install everything on a host of this root, from a wheelhouse that is filled here, until the block ends."""
    wheelhouse.fill("embedded")
    next_wheel = change_version(wheelhouse.wheel, NEXT_VERSION, folder / "next")
    binds = {ROOT: "/src", wheelhouse.folder: WHEELS, folder / "next": "/next", models_cache(): "/models"}
    with run_host(folder, binds, root) as host:
        # A node that starts says hello to its model.
        recordings = [*({**RECORDING, "match": text} for text in ("How is it", "Hello")), GO_RECORDING]
        host.write("/var/lib/ssop/models/replay.jsonl", "".join(json.dumps(line) + "\n" for line in recordings))
        lite = [{"name": MODEL, "tiers": ["lite"]}]
        path = "/var/lib/ssop/models/replay.jsonl"
        full = [{"name": "replay", "backend": "replay", "path": path, "tiers": ["full"], "slots": 32}]
        for number, models in enumerate([lite, full, full]):
            host.write(f"/etc/ssop/instances/inference-{number}.env", f"SSOP_INFERENCE_MODELS={json.dumps(models)}\n")
        made = Metal(host, folder, wheelhouse.wheel, next_wheel)
        made.install()
        yield made


@pytest.fixture(scope="module")
def metal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metal]:
    """A host with everything on it."""
    folder = tmp_path_factory.mktemp("metal")
    with run_metal(folder, Wheelhouse(folder)) as made:
        yield made


def restarted(metal: Metal, before: Mapping[str, str]) -> None:
    """Wait until other processes serve as these units."""
    for unit, pid in before.items():
        metal.wait_active(unit, pid)
    metal.wait_all_active()


def harmless(tally: Tally) -> bool:
    """Nobody got a wrong answer, or none without being told; whoever can try again got his answer.

    Where one router dies and one node of the tier, in whatever order, each may cut the answer that each SDK reads just
    then, where fields of it were shown: nobody goes on with what a replayed model has begun.
    """
    told = (
        "GENERATION_INTERRUPTED",
        _BY_NODE,
        "unavailable",
        "UNAVAILABLE",
        "502",
        "503",
        "no router",
        "reset",
        "RST_STREAM",
        "disconnected",
    )
    is_told = all(any(text.lower() in failure.lower() for text in told) for failure in tally.failures)
    of_sdk = [failure for failure in tally.failures if failure.startswith("sdk")]
    cut = [failure for failure in of_sdk if GenerationInterrupted.__name__ in failure]
    by_cause = [sum(cause in failure for failure in cut) for cause in (_BY_NODE, _BY_ROUTER)]
    is_given_up = len(cut) < len(of_sdk) or sum(by_cause) < len(cut) or max(by_cause) > AT_ONCE
    return not tally.wrong and is_told and not is_given_up
