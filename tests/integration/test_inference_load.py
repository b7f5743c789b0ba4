"""A node with a real model under load: slots, queue, cancels, memory, and the end of the process."""

import asyncio
import os
import resource
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from helpers.eventually import eventually
from helpers.inference import (
    LONG,
    Answer,
    NodeUnderTest,
    backend_of,
    idle,
    now_ms,
    running_node,
    start_long,
    user_prompt,
)
from helpers.models import smollm2_path
from ssop.v1 import inference_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_codec import Verdict


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running() -> AsyncIterator[NodeUnderTest]:
    async with running_node(limits={"max_string_chars": 60, "max_array_items": 4}) as node:
        yield node


@pytest.mark.asyncio(loop_scope="module")
async def test_sixteen_requests_share_four_slots(running: NodeUnderTest) -> None:
    await idle(running)
    backend = backend_of(running)
    seen: list[tuple[int, int]] = []

    def watch(_: Answer) -> None:
        load = backend.load_now()
        seen.append((load.slots_busy, load.queue_length))

    schema = {"type": "object", "properties": {"n": {"enum": ["yes", "no"]}}, "required": ["n"]}
    answers = await asyncio.gather(
        *(running.client.generate(user_prompt(f"Question {n}", schema=schema), on_message=watch) for n in range(16))
    )
    assert all(answer.decoder.verdict == Verdict.OK for answer in answers)
    assert max(busy for busy, _ in seen) == 4
    assert max(waiting for _, waiting in seen) >= 8


@pytest.mark.asyncio(loop_scope="module")
async def test_cancel_frees_the_slot(running: NodeUnderTest, capsys: pytest.CaptureFixture[str]) -> None:
    await idle(running)
    stream = await start_long(running)
    started_ms = now_ms()
    await stream.cancel()
    await idle(running)
    with capsys.disabled():
        print(f"\nslot free {now_ms() - started_ms:.0f} ms after the cancel (while generating)")


