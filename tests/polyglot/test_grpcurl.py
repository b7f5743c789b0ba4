"""grpcurl, which knows nothing of the mesh, finds its way by reflection."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from helpers.router_process import run_process
from ssop_cli.embedded import free_port

pytestmark = pytest.mark.needs("grpcurl")
SCHEMA: Final = '{"type": "object", "properties": {"mood": {"type": "string"}, "score": {"type": "integer"}}}'
ASKED: Final = {
    "prompt": {
        "messages": [{"role": "ROLE_USER", "parts": [{"text": "How is the mood?"}]}],
        "output_schema": {"json_schema": SCHEMA},
    }
}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    """Address of a router, and a key."""
    target = f"127.0.0.1:{free_port()}"
    async with run_process(tmp_path, listen=[f"unix:{tmp_path}/router.sock", target]) as process:
        yield target, process.key


async def _grpcurl(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = ["grpcurl", "-plaintext", "-max-time", "20", *arguments]
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)


async def test_reflection_lists_what_a_router_serves(served: tuple[str, str]) -> None:
    done = await _grpcurl(served[0], "list")
    assert {"ssop.v1.RouterService", "grpc.health.v1.Health"} <= set(done.stdout.split()), done.stderr


async def test_reflection_describes_messages(served: tuple[str, str]) -> None:
    done = await _grpcurl(served[0], "describe", "ssop.v1.GenerateRequest")
    assert "uint32 resume_window_ms = 6;" in done.stdout, done.stderr


async def test_it_generates(served: tuple[str, str]) -> None:
    target, key = served
    authorization = f"authorization: Bearer {key}"
    done = await _grpcurl("-H", authorization, "-d", json.dumps(ASKED), target, "ssop.v1.RouterService/Generate")
    assert done.returncode == 0, done.stderr
    assert '"string_value": "fine"' in done.stdout
    assert '"verdict": "VERDICT_OK"' in done.stdout


async def test_it_shows_the_reason_of_an_error(served: tuple[str, str]) -> None:
    done = await _grpcurl("-d", json.dumps(ASKED), served[0], "ssop.v1.RouterService/Generate")
    assert done.returncode != 0
    assert '"reason": "KEY_MISSING"' in done.stderr
