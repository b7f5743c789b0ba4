"""The faults of `ssop drill` and a total outage, with a real Prometheus that watches: who would have been woken.

A process of its own, as the drill is: `python -m helpers.alert_drill FOLDER SCALE [FAULT ...]`.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from helpers.live_mesh import MODEL, models_cache, wait_until
from helpers.prometheus import Prometheus, run_prometheus, scale_times
from ssop_cli.drill.drill import run_drill
from ssop_cli.drill.faults import choose_faults
from ssop_cli.drill.ledger import Tally
from ssop_cli.drill.load import Load
from ssop_cli.drill.rig import Rig, own_mesh
from ssop_cli.drill.wire import Mode
from ssop_cli.mesh import find_access

BY_CAUSE: Final = Path(__file__).with_name("by_cause.rules.yml")
OUTAGE: Final = "outage"
_WATCHED: Final = ("router", "rag")
_PAGE_S: Final = 300.0


@dataclass
class AlertReport:
    """By fault: the pages of the project's rules, and of rules by cause."""

    pages: dict[str, list[str]] = field(default_factory=dict)
    by_cause: dict[str, list[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """A table."""
        yield f"{'fault':<24} {'pages':>5} {'by cause':>8}  which"
        for fault, pages in self.pages.items():
            before = self.by_cause[fault]
            names = ", ".join(sorted(set(before))) or "-"
            yield f"{fault:<24} {len(pages):>5} {len(before):>8}  {', '.join(pages) or '-'} | {names}"
        total = sum(map(len, self.pages.values())), sum(map(len, self.by_cause.values()))
        yield f"{'all':<24} {total[0]:>5} {total[1]:>8}"


class _Targets:
    """Keeps the file of targets as the services of a rig say: a service that starts again has another port."""

    def __init__(self, path: Path, rig: Rig) -> None:
        self._path = path
        self._rig = rig
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="targets", daemon=True)
        self.write()
        self._thread.start()

    def write(self) -> None:
        addresses = {name: self._rig.metrics_address(name) for name in _WATCHED}
        document = [
            {"labels": {"job": f"ssop-{name}", "instance": name}, "targets": [address]}
            for name, address in addresses.items()
            if address
        ]
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(document))
        new.replace(self._path)

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            self.write()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def _watch(folder: Path, rig: Rig, scale: float) -> Iterator[tuple[Prometheus, Prometheus]]:
    folder.mkdir()
    targets = _Targets(folder / "targets.json", rig)

    def change(rules: str) -> str:
        return scale_times(rules, scale)

    try:
        with (
            run_prometheus(folder / "ours", folder / "targets.json", change=change) as ours,
            run_prometheus(folder / "by_cause", folder / "targets.json", change=change, rules=BY_CAUSE) as by_cause,
        ):
            # Who has not been scraped yet is down, which is nothing that a fault has done.
            for one in (ours, by_cause):
                wait_until(partial(_is_calm, one), _PAGE_S, "a Prometheus has seen a mesh that is well")
            yield ours, by_cause
    finally:
        targets.close()


def _is_calm(prometheus: Prometheus) -> bool:
    is_seen = prometheus.value("sum(up)") == len(_WATCHED)
    return is_seen and prometheus.value('ALERTS{alertname="SsopRequestsFail"}') is None


def run_alert_drill(folder: Path, faults: Sequence[str], *, scale: float, timeout_s: float) -> AlertReport:
    """Run it in a process whose temporary files lie in `folder`, whose name must be short. See `_drill`."""
    command = [sys.executable, "-m", "helpers.alert_drill", str(folder / "p"), str(scale), *faults]
    environ = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return AlertReport(**json.loads(done.stdout.splitlines()[-1]))


def _drill(folder: Path, faults: Sequence[str], *, scale: float, seed: int = 7) -> AlertReport:
    """Run faults of the drill (none named: all) and then a total outage, and see what is told.

    All time of the rules goes by in `scale` of it, that of the mesh does not: below 1 there are more pages, not fewer.
    """
    report = AlertReport()
    marks = [("none", 0.0)]
    console = Console(stderr=True)
    with own_mesh(models_cache(), MODEL, console, seed) as rig, _watch(folder, rig, scale) as (ours, by_cause):
        marks[0] = ("none", time.time())
        chosen = choose_faults(faults)
        names = iter([*(fault.name for fault in chosen), OUTAGE])

        def seen(tally: Tally) -> None:
            report.wrong.extend(tally.wrong)
            marks.append((next(names), time.time()))

        run_drill(rig.places, chosen, seed, seen=seen, rig=rig)
        _black_out(rig, ours, seed)
        ended_s = time.time()
        for (fault, from_s), (_, to_s) in zip(marks, [*marks[1:], ("", ended_s)], strict=True):
            report.pages[fault] = ours.firings(from_s, to_s)
            report.by_cause[fault] = by_cause.firings(from_s, to_s)
    return report


def _black_out(rig: Rig, prometheus: Prometheus, seed: int) -> None:
    """No node and no stored answer, under load, until somebody is woken; then all is well again."""
    with Load(find_access(rig.places, None, {}), seed) as load:
        for name in ("inference", "inference-2", "cache"):
            if name in rig.wires:
                rig.wires[name].mode = Mode.FAIL
        try:
            firing = 'count(ALERTS{alertstate="firing",severity="page"})'
            assert prometheus.value(firing) is None, "somebody is awake already"
            wait_until(lambda: prometheus.value(firing) is not None, _PAGE_S, "somebody is woken")
        finally:
            for wire in rig.wires.values():
                wire.mode = Mode.PASS
        served_s = time.monotonic()
        wait_until(
            lambda: any(outcome.kind == "ok" for outcome in load.window(served_s, time.monotonic())),
            _PAGE_S,
            "the mesh serves again",
        )


if __name__ == "__main__":
    folder, scale, *faults = sys.argv[1:]
    found = _drill(Path(folder), faults, scale=float(scale))
    print("\n".join(found.lines()), file=sys.stderr)
    print(json.dumps(asdict(found)))
