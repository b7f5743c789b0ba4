"""Jars of servers that tests run on the JVM of the machine."""

import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

_TIMEOUT_S: Final = 300.0


@cache
def find_classpath(project: Path) -> str:
    """The jars that the project in a folder depends on, fetched where they are not in Maven's own folder."""
    with tempfile.TemporaryDirectory(prefix="maven-") as folder:
        out = Path(folder) / "classpath"
        command = ["mvn", "-q", "-B", "-f", str(project / "pom.xml"), "dependency:build-classpath"]
        command += [f"-Dmdep.outputFile={out}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return out.read_text()
