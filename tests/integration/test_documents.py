"""Documents of a user on the whole mesh: added by the command, asked about, cited, taken out again."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.live_mesh import LiveMesh, run_mesh
from helpers.machine import stretched
from helpers.pdfs import HOSTILE_PDFS, make_pdf
from ssop.v1.mesh_pb2 import RetrievalReason
from ssop_sdk import AsyncSsopClient, SsopClient

FILES: dict[str, bytes] = {
    "returns.md": b"# Returns\n\nCustomers may return goods within *thirty days* and get their money back.\n",
    "shipping.html": b"<title>Shipping</title><nav>Home</nav><p>Parcels leave our warehouse every evening.</p>"
    b"<script>alert('charging station')</script>",
    "battery.pdf": make_pdf([["The battery of the scooter lasts forty kilometres", "and charges in four hours."]]),
    "weather.txt": "明天北京有大雨，气温将下降到十度左右，请注意保暖。".encode("gb18030"),
    "staff.jsonl": b'{"id": "hr-1", "text": "New colleagues get a laptop on their first day.", "title": "Staff"}\n'
    b'{"id": "hr-2", "text": "The canteen opens at noon."}\n',
}
BAD: dict[str, bytes] = {
    "empty.md": b" \n",
    "binary.txt": b"\x7fELF\x01\x00\x00",
    "bad.jsonl": b'{"id": "hr-3", "text": "A good line among bad ones."}\nnot json\n{"id": "x"}\n',
    "large.txt": b"x" * (2 * 2**20),
    "locked.pdf": HOSTILE_PDFS["password"](),
    "deep.html": b"<div>" * 100_000 + b"deep",
}
CITED = {
    "type": "object",
    "properties": {
        "citations": {
            "type": "array",
            "items": {"type": "integer", "minimum": 1, "maximum": 2},
            "minItems": 1,
            "maxItems": 2,
        },
        "answer": {"type": "string", "maxLength": 80},
    },
    "required": ["citations", "answer"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveMesh]:
    # A machine that is busy would have its prefetches shed.
    changes = {"rag": {"prefetch_ttl_ms": 60_000, "prefetch_max_stretch": 0}}
    with run_mesh(tmp_path_factory.mktemp("documents"), changes) as mesh:
        yield mesh


@pytest.fixture(scope="module")
def folder(mesh: LiveMesh, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of good documents, indexed."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "docs").mkdir()
    for name, data in FILES.items():
        (folder / "docs" / name).write_bytes(data)
    done = ssop(mesh, folder, "index", "add", "docs/", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["added"], report["refused"], report["passages"]) == (6, 0, 6)
    assert report["guessed_encodings"] == [{"name": "docs/weather.txt", "encoding": "gb18030"}]
    return folder


def ssop(mesh: LiveMesh, folder: Path, *arguments: str, data: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    environ = {**os.environ, "SSOP_STATE_DIR": str(mesh.places.state)}
    command = [sys.executable, "-m", "ssop_cli.main", *arguments]
    return subprocess.run(command, cwd=folder, env=environ, input=data, capture_output=True, timeout=300, check=False)


def ssop_json(mesh: LiveMesh, folder: Path, *arguments: str, data: bytes = b"", code: int = 0) -> Any:
    done = ssop(mesh, folder, *arguments, "--json", data=data)
    assert done.returncode == code, done.stderr.decode()
    return json.loads(done.stdout)


def test_a_document_of_every_kind_is_found(mesh: LiveMesh, folder: Path) -> None:
    questions = {
        "How can I get my money back?": "docs/returns.md",
        "When do parcels leave?": "docs/shipping.html",
        "How long does the battery charge?": "docs/battery.pdf",
        "北京明天会下雨吗？": "docs/weather.txt",
        "What do new colleagues get?": "hr-1",
    }
    for question, name in questions.items():
        (found,) = ssop_json(mesh, folder, "index", "search", question, "--top-k", "1")["passages"]
        assert found["document_id"] == name, question
        assert "alert" not in found["text"]


def test_adding_again_changes_nothing(mesh: LiveMesh, folder: Path) -> None:
    before = ssop_json(mesh, folder, "index", "list")
    report = ssop_json(mesh, folder, "index", "add", "docs")
    assert (report["added"], report["unchanged"], report["passages"]) == (0, 6, 0)
    assert ssop_json(mesh, folder, "index", "list") == before


def test_bad_documents_are_refused_one_by_one_and_the_rest_is_indexed(mesh: LiveMesh, folder: Path) -> None:
    bad = folder / "bad"
    bad.mkdir()
    for name, data in BAD.items():
        (bad / name).write_bytes(data)
    os.mkfifo(bad / "pipe.txt")
    (bad / "loop.txt").symlink_to(bad / "loop.txt")
    arguments = ("--collection", "bad", "--max-mib", "1", "--parse-timeout", "3")
    report = ssop_json(mesh, folder, "index", "add", "bad", "bad/loop.txt", "gone.md", "/dev/zero", *arguments, code=1)
    reasons = {entry["name"]: entry["reason"] for entry in report["refusals"]}
    assert set(reasons) == {
        "bad/bad.jsonl#L2", "bad/bad.jsonl#L3", "bad/binary.txt", "bad/deep.html", "bad/empty.md", "bad/large.txt",
        "bad/locked.pdf", "bad/loop.txt", "bad/pipe.txt", "dev/zero", "gone.md",
    }  # fmt: skip
    assert all(reasons.values())
    assert (report["added"], report["skipped"]["links"]) == (1, 1)
    shown = ssop(mesh, folder, "index", "add", "bad", *arguments)
    assert b"refused  bad/locked.pdf: it needs a password" in shown.stdout


def test_standard_input_pruning_and_deleting(mesh: LiveMesh, folder: Path) -> None:
    note = ("--collection", "notes")
    ssop_json(mesh, folder, "index", "add", "-", "--id", "one", *note, data=b"The first note.")
    ssop_json(mesh, folder, "index", "add", "-", "--id", "two", *note, data=b"The second note.")
    lines = b'{"id": "three", "text": "The third note."}\n{"id": "two", "text": "The second note."}\n'
    report = ssop_json(mesh, folder, "index", "add", "-", "--format", "jsonl", "--prune", *note, data=lines)
    assert (report["added"], report["unchanged"], report["removed"]) == (1, 1, 1)
    assert ssop_json(mesh, folder, "index", "delete", "three", "gone", *note) == {"deleted": 1}
    assert ssop_json(mesh, folder, "index", "delete", "--all", *note) == {"deleted": 1}
    assert ssop(mesh, folder, "index", "delete", *note).returncode == 2


def test_a_snapshot_brings_a_collection_back(mesh: LiveMesh, folder: Path) -> None:
    saved = ssop_json(mesh, folder, "index", "snapshot", "save", "monday", "--collection", "documents")
    ssop_json(mesh, folder, "index", "delete", "docs/returns.md")
    assert ssop_json(mesh, folder, "index", "snapshot", "list")["snapshots"] == [saved]
    (restored,) = ssop_json(mesh, folder, "index", "snapshot", "restore", "monday")["collections"]
    assert (restored["documents"], restored["index_version"] > saved["collections"][0]["index_version"]) == (6, True)
    assert ssop_json(mesh, folder, "index", "add", "docs")["unchanged"] == 6
    assert ssop_json(mesh, folder, "index", "snapshot", "delete", "monday") == {"is_deleted": True}
    assert ssop(mesh, folder, "index", "snapshot", "restore", "monday").returncode == 5


def test_an_answer_cites_the_passages_it_was_given(mesh: LiveMesh, folder: Path) -> None:
    question = "Within how many days can customers return goods?"
    answer = ssop_json(mesh, folder, "ask", question, "--cite", "--collection", "documents", "--top-k", "2")
    assert [source["number"] for source in answer["sources"]] == [1, 2]
    assert answer["sources"][0]["document_id"] == "docs/returns.md"
    assert set(answer["result"]["citations"]) <= {1, 2}
    assert answer["decision"]["retrieval"] == "retrieved"
    shown = ssop(mesh, folder, "ask", question, "--cite", "--collection", "documents", "--top-k", "2")
    assert b"[1] documents/docs/returns.md, passage 0" in shown.stderr


async def test_a_question_typed_in_pieces_has_its_passages_by_the_time_it_is_complete(
    mesh: LiveMesh, folder: Path
) -> None:
    async with (
        AsyncSsopClient(mesh.key, mesh.target, timeout_s=60, output_schema=CITED, policy="no_cache") as client,
        client.session() as session,
    ):
        stream = await session.begin("Within how many days ", collections=["documents"], rag_top_k=2)
        for piece in ("can customers ", "return goods?"):
            await stream.piece(piece)
        # A pause before the question is sent, as people make it.
        await asyncio.sleep(stretched(1.5))
        await stream.commit()
        result = await stream.result()
    assert stream.sources[0].document_id == "docs/returns.md"
    assert set(result["citations"]) <= {source.number for source in stream.sources}
    assert stream.decision is not None
    assert stream.decision.retrieval_reason == RetrievalReason.RETRIEVAL_REASON_PREFETCHED
    assert stream.accounting is not None
    assert stream.accounting.rag_overlap_ms > 0
    assert stream.accounting.prefetch_hits == 1


def test_the_key_of_up_may_index(mesh: LiveMesh, folder: Path) -> None:
    with SsopClient(mesh.key, mesh.target) as client:
        assert "documents" in {info.collection for info in client.index.collections()}


def test_a_killed_retrieval_service_is_waited_for_and_loses_nothing(mesh: LiveMesh, folder: Path) -> None:
    before = ssop_json(mesh, folder, "index", "list", "documents")
    pid = mesh.child("rag").pid
    os.kill(pid, 9)
    assert ssop_json(mesh, folder, "index", "list", "documents") == before
    mesh.wait_restarted("rag", pid)
