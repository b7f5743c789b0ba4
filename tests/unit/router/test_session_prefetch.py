"""Prefetches of sessions: when they start, and what becomes of them."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from helpers.eventually import eventually
from helpers.scripted_mesh import Mesh, R, ask, run_router
from helpers.session_client import Client, open_session
from ssop.v1.mesh_pb2 import RetrievalReason
from ssop.v1.router_pb2 import (
    SessionCancel,
    SessionCommit,
)
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import Principal


@pytest.fixture
async def mesh() -> AsyncIterator[Mesh]:
    async with run_router() as running:
        yield running


async def write_thirty_words(client: Client) -> None:
    await client.begin("a", "", is_complete=False)
    for number in range(30):
        await client.send("a", piece=f"w{number} ")
    await client.send("a", commit=SessionCommit())
    await client.until_finished("a")


async def test_prefetch_starts_with_the_tenth_word(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 1}
    async with open_session(mesh) as client:
        await client.begin("a", "", is_complete=False)
        await client.send("a", piece="one two three four five six seven eight nine ")
        await asyncio.sleep(0)
        assert not mesh.rag.prefetches
        await client.send("a", piece="ten eleven twelve ")
        await eventually(lambda: len(mesh.rag.prefetches) == 1)
        await client.send("a", commit=SessionCommit())
        await client.until_finished("a")
        prefix = mesh.rag.prefetches[0].query_prefix
        assert prefix == "one two three four five six seven eight nine ten"
        assert client.frames["a"][0].decision.retrieval_reason == RetrievalReason.RETRIEVAL_REASON_PREFETCHED
        assert client.frames["a"][-1].accounting.prefetch_hits == 1


async def test_prefetch_counts_characters_of_scripts_without_spaces(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 1}
    async with open_session(mesh) as client:
        await client.begin("a", "", is_complete=False)
        await client.send("a", piece="请问今天北京的天气怎么样")
        await eventually(lambda: len(mesh.rag.prefetches) == 1)
        assert mesh.rag.prefetches[0].query_prefix == "请问今天北京的天气怎"


async def test_prefetch_starts_some_time_after_the_first_byte() -> None:
    async with run_router(prefetch_wait_ms=20) as mesh, open_session(mesh) as client:
        mesh.rag.collections["acme"] = {"docs": 1}
        await client.begin("a", "", is_complete=False)
        await client.send("a", piece="only three words")
        await eventually(lambda: len(mesh.rag.prefetches) == 1)


async def test_prefetch_is_issued_once_more_with_the_fifteenth_word(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 1}
    async with open_session(mesh) as client:
        await write_thirty_words(client)
        assert [p.query_prefix.split()[-1] for p in mesh.rag.prefetches] == ["w9", "w14"]
        accounting = client.frames["a"][-1].accounting
        assert (accounting.prefetches, accounting.prefetch_hits, accounting.prefetch_wasted) == (2, 1, 1)
        assert accounting.prefetch_tokens == 6


async def test_answer_ends_and_settles_whatever_number_of_tokens_prefetches_are_said_to_have(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 1}
    mesh.rag.prefetch_tokens = 2**32 - 1
    async with open_session(mesh) as client:
        await write_thirty_words(client)
        accounting = client.frames["a"][-1].accounting
        assert (accounting.prefetches, accounting.prefetch_tokens) == (2, 2**32 - 1)
        await eventually(lambda: [c.prefetch_tokens for c in mesh.cache.counted.values()] == [2**32 - 1])


async def test_text_of_the_beginning_counts(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 1}
    async with open_session(mesh) as client:
        await client.begin("a", "one two three four five six seven eight nine ", is_complete=False)
        await client.send("a", piece="ten")
        await eventually(lambda: len(mesh.rag.prefetches) == 1)
        assert mesh.rag.prefetches[0].query_prefix == "one two three four five six seven eight nine ten"


async def test_pause_prefetches_the_whole_text() -> None:
    async with run_router(prefetch_pause_ms=20, prefetch_wait_ms=60_000) as mesh, open_session(mesh) as client:
        mesh.rag.collections["acme"] = {"docs": 1}
        await client.begin("a", "", is_complete=False)
        await client.send("a", piece="three words only")
        await eventually(lambda: [p.query_prefix for p in mesh.rag.prefetches] == ["three words only"])
        await client.send("a", commit=SessionCommit())
        await client.until_finished("a")
        assert mesh.rag.retrievals[0].query == mesh.rag.prefetches[0].query_prefix


async def test_prefetch_of_a_key_that_was_revoked_is_not_made() -> None:
    def renew(_: Principal) -> Principal:
        raise MeshError(R.ERROR_REASON_KEY_INVALID, "revoked")

    async with run_router(renew=renew) as mesh, open_session(mesh) as client:
        mesh.rag.collections["acme"] = {"docs": 1}
        await client.begin("a", "", is_complete=False)
        await client.send("a", piece="one two three four five six seven eight nine ten ")
        await client.send("a", commit=SessionCommit())
        await client.until_finished("a")
        error = client.finished["a"]
        assert error is not None
        assert error.reason == R.ERROR_REASON_KEY_INVALID
        assert not mesh.rag.prefetches


async def test_prefetch_service_that_is_down_costs_no_answer(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 1}
    mesh.rag.error = MeshError(R.ERROR_REASON_BACKEND_FAILED, "scripted")
    async with open_session(mesh) as client:
        await client.begin("a", "", is_complete=False)
        await client.send("a", piece="one two three four five six seven eight nine ten ")
        await client.send("a", commit=SessionCommit())
        await client.until_finished("a")
        assert client.finished["a"] is None
        assert client.frames["a"][0].decision.retrieval_reason == RetrievalReason.RETRIEVAL_REASON_UNAVAILABLE
        assert client.frames["a"][-1].accounting.prefetches == 0
    await eventually(mesh.is_quiet)


async def test_retrieval_service_that_dies_while_the_text_comes_costs_no_answer(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 1}
    async with open_session(mesh) as client:
        await client.begin("a", "", is_complete=False)
        await client.send("a", piece="one two three four five six seven eight nine ten ")
        await eventually(lambda: len(mesh.rag.prefetches) == 1)
        mesh.rag.error = MeshError(R.ERROR_REASON_BACKEND_FAILED, "scripted")
        await client.send("a", commit=SessionCommit())
        await client.until_finished("a")
        assert client.finished["a"] is None
        assert client.frames["a"][1].status.unavailable == ["rag"]
        assert client.frames["a"][-1].accounting.prefetch_wasted == 1
    await eventually(mesh.is_quiet)


async def test_prefetch_that_hangs_holds_nothing_up() -> None:
    async with run_router(retrieval_timeout_ms=50) as mesh, open_session(mesh) as client:
        mesh.rag.collections["acme"] = {"docs": 1}
        mesh.rag.is_frozen = True
        await client.begin("a", "", is_complete=False)
        await client.send("a", piece="one two three four five six seven eight nine ten ")
        await client.send("a", commit=SessionCommit())
        await client.until_finished("a")
        assert client.finished["a"] is None
        await eventually(mesh.is_quiet)


@pytest.mark.parametrize(("ratio", "fetched"), [(0.75, [0.75]), (0.0, [])])
async def test_profile_sets_the_ratio(ratio: float, fetched: list[float]) -> None:
    always = {"from": "00:00", "until": "00:00", "rag_prefetch_ratio": ratio}
    async with run_router(profiles=[always]) as mesh, open_session(mesh) as client:
        mesh.rag.collections["acme"] = {"docs": 1}
        await client.begin("a", "", is_complete=False)
        await client.send("a", piece="one two three four five six seven eight nine ten ")
        await client.send("a", commit=SessionCommit())
        await client.until_finished("a")
        assert [p.rag_prefetch_ratio for p in mesh.rag.prefetches] == fetched


async def test_prefetch_of_a_cancelled_request_is_dropped(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 1}
    async with open_session(mesh) as client:
        await client.begin("a", "", is_complete=False)
        await client.send("a", piece="one two three four five six seven eight nine ten")
        await eventually(lambda: len(mesh.rag.prefetches) == 1)
        await client.send("a", cancel=SessionCancel())
        await eventually(lambda: mesh.rag.cancelled_prefetches == ["a"])


async def test_prefetch_of_a_request_that_is_cancelled_as_it_begins_is_dropped(mesh: Mesh) -> None:
    """Both messages are read in one turn of the loop: nothing of the request has run when it is cancelled."""
    mesh.rag.collections["acme"] = {"docs": 1}
    async with open_session(mesh) as client:
        await client.begin("a", "", is_complete=False)
        await client.send("a", piece="one two three four five six seven eight nine ten")
        await eventually(lambda: len(mesh.rag.prefetches) == 1)
        await asyncio.gather(client.send("a", commit=SessionCommit()), client.send("a", cancel=SessionCancel()))
        await eventually(lambda: mesh.rag.cancelled_prefetches == ["a"])


async def test_prefetch_that_was_not_used_is_dropped_and_counted(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 1}
    text = "one two three four five six seven eight nine ten"
    await mesh.generate(ask(text, policy="lite"))
    async with open_session(mesh) as client:
        await client.begin("a", "", is_complete=False)
        await client.send("a", piece=text)
        await eventually(lambda: len(mesh.rag.prefetches) == 1)
        await client.send("a", commit=SessionCommit())
        await client.until_finished("a")
        assert client.frames["a"][-1].accounting.prefetch_wasted == 1
        await eventually(lambda: mesh.rag.cancelled_prefetches == ["a"])


async def test_no_prefetch_where_the_policy_says_so(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 1}
    async with open_session(mesh, policy="no_rag,lite") as client:
        await client.begin("a", "", is_complete=False)
        await client.send("a", piece="one two three four five six seven eight nine ten")
        await client.send("a", commit=SessionCommit())
        await client.until_finished("a")
        assert not mesh.rag.prefetches
        assert not mesh.rag.retrievals
