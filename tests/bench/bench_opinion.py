"""The opinion application under load: `python tests/bench/bench_opinion.py [--duration 600] [--burst 3000:10]`.

A mesh is made for each run, of real processes but for the model, which is replayed (total time p50 600 ms, p99 1,200
ms). 200 posts a second for ten minutes, then a burst; with retrieval off, at ratio 0.3 and at 0.7. Printed are latency
from the door to the sink, what was accepted, lost, and how long the burst took to drain, and the CPU of each process
per post. Four posts of five name a brand that the tenant knows by name (`--known`); the others cost an embedding, where
there is retrieval.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from ssop_cli.opinion_load import run_load
from ssop_cli.opinion_load_mesh import LoadOptions
from ssop_cli.places import find_places


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--duration", type=float, default=600.0, help="seconds at that rate")
    parser.add_argument("--burst", default="3000:10", help="RATE:SECONDS, or empty")
    parser.add_argument("--reposts", type=float, default=0.2, help="share of near-identical posts")
    parser.add_argument("--known", type=float, default=0.8, help="share of brands that the tenant knows by name")
    parser.add_argument("--batch", type=int, default=100, help="most posts of a request")
    parser.add_argument("--retrieval", default="off,0.3,0.7", help="off, or ratios of the prefetch")
    given = parser.parse_args()
    burst_rate, _, burst_s = given.burst.partition(":")
    options = LoadOptions(
        rate=given.rate,
        duration_s=given.duration,
        burst_rate=float(burst_rate or 0),
        burst_s=float(burst_s or 0),
        repost_share=given.reposts,
        known_share=given.known,
        batch=given.batch,
    )
    machine = f"{os.cpu_count()} CPUs, {platform.processor() or platform.machine()}, Python {platform.python_version()}"
    print(json.dumps({"machine": machine}))
    for word in given.retrieval.split(","):
        wanted = replace(options, retrieval=None if word == "off" else float(word))
        with tempfile.TemporaryDirectory(prefix="ssop-bench-") as folder:
            places = find_places(Path(folder) / "state", os.environ)
            report = run_load(places, wanted, Console(file=sys.stderr))
        print(json.dumps({"retrieval": word, **report.to_json()}), flush=True)


if __name__ == "__main__":
    main()
