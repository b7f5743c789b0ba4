"""The SDK when the mesh is killed or hangs."""

# ruff: noqa: F401, F811 - fixtures are imported, and named again as arguments
import asyncio
import contextlib
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.machine import stretched
from helpers.sdk_clients import KEY, address
from ssop_sdk import (
    AsyncSsopClient,
    GenerationInterrupted,
    SsopClient,
)

SERVER = """
import asyncio, sys
sys.path[:0] = sys.argv[2:]
from helpers.answers import *
from helpers.scripted_router import ScriptedRouter, serve

async def hang(request, context):
    for chunk in [decision_chunk(), status_chunk(), *document_chunks(PERSON)[:int(sys.argv[3])]]:
        yield chunk
    await asyncio.Event().wait()

async def main():
    async with serve(ScriptedRouter(hang), sys.argv[1]):
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@contextlib.contextmanager
def killable_server(address: str, frames: int) -> Iterator[subprocess.Popen[str]]:
    tests = str(Path(__file__).parents[1])
    code = textwrap.dedent(SERVER).replace("sys.argv[2:]", "[sys.argv[2]]")
    process = subprocess.Popen(
        [sys.executable, "-c", code, address, tests, str(frames)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def test_killed_mesh_interrupts_an_answer_quickly(address: str) -> None:
    with killable_server(address, frames=2) as process:
        async with AsyncSsopClient(KEY, address, timeout_s=60) as client:
            stream = client.generate("x")
            await anext(stream)
            began = time.monotonic()
            process.send_signal(signal.SIGKILL)
            with pytest.raises(GenerationInterrupted) as caught:
                await stream.result()
    assert caught.value.last_seq == 2
    assert time.monotonic() - began < stretched(2)


async def test_killed_mesh_interrupts_a_sync_answer_quickly(address: str) -> None:
    def use(process: subprocess.Popen[str]) -> float:
        with SsopClient(KEY, address, timeout_s=60) as client:
            stream = client.generate("x")
            next(stream)
            began = time.monotonic()
            process.send_signal(signal.SIGKILL)
            with pytest.raises(GenerationInterrupted):
                stream.result()
            return time.monotonic() - began

    with killable_server(address, frames=2) as process:
        assert await asyncio.to_thread(use, process) < stretched(2)


async def test_stopped_mesh_is_noticed_long_before_the_deadline(address: str) -> None:
    with killable_server(address, frames=2) as process:
        async with AsyncSsopClient(KEY, address, timeout_s=60) as client:
            stream = client.generate("x")
            await anext(stream)
            began = time.monotonic()
            process.send_signal(signal.SIGSTOP)
            with pytest.raises(GenerationInterrupted):
                await stream.result()
    assert time.monotonic() - began < stretched(20)
