"""The long checks, one part after the other: every test, every drill, fuzzing, every benchmark: `make nightly`.

A part that fails stops none after it. Each has a log of its own, a folder for temporary files that has to be empty when
it ends, and as much time as `--budget-s` gives; it ends with what it has started. The last thing printed is what ran,
what was skipped and why, what was stopped, what failed, and what was left behind. Exits 1 where anything failed or was
stopped. A benchmark that can't run here exits with 77, and its last line is the reason.
"""

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

ROOT: Final = Path(__file__).resolve().parents[2]
SKIPPED_STATUS: Final = 77
"""As in automake's tests."""
_MARK: Final = "NIGHTLY_PART"
"""In the environment of a part, and so of what it starts: that is how what it leaves is found. Benchmarks pass no
settings of the mesh on, which begin with SSOP_."""
_END_S: Final = 30.0
"""What a part has to end by itself, once it was told to."""
_OTHERS: Final = re.compile(r"\.ses|pytest-of-.*")
"""What ONNX Runtime and pytest keep in the folder of temporary files, whoever uses them."""
_SUITES: Final = ("unit", "property", "contract", "integration", "polyglot")
_LEAVE_S: Final = 2.0
"""What processes have to end after their part has."""
_LEFT_OUT: Final = {
    "bench_cascade": "compares what two models wrote, one of which may not ship; see its first lines",
}
_QUICK_ENVIRON: Final = {
    "SSOP_TEST_KILLS": "10",
    "SSOP_TEST_RACK_SEEDS": "1",
    "SSOP_TEST_DAMAGES": "10",
    "SSOP_TEST_CANCELS": "2000",
    "SSOP_TEST_READERS": "20",
    "SSOP_TEST_CROSSINGS": "5000",
    "BENCH_SECONDS": "1",
    "BENCH_ROUNDS": "2",
    "BENCH_ANSWERS": "40",
}
_QUICK: Final = {
    "bench_classifier": "speed",
    "bench_decision": "--calls 500",
    "bench_discovery": "--rounds 1",
    "bench_early_abort": "--sample 1000 --pace-ms 2",
    "bench_first_field": "--posts 3",
    "bench_inference": "--runs 1",
    "bench_maskbench": "--sample 200",
    "bench_mesh": "--parts native,tls,grpc",
    "bench_mesh_soak": "--sessions 500 --soak 2000 --minutes 0.3",
    "bench_nodes": "--seconds 2",
    "bench_opinion": "--rate 20 --duration 5 --burst 60:2 --retrieval off",
    "bench_opinion_alerts": "--posts 500 --rate 50 --seconds 5",
    "bench_opinion_fair": "--seconds 5",
    "bench_opinion_quality": "--hint-only",
    "bench_prefetch": "--ranker bm25 en_cranfield",
    "bench_prefetch_storm": "8",
    "bench_ranking": "--terms --sets zh_rgb",
    "bench_router": "--seconds 1",
    "bench_scan": "--rows 16384 --queries 20",
    "bench_sdk": "--requests 100",
    "bench_tls": "--calls 200",
}
"""The least that shows that a benchmark runs; its figures are of no use."""