@pytest.mark.asyncio(loop_scope="module")
async def test_cancel_frees_the_slot_while_the_prompt_is_read(
    running: NodeUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    await idle(running)
    words = " ".join(f"item{n * 7919 % 10_007}" for n in range(350))
    stream = running.client.open(user_prompt(words, max_output_tokens=4))
    await eventually(lambda: backend_of(running).load_now().slots_busy == 1)
    started_ms = now_ms()
    await stream.cancel()
    await idle(running)
    with capsys.disabled():
        print(f"\nslot free {now_ms() - started_ms:.0f} ms after the cancel (while reading the prompt)")


@pytest.mark.asyncio(loop_scope="module")
async def test_cancel_in_the_queue_gives_the_place_up(running: NodeUnderTest) -> None:
    await idle(running)
    backend = backend_of(running)
    streams = [await start_long(running) for _ in range(4)]
    queued = running.client.open(user_prompt(LONG))
    await eventually(lambda: backend.load_now().queue_length == 1)
    await queued.cancel()
    await eventually(lambda: backend.load_now().queue_length == 0)
    for stream in streams:
        await stream.cancel()
    await idle(running)


@pytest.mark.asyncio(loop_scope="module")
async def test_cancelled_calls_leave_nothing_behind(running: NodeUnderTest) -> None:
    async def call(number: int) -> None:
        stream = running.client.open(user_prompt(f"{LONG} {number}", max_output_tokens=100))
        for _ in range(number % 4):
            await stream.read()
        await stream.cancel()

    await asyncio.gather(*(call(n) for n in range(50)))
    await idle(running)
    tasks, threads = len(asyncio.all_tasks()), threading.active_count()
    for start in range(50, 250, 50):
        await asyncio.gather(*(call(start + n) for n in range(50)))
    await idle(running)
    await eventually(lambda: len(asyncio.all_tasks()) == tasks)
    # Pools begin their threads when all that they have are busy, up to this many; calls that kept one would keep 200.
    pool = min(32, (os.cpu_count() or 1) + 4)
    await eventually(lambda: threading.active_count() <= threads + pool)


@pytest.mark.asyncio(loop_scope="module")
async def test_full_queue_is_overloaded_with_a_delay(running: NodeUnderTest) -> None:
    await idle(running)
    backend = backend_of(running)
    backend._queue._max_waiting, kept = 0, backend._queue._max_waiting
    streams = [await start_long(running) for _ in range(4)]
    try:
        with pytest.raises(MeshError) as caught:
            await running.client.generate(user_prompt("Hi"))
    finally:
        backend._queue._max_waiting = kept
        for stream in streams:
            await stream.cancel()
    assert caught.value.reason == ErrorReason.ERROR_REASON_OVERLOADED
    assert caught.value.retry_after_ms is not None


@pytest.mark.asyncio(loop_scope="module")
async def test_status_shows_a_busy_slot_and_its_end(running: NodeUnderTest) -> None:
    await idle(running)
    busy: list[float] = []
    async with running.client.watch_status() as watch:

        async def collect() -> None:
            while (message := await watch.read()) is not None:
                model = inference_pb2.WatchStatusResponse.FromString(message).models[0]
                busy.append(model.slots_busy.value)

        collecting = asyncio.ensure_future(collect())
        await running.client.generate(user_prompt("Hi", max_output_tokens=8))
        await eventually(lambda: busy[-1:] == [0.0] and 1.0 in busy)
        collecting.cancel()
    status = (await running.client.status()).models[0]
    assert status.state == inference_pb2.MODEL_STATE_READY
    assert len(status.weights_sha256) == 64


EXIT_SCRIPT = """
import asyncio, sys
from helpers.inference import running_node, user_prompt

async def main():
    context = running_node(models=[{{"name": "m", "path": {path!r}, "slots": 2}}])
    running = await context.__aenter__()
    stream = running.client.open(user_prompt("Tell a very long story.", max_output_tokens=1500, temperature=1))
    for _ in range(4):
        await stream.read()
    kept.append(context)
    {leave}

kept = []
{run}
"""
RUNS = {
    "asyncio.run": "asyncio.run(main())",
    "a loop that is left open": "loop = asyncio.new_event_loop(); loop.run_until_complete(main())",
}


def run_exit_script(leave: str, run: str) -> subprocess.CompletedProcess[str]:
    script = EXIT_SCRIPT.format(path=str(smollm2_path()), leave=leave, run=RUNS[run])
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(["tests", *sys.path])}
    return subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, timeout=110, check=False
    )


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("leave", ["sys.exit(7)", "raise KeyError", "return"])
def test_interpreter_exit_while_generating_does_not_abort(leave: str, run: str) -> None:
    done = run_exit_script(leave, run)
    assert done.returncode == {"sys.exit(7)": 7, "raise KeyError": 1, "return": 0}[leave], done.stderr
    assert "terminate called" not in done.stderr


def test_engine_writes_nothing_to_the_terminal() -> None:
    done = run_exit_script("return", "asyncio.run")
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.asyncio(loop_scope="module")
async def test_client_that_does_not_read_holds_no_slot(running: NodeUnderTest) -> None:
    await idle(running)
    text = {"type": "string", "minLength": 1500, "maxLength": 2000}
    schema = {"type": "object", "properties": {"text": text}, "required": ["text"], "additionalProperties": False}
    async with running.client.open(user_prompt(LONG, schema=schema, max_output_tokens=1000)) as stream:
        await eventually(lambda: backend_of(running).load_now().slots_busy == 1)
        await idle(running, 60)
        answer = Answer()
        while (message := await stream.read()) is not None:
            answer.take(message)
    assert answer.end.usage.output_tokens > 300


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}, "maxItems": 10**9},
        {"type": "array", "items": {"type": "string"}, "minItems": 10**8, "maxItems": 10**9},
        {"type": "object", "properties": {f"p{n}": {"type": "integer", "multipleOf": 99_991 + n} for n in range(40)}},
    ],
    ids=["items", "least items", "remainders"],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_small_schema_never_costs_the_node_gigabytes(running: NodeUnderTest, schema: Any) -> None:
    before = peak_kib()
    await running.client.generate(user_prompt("Hi", schema=schema, max_output_tokens=8))
    assert peak_kib() - before < 200 * 1024


def peak_kib() -> int:
    """The most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
