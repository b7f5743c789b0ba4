"""What waits together travels together to the cache service."""

import asyncio
from collections.abc import Callable, Iterable

import pytest

from helpers.as_written import run_both_ways
from ssop.v1 import cache_pb2
from ssop.v1.cache_pb2 import (
    AdmitRequest,
    AdmitResponse,
    BatchEntry,
    BatchOutcome,
    CacheOutcome,
    RunBatchRequest,
    RunBatchResponse,
)
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Metadata, OnMessage
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import PRINCIPAL_METADATA
from ssop_router.background import Background
from ssop_router.core.envelope import Admitted
from ssop_router.core.envelopes import write_commit
from ssop_router.crowd import Commit, Crowd
from ssop_router.dependency import Dependency, Unavailable

R = ErrorReason
way = run_both_ways("ssop_router.crowd", "Commit", "Crowd")
UNSUPPORTED = MeshError(R.ERROR_REASON_UNSUPPORTED, "older")


class Peer:
    """A cache service that remembers what it was called with. `judge` may raise for a request id."""

    address = "there"

    def __init__(self, judge: Callable[[str], None] = lambda _: None) -> None:
        self.judge = judge
        self.batches: list[list[str]] = []
        self.principals: list[bytes] = []
        self.alone: list[str] = []
        self.too_large: set[str] = set()
        self.is_old = False
        self.knows_commits = True
        self.settled: list[str] = []
        self.committed: list[bytes] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def unary(self, method: str, request: bytes, *, timeout_s: float, metadata: Metadata | None = None) -> bytes:
        await self.gate.wait()
        if method.endswith("/Admit"):
            request_id = AdmitRequest.FromString(request).request_id
            self.alone.append(request_id)
            self.judge(request_id)
            return AdmitResponse(fencing_token=len(request_id)).SerializeToString()
        if method.endswith("/Settle"):
            self.settled.append(cache_pb2.SettleRequest.FromString(request).request_id)
            return cache_pb2.SettleResponse().SerializeToString()
        if method.endswith("/Commit"):
            self.committed.append(cache_pb2.CommitRequest.FromString(request).cache_key)
            return cache_pb2.CommitResponse().SerializeToString()
        if self.is_old:
            raise UNSUPPORTED
        entries = RunBatchRequest.FromString(request).entries
        if entries[0].HasField("settle"):
            return self._conclude(entries)
        self.batches.append([entry.admit.request_id for entry in entries])
        self.principals += [entry.principal for entry in entries]
        response = RunBatchResponse()
        for entry in entries:
            try:
                self.judge(entry.admit.request_id)
            except MeshError as error:
                response.outcomes.add(status=error.to_status().SerializeToString())
            else:
                outcome = response.outcomes.add(admitted=AdmitResponse(fencing_token=len(entry.admit.request_id)))
                if entry.admit.request_id in self.too_large:
                    outcome.is_too_large = True
        return response.SerializeToString()

    def _conclude(self, entries: Iterable[BatchEntry]) -> bytes:
        response = RunBatchResponse()
        self.batches.append([])
        for entry in entries:
            self.batches[-1].append(entry.settle.request_id)
            outcome = response.outcomes.add(settled=cache_pb2.SettleResponse(charged_tokens=1))
            self.settled.append(entry.settle.request_id)
            if not self.knows_commits or not entry.HasField("commit"):
                continue
            try:
                self.judge(entry.settle.request_id)
            except MeshError as error:
                outcome.commit_status = error.to_status().SerializeToString()
            else:
                self.committed.append(entry.commit.cache_key)
                outcome.committed.SetInParent()
        return response.SerializeToString()

    async def stream(
        self,
        method: str,
        request: bytes,
        on_message: OnMessage,
        *,
        timeout_s: float,
        metadata: Metadata | None = None,
    ) -> Metadata:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing to close."""


def crowd_of(peer: Peer, *, most_waiting: int = 1000) -> Crowd:
    cache = Dependency("cache", peer, skip_ms=1000, clock_ms=lambda: 0)
    return Crowd(cache, Background(), timeout_s=1, most_waiting=most_waiting, metadata=dict)


def token(number: int) -> Admitted:
    return Admitted(CacheOutcome.CACHE_OUTCOME_UNSPECIFIED, number)


def admit(crowd: Crowd, request_id: str) -> "asyncio.Future[Admitted]":
    async def ask() -> Admitted:
        request = AdmitRequest(request_id=request_id).SerializeToString()
        return await crowd.admit(request, {PRINCIPAL_METADATA: f"p-{request_id}".encode()})

    return asyncio.ensure_future(ask())


def conclude(
    crowd: Crowd, request_id: str, chunk: bytes = b"x"
) -> "tuple[asyncio.Future[BaseException | None], Commit]":
    """Hears what becomes of a settlement, and the commit that goes with it."""
    request = cache_pb2.SettleRequest(request_id=request_id).SerializeToString()
    commit = Commit(write_commit(request_id.encode(), 1, chunk, True, "", True), lambda _: None)
    settled: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    crowd.settle(request, {PRINCIPAL_METADATA: b"p"}, settled.set_result, commit)
    return settled, commit


async def test_one_goes_alone() -> None:
    peer = Peer()
    assert await admit(crowd_of(peer), "abc") == token(3)
    assert (peer.alone, peer.batches) == (["abc"], [])


async def test_those_of_one_turn_go_together_each_under_its_principal() -> None:
    peer = Peer()
    crowd = crowd_of(peer)
    replies = await asyncio.gather(*(admit(crowd, "r" * n) for n in range(1, 6)))
    assert replies == [token(n) for n in range(1, 6)]
    assert peer.batches == [["r" * n for n in range(1, 6)]]
    assert peer.principals == [f"p-{'r' * n}".encode() for n in range(1, 6)]


async def test_a_crowd_goes_in_few_calls_and_in_order() -> None:
    peer = Peer()
    peer.gate.clear()
    crowd = crowd_of(peer)
    asked = [admit(crowd, f"r{n:03}") for n in range(200)]
    await asyncio.sleep(0.01)
    peer.gate.set()
    await asyncio.gather(*asked)
    assert len(peer.batches) == 7
    assert [name for batch in peer.batches for name in batch] == [f"r{n:03}" for n in range(200)]


async def test_a_refusal_is_of_its_request_alone() -> None:
    def refuse(request_id: str) -> None:
        if request_id == "b":
            raise MeshError(R.ERROR_REASON_QUOTA_EXHAUSTED, "used up", retry_after_ms=7)

    crowd = crowd_of(Peer(refuse))
    replies = await asyncio.gather(*(admit(crowd, name) for name in "abc"), return_exceptions=True)
    assert isinstance(replies[1], MeshError)
    assert (replies[1].reason, replies[1].retry_after_ms) == (R.ERROR_REASON_QUOTA_EXHAUSTED, 7)
    assert replies[0] == replies[2] == token(1)


async def test_a_store_that_does_not_answer_is_said_to_each() -> None:
    def fail(_: str) -> None:
        raise MeshError(R.ERROR_REASON_STORE_UNAVAILABLE, "gone", metadata={"limits": "aa"})

    crowd = crowd_of(Peer(fail))
    replies = await asyncio.gather(*(admit(crowd, name) for name in "abc"), return_exceptions=True)
    for reply in replies:
        assert isinstance(reply, Unavailable)
        assert isinstance(reply.__cause__, MeshError)
        assert reply.__cause__.metadata["limits"] == "aa"


async def test_an_older_service_is_asked_one_by_one() -> None:
    peer = Peer()
    peer.is_old = True
    crowd = crowd_of(peer)
    assert len(await asyncio.gather(*(admit(crowd, name) for name in "abc"))) == 3
    assert sorted(peer.alone) == ["a", "b", "c"]


async def test_an_answer_too_large_for_the_batch_is_fetched_alone() -> None:
    peer = Peer()
    peer.too_large = {"b"}
    crowd = crowd_of(peer)
    await asyncio.gather(*(admit(crowd, name) for name in "abc"))
    assert peer.alone == ["b"]


async def test_who_went_away_is_not_asked_for() -> None:
    peer = Peer()
    peer.gate.clear()
    crowd = crowd_of(peer)
    first = [admit(crowd, "x"), admit(crowd, "y")]
    await asyncio.sleep(0.01)
    held = [admit(crowd, "z")]
    await asyncio.sleep(0.01)
    gone, kept = admit(crowd, "gone"), admit(crowd, "kept")
    await asyncio.sleep(0.01)
    gone.cancel()
    peer.gate.set()
    await asyncio.gather(*first, *held, kept)
    assert "gone" not in [*peer.alone, *(name for batch in peer.batches for name in batch)]


async def test_too_many_that_wait_are_told_to_come_again() -> None:
    peer = Peer()
    peer.gate.clear()
    crowd = crowd_of(peer, most_waiting=2)
    under_way = [admit(crowd, "a")]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting = [admit(crowd, name) for name in "bcdefg"]
    await asyncio.sleep(0.01)
    refused = [task for task in waiting if task.done()]
    assert refused
    for task in refused:
        with pytest.raises(MeshError, match="too many"):
            task.result()
    peer.gate.set()
    await asyncio.gather(*under_way, *waiting, return_exceptions=True)


async def test_an_answer_is_committed_in_the_call_of_its_settlement() -> None:
    peer = Peer()
    settled, commit = conclude(crowd_of(peer), "a")
    assert (await settled, await commit) == (None, None)
    assert (peer.batches, peer.committed) == ([["a"]], [b"a"])


async def test_a_lease_that_is_lost_leaves_the_settlement_as_it_is() -> None:
    def refuse(_: str) -> None:
        raise MeshError(R.ERROR_REASON_LEASE_LOST, "scripted")

    peer = Peer(refuse)
    settled, commit = conclude(crowd_of(peer), "a")
    assert await settled is None
    error = await commit
    assert isinstance(error, MeshError)
    assert error.reason == R.ERROR_REASON_LEASE_LOST


async def test_a_service_that_does_not_know_commits_gets_them_in_calls_of_their_own() -> None:
    peer = Peer()
    peer.knows_commits = False
    crowd = crowd_of(peer)
    for name in "ab":
        settled, commit = conclude(crowd, name)
        assert (await settled, await commit) == (None, None)
    # Each is settled and committed once; the second is asked for as an older service is.
    assert (peer.settled, peer.committed, peer.batches) == (["a", "b"], [b"a", b"b"], [["a"]])


async def test_a_service_that_was_upgraded_is_sent_both_in_one_call_again() -> None:
    peer = Peer()
    peer.knows_commits = False
    crowd = crowd_of(peer)
    await conclude(crowd, "a")[1]
    peer.knows_commits = True
    # Those that wait together go together all the same, and it shows what it knows.
    for names in ("bc", "d"):
        await asyncio.gather(*(commit for _, commit in [conclude(crowd, name) for name in names]))
    assert peer.batches == [["a"], ["b", "c"], ["d"]]


async def test_a_service_without_batches_gets_a_settlement_and_a_commit() -> None:
    peer = Peer()
    peer.is_old = True
    settled, commit = conclude(crowd_of(peer), "a")
    assert (await settled, await commit) == (None, None)
    assert (peer.settled, peer.committed) == (["a"], [b"a"])


async def test_a_call_that_fails_fails_the_commit_too() -> None:
    class Gone(Peer):
        async def unary(self, *_: object, **__: object) -> bytes:
            raise MeshError(R.ERROR_REASON_STORE_UNAVAILABLE, "scripted")

    settled, commit = conclude(crowd_of(Gone()), "a")
    assert isinstance(await settled, Unavailable)
    assert isinstance(await commit, Unavailable)


async def test_large_answers_go_in_several_calls() -> None:
    peer = Peer()
    crowd = crowd_of(peer)
    concluded = [conclude(crowd, name, b"x" * 600_000) for name in "abcd"]
    await asyncio.gather(*(settled for settled, _ in concluded))
    assert peer.batches == [["a", "b"], ["c", "d"]]


async def test_the_end_of_a_commit_is_heard_of_though_nobody_waits_for_it_any_more() -> None:
    peer, heard = Peer(), asyncio.Event()
    message = write_commit(b"a", 1, b"x", True, "", True)
    commit = Commit(message, lambda error: heard.set() if error is None else None)
    settlement = cache_pb2.SettleRequest(request_id="a").SerializeToString()
    crowd_of(peer).settle(settlement, {PRINCIPAL_METADATA: b"p"}, lambda _: None, commit)
    waiting = asyncio.ensure_future(commit)
    await asyncio.sleep(0)
    waiting.cancel()
    await heard.wait()
    assert peer.committed == [b"a"]


@pytest.mark.parametrize(
    "reply", [b"", b"\x0a\x05\x0a", RunBatchResponse(outcomes=[BatchOutcome()] * 3).SerializeToString()]
)
async def test_a_reply_that_answers_something_else_is_no_answer(reply: bytes) -> None:
    class Odd(Peer):
        async def unary(self, method: str, request: bytes, **_: object) -> bytes:
            return reply

    crowd = crowd_of(Odd())
    replies = await asyncio.gather(*(admit(crowd, name) for name in "ab"), return_exceptions=True)
    assert [type(reply) for reply in replies] == [Unavailable, Unavailable]
