"""ghz, which loads gRPC services and knows nothing of this one, loads a router."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from helpers.router_process import run_process
from ssop_cli.embedded import free_port

pytestmark = pytest.mark.needs("ghz")
PROTOS: Final = Path(__file__).parents[2] / "protos"
ASKED: Final = {
    "prompt": {
        "messages": [{"role": "ROLE_USER", "parts": [{"text": "How is the mood?"}]}],
        "output_schema": {"json_schema": '{"type": "object", "properties": {"mood": {"type": "string"}}}'},
    },
    "policy": "no_cache",
}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    """Address of a router, and a key."""
    target = f"127.0.0.1:{free_port()}"
    async with run_process(tmp_path, listen=[f"unix:{tmp_path}/router.sock", target]) as process:
        yield target, process.key


async def ghz(target: str, key: str, *arguments: str) -> Any:
    """What ghz says of 200 calls, eight at a time."""
    command = ["ghz", "--insecure", "--call", "ssop.v1.RouterService.Generate", "-n", "200", "-c", "8", "-t", "60s"]
    command += ["-d", json.dumps(ASKED), "-m", json.dumps({"authorization": f"Bearer {key}"}), "-O", "json"]
    done = await asyncio.to_thread(
        subprocess.run, [*command, *arguments, target], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_it_gets_an_answer_to_every_call_by_reflection(served: tuple[str, str]) -> None:
    report = await ghz(*served)
    assert report["count"] == 200
    assert report["statusCodeDistribution"] == {"OK": 200}


async def test_it_gets_an_answer_to_every_call_by_the_proto_files(served: tuple[str, str]) -> None:
    report = await ghz(*served, "--proto", str(PROTOS / "ssop/v1/router.proto"), "-i", str(PROTOS))
    assert report["statusCodeDistribution"] == {"OK": 200}


async def test_a_wrong_key_is_an_error_of_each_call_and_nothing_else(served: tuple[str, str]) -> None:
    report = await ghz(served[0], "ssop_nobody_nothing")
    assert report["statusCodeDistribution"] == {"Unauthenticated": 200}