State = Literal["ran", "skipped", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class Part:
    """A command. `reason` is why it is not run; empty where it is."""

    name: str
    command: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a part: `note` is its own last word, `left` are processes and files that it did not remove."""

    name: str
    state: State
    seconds: float
    note: str
    left: Sequence[str] = ()

    def line(self) -> str:
        """To be printed."""
        left = f"; left behind: {', '.join(self.left)}" if self.left else ""
        return f"{self.state:8} {self.seconds:6.0f} s  {self.name}: {self.note}{left}"


def make_parts(venv: str, *, is_quick: bool) -> list[Part]:
    """All parts, in their order. The Makefile builds what needs an environment of its own beside `venv`."""
    python, found = sys.executable, []
    pytest = [python, "-m", "pytest", "-p", "no:cacheprovider"]
    suites = [str(path) for name in _SUITES if (path := ROOT / "tests" / name).is_dir()]
    found.append(Part("tests", [*pytest, "--numprocesses=2", "--dist=loadgroup", *suites]))
    quick = _QUICK_ENVIRON if is_quick else {}
    found += [Part(f"drill {path.stem[5:]}", [*pytest, str(path)], quick) for path in _files("drill", "test_*.py")]
    found.append(Part("fuzz", [*pytest, str(ROOT / "tests" / "fuzz")]))
    seconds = {"FUZZ_SECONDS": "10"} if is_quick else {}
    found.append(Part("fuzz-transport", ["make", "-C", str(ROOT), "fuzz-transport", f"VENV={venv}-sanitized"], seconds))
    crossing = [*pytest, "--timeout", "0", str(ROOT / "tests" / "property" / "rag" / "test_tenants.py")]
    found.append(Part("tenants", crossing, {"SSOP_CROSSING_CALLS": "1000" if is_quick else "100000"}))
    tests = os.pathsep.join(filter(None, [str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]))
    for path in _files("bench", "bench_*.py"):
        given = shlex.split(_QUICK.get(path.stem, "")) if is_quick else []
        environ = {"PYTHONPATH": tests, **quick}
        found.append(Part(path.stem, [python, str(path), *given], environ, _LEFT_OUT.get(path.stem, "")))
    return found


def _files(folder: str, pattern: str) -> list[Path]:
    return sorted((ROOT / "tests" / folder).glob(pattern))


def run_part(part: Part, logs: Path, budget_s: float) -> Outcome:
    """Run a part to its end, or for `budget_s` seconds; 0 is as long as it takes."""
    if part.reason:
        return Outcome(part.name, "skipped", 0.0, part.reason)
    log, begun_s = logs / f"{part.name.replace(' ', '_')}.log", time.monotonic()
    # Paths of sockets are short.
    folder = Path(tempfile.mkdtemp(prefix="sn"))
    mark = f"{os.getpid()}.{part.name}"
    files_before = _untracked()
    environ = {**os.environ, **part.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1", _MARK: mark}
    is_stopped, said, status = False, "", 0
    try:
        with log.open("wb") as out:
            process = subprocess.Popen(
                part.command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environ, cwd=ROOT
            )
            try:
                status = process.wait(budget_s or None)
            except subprocess.TimeoutExpired:
                is_stopped, said = True, log.read_text(errors="replace")
            finally:
                _end(process)
    except OSError as error:
        return Outcome(part.name, "failed", 0.0, str(error))
    finally:
        left = _end_left(mark)
        if not is_stopped:
            left += sorted(path.name for path in folder.iterdir() if not _OTHERS.fullmatch(path.name))
        shutil.rmtree(folder, ignore_errors=True)
    left += sorted(_untracked() - files_before)
    seconds = time.monotonic() - begun_s
    state, note = judge(status, is_stopped, said or log.read_text(errors="replace"))
    return Outcome(part.name, state, seconds, note, left)


def judge(status: int, is_stopped: bool, text: str) -> tuple[State, str]:
    """State and note of a part, from its exit status and what it printed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1][:160] if lines else "printed nothing"
    if is_stopped:
        return "stopped", f"its time was over; last printed: {last}"
    if status == SKIPPED_STATUS:
        return "skipped", last
    if status:
        return "failed", f"status {status}; {last}"
    counts = re.search(r"(\d+ (?:passed|skipped)\b.*?) in [\d.]+s", last)
    if counts and "passed" not in counts[1]:
        reasons = [line for line in lines if line.startswith("SKIPPED")]
        return "skipped", (reasons or [counts[1]])[0][:160]
    return "ran", counts[1] if counts else last


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Tell a part to end where it has not, and make it."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_left(mark: str) -> list[str]:
    """Kill processes that a part has left; their names."""
    deadline_s, found = time.monotonic() + _LEAVE_S, _marked(mark)
    # What is about to end is not left.
    while found and time.monotonic() < deadline_s:
        time.sleep(0.1)
        found = _marked(mark)
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    # While they die they may write what is about to be removed.
    while _marked(mark) and time.monotonic() < deadline_s + _END_S:
        time.sleep(0.1)
    return [f"process {name}" for name in found.values()]


def _marked(mark: str) -> dict[int, str]:
    wanted, found = f"{_MARK}={mark}".encode(), {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                # A process that was killed and not yet waited for has no command.
                if words:
                    found[int(folder.name)] = words[:100]
        except OSError:
            continue
    return found


def _untracked() -> set[str]:
    """Files of the tree that git neither keeps nor ignores; none where this is no checkout."""
    command = ["git", "-C", str(ROOT), "ls-files", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return set()
    return set(done.stdout.splitlines()) if done.returncode == 0 else set()


def run_all(parts: Iterable[Part], logs: Path, budget_s: float) -> Iterator[Outcome]:
    """Run parts in turn; each outcome as it comes."""
    for part in parts:
        yield run_part(part, logs, budget_s)


def summary(outcomes: Sequence[Outcome], planned: int) -> str:
    """What ran of so many parts, and what did not, for the end."""
    lines = [f"{len(outcomes)} of {planned} parts"]
    for state in ("ran", "skipped", "stopped", "failed"):
        those = [outcome for outcome in outcomes if outcome.state == state]
        lines.append(f"{state}: {len(those)}")
        lines += [f"  {outcome.name}: {outcome.note}" for outcome in those if state != "ran"]
    left = [outcome for outcome in outcomes if outcome.left]
    lines.append(f"left something behind: {len(left)}")
    lines += [f"  {outcome.name}: {', '.join(outcome.left)}" for outcome in left]
    return "\n".join(lines)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*", help="parts whose names hold one of these words; all unless given")
    parser.add_argument("--budget-s", type=float, default=0.0, help="most seconds of a part; 0: as long as it takes")
    parser.add_argument("--quick", action="store_true", help="the shortest settings: whether it runs, not how fast")
    parser.add_argument("--logs", type=Path, help="folder of the logs; a temporary one unless given")
    parser.add_argument("--venv", default=".venv", help=argparse.SUPPRESS)
    given = parser.parse_args()
    logs = given.logs or Path(tempfile.mkdtemp(prefix="ssop-nightly-"))
    logs.mkdir(parents=True, exist_ok=True)
    parts = make_parts(given.venv, is_quick=given.quick)
    chosen = [part for part in parts if not given.only or any(word in part.name for word in given.only)]
    if not chosen:
        parser.error(f"no part is called {' or '.join(given.only)}; there are {', '.join(part.name for part in parts)}")
    # A shell starts what runs in the background with interrupts ignored, and a part would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"{len(chosen)} parts; logs in {logs}", flush=True)
    outcomes: list[Outcome] = []
    try:
        for outcome in run_all(chosen, logs, given.budget_s):
            outcomes.append(outcome)
            print(outcome.line(), flush=True)
    finally:
        print(f"\n{summary(outcomes, len(chosen))}")
    return 1 if any(outcome.state in {"failed", "stopped"} for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
