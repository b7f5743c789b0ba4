"""What ends a generation in one call with its settlement, and what is a call of its own."""

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import cast

import pytest

from helpers.as_written import run_both_ways
from ssop.v1.cache_pb2 import AppendResponse, CommitRequest
from ssop_router.answers import Answers
from ssop_router.job import Job
from ssop_router.lease import MOST_PENDING_BYTES, Lease

way = run_both_ways("ssop_router.lease", "Lease")


class Cache:
    """The cache service, as a lease sees it. It takes all that is appended."""

    def __init__(self) -> None:
        self.settings = SimpleNamespace(max_stored_bytes=2**30)
        self.renewals = None
        self.appended_bytes = 0
        self.tasks: list[asyncio.Future[None]] = []

    async def append(self, _: Lease, chunk: bytes) -> AppendResponse:
        self.appended_bytes += len(chunk)
        return AppendResponse()

    def start(self, work: Awaitable[None]) -> "asyncio.Future[None]":
        self.tasks.append(asyncio.ensure_future(work))
        return self.tasks[-1]


async def generate(pieces: int) -> Lease:
    """A lease of which so many pieces were generated, of half of what it keeps each, and most of it appended."""
    cache = Cache()
    lease = Lease(cast("Answers", cache), b"k" * 32, 1, cast("Job", SimpleNamespace()))
    piece = b"x" * (MOST_PENDING_BYTES // 2 + 1)
    for _ in range(pieces):
        lease.add(piece)
        await asyncio.gather(*cache.tasks)
    assert cache.appended_bytes >= pieces * len(piece) / 2
    return lease


async def test_a_small_answer_ends_with_its_settlement() -> None:
    lease = await generate(3)
    commit = lease.end_with_settlement(is_complete=True, model="lite")
    assert commit is not None
    assert not CommitRequest.FromString(commit.message).is_all


async def test_a_large_answer_ends_alone_though_most_of_it_was_appended() -> None:
    """32 of them would be read from the state instance by one script, and written to the cache instance by another."""
    lease = await generate(16)
    assert lease.end_with_settlement(is_complete=True, model="lite") is None


@pytest.mark.parametrize("is_complete", [True, False])
async def test_what_is_given_up_ends_with_its_settlement_however_large(is_complete: bool) -> None:
    lease = await generate(16)
    if is_complete:
        lease.spoil("too_large")
    commit = lease.end_with_settlement(is_complete=is_complete, model="lite")
    assert commit is not None
    request = CommitRequest.FromString(commit.message)
    assert (request.is_complete, request.chunk) == (False, b"")
