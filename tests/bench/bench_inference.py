"""Time to the first field against the time of the whole document, with the real small model.

Run: python tests/bench/bench_inference.py [--runs N]. Prints one JSON object; times are in milliseconds.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers.inference import Answer, NodeUnderTest, running_node, user_prompt
from ssop.v1 import frame_pb2

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "main_entity": {"type": "string", "maxLength": 24},
        "sentiment": {"enum": ["positive", "negative", "neutral"]},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "is_urgent": {"type": "boolean"},
        "summary": {"type": "string", "maxLength": 120},
    },
    "required": ["main_entity", "sentiment", "score", "is_urgent", "summary"],
    "additionalProperties": False,
}
POST = "The battery of my new Aurora phone swelled after a week. Support never answered. Avoid!"
FIELD_KINDS = {frame_pb2.FRAME_KIND_VALUE, frame_pb2.FRAME_KIND_PART, frame_pb2.FRAME_KIND_CLOSE}


async def measure(node: NodeUnderTest, text: str) -> tuple[float, float, int]:
    """Time to the first field, time of all, and generated tokens."""
    started_s = time.perf_counter()
    first_ms = 0.0

    def watch(answer: Answer) -> None:
        nonlocal first_ms
        if not first_ms and any(frame.kind in FIELD_KINDS for frame in answer.messages[-1].frames):
            first_ms = (time.perf_counter() - started_s) * 1000

    answer = await node.client.generate(user_prompt(text, schema=SCHEMA), on_message=watch)
    return first_ms, (time.perf_counter() - started_s) * 1000, answer.end.usage.output_tokens


def spread(values: list[float]) -> dict[str, float]:
    """Median and range."""
    return {
        "median": round(statistics.median(values), 1),
        "min": round(min(values), 1),
        "max": round(max(values), 1),
    }


async def run(runs: int) -> dict[str, Any]:
    """All cases."""
    result: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "n": runs,
    }
    async with running_node() as node:
        await measure(node, POST)
        for clients in (1, 4, 8):
            samples = []
            started_s = time.perf_counter()
            for _ in range(runs):
                samples += await asyncio.gather(*(measure(node, f"{POST} #{n}") for n in range(clients)))
            wall_s = time.perf_counter() - started_s
            result[f"{clients} at a time, 4 slots"] = {
                "first_field_ms": spread([first for first, _, _ in samples]),
                "total_ms": spread([total for _, total, _ in samples]),
                "output_tokens_per_s": round(sum(tokens for _, _, tokens in samples) / wall_s, 1),
            }
    return result


def main() -> None:
    """Parse arguments, run, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    print(json.dumps(asyncio.run(run(parser.parse_args().runs)), indent=2))


if __name__ == "__main__":
    main()
