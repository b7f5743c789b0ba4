"""A real Prometheus with the project's rules, for tests."""

import json
import math
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from helpers.live_mesh import wait_until
from ssop_cli.embedded import free_port

RULES: Final = Path(__file__).resolve().parents[2] / "k8s-free-deploy" / "prometheus" / "ssop.rules.yml"
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_READY_S: Final = 60.0
_RESTART_S: Final = 10.0
"""An alert that was silent for longer has begun anew; what is shorter is a look that came late."""


def scale_waits(rules: str, factor: float) -> str:
    """Rules whose alerts wait `factor` of their time before and after they fire; what they look at stays."""
    return re.sub(
        r"(?P<key>\b(?:keep_firing_)?for: )(?P<duration>\d+)(?P<unit>[smhd])\b", lambda m: _scaled(m, factor), rules
    )


def scale_times(rules: str, factor: float) -> str:
    """Rules in which all time goes by in `factor` of it: windows, waits and offsets."""
    pattern = r"(?P<key>\[|offset )(?P<duration>\d+)(?P<unit>[smhd])\b"
    return re.sub(pattern, lambda m: _scaled(m, factor), scale_waits(rules, factor))


def _scaled(found: "re.Match[str]", factor: float) -> str:
    length_ms = 1_000 * int(found["duration"]) * _SECONDS[found["unit"]] * factor
    return f"{found['key']}{max(1, math.ceil(length_ms))}ms"


@dataclass
class Prometheus:
    """A running Prometheus."""

    address: str
    process: "subprocess.Popen[bytes]"

    def query(self, expression: str, at_s: float | None = None) -> list[dict[str, Any]]:
        """Series of an instant query, now or at a time of the wall clock. Raises AssertionError where it is refused."""
        at = {} if at_s is None else {"time": str(at_s)}
        return list(self._ask("query", query=expression, **at)["result"])

    def value(self, expression: str) -> float | None:
        """The value of an expression of one series; None where there is none."""
        found = self.query(expression)
        return float(found[0]["value"][1]) if found else None

    def firings(self, from_s: float, to_s: float, severity: str = "page") -> list[str]:
        """Alerts of a severity that began to fire between two times of the wall clock: a name for each time."""
        # The samples as they were taken: a grid of steps has none of those between its last step and now.
        span_ms = math.ceil(1_000 * (to_s - from_s + 2 * _RESTART_S))
        found: list[str] = []
        for series in self.query(f'ALERTS{{alertstate="firing",severity="{severity}"}}[{span_ms}ms]', at_s=to_s):
            times = [float(at) for at, _ in series["values"]]
            begins = [at for before, at in zip([-math.inf, *times], times, strict=False) if at - before > _RESTART_S]
            found += [series["metric"]["alertname"]] * sum(at >= from_s for at in begins)
        return found

    def _ask(self, what: str, **words: str) -> dict[str, Any]:
        url = f"http://{self.address}/api/v1/{what}?{urllib.parse.urlencode(words)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as response:
                return dict(json.load(response)["data"])
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{words}: {error.read().decode()}") from error


@contextmanager
def run_prometheus(
    folder: Path,
    targets: Mapping[str, Sequence[str]] | Path,
    *,
    change: Callable[[str], str] = str,
    rules: Path = RULES,
    interval_s: float = 1.0,
) -> Iterator[Prometheus]:
    """Run it over `targets`, by job or in a file that may change, with rules as `change` makes them."""
    folder.mkdir(exist_ok=True)
    (folder / "rules.yml").write_text(change(rules.read_text()))
    if isinstance(targets, Path):
        jobs: list[dict[str, Any]] = [{"job_name": "file", "file_sd_configs": [{"files": [str(targets)]}]}]
    else:
        jobs = [{"job_name": job, "static_configs": [{"targets": list(to)}]} for job, to in targets.items()]
    span = f"{round(1_000 * interval_s)}ms"
    document = {
        "global": {"scrape_interval": span, "scrape_timeout": span, "evaluation_interval": span},
        "rule_files": ["rules.yml"],
        "scrape_configs": jobs,
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(document))
    address = f"127.0.0.1:{free_port()}"
    program = shutil.which("prometheus")
    assert program is not None
    log = folder / "prometheus.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
                "--storage.tsdb.retention.time=1d",
            ],
            stdout=out,
            stderr=out,
        )
    running = Prometheus(address, process)
    try:
        wait_until(lambda: _is_ready(running, log), _READY_S, "Prometheus is ready")
        yield running
    finally:
        process.terminate()
        process.wait(30)


def _is_ready(prometheus: Prometheus, log: Path) -> bool:
    assert prometheus.process.poll() is None, log.read_text()
    try:
        with urllib.request.urlopen(f"http://{prometheus.address}/-/ready", timeout=5):
            return True
    except OSError:
        time.sleep(0.05)
        return False
