"""kill -9 of the process that judges: every alert is told at least once, and repetitions can be told by their id."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from helpers.eventually import eventually
from helpers.opinion_posts import START_MS
from helpers.robots import Answer, Told, run_receiver, signed

ROOT = Path(__file__).resolve().parents[1]
ENTITIES = 60
KILLS = 3
LONG_S = 120.0
SECRET = "a secret of more than 16 bytes"


@asynccontextmanager
async def run_process(folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    paths = os.pathsep.join([str(ROOT), *sys.path])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "helpers.desk_process", str(folder), str(folder / "url"), str(folder / "secret"),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def feed(process: asyncio.subprocess.Process, names: list[str], acknowledged: set[str], enough: int) -> None:
    """Give the process the posts that wait, and take acknowledgements until there are enough."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("".join(f"{name}\n" for name in names).encode())
    await process.stdin.drain()
    async with asyncio.timeout(LONG_S):
        for _ in range(enough):
            line = await process.stdout.readline()
            assert line, "the process ended by itself"
            acknowledged.add(line.decode().strip())


async def test_every_alert_is_told_though_the_process_is_killed(tmp_path: Path) -> None:
    rng = Random(START_MS)
    (tmp_path / "secret").write_text(SECRET)
    names = [f"entity {number}" for number in range(ENTITIES)]
    acknowledged: set[str] = set()
    judge = signed(SECRET, lambda: 0)

    def take(told: Told) -> Answer:
        # The age of a signature is tested elsewhere.
        answer = judge(told)
        return Answer(b"", 200) if answer.status in {200, 401} else answer

    async with run_receiver(take, "/hook") as receiver:
        (tmp_path / "url").write_text(receiver.url)
        for _ in range(KILLS):
            async with run_process(tmp_path) as process:
                waiting = [name for name in names if name not in acknowledged]
                # Killed in the middle: some posts are judged and not told, some not even judged.
                await feed(process, waiting[:20], acknowledged, rng.randrange(1, 10))
                process.kill()
        async with run_process(tmp_path) as process:
            waiting = [name for name in names if name not in acknowledged]
            await feed(process, waiting, acknowledged, len(waiting))
            await eventually(lambda: {one.document["entity"] for one in receiver.taken} == set(names), LONG_S)
    opened = [one.document for one in receiver.taken if one.document["event"] == "opened"]
    assert len({one["alert_id"] for one in opened}) == ENTITIES
    assert len({one["id"] for one in opened}) == ENTITIES
    ids = {one.headers["idempotency-key"] for one in receiver.taken if one.document["event"] == "opened"}
    assert len(ids) == ENTITIES
