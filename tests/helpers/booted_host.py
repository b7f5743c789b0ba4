"""A host for tests: systemd, booted by systemd-nspawn on an overlay of this machine's root, with a network of its own.

Everything that it leaves ends with this process, whatever ends this process: the container is in namespaces whose
first process is on a leash. Groups that a killed run has left are removed by the next.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import ssop_cli.leash

BOOT_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 60.0
_HERE: Final = Path(__file__).parent
_CGROUPS: Final = Path("/sys/fs/cgroup")
_PREFIX: Final = "ssop-test-host-"
_ENVIRON: Final = ("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "SYSTEMD_PAGER=cat", "TERM=dumb")
_PROGRAMS: Final = ("systemd-nspawn", "unshare", "nsenter", "ip")
_PROBE: Final = """
set -e
mount -t tmpfs tmpfs /mnt
mkdir /mnt/up /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/up,workdir=/mnt/work /mnt/root
"""


def why_not() -> str | None:
    """What this machine lacks for a booted host; None: nothing."""
    if os.geteuid() != 0:
        return "a host is booted by root only"
    for name in _PROGRAMS:
        if shutil.which(name) is None:
            return f"no {name} on the PATH"
    if not os.access(_CGROUPS, os.W_OK):
        return "control groups can't be made here"
    probe = ["unshare", "--mount", "--pid", "--net", "--fork", "sh", "-c", _PROBE]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=60, check=False)
    return None if done.returncode == 0 else f"no overlay of / in a namespace: {done.stderr.strip()}"


def wait_for(predicate: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Return when the predicate holds; fail, naming `what`, when it does not within `timeout_s` seconds."""
    deadline_s = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"{what}: not within {timeout_s} s")
        time.sleep(0.1)


@dataclass
class BootedHost:
    """A host that runs. Paths are as on the host itself."""

    process: "subprocess.Popen[bytes]"
    console: Path
    _leader: int = field(default=0, init=False)

    @property
    def leader(self) -> int:
        """Process id of the host's first process, here."""
        return self._leader

    def run(
        self, *command: str, timeout_s: float = 120.0, check: bool = True, stdin: bytes = b""
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command on the host, as root."""
        done = subprocess.run(
            ["nsenter", "-t", str(self._leader), "-a", "-r", "-w", *_ENVIRON, *command],
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        out, errors = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        assert not check or done.returncode == 0, (
            f"{' '.join(command)}: {done.returncode}\n{out[-2000:]}{errors[-4000:]}"
        )
        return subprocess.CompletedProcess(command, done.returncode, out, errors)

    def start_beside(self, command: Sequence[str], environ: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        """Start a program of this machine in the host's network, on a leash."""
        leash = [sys.executable, ssop_cli.leash.__file__, str(os.getpid())]
        inside = [str(shutil.which("nsenter")), "-t", str(self._leader), "-n", *command]
        return subprocess.Popen(
            [*leash, *inside], env=dict(environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def read(self, path: str) -> str:
        """A file of the host."""
        return self.run("cat", path).stdout

    def write(self, path: str, text: str) -> None:
        """Write a file of the host, which everybody there may read."""
        self.run("sh", "-c", 'mkdir -p "$(dirname "$0")" && cat >"$0" && chmod 0644 "$0"', path, stdin=text.encode())

    def show(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.run("systemctl", "show", "-P", name, unit).stdout.strip()

    def is_active(self, unit: str) -> bool:
        """Whether a unit serves."""
        return self.show(unit, "ActiveState") == "active"

    def journal(self, unit: str) -> str:
        """What a unit has logged, since the host booted."""
        return self.run("journalctl", "-q", "-b", "--no-pager", "-o", "cat", "-u", unit).stdout

    def reboot(self) -> None:
        """Reboot, and return when it is up again."""
        before = self._leader
        self.run("systemctl", "reboot", "--no-block", check=False)
        wait_for(lambda: not Path(f"/proc/{before}").exists(), STOP_TIMEOUT_S, "the host is down")
        self.wait_booted()

    def wait_booted(self) -> None:
        """Return when systemd runs the host. `degraded` is well: this machine's own units may fail there."""
        wait_for(self._find_leader, BOOT_TIMEOUT_S, f"the host boots: {self.console.read_text()[-2000:]}")
        self.run("systemctl", "is-system-running", "--wait", check=False)
        # Version 1 of control groups comes read-only, and then limits of memory are none.
        for controller in ("memory", "pids", "cpu"):
            self.run("mount", "-o", "remount,bind,rw", f"/sys/fs/cgroup/{controller}", check=False)
        self.run("systemctl", "daemon-reexec")

    def _find_leader(self) -> bool:
        assert self.process.poll() is None, self.console.read_text()[-2000:]
        shells = _children(self.process.pid)
        nspawns = [child for shell in shells for child in _children(shell)]
        for child in [child for nspawn in nspawns for child in _children(nspawn)]:
            with suppress(OSError):
                if Path(f"/proc/{child}/root/run/systemd/private").is_socket():
                    self._leader = child
                    return True
        return False


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


@contextmanager
def run_host(folder: Path, binds: Mapping[Path, str], root: Path = Path("/")) -> Iterator[BootedHost]:
    """Boot a host on an overlay of `root`, with folders of this machine where `binds` says, until the block ends."""
    _remove_groups(lambda pid: not Path(f"/proc/{pid}").exists())
    name = f"{_PREFIX}{os.getpid()}"
    command = [sys.executable, ssop_cli.leash.__file__, str(os.getpid()), str(shutil.which("unshare"))]
    command += ["--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc"]
    command += ["bash", str(_HERE / "boot_host.sh"), str(folder), name, str(root)]
    command += [f"{source}:{target}" for source, target in binds.items()]
    console = folder / "console.log"
    with console.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    host = BootedHost(process, console)
    try:
        host.wait_booted()
        yield host
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        own = str(os.getpid())
        # The kernel takes a moment to empty them.
        with suppress(AssertionError):
            wait_for(lambda: _remove_groups(lambda pid: pid == own), STOP_TIMEOUT_S, "the groups are removed")


def _remove_groups(is_due: Callable[[str], bool]) -> bool:
    """Remove the control groups of hosts whose maker's process id is due; whether none is left."""
    left = False
    for top in [*_CGROUPS.glob(f"{_PREFIX}*"), *_CGROUPS.glob(f"*/{_PREFIX}*")]:
        if not is_due(top.name.removeprefix(_PREFIX)):
            continue
        for folder, _, _ in os.walk(top, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()
        left = left or top.exists()
    return not left
