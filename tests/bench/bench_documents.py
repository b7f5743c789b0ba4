"""How fast documents are read, cut and found unchanged. No model runs: embedding is measured by bench_rag.

Run: PYTHONPATH=tests python tests/bench/bench_documents.py
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from helpers.document_edge import serve_documents
from helpers.pdfs import make_pdf
from helpers.sdk_clients import KEY
from ssop_cli.documents.extract import Kind
from ssop_cli.documents.parser_process import ParserProcess
from ssop_rag.core.chunking import split
from ssop_sdk import AsyncSsopClient

ROUNDS = 7
ENGLISH = "Goods may be returned within thirty days of the purchase. The money goes back to the card that was used. "
CHINESE = "顾客可以在三十天内退货，款项将退回原支付账户。公司第三季度利润大增，股价周五上涨了百分之八。"


def seconds(run: Callable[[], object]) -> float:
    """Median time of a run."""
    times = []
    for _ in range(ROUNDS):
        started_s = time.perf_counter()
        run()
        times.append(time.perf_counter() - started_s)
    return statistics.median(times)


def main() -> None:
    """Print the figures."""
    paragraphs = [ENGLISH * 4 for _ in range(100)]
    samples: dict[Kind, bytes] = {
        "text": "\n\n".join(paragraphs).encode(),
        "markdown": "\n\n".join(f"## Part {n}\n\n{p}" for n, p in enumerate(paragraphs)).encode(),
        "html": "".join(f"<h2>Part {n}</h2><p>{p}</p>" for n, p in enumerate(paragraphs)).encode(),
        "pdf": make_pdf([[ENGLISH] * 40 for _ in range(25)]),
    }
    with ParserProcess() as parser:
        for kind, data in samples.items():
            parser.parse(kind, data)
            taken_s = seconds(lambda kind=kind, data=data: parser.parse(kind, data))  # type: ignore[misc]
            speed = f"{taken_s * 1000:7.1f} ms  {len(data) / taken_s / 1e6:6.1f} MB/s"
            print(f"read {kind:9} {len(data) / 1000:6.0f} KB  {speed}")
    for name, text in (("English", ENGLISH * 2_000), ("Chinese", CHINESE * 1_500), ("no borders", "a" * 200_000)):
        taken_s = seconds(lambda text=text: split(text))  # type: ignore[misc]
        print(
            f"cut {name:10} {len(text) / 1000:6.0f} k characters  {taken_s * 1000:7.1f} ms  {len(split(text))} passages"
        )
    asyncio.run(unchanged())


async def unchanged() -> None:
    """Adding a thousand documents again."""
    documents = {f"doc-{number}": f"{number} {ENGLISH * 8}" for number in range(1_000)}
    with tempfile.TemporaryDirectory() as folder:
        async with serve_documents(Path(folder)) as address, AsyncSsopClient(KEY, address, timeout_s=300) as client:
            await client.index.upsert("c", documents)
            times = []
            for _ in range(ROUNDS):
                started_s = time.perf_counter()
                report = await client.index.upsert("c", documents)
                times.append(time.perf_counter() - started_s)
                assert len(report.unchanged) == len(documents)
    again_s = statistics.median(times)
    print(f"1000 documents of 0.9 KB unchanged: {again_s * 1000:.0f} ms, {1000 / again_s:.0f} a second")


if __name__ == "__main__":
    main()
