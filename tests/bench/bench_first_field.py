"""How long a field takes to reach the caller, against waiting for the whole text: the real mesh, the shipped posts.

Run: `make bench-first-field`. Prints medians for 1, 4 and 16 requests in flight on one channel (`batch_size`).
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from helpers.live_mesh import run_mesh
from ssop_cli import data
from ssop_opinion.prompting import post_schema
from ssop_sdk import SsopClient, SsopError

BATCH_SIZES = (1, 4, 16)


@dataclass(frozen=True)
class Sample:
    """Seconds from the call to the first and to the last field, and the time of every field between."""

    first_s: float
    total_s: float
    fields: int


def measure(client: SsopClient, text: str, schema: dict[str, Any]) -> Sample | None:
    """One post; None when it did not end well."""
    started_s = time.monotonic()
    moments: list[float] = []
    try:
        with client.generate(text, output_schema=schema, policy="no_cache") as stream:
            moments.extend(time.monotonic() - started_s for frame in stream if frame.delta)
    except SsopError:
        return None
    return Sample(moments[0], time.monotonic() - started_s, len(moments))


def run(client: SsopClient, texts: Sequence[str], schema: dict[str, Any], batch_size: int) -> None:
    """Analyse all texts with `batch_size` in flight, and print a line."""
    started_s = time.monotonic()
    with ThreadPoolExecutor(batch_size) as pool:
        samples = [s for s in pool.map(lambda text: measure(client, text, schema), texts) if s is not None]
    wall_s = time.monotonic() - started_s
    if not samples:
        sys.exit(f"no post of {len(texts)} was answered with {batch_size} in flight")
    first_ms = statistics.median(sample.first_s for sample in samples) * 1000
    total_ms = statistics.median(sample.total_s for sample in samples) * 1000
    saved_ms = statistics.median(sample.total_s - sample.first_s for sample in samples) * 1000
    print(
        f"{batch_size:>10} {len(samples):>5}/{len(texts):<5} {first_ms:>14.0f} {total_ms:>10.0f} {saved_ms:>14.0f} "
        f"{first_ms / total_ms:>11.2f} {len(samples) / wall_s:>9.2f}"
    )


def main() -> None:
    """Start a mesh, warm it up, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--posts", type=int, default=24)
    given = parser.parse_args()
    schema = dict(post_schema().document)
    posts = [json.loads(line) for line in resources.files(data).joinpath("posts.jsonl").read_text().splitlines()]
    texts = [post["text"] for post in posts][: given.posts]
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}, {len(texts)} posts")
    heads = ("batch_size", "ok", "first field ms", "total ms", "earlier by ms", "first/total", "posts/s")
    with (
        tempfile.TemporaryDirectory(prefix="ssop-") as folder,
        run_mesh(Path(folder)) as mesh,
        SsopClient(mesh.key, mesh.target, timeout_s=120) as client,
    ):
        measure(client, texts[0], schema)
        print("{:>10} {:>11} {:>14} {:>10} {:>14} {:>11} {:>9}".format(*heads))
        for batch_size in BATCH_SIZES:
            run(client, texts, schema, batch_size)


if __name__ == "__main__":
    main()
