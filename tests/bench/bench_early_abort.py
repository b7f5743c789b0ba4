"""Tokens that the first invalid byte saves: invalid documents of MaskBench, streamed by a server to a node.

Reads `suites/maskbench` below $SSOP_SUITES. `--sample N` takes every N-th schema, `--pace-ms` is the time of one token.
A token is four characters here, the average of common vocabularies on JSON. The server counts what it had sent when it
saw its client go.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import lzma
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers.inference import user_prompt
from helpers.upstream import Request, Step
from helpers.upstream_node import UpstreamNode, upstream_node
from helpers.vendors import VENDORS
from ssop.v1 import frame_pb2
from ssop_chassis.errors import MeshError

TOKEN_CHARS = 4
CONCURRENCY = 16


@dataclass
class Figures:
    """Of each document: its tokens, and those that the server sent."""

    whole: list[int] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    at_the_end: int = 0
    refused: int = 0


def invalid_documents(folder: Path, every: int) -> Iterator[tuple[Any, str]]:
    """Schemas with invalid instances as text."""
    number = 0
    for path in sorted(folder.glob("*.jsonl.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                number += 1
                if number % every:
                    continue
                record = json.loads(line)
                for test in record["tests"]:
                    if not test["valid"]:
                        yield record["schema"], json.dumps(test["data"], ensure_ascii=False)


async def run_one(node: UpstreamNode, schema: Any, text: str, figures: Figures, seen: dict[str, Request]) -> None:
    """One document: its text is the prompt, which the server repeats."""
    try:
        answer = await node.running.client.generate(user_prompt(text, schema=schema))
    except MeshError:
        figures.refused += 1
        return
    tokens = -(-len(text) // TOKEN_CHARS)
    if answer.end.verdict != frame_pb2.VERDICT_INVALID:
        figures.refused += 1
        return
    request = seen.pop(text)
    await request.when_freed()
    # A wait and a token are two steps, after the head and the beginning.
    sent = min(tokens, max(0, request.steps - 2) // 2)
    figures.whole.append(tokens)
    figures.sent.append(sent)
    figures.at_the_end += sent == tokens


async def run(cases: Sequence[tuple[Any, str]], pace_ms: float) -> Figures:
    """All documents."""
    vendor, figures, seen = VENDORS["vllm"], Figures(), {}
    gate = asyncio.Semaphore(CONCURRENCY)

    def answer(request: Request) -> Sequence[Step]:
        text = request.body["messages"][-1]["content"]
        seen[text] = request
        pieces = [text[at : at + TOKEN_CHARS] for at in range(0, len(text), TOKEN_CHARS)]
        head, *rest = vendor.stream(())(request)
        begin, end = rest[:1], rest[1:]
        paced = [step for piece in pieces for step in (pace_ms / 1000, vendor.text(request, piece))]
        return [head, *begin, *paced, *end]

    async def guarded(schema: Any, text: str) -> None:
        async with gate:
            await run_one(node, schema, text, figures, seen)

    async with upstream_node(vendor, answer, slots=CONCURRENCY, context_tokens=1 << 20) as node:
        await asyncio.gather(*(guarded(schema, text) for schema, text in cases))
    return figures


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--pace-ms", type=float, default=10.0)
    options = parser.parse_args()
    folder = Path(os.environ["SSOP_SUITES"]) / "suites" / "maskbench"
    cases = list({text: (schema, text) for schema, text in invalid_documents(folder, options.sample)}.values())
    figures = asyncio.run(run(cases, options.pace_ms))
    whole, sent = sum(figures.whole), sum(figures.sent)
    shares = [1 - s / w for s, w in zip(figures.sent, figures.whole, strict=True)]
    print(f"invalid documents: {len(figures.whole)} (schema refused or not judged: {figures.refused})")
    print(f"tokens of the documents: {whole}; sent by the server before it was stopped: {sent}")
    print(f"saved: {1 - sent / whole:.1%} of all; median document {statistics.median(shares):.1%}")
    print(f"broken only at the last token: {figures.at_the_end}")


if __name__ == "__main__":
    main()
