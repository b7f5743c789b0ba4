"""What the kernel's probes cost: a hit of each kind, while nobody listens and while `ssop-ebpf` does, and a scrape.

`python tests/bench/bench_probes.py`, as root, with clang and libbpf-dev.
"""

import statistics
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import ssop_codec
from helpers.components import COMPONENTS
from helpers.kernel_view import build_object, run_exporter
from ssop_cli.embedded import free_port
from ssop_codec import Decoder, Encoder, probes

ROUNDS = 15
# Time of this thread on its core: a busy machine takes it away in the middle of a round, and longer rounds more often.
HITS = 20_000
DOCUMENT = b"[" + b",".join([b"1"] * 2_000) + b"]"


def empty(_: int, __: int, ___: int) -> None:
    """A call that does nothing."""


def hit_ns() -> float:
    """A hit from Python, with the call, less a call that does nothing."""
    times = []
    for _ in range(ROUNDS):
        spans = []
        for call in (probes.chunk_sent, empty):
            begun_ns = time.thread_time_ns()
            for number in range(HITS):
                call(number, 1, 1)
            spans.append(time.thread_time_ns() - begun_ns)
        times.append((spans[0] - spans[1]) / HITS)
    return statistics.median(times)


def frame_ns() -> tuple[float, float]:
    """Making a frame, and decoding one."""
    made, decoded = [], []
    for _ in range(ROUNDS):
        encoder = Encoder(None)
        begun_ns = time.thread_time_ns()
        encoder.feed(DOCUMENT)
        encoder.finish()
        chunk = b"".join(encoder.drain(True))
        middle_ns = time.thread_time_ns()
        decoder = Decoder()
        decoder.feed(chunk)
        made.append((middle_ns - begun_ns) / encoder.frames)
        decoded.append((time.thread_time_ns() - middle_ns) / encoder.frames)
    return statistics.median(made), statistics.median(decoded)


def report(name: str) -> None:
    """Print one line."""
    made, decoded = frame_ns()
    print(
        f"{name:<14} hit from Python {hit_ns():8.0f} ns   frame made {made:8.0f} ns   frame decoded {decoded:8.0f} ns"
    )


def main() -> None:
    """Measure."""
    if absence := COMPONENTS["ebpf"]():
        print(f"not measured: {absence}")
        return
    report("nobody")
    with tempfile.TemporaryDirectory() as folder:
        object_file = build_object(Path(folder))
        codec = Path(ssop_codec.__file__).parent
        with run_exporter(Path(folder), object_file, codec, free_port()) as view:
            report("ssop-ebpf")
            spans_ms = []
            for _ in range(ROUNDS):
                begun_s = time.perf_counter()
                with urllib.request.urlopen(f"http://{view.address}/metrics") as response:
                    response.read()
                spans_ms.append(1_000 * (time.perf_counter() - begun_s))
            done = subprocess.run(
                ["ps", "-o", "rss=", "-p", str(view.process.pid)], capture_output=True, text=True, check=True
            )
            print(f"scrape {statistics.median(spans_ms):.1f} ms, {int(done.stdout) / 1024:.0f} MiB resident")


if __name__ == "__main__":
    main()
