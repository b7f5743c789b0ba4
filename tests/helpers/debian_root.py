"""The root of another Debian release, and wheels for its interpreter."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from helpers.wheelhouse import ROOT, VARIABLE, Wheelhouse, run_quiet

# What a host has before install.sh, and what building the wheel needs.
_PACKAGES: Final = (
    "systemd,systemd-sysv,systemd-container,dbus,python3,python3-venv,python3-dev,gcc,g++,libc6-dev,libnghttp2-dev,"
    "pkg-config,nginx,redis-server,openssl,ca-certificates,iproute2,procps,curl,libgomp1"
)
_MAKE_TIMEOUT_S: Final = 900
_FOLDERS: Final = ("codec", "protos", "rag_svc", "router_svc", "services", "k8s-free-deploy", "tools")


def debian_root(suite: str) -> Path:
    """The folder of a release's root, made by mmdebstrap the first time and kept; nobody writes into it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ssop-tests"
    cache.mkdir(parents=True, exist_ok=True)
    root = cache / suite
    if not root.exists():
        with tempfile.TemporaryDirectory(prefix=suite, dir=cache) as fresh:
            command = ["mmdebstrap", "--variant=minbase", f"--include={_PACKAGES}", suite, f"{fresh}/root"]
            run_quiet(command, timeout_s=_MAKE_TIMEOUT_S)
            Path(fresh, "root").rename(root)
    return root


class RootWheelhouse(Wheelhouse):
    """Wheels for the interpreter of a root: fetched here, and the mesh's own built there, without a network."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._root = root
        found = subprocess.run(
            ["chroot", str(root), "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=True,
        )
        self.version = found.stdout.strip()
        super().__init__(folder)

    def _find_wheel(self) -> Path:
        given = Path(os.environ.get(VARIABLE) or "none")
        if given.suffix == ".whl" and f"-cp{self.version.replace('.', '')}-" in given.name:
            return Path(shutil.copy(given, self.folder))
        build = self.folder.parent / "build"
        build.mkdir()
        for name in _FOLDERS:
            ignored = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info", "build")
            shutil.copytree(ROOT / name, build / name, ignore=ignored)
        for file in ROOT.iterdir():
            if file.is_file():
                shutil.copy(file, build / file.name)
        self._download("setuptools>=77", "Cython>=3.1,<4", "wheel")
        command = ["systemd-nspawn", "-q", "-D", str(self._root), "--volatile=overlay", "--register=no", "--pipe"]
        command += [f"--bind={build}:/build", f"--bind={self.folder}:/wheels", "--private-network", "--keep-unit"]
        script = (
            "python3 -m venv /tmp/v && cd / &&"
            " /tmp/v/bin/pip -q wheel --no-deps --no-index --find-links /wheels -w /wheels /build"
        )
        run_quiet([*command, "sh", "-c", script], timeout_s=_MAKE_TIMEOUT_S)
        (built,) = self.folder.glob("ssop_mesh-*.whl")
        return built

    def fill(self, extras: str) -> None:
        """Put what the wheel needs beside it."""
        constraints = ROOT / "requirements" / "constraints.txt"
        self._download("-c", str(constraints), f"{self.wheel}[{extras}]")

    def _download(self, *what: str) -> None:
        platforms = [f"--platform=manylinux_2_{number}_{os.uname().machine}" for number in range(17, 40)]
        platforms += [f"--platform={name}_{os.uname().machine}" for name in ("manylinux2014", "linux")]
        command = [*self._pip, "download", "-d", str(self.folder), "--only-binary=:all:"]
        command += [f"--find-links={self.folder}", f"--python-version={self.version}", "--implementation=cp"]
        run_quiet([*command, *platforms, *what])
