"""Wheels for tests of the installer: the mesh's own, the same under another version, and all that it needs."""

import base64
import hashlib
import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
VARIABLE: Final = "SSOP_TEST_WHEEL"
"""Names the wheel under test; without it one is built from this tree, which takes a minute or two."""
PYTHON: Final = "/usr/bin/python3"
"""The interpreter of a host: a service sees none below a home folder."""
_BUILD_TIMEOUT_S: Final = 900


class Wheelhouse:
    """A folder of wheels for the interpreter of a host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "wheels"
        self.folder.mkdir(parents=True)
        self._pip = [str(folder / "pip/bin/python"), "-m", "pip", "--disable-pip-version-check", "-q"]
        run_quiet([PYTHON, "-m", "venv", str(folder / "pip")])
        self.wheel = self._find_wheel()

    def _find_wheel(self) -> Path:
        """The wheel under test; where that is for another interpreter, one from the same tree."""
        given = Path(os.environ.get(VARIABLE) or "none")
        version = subprocess.run(
            [PYTHON, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        if given.suffix == ".whl" and f"-{version}-" in given.name:
            return Path(shutil.copy(given, self.folder))
        run_quiet([*self._pip, "wheel", "--no-deps", "-w", str(self.folder), str(ROOT)])
        (built,) = self.folder.glob("ssop_mesh-*.whl")
        return built

    def fill(self, extras: str) -> None:
        """Put what the wheel needs beside it."""
        constraints = ROOT / "requirements" / "constraints.txt"
        run_quiet([*self._pip, "download", "-d", str(self.folder), "-c", str(constraints), f"{self.wheel}[{extras}]"])


def run_quiet(command: list[str], timeout_s: float = _BUILD_TIMEOUT_S) -> None:
    """Run a command that has to succeed."""
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def change_version(wheel: Path, version: str, folder: Path) -> Path:
    """The same wheel under another version, in another folder: the next release, for the installer."""
    name, old, rest = wheel.name.split("-", 2)
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{name}-{version}-{rest}"
    records: list[str] = []
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as target:
        for entry in source.infolist():
            path = entry.filename.replace(f"{name}-{old}.dist-info/", f"{name}-{version}.dist-info/")
            content = source.read(entry)
            if path.endswith(".dist-info/RECORD"):
                record = path
                continue
            if path.endswith(".dist-info/METADATA"):
                content = content.replace(f"\nVersion: {old}\n".encode(), f"\nVersion: {version}\n".encode(), 1)
            target.writestr(path, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            records.append(f"{path},sha256={digest},{len(content)}")
        target.writestr(record, "\n".join([*records, f"{record},,", ""]))
    return made
