"""Retrieval ahead of the request, on a whole mesh: a question typed in pieces has its passages when it is sent."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.live_mesh import LiveMesh, wait_until
from helpers.machine import stretched
from ssop.v1.mesh_pb2 import Accounting, DeliveryStatus, RetrievalReason
from ssop_sdk import AsyncSsopClient, SsopClient

HANDBOOK = {
    "refund": "Customers may return goods within 30 days and get their money back to the card they paid with.",
    "shipping": "Parcels leave our warehouse every evening and arrive within two working days.",
    "battery": "The scooter's battery lasts forty kilometres and charges fully in four hours.",
    "退款": "顾客可以在三十天内退货，款项将退回原支付账户。",
    "天气": "明天北京有大雨，气温将下降到十度左右，请注意保暖。",
}
QUESTIONS = {
    "How many days do I have to return goods and get my money back?": "refund",
    "顾客想要退货的话，在多少天之内可以拿回自己的钱？": "退款",
}
CITED = {
    "type": "object",
    "properties": {"answer": {"type": "string", "maxLength": 40}, "source": {"enum": sorted(HANDBOOK)}},
    "required": ["answer", "source"],
    "additionalProperties": False,
}


@pytest.fixture
def client(client: SsopClient) -> Iterator[SsopClient]:
    """A client whose tenant has the handbook."""
    client.index.upsert("handbook", HANDBOOK)
    yield client
    client.index.delete_collection("handbook")


async def type_in(
    mesh: LiveMesh, text: str, *, pause_s: float
) -> tuple[RetrievalReason.ValueType, DeliveryStatus, Accounting]:
    """Type a question word by word, stop for a while, as long as a prefetch takes here, send it; what comes of it."""
    pieces = [f"{word} " for word in text.split()] if " " in text else list(text)
    pieces[-1] = pieces[-1].strip()
    async with AsyncSsopClient(mesh.key, mesh.target, timeout_s=60) as client, client.session() as session:
        stream = await session.begin("", output_schema=CITED, policy="no_cache", is_complete=False)
        for piece in pieces:
            await stream.piece(piece)
            await asyncio.sleep(0.01)
        await asyncio.sleep(pause_s)
        await stream.commit()
        assert (await stream.result())["source"] in HANDBOOK
        assert stream.decision is not None
        assert stream.status is not None
        assert stream.accounting is not None
        return stream.decision.retrieval_reason, stream.status, stream.accounting


@pytest.mark.timeout(600)
@pytest.mark.parametrize("question", QUESTIONS)
async def test_passages_are_there_when_a_typed_question_is_sent(
    mesh: LiveMesh, client: SsopClient, question: str
) -> None:
    plain = [found.document_id for found in client.index.search(question)]
    # A pause says that somebody is done where it is longer than those before, one of the machine's among them.
    for pause_s in (2.5, 10.0, 20.0):
        reason, status, accounting = await type_in(mesh, question, pause_s=stretched(pause_s))
        if reason == RetrievalReason.RETRIEVAL_REASON_PREFETCHED:
            break
    assert [passage.document_id for passage in status.passages] == plain
    assert QUESTIONS[question] in plain
    assert reason == RetrievalReason.RETRIEVAL_REASON_PREFETCHED
    assert accounting.prefetch_hits == 1
    assert accounting.prefetch_wasted == accounting.prefetches - 1
    assert accounting.rag_overlap_ms > 0
    print(f"overlap {accounting.rag_overlap_ms} ms, waited {accounting.retrieval_wait_ms} ms")


async def test_question_that_is_sent_at_once_has_the_passages_of_a_search(mesh: LiveMesh, client: SsopClient) -> None:
    question = next(iter(QUESTIONS))
    reason, status, accounting = await type_in(mesh, question, pause_s=0)
    plain = [found.document_id for found in client.index.search(question)]
    assert [passage.document_id for passage in status.passages] == plain
    assert reason in (RetrievalReason.RETRIEVAL_REASON_RETRIEVED, RetrievalReason.RETRIEVAL_REASON_PREFETCHED)
    assert accounting.rag_overlap_ms > 0, "retrieval overlaps admission at least"


async def test_retrieval_that_is_killed_while_someone_types_costs_no_answer(mesh: LiveMesh, client: SsopClient) -> None:
    question = next(iter(QUESTIONS))
    typing = asyncio.ensure_future(type_in(mesh, question, pause_s=1.0))
    # In the middle of it, or before or after: none of it may cost the answer.
    await asyncio.sleep(0.5)
    pid = await asyncio.to_thread(mesh.signal, "rag", signal.SIGKILL)
    reason, status, _ = await typing
    if reason == RetrievalReason.RETRIEVAL_REASON_UNAVAILABLE:
        assert list(status.unavailable) == ["rag"]
    await asyncio.to_thread(mesh.wait_restarted, "rag", pid)


async def test_retrieval_that_is_frozen_while_someone_types_is_done_without_and_said(
    mesh: LiveMesh, client: SsopClient
) -> None:
    pid = mesh.signal("rag", signal.SIGSTOP)
    try:
        reason, status, accounting = await type_in(mesh, next(iter(QUESTIONS)), pause_s=0.1)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert reason == RetrievalReason.RETRIEVAL_REASON_UNAVAILABLE
    assert list(status.unavailable) == ["rag"]
    assert not status.passages
    assert accounting.prefetches == 0


def run(mesh: LiveMesh, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A command of this program for the mesh."""
    environ = {**os.environ, "SSOP_STATE_DIR": str(mesh.places.state)}
    command = [sys.executable, "-m", "ssop_cli.main", "rag", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environ, timeout=120, check=False)


def test_log_warms_queries_and_usage_is_shown(mesh: LiveMesh, client: SsopClient, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    lines = [
        {"query": "Where is my parcel?"},
        {"query": "Where is my parcel?", "time": "ignored"},
        {"messages": [{"role": "user", "content": "How far does the battery last?"}], "collections": ["handbook"]},
    ]
    log.write_text("\n".join(map(json.dumps, lines)))

    def is_up() -> bool:
        return client.mesh_status().dependencies[-1].is_available or bool(client.index.collections())

    wait_until(is_up, 60, "retrieval serves")
    first = run(mesh, "warm", str(log), "--rate", "50", "--json")
    again = run(mesh, "warm", str(log), "--rate", "50", "--json")
    assert first.returncode == again.returncode == 0, first.stderr + again.stderr
    assert json.loads(first.stdout)["embedded"] == 2
    assert json.loads(again.stdout)["known"] == 2
    usage = run(mesh, "usage", "--json")
    assert usage.returncode == 0, usage.stderr
    assert json.loads(usage.stdout)["budget"] == 600


def test_log_of_an_unknown_collection_is_counted(mesh: LiveMesh, client: SsopClient, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"query": "x", "collections": ["nowhere"]}\n')
    done = run(mesh, "warm", str(log), "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["first_failure"] == "COLLECTION_UNKNOWN"
