# cython: annotation_typing=False
"""The right to generate an answer that others wait for.

`lease.pxd` gives the types with which this very file is compiled.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ssop.v1.cache_pb2 import LeaseState
from ssop_chassis.errors import MeshError
from ssop_router.core._relay import Backlog
from ssop_router.core.envelopes import write_commit
from ssop_router.core.ladder import Target
from ssop_router.crowd import Commit
from ssop_router.dependency import Unavailable
from ssop_router.job import Job

if TYPE_CHECKING:
    from ssop_router.answers import Answers

MOST_PENDING_BYTES: Final = 65_536
"""What a generation keeps here for its commit; the rest is kept by the state instance."""


class Lease:
    """The right to generate an answer: what is generated is kept, shared with followers, and stored at the end.

    A generation that nobody follows costs one commit, and what is above MOST_PENDING_BYTES an append. Renewals keep the
    lease and hear of followers; from then on each chunk is appended at once.
    """

    def __init__(self, answers: "Answers", key: bytes, fencing_token: int, job: Job) -> None:
        self.key = key
        self.fencing_token = fencing_token
        self.job = job
        self.is_spoiled = ""
        self.backlog = Backlog(MOST_PENDING_BYTES, answers.settings.max_stored_bytes)
        """What was generated and is not sent. Urgent while others follow, closed once it is spoiled."""
        self._answers = answers
        self._sending: asyncio.Task[None] | None = None
        self._is_closed = False
        self._has_appended = False
        self._is_stored = False
        self.on_stored: Callable[[], object] | None = None
        """Called once others can find the answer."""

    @property
    def has_followers(self) -> bool:
        """Others wait for what is generated."""
        return self.backlog.is_urgent

    def add(self, chunk: bytes) -> None:
        """Document frames that were generated."""
        backlog = self.backlog
        backlog.add(chunk)
        if backlog.is_full:
            self.spoil("too_large")
        elif self._sending is None and backlog.is_due:
            self._send()

    def give_up(self, reason: str) -> None:
        """The answer is not what its key promises: nobody may follow it or find it, so others generate their own."""
        self.spoil(reason)
        self.backlog.is_urgent = False
        self._answers.start(self.close(is_complete=False, model=""))

    def hear(self, state: LeaseState) -> None:
        """How the lease stands, from its renewal."""
        if self._is_closed:
            return
        if state.is_lost:
            self.lose()
        elif not self.is_spoiled:
            self.backlog.is_urgent = state.has_followers
            if self._sending is None and self.backlog.is_due:
                self._send()

    def lose(self) -> None:
        """Somebody else has the lease, or may have it."""
        self.spoil("lease_lost")
        self.backlog.is_urgent = False

    def spoil(self, reason: str) -> None:
        """The answer must not be stored."""
        self.is_spoiled = self.is_spoiled or reason
        self.backlog.close()

    def end_with_settlement(self, *, is_complete: bool, model: str) -> Commit | None:
        """What ends the generation in one call with the settlement.

        None where it has ended, and where that has to be a call of its own, which `close` makes: something is being
        appended still, or the settlements of others would wait for many bytes, those included that the state instance
        has of it.
        """
        is_large = is_complete and not self.is_spoiled and self.backlog.total_bytes > 2 * MOST_PENDING_BYTES
        if self._is_closed or self._sending is not None or is_large:
            return None
        self._is_closed = True
        message = self._end(is_complete, model)
        return Commit(message, self._judge) if message is not None else None

    async def close(self, *, is_complete: bool, model: str) -> None:
        """Store the answer, or give it up so that a follower takes over. Never raises; failures are counted."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._sending is not None:
            await asyncio.wait({self._sending})
        if (message := self._end(is_complete, model)) is None:
            return
        failure: Unavailable | MeshError | None = None
        try:
            await self._answers.commit(self, message)
        except (Unavailable, MeshError) as error:
            failure = error
        self._judge(failure)

    def _end(self, is_complete: bool, model: str) -> bytes | None:
        """The CommitRequest that ends it; None where it is another's."""
        if self._answers.renewals is not None:
            self._answers.renewals.drop_lease(self.job)
        if self.is_spoiled == "lease_lost":
            return None
        is_stored = self._is_stored = is_complete and not self.is_spoiled
        # What is given up is not appended: a follower without a field can still take over unseen.
        chunk = self.backlog.take() if is_stored else b""
        return write_commit(self.key, self.fencing_token, chunk, is_stored, model, not self._has_appended)

    def _judge(self, failure: Unavailable | MeshError | None) -> None:
        if failure is not None:
            self.spoil("commit_failed")
        if not self._is_stored or self.is_spoiled:
            self._answers.metrics.not_stored.labels(self.is_spoiled or "incomplete").inc()
        elif self.on_stored is not None:
            self.on_stored()

    def _send(self) -> None:
        self._has_appended = True
        self._sending = self._answers.start(self._append())

    async def _append(self) -> None:
        try:
            while True:
                response = await self._answers.append(self, self.backlog.take())
                self.backlog.is_urgent = response.has_followers
                if not (self.has_followers and self.backlog.is_due) or self._is_closed:
                    return
        except MeshError:
            self.lose()
        except Unavailable:
            # The lease may well be held still: given up at the end, it does not keep followers until it lapses.
            self.spoil("append_failed")
            self.backlog.is_urgent = False
        finally:
            self._sending = None


def keep_lease(lease: Lease | None, target: Target) -> Lease | None:
    """The lease, unless others may not have what the target generates; it is given up then."""
    if lease is None or not (target.degraded_level or target.candidate.is_canary):
        return lease
    # A follower's status could not say that its answer is degraded, and who did not meet a trial is to get none of it.
    lease.give_up("degraded" if target.degraded_level else "canary")
    return None
