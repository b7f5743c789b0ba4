"""Users' queries while prefetches storm: a real retrieval service, with and without twelve prefetches for each query.

Run by name: `python tests/bench/bench_prefetch_storm.py [SECONDS]` (60). Two seconds with the storm and two without
take turns, so that what else the machine does hits both alike. The storm comes from a process of its own.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers.rag import Caller, document
from helpers.rag_process import RagProcess
from ssop.v1.rag_pb2 import PrefetchOutcome

DOCUMENTS = 200
QUERIES_A_SECOND = 8
PREFETCHES_A_QUERY = 12
TENANTS = 6
TURN_S = 2.0
TEXT = "Parcel {} leaves our warehouse every evening and arrives within two working days at your door."


async def ask(caller: Caller, number: int, took_ms: list[float]) -> None:
    """One query of a user."""
    started_s = time.perf_counter()
    await caller.retrieve(f"When does parcel {number} arrive at my door, and who brings it?")
    took_ms.append((time.perf_counter() - started_s) * 1e3)


async def query(caller: Caller, first: int, took_ms: list[float]) -> int:
    """A turn of queries; the next number."""
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    tasks = []
    count = int(TURN_S * QUERIES_A_SECOND)
    for number in range(count):
        await asyncio.sleep(max(0.0, started_s + number / QUERIES_A_SECOND - loop.time()))
        tasks.append(asyncio.ensure_future(ask(caller, first + number, took_ms)))
    await asyncio.gather(*tasks)
    return first + count


async def storm(folder: Path) -> None:
    """The process of the storm: a turn of prefetches for each line of standard input, whose outcomes it prints."""
    process = RagProcess(folder)
    callers = [process.caller(f"other{n}") for n in range(TENANTS)]
    loop = asyncio.get_running_loop()
    rate = QUERIES_A_SECOND * PREFETCHES_A_QUERY
    number = 0
    while sys.stdin.readline():
        started_s = loop.time()
        tasks = []
        for count in range(int(TURN_S * rate)):
            await asyncio.sleep(max(0.0, started_s + count / rate - loop.time()))
            number += 1
            text = f"Who would ask about parcel {number} and then not"
            tasks.append(asyncio.ensure_future(callers[number % TENANTS].prefetch_outcome(f"p{number}", text)))
        print(json.dumps(await asyncio.gather(*tasks)), flush=True)


async def measure(title: str, seconds: float, settings: str) -> None:
    """One service, by turns."""
    with tempfile.TemporaryDirectory() as name, RagProcess(folder := Path(name), settings=settings) as process:
        caller = process.caller("acme")
        await caller.upsert("faq", *[document(str(n), TEXT.format(n)) for n in range(DOCUMENTS)])
        for n in range(TENANTS):
            other = process.caller(f"other{n}")
            await other.upsert("faq", *[document(str(n), TEXT.format(n)) for n in range(DOCUMENTS // 10)])
        command = [sys.executable, __file__, "--storm", str(folder)]
        clouds = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert clouds.stdin is not None
        assert clouds.stdout is not None
        calm: list[float] = []
        stormy: list[float] = []
        outcomes: Counter[int] = Counter()
        number = await query(caller, 0, [])
        for _ in range(int(seconds / TURN_S / 2)):
            number = await query(caller, number, calm)
            clouds.stdin.write("\n")
            clouds.stdin.flush()
            number = await query(caller, number, stormy)
            outcomes.update(json.loads(await asyncio.to_thread(clouds.stdout.readline)))
        clouds.stdin.close()
        clouds.wait(10)
        both = [(statistics.median(ms), statistics.quantiles(ms, n=20)[18]) for ms in (calm, stormy)]
        print(f"{title}: {len(calm)} + {len(stormy)} queries, {sum(outcomes.values())} prefetches wanted")
        print(
            f"  P50 {both[0][0]:6.1f} ms calm, {both[1][0]:6.1f} ms in the storm ({both[1][0] / both[0][0] - 1:+.1%})"
        )
        print(
            f"  P95 {both[0][1]:6.1f} ms calm, {both[1][1]:6.1f} ms in the storm ({both[1][1] / both[0][1] - 1:+.1%})"
        )
        names = {name[17:].lower(): outcomes[number] for name, number in PrefetchOutcome.items() if number in outcomes}
        print(f"  prefetches by outcome: {names}")


async def main() -> None:
    """With the default limits, and without budget and bound of the work that is wasted."""
    if sys.argv[1:2] == ["--storm"]:
        await storm(Path(sys.argv[2]))
        return
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    await measure("default limits", seconds, "threads = 2")
    unbounded = "threads = 2\nprefetch_budget = 0\nprefetch_waste_weight = 0"
    await measure("no budget, never off", seconds, unbounded)
    await measure("no budget, never off, on a busy machine too", seconds, f"{unbounded}\nprefetch_max_stretch = 0")


if __name__ == "__main__":
    asyncio.run(main())
