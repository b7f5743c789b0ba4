"""Clients in other languages, on their stock gRPC stacks and stubs from protos/ alone, do the whole job.

Each is a program with a subcommand for each scenario, which prints JSON lines; a router process between scripted
services answers.
"""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest

from helpers.eventually import eventually
from helpers.nginx import run_front
from helpers.polyglot import BUILD_TIMEOUT_S, COMPONENTS, HERE, LANGUAGES, build_client
from helpers.router_process import Process, run_process
from helpers.scripted_node import answering, failing, hanging
from ssop.v1 import frame_pb2
from ssop_cli.embedded import free_port

VECTORS: Final = HERE.parent / "vectors" / "frames.json"
RUN_TIMEOUT_S: Final = 60
pytestmark = pytest.mark.timeout(BUILD_TIMEOUT_S + RUN_TIMEOUT_S)
GOOD: Final = [{"path": "/mood", "value": "fine"}, {"path": "/score", "value": 3}]


@dataclass(frozen=True)
class Client:
    """A client program."""

    command: tuple[str, ...]

    async def run(self, scenario: str, target: str, key: str = "", ca: str = "") -> tuple[int, list[dict[str, Any]]]:
        """Its exit code and what it printed. `ca` is a file with the authority of TLS; empty: plain text."""
        done = await asyncio.to_thread(
            subprocess.run,
            [*self.command, scenario, target],
            capture_output=True,
            text=True,
            env={**os.environ, "SSOP_API_KEY": key, "SSOP_TEST_CA": ca},
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        assert done.returncode != 0 or not done.stderr.strip(), done.stderr
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.needs(COMPONENTS[name]), pytest.mark.needs("protoc")])
        for name in LANGUAGES
    ]
)
def client(request: pytest.FixtureRequest) -> Client:
    """A client, built on first use."""
    language: str = request.param
    build_client(language)
    return Client(LANGUAGES[language])


@dataclass(frozen=True)
class Served:
    """A router process, and where clients reach it."""

    process: Process
    target: str

    async def ask(self, client: Client, scenario: str) -> tuple[int, list[dict[str, Any]]]:
        return await client.run(scenario, self.target, self.process.key)

    def script(self, script: Any, *names: str) -> None:
        for name in names or self.process.nodes:
            self.process.nodes[name].script = script


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    target = f"127.0.0.1:{free_port()}"
    async with run_process(tmp_path, listen=[f"unix:{tmp_path}/router.sock", target]) as process:
        yield Served(process, target)


def _fields(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if "path" in line]


def _said(lines: list[dict[str, Any]], name: str) -> Any:
    return next(line[name] for line in lines if name in line)


async def test_fields_arrive_typed_and_in_order(client: Client, served: Served) -> None:
    code, lines = await served.ask(client, "generate")
    assert code == 0
    assert _fields(lines) == GOOD
    assert _said(lines, "verdict") == "VERDICT_OK"
    assert _said(lines, "degraded_level") == 0


async def test_a_prompt_may_come_in_pieces(client: Client, served: Served) -> None:
    code, lines = await served.ask(client, "session")
    assert code == 0
    assert _fields(lines) == GOOD
    (request,) = [request for node in served.process.nodes.values() for request in node.requests]
    assert request.prompt.messages[-1].parts[0].text == "How is the mood?"


@pytest.mark.needs("nginx")
@pytest.mark.needs("openssl")
@pytest.mark.needs("go")
@pytest.mark.needs("protoc")
@pytest.mark.parametrize("client", ["go"], indirect=True)
@pytest.mark.parametrize("scenario", ["generate", "session"])
async def test_go_gets_a_checked_answer_over_tls_through_nginx(
    client: Client, served: Served, scenario: str, tmp_path: Path
) -> None:
    async with run_front(tmp_path, routers=[served.target]) as front:
        code, lines = await client.run(scenario, f"127.0.0.1:{front.port}", served.process.key, str(front.ca))
    assert code == 0
    assert _fields(lines) == GOOD
    assert _said(lines, "verdict") == "VERDICT_OK"


async def test_leaving_frees_the_node(client: Client, served: Served) -> None:
    served.script(hanging(after=2))
    _, lines = await served.ask(client, "cancel")
    assert _fields(lines) == GOOD[:1]
    await eventually(lambda: sum(node.cancelled for node in served.process.nodes.values()) == 1)


async def test_a_deadline_is_an_error_with_a_reason(client: Client, served: Served) -> None:
    served.script(hanging())
    code, lines = await served.ask(client, "deadline")
    assert code == 1
    assert _said(lines, "code") in {"DeadlineExceeded", "DEADLINE_EXCEEDED"}


