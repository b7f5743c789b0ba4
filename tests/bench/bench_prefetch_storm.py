"""Users' queries while prefetches storm: a real retrieval service, with and without twelve prefetches for each query.

Run by name: `python tests/bench/bench_prefetch_storm.py [SECONDS]` (60). Two seconds with the storm and two without
take turns, so that what else the machine does hits both alike.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
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


async def storm(caller: Caller, number: int, outcomes: Counter[int]) -> None:
    """One prefetch that nobody uses."""
    outcome = await caller.prefetch_outcome(f"p{number}", f"Who would ask about parcel {number} and then not")
    outcomes[outcome] += 1


async def turn(
    caller: Caller, others: Sequence[Caller], first: int, took_ms: list[float], outcomes: Counter[int] | None
) -> int:
    """Queries at their rate for a turn, and prefetches where `outcomes` is given; the next number."""
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    tasks = []
    count = int(TURN_S * QUERIES_A_SECOND)
    for number in range(count):
        at_s = started_s + number / QUERIES_A_SECOND
        await asyncio.sleep(max(0.0, at_s - loop.time()))
        tasks.append(asyncio.ensure_future(ask(caller, first + number, took_ms)))
        if outcomes is not None:
            for part in range(PREFETCHES_A_QUERY):
                await asyncio.sleep(max(0.0, at_s + part / PREFETCHES_A_QUERY / QUERIES_A_SECOND - loop.time()))
                name = (first + number) * PREFETCHES_A_QUERY + part
                tasks.append(asyncio.ensure_future(storm(others[part % len(others)], name, outcomes)))
    await asyncio.gather(*tasks)
    return first + count


async def measure(title: str, seconds: float, settings: str) -> None:
    """One service, by turns."""
    with tempfile.TemporaryDirectory() as folder, RagProcess(Path(folder), settings=settings) as process:
        caller = process.caller("acme")
        await caller.upsert("faq", *[document(str(n), TEXT.format(n)) for n in range(DOCUMENTS)])
        others = [process.caller(f"other{n}") for n in range(TENANTS)]
        for other in others:
            await other.upsert("faq", *[document(str(n), TEXT.format(n)) for n in range(DOCUMENTS // 10)])
        calm: list[float] = []
        stormy: list[float] = []
        outcomes: Counter[int] = Counter()
        number = await turn(caller, others, 0, [], Counter())
        for _ in range(int(seconds / TURN_S / 2)):
            number = await turn(caller, others, number, calm, None)
            number = await turn(caller, others, number, stormy, outcomes)
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
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    await measure("default limits", seconds, "threads = 2")
    unbounded = "threads = 2\nprefetch_budget = 0\nprefetch_waste_weight = 0"
    await measure("no budget, never off", seconds, unbounded)
    await measure("no budget, never off, on a busy machine too", seconds, f"{unbounded}\nprefetch_max_stretch = 0")


if __name__ == "__main__":
    asyncio.run(main())
