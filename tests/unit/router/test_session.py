"""Sessions: pieces, credit, cancels, errors that end their request only."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.rpc import code_pb2

from helpers.eventually import eventually
from helpers.scripted_mesh import GOOD, Mesh, R, answering, ask, encode, failing, hanging, run_router
from helpers.session_client import open_session
from ssop.v1.mesh_pb2 import Receipt
from ssop.v1.router_pb2 import (
    SessionCancel,
    SessionCommit,
    SessionCredit,
)
from ssop_chassis.errors import MeshError
from ssop_router.core.arrival import Arrival, Timing
from ssop_router.entry import Entry


@pytest.fixture
async def mesh() -> AsyncIterator[Mesh]:
    async with run_router() as running:
        yield running


async def test_complete_request_is_answered(mesh: Mesh) -> None:
    async with open_session(mesh) as client:
        await client.begin("a")
        await client.until_finished("a")
        assert client.finished["a"] is None
        assert client.is_whole("a")


async def test_pieces_are_appended_to_the_last_user_message(mesh: Mesh) -> None:
    async with open_session(mesh) as client:
        await client.begin("a", "How ", is_complete=False)
        await client.send("a", piece="is the ")
        await client.send("a", piece="mood?")
        await client.send("a", commit=SessionCommit())
        await client.until_finished("a")
    assert mesh.nodes["lite-1"].requests[0].prompt.messages[-1].parts[0].text == "How is the mood?"


async def test_requests_run_side_by_side(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].script = hanging(after=2)
    async with open_session(mesh) as client:
        await client.begin("slow", "one")
        await eventually(lambda: mesh.nodes["lite-1"].running == 1)
        mesh.nodes["lite-1"].script = answering()
        await client.begin("quick", "two")
        await client.until_finished("quick")
        assert "slow" not in client.finished


async def test_cancel_ends_its_request_and_the_nodes_work(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].script = hanging(after=2)
    async with open_session(mesh) as client:
        await client.begin("a")
        await eventually(lambda: mesh.nodes["lite-1"].running == 1)
        await client.send("a", cancel=SessionCancel())
        await client.until_finished("a")
        error = client.finished["a"]
        assert error is not None
        assert error.reason == R.ERROR_REASON_CANCELLED
        await eventually(lambda: mesh.nodes["lite-1"].cancelled == 1)


async def test_request_that_is_cancelled_as_it_begins_is_over(mesh: Mesh) -> None:
    """Both messages are read in one turn of the loop: nothing of the request has run when it is cancelled."""
    async with open_session(mesh) as client:
        await asyncio.gather(client.begin("a"), client.send("a", cancel=SessionCancel()))
        await client.until_finished("a")
        client.finished.clear()
        await client.begin("a")
        await client.until_finished("a")
        assert client.finished["a"] is None


async def test_error_ends_its_request_only(mesh: Mesh) -> None:
    async with open_session(mesh) as client:
        await client.begin("bad", model="gpt-9")
        await client.until_finished("bad")
        await client.begin("good")
        await client.until_finished("good")
        error = client.finished["bad"]
        assert error is not None
        assert error.reason == R.ERROR_REASON_MODEL_UNKNOWN
        assert client.finished["good"] is None


async def test_failure_of_a_node_ends_with_its_details(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].script = failing(after=2)
    async with open_session(mesh) as client:
        await client.begin("a")
        await client.until_finished("a")
        error = client.finished["a"]
        assert error is not None
        assert error.code == code_pb2.ABORTED
        assert error.metadata["last_seq"] == str(client.frames["a"][-1].seq)


async def test_credit_holds_chunks_back(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].script = answering()
    async with open_session(mesh) as client:
        await client.begin("a", credit=1)
        await eventually(lambda: len(mesh.nodes["lite-1"].requests) == 1)
        await client.begin("b", "other")
        await client.until_finished("b")
        assert "a" not in client.frames
        await client.send("a", credit=SessionCredit(bytes=100_000))
        await client.until_finished("a")
        assert client.is_whole("a")


@pytest.mark.parametrize("resume_window_ms", [0, 60_000])
async def test_request_without_credit_meets_its_own_deadline(mesh: Mesh, resume_window_ms: int) -> None:
    async with open_session(mesh) as client:
        await client.begin("a", credit=1, timeout_ms=60, resume_window_ms=resume_window_ms)
        await client.until_finished("a")
        error = client.finished["a"]
        assert error is not None
        assert error.reason == R.ERROR_REASON_DEADLINE_EXCEEDED


async def test_piece_for_an_unknown_request_ends_that_request_only(mesh: Mesh) -> None:
    async with open_session(mesh) as client:
        await client.send("nobody", piece="x")
        await client.until_finished("nobody")
        error = client.finished["nobody"]
        assert error is not None
        assert error.reason == R.ERROR_REASON_REQUEST_UNKNOWN


async def test_piece_that_crosses_the_end_means_nothing(mesh: Mesh) -> None:
    async with open_session(mesh) as client:
        await client.begin("a", model="gpt-9")
        await client.until_finished("a")
        client.finished.clear()
        await client.send("a", piece="late")
        await client.begin("b")
        await client.until_finished("b")
        assert "a" not in client.finished


async def test_prompt_in_pieces_is_bounded() -> None:
    async with run_router(max_prompt_bytes=2_000) as mesh, open_session(mesh) as client:
        await client.begin("a", is_complete=False)
        for _ in range(3):
            await client.send("a", piece="x" * 1_000)
        await client.until_finished("a")
        error = client.finished["a"]
        assert error is not None
        assert error.reason == R.ERROR_REASON_MESSAGE_TOO_LARGE


async def test_number_of_requests_is_bounded() -> None:
    async with run_router(session_max_requests=1) as mesh, open_session(mesh) as client:
        await client.begin("a", is_complete=False)
        await client.begin("b")
        await client.until_finished("b")
        error = client.finished["b"]
        assert error is not None
        assert error.reason == R.ERROR_REASON_OVERLOADED


async def test_session_goes_on_after_the_client_has_sent_its_last_message(mesh: Mesh) -> None:
    async with open_session(mesh) as client:
        await client.begin("a")
        await client.begin("open", is_complete=False)
        await client.stream.finish_writing()
        while await client.read():
            pass
        assert client.finished["a"] is None
        error = client.finished["open"]
        assert error is not None
        assert error.reason == R.ERROR_REASON_CANCELLED


async def test_idle_session_ends() -> None:
    async with run_router(session_idle_ms=50) as mesh, open_session(mesh) as client:
        with pytest.raises(MeshError) as caught:
            await client.read()
        assert caught.value.metadata["stage"] == "session_idle"


async def test_session_that_is_lost_cancels_all_its_requests(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].script = hanging(after=2)
    async with open_session(mesh) as client:
        for name in "abc":
            await client.begin(name, name)
        await eventually(lambda: mesh.nodes["lite-1"].running == 3)
    await eventually(lambda: mesh.nodes["lite-1"].cancelled == 3)
    await eventually(mesh.is_quiet)


async def test_receipt_is_counted(mesh: Mesh) -> None:
    async with open_session(mesh) as client:
        await client.begin("a")
        await client.until_finished("a")
        await client.send("a", receipt=Receipt(frames_received=2, frames_verified=2, is_complete=True))
        await eventually(lambda: mesh.metric("ssop_router_frames_received_total") == 2)


async def test_malformed_message_ends_the_session(mesh: Mesh) -> None:
    async with open_session(mesh) as client:
        await client.stream.write(b"\xff\xff")
        with pytest.raises(MeshError) as caught:
            await client.read()
        assert caught.value.reason == R.ERROR_REASON_REQUEST_INVALID


async def test_slow_client_of_one_request_does_not_hold_the_others(mesh: Mesh) -> None:
    chunks = encode(GOOD)
    assert len(chunks) > 3
    async with open_session(mesh) as client:
        await client.begin("starved", "one", credit=1)
        for index in range(5):
            await client.begin(f"r{index}", f"text {index}")
            await client.until_finished(f"r{index}")
        assert "starved" not in client.finished


async def test_malformed_id_is_repeated_only_as_far_as_ids_go(mesh: Mesh) -> None:
    async with open_session(mesh) as client:
        await client.send("x" * 100_000, commit=SessionCommit())
        await client.until_finished("x" * 64)
        error = client.finished["x" * 64]
        assert error is not None
        assert error.reason == R.ERROR_REASON_REQUEST_INVALID


async def test_malformed_id_touches_no_request_of_the_session(mesh: Mesh) -> None:
    name = "x" * 64
    async with open_session(mesh) as client:
        await client.begin(name, is_complete=False)
        await client.send(name + "y", cancel=SessionCancel())
        await client.until_finished(name)
        client.finished.clear()
        await client.send(name, commit=SessionCommit())
        await client.until_finished(name)
        assert client.finished[name] is None


def test_empty_pieces_cost_no_memory() -> None:
    entry = Entry(ask("One"), 1, Timing(), 0)
    for _ in range(10):
        entry.add("", 1_000, 1)
    assert not entry.arrival.has_pieces
    assert entry.arrival.pieces == ""


async def test_pieces_cost_the_same_however_many_came_before(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = 0
    text: Any = vars(Arrival)["text"]

    def count(arrival: Arrival) -> str:
        nonlocal joined
        joined += 1
        return str(text.fget(arrival))

    monkeypatch.setattr(Arrival, "text", property(count))
    async with open_session(mesh) as client:
        await client.begin("a", "", is_complete=False)
        for _ in range(100):
            await client.send("a", piece="word ")
        await client.send("a", commit=SessionCommit())
        await client.until_finished("a")
    assert joined <= 6


async def test_requests_that_ended_unread_count_against_the_session() -> None:
    async with run_router(session_max_requests=4) as mesh, open_session(mesh, policy="cache_only") as client:

        async def begin_all() -> None:
            for index in range(12):
                await client.begin(f"r{index}", f"text {index}")

        beginning = asyncio.create_task(begin_all())
        await eventually(lambda: mesh.metric("ssop_router_requests_total", outcome="CACHE_MISS") >= 4)
        await client.until_finished(*(f"r{index}" for index in range(12)))
        await beginning
        reasons = {error.reason for error in client.finished.values() if error is not None}
        assert reasons == {R.ERROR_REASON_CACHE_MISS, R.ERROR_REASON_OVERLOADED}


async def test_drain_ends_a_session_once_what_runs_on_it_has_finished(mesh: Mesh) -> None:
    async with open_session(mesh) as client:
        await client.begin("runs", credit=1)
        await client.begin("open", is_complete=False)
        await eventually(lambda: mesh.router.pipeline.in_flight == 1)
        mesh.router.sessions.drain()
        await client.until_finished("open")
        error = client.finished["open"]
        assert error is not None
        assert error.reason == R.ERROR_REASON_BACKEND_NOT_READY
        assert mesh.router.pipeline.in_flight == 1


async def test_drain_ends_an_idle_session_well(mesh: Mesh) -> None:
    async with open_session(mesh) as client:
        await client.begin("a")
        await client.until_finished("a")
        mesh.router.sessions.drain()
        assert not await client.read()
