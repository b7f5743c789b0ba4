"""The units of `k8s-free-deploy/systemd`: systemd takes them, they are hardened alike, and they wait for a drain."""

import configparser
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

DEPLOY: Final = Path(__file__).parents[2] / "k8s-free-deploy"
UNITS: Final = DEPLOY / "systemd"
SERVICES: Final = sorted(UNITS.glob("*.service"))
OURS: Final = [path for path in SERVICES if "-m ssop_" in path.read_text() and "ebpf" not in path.name]
"""Those that run the mesh's own code without privileges."""
EXPOSURE: Final = 20
"""Tenths of what `systemd-analyze security` calls exposure, from 0 to 100."""
# They program the kernel, or take a network card from it.
PRIVILEGED: Final = frozenset({"ssop-ebpf.service", "ssop-front.service", "ssop-xdp-guard@.service"})


def hardening(path: Path) -> str:
    """The block that all services share, without the redis's umask, which lets its group in."""
    text = path.read_text().partition("\n# What every service here is held to")[2].partition("\n[Install]")[0]
    return re.sub(r"UMask=\d+", "", text)


def value(path: Path, key: str) -> str:
    found = re.findall(rf"^{key}=(.*)$", path.read_text(), re.MULTILINE)
    return str(found[-1]) if found else ""


def verify(folder: Path) -> str:
    """What systemd finds wrong in the units of a folder; not what it finds in those of the machine."""
    units = sorted(path for path in folder.iterdir() if path.suffix in {".service", ".socket", ".target", ".slice"})
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=60, check=False
    )
    return "\n".join(line for line in done.stderr.splitlines() if "ssop" in line and "not executable" not in line)


@pytest.mark.needs("systemd_analyze")
def test_systemd_finds_nothing_wrong() -> None:
    assert verify(UNITS) == ""


@pytest.mark.needs("systemd_analyze")
def test_systemd_would_find_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "ssop-bad.service").write_text("[Service]\nType=notify\nExecStart=/bin/true\nWatchdogSek=1\n")
    assert "WatchdogSek" in verify(tmp_path)


@pytest.mark.needs("systemd_analyze")
@pytest.mark.parametrize("path", [p for p in SERVICES if p.name not in PRIVILEGED], ids=lambda path: path.name)
def test_exposure_is_low(path: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}", path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def test_services_are_hardened_alike() -> None:
    assert len({hardening(path) for path in OURS}) == 1
    assert all(hardening(path).strip() for path in OURS)


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_service_is_watched_limited_and_started_again(path: Path) -> None:
    needed = ["WatchdogSec", "MemoryMax", "TasksMax", "LimitNOFILE", "TimeoutStartSec", "TimeoutAbortSec", "User"]
    assert [key for key in needed if not value(path, key)] == []
    assert (value(path, "Type"), value(path, "Restart"), value(path, "Slice")) == ("notify", "always", "ssop.slice")


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_who_is_waited_for_says_when_it_is_ready(path: Path) -> None:
    module = re.findall(r"-m (ssop_\w+)\.", value(path, "ExecStart"))[0]
    (package,) = [found for found in DEPLOY.parent.glob(f"*/{module}") if found.is_dir()]
    texts = [file.read_text() for file in package.glob("*.py")]
    assert any("run_service(" in text or "Manager()" in text for text in texts)


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_stop_waits_longer_than_the_drain(path: Path) -> None:
    installer = (DEPLOY / "install.sh").read_text()
    drain_ms = sum(
        int(re.findall(rf"^{key} = (\d+)$", installer, re.MULTILINE)[0]) for key in ("lame_duck_ms", "drain_ms")
    )
    assert int(value(path, "TimeoutStopSec")) * 1000 > drain_ms + 5_000


def test_old_workers_of_nginx_outlive_the_drain() -> None:
    front = re.findall(r"worker_shutdown_timeout (\d+)s;", (DEPLOY / "nginx" / "nginx.conf").read_text())
    installer = (DEPLOY / "install.sh").read_text()
    assert int(front[0]) * 1000 > int(re.findall(r"^drain_ms = (\d+)$", installer, re.MULTILINE)[0])


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_user_of_a_service_is_made(path: Path) -> None:
    assert f"u {value(path, 'User')} " in (UNITS / "ssop.sysusers").read_text()


def test_who_needs_no_secret_of_the_mesh_gets_none() -> None:
    without = {path.name for path in OURS if "LoadCredential=mesh:" not in path.read_text()}
    assert without == {"ssop-gateway.service", "ssop-opinion.service", "ssop-redis@.service"}


@pytest.mark.parametrize(("role", "policy", "append"), [("state", "noeviction", "yes"), ("cache", "allkeys-lfu", "no")])
def test_redis_is_set_for_its_role(role: str, policy: str, append: str) -> None:
    parser = configparser.ConfigParser(delimiters=(" ",), strict=False)
    parser.read_string("[redis]\n" + (DEPLOY / "redis" / f"{role}.conf").read_text())
    found = parser["redis"]
    assert (found["maxmemory-policy"], found["appendonly"], found["port"]) == (policy, append, "0")
    assert found["unixsocket"] == f"/run/ssop-redis-{role}/redis.sock"
