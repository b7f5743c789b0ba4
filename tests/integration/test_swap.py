"""Swapping the model under the tiers: one client and one program, three kinds of model, no change to either."""

import asyncio
import json
import signal
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers import one_client
from helpers.live_mesh import LiveMesh, run_mesh
from helpers.llama_server import llama_server
from helpers.upstream import Request, Step, scripted_upstream
from helpers.vendors import SCHEMA, VENDORS
from ssop_cli.embedded import dump_toml
from ssop_sdk import SsopClient

ANTHROPIC = VENDORS["anthropic"]
NOTE = '{"a": 7, "b": "hot"}'


def of_anthropic(request: Request) -> Sequence[Step]:
    """What the model of the scripted API says: a document where one is asked for, else a text."""
    is_note = "output_config" in request.body or request.body.get("tool_choice", {}).get("type") == "tool"
    return ANTHROPIC.stream((NOTE[:6], NOTE[6:]) if is_note else ("It is ", "hot."))(request)


def swap(mesh: LiveMesh, model: dict[str, Any]) -> None:
    """Put another model under both tiers: a change to the settings, and a restart of the node."""
    config = Path(mesh.report.config)
    document = tomllib.loads(config.read_text())
    document["inference"]["models"] = [{"name": "m", "tiers": ["lite", "full"], **model}]
    config.write_text(dump_toml(document))
    pid = mesh.signal("inference", signal.SIGTERM)
    mesh.wait_restarted("inference", pid)
    mesh.wait_ready()


def ask(client: SsopClient, mesh: LiveMesh) -> dict[str, Any]:
    """The same questions through the client that has been open all the time, and by the program."""
    stream = client.generate("The X200 is hot.", output_schema=SCHEMA, max_output_tokens=100, policy="no_cache")
    document = stream.result()
    assert stream.decision is not None
    calling = client.generate(
        "Note it.", tools=one_client.TOOLS, tool_choice="required", max_output_tokens=60, policy="no_cache"
    )
    calling.result()
    [call] = calling.tool_calls
    assert (call.name, calling.finish_reason) == ("note", "TOOL_CALLS")
    done = subprocess.run(
        [sys.executable, str(one_client.__file__), mesh.url, mesh.key],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "document": document, "model": stream.decision.model}


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[LiveMesh]:
    # Servers read their prompts slowly here, and a busy machine more so.
    with run_mesh(tmp_path, {"router": {"first_field_timeout_ms": 120_000}}, has_http=True) as running:
        yield running


def check(found: dict[str, Any]) -> None:
    """The form of what came, whatever the model."""
    note = {"a": int, "b": str}
    for document in (found["document"], found["note"], found["call"]["arguments"], found["streamed"]["arguments"]):
        assert {name: type(value) for name, value in document.items()} == note
    assert found["call"]["name"] == found["streamed"]["name"] == "note"
    assert found["finish"] == found["streamed_finish"] == "tool_calls"
    assert found["text"]
    assert found["answered"]
    assert found["tokens"] > 0


@pytest.mark.timeout(600)
async def test_the_model_under_a_tier_is_swapped_and_no_client_changes(mesh: LiveMesh) -> None:
    with SsopClient(mesh.key, mesh.target, timeout_s=120) as client, llama_server() as server:
        check(await asyncio.to_thread(ask, client, mesh))
        await asyncio.to_thread(swap, mesh, {"backend": "openai", "url": server.url})
        found = await asyncio.to_thread(ask, client, mesh)
        check(found)
        assert found["model"] == "m"
        async with scripted_upstream(ANTHROPIC.answers(of_anthropic)) as upstream:
            model = {"backend": "anthropic", "url": upstream.url, "dialect": "anthropic"}
            await asyncio.to_thread(swap, mesh, model)
            found = await asyncio.to_thread(ask, client, mesh)
            check(found)
            assert found["document"] == found["call"]["arguments"] == json.loads(NOTE)
            assert upstream.of(ANTHROPIC.path)
