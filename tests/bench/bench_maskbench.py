"""The codec on MaskBench: schemas compiled, verdicts at three cuts, leaves that leave at their last byte, error bytes.

Reads `suites/maskbench` and `suites/maskbench_ref` below $SSOP_SUITES. `--sample N` takes every N-th schema.

The reference gives up earlier than the truth where it demands more than the schema does. Each error that is found later
than the reference gave up is put to proof: is there a valid document that begins with all that the reference read, the
byte at which it gave up too? Then it was wrong, and the case says nothing. What is not proven counts as late.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers.completions import Completer, leaves_of, scan
from ssop_codec import Decoder, Encoder, FrameKind, Schema, SchemaError, Verdict, compile_schema

CUTS = (0, 4, 1)
"""Bytes of a piece; 0: the whole document."""
NEVER = 1 << 30
CLOSE_BYTES = 2


@dataclass
class Figures:
    """What is counted over the suite."""

    schemas: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    compile_ms: list[float] = field(default_factory=list)
    instances: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    wrong_ids: list[str] = field(default_factory=list)
    waits: Counter[int] = field(default_factory=Counter)
    leaves: int = 0
    compared: int = 0
    in_time: int = 0
    nearly: int = 0
    late_by_rule: Counter[str] = field(default_factory=Counter)
    too_strict: Counter[str] = field(default_factory=Counter)
    """Cases with a proof, by what the reference gave up at."""
    unproven_by_rule: Counter[str] = field(default_factory=Counter)
    unproven: list[str] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)


def records(folder: Path) -> Iterator[dict[str, Any]]:
    """The schemas of the suite, with their instances."""
    for path in sorted((folder / "maskbench").glob("*.jsonl.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def references(folder: Path) -> dict[str, Any]:
    """Per schema and instance the byte at which llguidance gave up."""
    with lzma.open(folder / "maskbench_ref" / "ref.jsonl.xz", "rt", encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    return {entry["id"]: entry for entry in found}


def judge(schema: Schema, data: bytes, size: int) -> Encoder:
    """The encoder behind the document."""
    encoder = Encoder(schema)
    if size == 0:
        encoder.feed(data)
    else:
        for at in range(0, len(data), size):
            encoder.feed(data[at : at + size])
    encoder.finish()
    return encoder


def count_waits(schema: Schema, data: bytes, figures: Figures) -> None:
    """How many bytes after its last one each leaf leaves, at pieces of one byte."""
    encoder = Encoder(schema, track_spans=True)
    decoder = Decoder()
    for at in range(len(data)):
        encoder.feed(data[at : at + 1])
        frames = sum(frame.kind == FrameKind.VALUE for chunk in encoder.drain(True) for frame in decoder.feed(chunk))
        spans = encoder.take_spans()
        if frames != len(spans):
            raise SystemExit("frames and spans differ")
        for _, _, end in spans:
            figures.waits[at + 1 - end] += 1
            figures.leaves += 1
    encoder.finish()


def run_schema(record: dict[str, Any], reference: Any, figures: Figures) -> None:
    """Compile one schema and judge its instances."""
    figures.schemas += 1
    begin = time.perf_counter()
    try:
        schema = compile_schema(record["schema"])
    except SchemaError as error:
        figures.refused[error.keyword] += 1
        figures.compile_ms.append((time.perf_counter() - begin) * 1000)
        return
    figures.compile_ms.append((time.perf_counter() - begin) * 1000)
    late: list[tuple[str, str, bytes]] = []
    for position, test in enumerate(record["tests"]):
        data = json.dumps(test["data"], ensure_ascii=False).encode()
        figures.instances += 1
        for size in CUTS:
            encoder = judge(schema, data, size)
            is_valid = encoder.verdict == Verdict.OK
            if is_valid != test["valid"]:
                figures.wrong[f"{'accepts' if is_valid else 'rejects'} at {size or 'whole'}"] += 1
                name = f"{record['id']}[{position}] {encoder.violation}"
                if size == 0:
                    figures.wrong_ids.append(name)
        if test["valid"]:
            count_waits(schema, data, figures)
            continue
        violation = encoder.violation
        if violation is None or reference is None:
            continue
        abort = reference["tests"][position][3] if isinstance(reference, dict) else None
        figures.shares.append(violation.offset_bytes / max(1, len(data)))
        if abort is None:
            continue
        figures.compared += 1
        if violation.offset_bytes <= (NEVER if abort < 0 else abort):
            figures.in_time += 1
        else:
            figures.late_by_rule[violation.rule] += 1
            figures.nearly += violation.offset_bytes - abort <= CLOSE_BYTES
            late.append((f"{record['id']}[{position}] {violation}", violation.rule, data[: abort + 1]))
    if late:
        prove(record, late, figures)


def prove(record: dict[str, Any], late: list[tuple[str, str, bytes]], figures: Figures) -> None:
    """Look for valid documents that begin with what the reference gave up."""
    known = {leaf: None for test in record["tests"] if test["valid"] for leaf in leaves_of(test["data"])}
    completer = Completer(record["schema"], list(known)[:80])
    for name, rule, prefix in late:
        if completer.complete(prefix) is not None:
            figures.too_strict[reference_reason(prefix)] += 1
        else:
            figures.unproven_by_rule[rule] += 1
            figures.unproven.append(name)


def reference_reason(prefix: bytes) -> str:
    """What the reference gave up at, the last byte of the prefix."""
    _, state, _ = scan(prefix)
    _, before, _ = scan(prefix[:-1])
    if state == "key" or before == "key":
        return "a name, by the order of properties"
    if state == "number" or before == "number":
        return "a number"
    if state == "string" or before == "string":
        return "a text"
    if prefix[-1:] in b"},":
        return "a comma or bracket, by the order of properties"
    return "the first byte of a value"


def report(figures: Figures, wall_s: float) -> None:
    """Print the figures."""
    compiled = figures.schemas - sum(figures.refused.values())
    print(f"schemas {figures.schemas}, compiled {compiled} ({100 * compiled / figures.schemas:.2f} %)")
    print(f"refused: {dict(figures.refused.most_common())}")
    times = sorted(figures.compile_ms)
    print(
        f"compile ms: p50 {statistics.median(times):.2f}, p99 {times[int(len(times) * 0.99)]:.2f}, max {times[-1]:.0f}"
    )
    print(f"instances {figures.instances}, wrong: {dict(figures.wrong) or 0}")
    for name in figures.wrong_ids[:40]:
        print("  wrong:", name)
    if figures.leaves:
        at_once = sum(n for wait, n in figures.waits.items() if wait <= 1)
        print(f"leaves {figures.leaves}, at their last byte (numbers one later) {100 * at_once / figures.leaves:.3f} %")
        print("  bytes waited:", dict(sorted(figures.waits.items())))
    if figures.compared:
        share = 100 * figures.in_time / figures.compared
        print(f"error byte no later than the reference: {share:.2f} % of {figures.compared}")
        print(
            f"  at most {CLOSE_BYTES} bytes later: {100 * (figures.in_time + figures.nearly) / figures.compared:.2f} %"
        )
        print("  later, by rule:", dict(figures.late_by_rule.most_common(12)))
        report_proofs(figures)
    if figures.shares:
        print(f"mean place of the error {100 * statistics.mean(figures.shares):.1f} % of the document")
    print(f"{wall_s:.0f} s")


def report_proofs(figures: Figures) -> None:
    """Print how the figures are against what is true."""
    wrong = sum(figures.too_strict.values())
    print(f"  the reference gave up what can still be valid, each with a document that proves it: {wrong}")
    print("    at:", dict(figures.too_strict.most_common()))
    compared = figures.compared - wrong
    share = 100 * figures.in_time / compared
    print(f"error byte no later than the reference where it is right: {share:.2f} % of {compared}")
    print("  later, by rule:", dict(figures.unproven_by_rule.most_common()))
    for name in figures.unproven[:20]:
        print("   ", name)


def main() -> int:
    """Run the suite; 1 where a verdict is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="every N-th schema")
    parser.add_argument("--offset", type=int, default=0)
    options = parser.parse_args()
    root = os.environ.get("SSOP_SUITES")
    if not root:
        print("SSOP_SUITES is not set: MaskBench is not at hand, nothing was run")
        return 0
    folder = Path(root) / "suites"
    known = references(folder)
    figures = Figures()
    begin = time.perf_counter()
    for number, record in enumerate(records(folder)):
        if number % options.sample == options.offset:
            run_schema(record, known.get(record["id"]), figures)
    report(figures, time.perf_counter() - begin)
    return 1 if figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
