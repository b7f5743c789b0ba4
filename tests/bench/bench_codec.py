"""How long the codec takes: `python tests/bench/bench_codec.py [--out FILE]`.

Best of several runs, beside json and orjson in the same run. The documents come from SSOP_SUITES.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ssop_codec import CODEC_VERSION, Decoder, Encoder, Schema, compile_schema, scan_heads

RUNS = 15


def schema_of(values: list[Any]) -> dict[str, Any]:
    """A schema that all the values keep, with every key named."""
    types = {type(value) for value in values}
    if types == {dict}:
        names = {key: None for value in values for key in value}
        return {
            "type": "object",
            "properties": {key: schema_of([v[key] for v in values if key in v]) for key in names},
            "required": [key for key in names if all(key in value for value in values)],
            "additionalProperties": False,
        }
    if types == {list}:
        items = [item for value in values for item in value]
        return {"type": "array", "items": schema_of(items)} if items else {"type": "array"}
    known = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    if types <= known.keys():
        return {"type": sorted(known[t] for t in types)}
    return {}


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Best and median time of one call in ns; short calls are repeated within a run."""
    repeat = 1
    while True:
        start = time.perf_counter_ns()
        for _ in range(repeat):
            call()
        spent = time.perf_counter_ns() - start
        if spent > 2_000_000 or repeat > 10_000:
            break
        repeat *= 4
    runs = []
    for _ in range(RUNS):
        start = time.perf_counter_ns()
        for _ in range(repeat):
            call()
        runs.append((time.perf_counter_ns() - start) / repeat)
    return min(runs), statistics.median(runs)


def stream(schema: Schema | None, pieces: list[bytes]) -> list[bytes]:
    """One document in pieces, nothing flushed in between."""
    encoder = Encoder(schema, stream_buffer_bytes=4096)
    feed = encoder.feed
    for piece in pieces:
        feed(piece)
    encoder.finish()
    return encoder.drain(True)


def only_loop(pieces: list[bytes]) -> None:
    """What the loop over the pieces costs by itself."""
    feed = len
    for piece in pieces:
        feed(piece)


def measure(path: Path) -> dict[str, Any]:
    """All figures of one document."""
    data = path.read_bytes()
    schema: Schema | None = None
    if path.name.startswith("typed"):
        schema = compile_schema(schema_of([json.loads(data)]))
    tokens = [data[i : i + 4] for i in range(0, len(data), 4)]
    singles = [data[i : i + 1] for i in range(len(data))]
    chunks = stream(schema, [data])
    frames = sum(len(scan_heads(chunk)) for chunk in chunks)

    def decode() -> None:
        decoder = Decoder()
        for chunk in chunks:
            decoder.feed(chunk)

    def scan() -> None:
        for chunk in chunks:
            scan_heads(chunk)

    row: dict[str, Any] = {
        "document": path.stem,
        "bytes": len(data),
        "frames": frames,
        "wire_bytes": sum(map(len, chunks)),
        "feed_ns_per_4_byte_token": (timed(lambda: stream(schema, tokens))[0] - timed(lambda: only_loop(tokens))[0])
        / len(tokens),
        "feed_ns_per_1_byte_token": timed(lambda: stream(schema, singles))[0] / len(singles),
        "whole_ns_per_byte": timed(lambda: stream(schema, [data]))[0] / len(data),
        "decode_ns_per_frame": timed(decode)[0] / frames,
        "scan_ns_per_frame": timed(scan)[0] / frames,
        "json_ns_per_byte": timed(lambda: json.loads(data))[0] / len(data),
        "setup_and_finish_ns": timed(lambda: stream(schema, []))[0],
    }
    try:
        import orjson  # noqa: PLC0415  # compared where it is installed
    except ImportError:
        pass
    else:
        row["orjson_ns_per_byte"] = timed(lambda: orjson.loads(data))[0] / len(data)
    return row


def main() -> None:
    """Measure, print a table, write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    folder = Path(os.environ.get("SSOP_SUITES", "")) / "suites" / "bench_docs"
    if not folder.is_dir():
        print("not run: SSOP_SUITES does not name the folder of the test suites", file=sys.stderr)
        return
    rows = [measure(path) for path in sorted(folder.glob("*.json"))]
    for row in rows:
        print("  ".join(f"{k}={v:.2f}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()))
    if options.out:
        about = {"machine": platform.processor() or platform.machine(), "python": platform.python_version()}
        report = {"codec": CODEC_VERSION, "runs": RUNS, **about, "cpus": os.cpu_count(), "rows": rows}
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