async def test_a_degraded_answer_says_so_in_frame_and_trailers(client: Client, served: Served) -> None:
    served.script(failing(), "full-1")
    served.script(answering(), "lite-1")
    _, lines = await served.ask(client, "degraded")
    assert _said(lines, "degraded_level") == 2
    assert _said(lines, "status") == ["DEGRADED"]


@pytest.mark.parametrize("scenario", ["refused", "session-refused"])
async def test_a_refused_schema_names_reason_and_place(client: Client, served: Served, scenario: str) -> None:
    code, lines = await served.ask(client, scenario)
    assert code == 1
    assert _said(lines, "reason") == "SCHEMA_REFUSED"
    assert _said(lines, "domain") == "ssop"
    assert _said(lines, "pointer") == "/properties/mood/$ref"
    assert _said(lines, "field") == "output_schema"


async def test_a_lost_connection_goes_on_where_it_was(client: Client, served: Served) -> None:
    code, lines = await served.ask(client, "resume")
    assert code == 0
    assert _fields(lines) == GOOD
    assert sum(len(node.requests) for node in served.process.nodes.values()) == 1


def _is_same(found: Any, expected: Any) -> bool:
    """Whether two values are the same; the file writes numbers that no double holds as text."""
    if isinstance(expected, str) and not isinstance(found, str):
        return str(found) == expected
    try:
        return bool(found == expected or Decimal(found) == Decimal(expected))
    except (ArithmeticError, TypeError, ValueError):
        return False


async def test_shared_vectors_decode_to_the_same_values(client: Client) -> None:
    code, lines = await client.run("vectors", str(VECTORS))
    assert code == 0
    for vector in json.loads(VECTORS.read_text())["vectors"]:
        found = [line for line in lines if line["vector"] == vector["name"]]
        parts, expected = "", []
        for frame in vector["frames"]:
            if frame["kind"] == 3:
                parts += frame["value"]
            elif frame["kind"] == 2:
                value = parts + frame["value"] if isinstance(frame["value"], str) else frame["value"]
                expected.append((frame["path"], value))
                parts = ""
        fields = _fields(found)
        assert [field["path"] for field in fields] == [path for path, _ in expected], vector["name"]
        assert all(_is_same(field["value"], value) for field, (_, value) in zip(fields, expected, strict=True)), found
        assert found[-1]["frames"] == len(vector["frames"])


def _chunk(*frames: frame_pb2.Frame) -> str:
    return frame_pb2.Chunk(frames=frames).SerializeToString().hex()


def _header(*nodes: frame_pb2.FieldNode) -> frame_pb2.Frame:
    header = frame_pb2.Header(wire_version=1, node_count=len(nodes), nodes=nodes)
    return frame_pb2.Frame(seq=1, kind=frame_pb2.FRAME_KIND_HEADER, header=header)


def _value(seq: int, node: int) -> frame_pb2.Frame:
    return frame_pb2.Frame(seq=seq, kind=frame_pb2.FRAME_KIND_VALUE, node=node, string_value="x")


ROOT_NODE: Final = frame_pb2.FieldNode(node=0, step=frame_pb2.FIELD_STEP_ROOT)
BELOW_ITSELF: Final = frame_pb2.FieldNode(node=1, parent=1, step=frame_pb2.FIELD_STEP_PROPERTY, key="a")
ITEM: Final = frame_pb2.FieldNode(node=1, parent=0, step=frame_pb2.FIELD_STEP_ITEM)
BROKEN: Final = {
    "a table that goes round": _chunk(_header(ROOT_NODE, BELOW_ITSELF), _value(2, 1)),
    "a node that is not in the table": _chunk(_header(ROOT_NODE), _value(2, 7)),
    "a path that is too short": _chunk(_header(ROOT_NODE, ITEM), _value(2, 1)),
    "a frame that was lost": _chunk(_header(ROOT_NODE), _value(3, 0)),
    "another wire version": _chunk(
        frame_pb2.Frame(seq=1, kind=frame_pb2.FRAME_KIND_HEADER, header=frame_pb2.Header(wire_version=2))
    ),
    "bytes that are no chunk": "0affffff",
}


@pytest.mark.parametrize("chunk", BROKEN.values(), ids=BROKEN)
async def test_a_broken_stream_is_an_error_and_gives_no_field(client: Client, chunk: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(json.dumps({"vectors": [{"name": "broken", "chunks": [chunk]}]}))
    code, lines = await client.run("vectors", str(path))
    assert code == 1
    assert _fields(lines) == []


def test_every_folder_with_a_client_is_tested() -> None:
    """A scenario that a client does not know would fail; a language without a client would not be seen."""
    folders = {path.parent.name for path in HERE.glob("*/build.sh")}
    assert folders == set(LANGUAGES)
