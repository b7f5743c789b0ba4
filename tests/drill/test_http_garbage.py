"""Ten thousand random requests against an edge process: no fault, no crash, no growth."""

# ruff: noqa: F401, F811 - fixtures are imported, and named again as arguments
import asyncio
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from helpers.answers import PERSON, PERSON_SCHEMA, delivery, document_chunks
from helpers.eventually import eventually
from helpers.gateway import Gateway, gateway, router_address, scripted
from helpers.http_garbage import FORMAT, JSON, KEY, SSOP, USER, answer_all, run_campaign
from helpers.scripted_router import ScriptedRouter
from ssop_cli.embedded import free_port

COUNT = 10_000
VISITS = 1_000
AT_ONCE = 16
WARM_UP = 2_000
MOST_GROWTH_BYTES = 16 * 1024 * 1024
PAGE_BYTES = 4_096


async def slowly(request: Any, context: Any) -> AsyncIterator[bytes]:
    """An answer whose chunks come a moment apart."""
    for chunk in delivery(document_chunks(PERSON)):
        yield chunk
        await asyncio.sleep(0.003)


async def test_clients_that_leave_at_any_moment_leave_nothing_behind(
    gateway: Gateway, scripted: ScriptedRouter
) -> None:
    scripted.script = slowly
    rng = random.Random(7)
    bodies = (
        ("/v1/generate", {"prompt": "Who?", "output_schema": PERSON_SCHEMA}),
        ("/v1/generate", {"prompt": "Who?", "output_schema": PERSON_SCHEMA, "streaming": False}),
        ("/v1/chat/completions", {"messages": USER, "response_format": FORMAT, "stream": True}),
        ("/v1/chat/completions", {"messages": USER, "response_format": FORMAT}),
    )

    async def visit() -> None:
        path, value = rng.choice(bodies)
        body = json.dumps(value).encode()
        kind = SSOP if "generate" in path else JSON
        _, writer = await gateway.open()
        head = f"POST {path} HTTP/1.1\r\nhost: e\r\nauthorization: Bearer {KEY}\r\ncontent-type: {kind}\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        await asyncio.sleep(rng.random() * 0.4)
        if rng.random() < 0.5:
            writer.transport.abort()
        writer.close()

    for _ in range(VISITS // AT_ONCE):
        await asyncio.gather(*(visit() for _ in range(AT_ONCE)))
    await eventually(lambda: scripted.in_flight == 0)
    await eventually(lambda: gateway.metric("http_server_active_requests") == 0)
    # Those who left at once never got as far as the router.
    assert len(scripted.requests) > VISITS // 4


def resident_bytes(pid: int) -> int:
    """Memory of a process (proc(5), statm)."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


@pytest.mark.timeout(900)
async def test_ten_thousand_random_requests_are_no_fault_no_crash_and_no_growth(
    scripted: ScriptedRouter, router_address: str, tmp_path: Path
) -> None:
    answer_all(scripted)
    port = free_port()
    config = tmp_path / "ssop.toml"
    config.write_text(
        f'[mesh]\nsecret_file = "unused"\n[gateway]\nlisten = ["127.0.0.1:{port}"]\n'
        f'router_address = "{router_address}"\nbody_timeout_ms = 500\n'
    )
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-m", "ssop_gateway.main", "--config", str(config)], stderr=file)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:

            async def is_up() -> bool:
                try:
                    return (await client.get("/healthz")).status_code == 200
                except httpx.TransportError:
                    return False

            while not await is_up():
                assert process.poll() is None, log.read_text()
                await asyncio.sleep(0.05)
            await run_campaign(port, WARM_UP, seed=1)
            before = resident_bytes(process.pid)
            outcome = await run_campaign(port, COUNT, seed=2)
            growth = resident_bytes(process.pid) - before
            print(f"statuses {dict(sorted(outcome.statuses.items()))}")
            print(f"growth {growth / 1024:.0f} KiB of {before >> 20} MiB")
            assert not outcome.bad, outcome.bad[0]
            assert process.poll() is None
            assert growth < MOST_GROWTH_BYTES
            await eventually(lambda: scripted.in_flight == 0)
            async with asyncio.timeout(20):
                # The request that asks is the one that runs.
                while "http_server_active_requests 1.0" not in (await client.get("/metrics")).text:
                    await asyncio.sleep(0.1)
        assert '"level":"error"' not in log.read_text()
    finally:
        process.terminate()
        assert await asyncio.to_thread(process.wait, 20) == 0
