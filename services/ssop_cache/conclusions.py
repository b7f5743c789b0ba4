# cython: annotation_typing=False
"""How requests end: what they used is charged, and what was generated is stored. One script for all that come together.

A settlement does not depend on what becomes of the answer beside it, nor the answer on the settlement.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Final, Literal, cast

from ssop.v1.errors_pb2 import ErrorReason
from ssop_cache.answers import AnswerStore, Fresh
from ssop_cache.checks import check_key, check_request_id, check_ttl
from ssop_cache.core import scripts
from ssop_cache.core.asked import CommitAsked, Settlement
from ssop_cache.core.grants import Grants
from ssop_cache.core.keys import Layout, TenantKeys
from ssop_cache.core.scripts import Ending, Reply
from ssop_cache.core.whole import is_whole
from ssop_cache.metrics import CacheMetrics
from ssop_cache.settings import CacheSettings
from ssop_cache.store import RedisStore
from ssop_chassis.errors import MeshError, invalid_request

MAX_MODEL_BYTES: Final = 256
_MOST_CHARGED: Final = 2**32 - 1
_NO_COMMIT: Final = CommitAsked(b"", 0, b"", is_complete=False, ttl_ms=0, model="", is_all=False)

_log = logging.getLogger(__name__)

Settled = int | MeshError
"""The tokens that were charged."""
Committed = Literal[True] | MeshError


class Conclusion:
    """What one request asks for at its end, either or both, and what came of it."""

    __slots__ = (
        *("cache_key", "chunk", "committed", "fence", "has_commit", "is_all", "is_complete", "is_granted", "is_stored"),
        *("is_unfit", "model", "rest", "settle", "settled", "ttl_ms"),
    )

    def __init__(self, settle: Settlement | None, commit: CommitAsked | None) -> None:
        self.settle = settle
        self.has_commit = commit is not None
        # Taken apart once: a field of a tuple costs a look-up each time. `rest` is what was not appended.
        self.cache_key, self.fence, self.rest, self.is_complete, self.ttl_ms, self.model, self.is_all = (
            commit if commit is not None else _NO_COMMIT
        )
        self.settled: Settled | None = None
        self.committed: Committed | None = None
        self.chunk: bytes | None = None
        """The whole answer, once its lease is known to be held."""
        self.is_granted = False
        """Its lease was given here and can't have lapsed."""
        self.is_unfit = False
        self.is_stored = False


class Conclusions:
    """Settles and stores."""

    def __init__(
        self,
        state: RedisStore,
        answers: AnswerStore,
        layout: Layout,
        settings: CacheSettings,
        metrics: CacheMetrics,
        *,
        grants: Grants,
    ) -> None:
        self._state = state
        self._answers = answers
        self._layout = layout
        self._settings = settings
        self._limits = settings.limits
        self._answer_ttl_ms = settings.answer_ttl_ms
        self._max_answer_bytes = settings.max_answer_bytes
        self._metrics = metrics
        self._grants = grants

    async def settle(self, tenant: str, request: Settlement) -> int:
        """Settle one; the tokens that were charged. Raises what CacheService.Settle may answer with."""
        asked = Conclusion(request, None)
        await self.conclude_all(tenant, (asked,))
        if not isinstance(asked.settled, int):
            raise _error_of(asked.settled)
        return asked.settled

    async def commit(self, tenant: str, request: CommitAsked) -> None:
        """End one generation. Raises what CacheService.Commit may answer with."""
        asked = Conclusion(None, request)
        await self.conclude_all(tenant, (asked,))
        if asked.committed is not True:
            raise _error_of(asked.committed)

    async def conclude_all(self, tenant: str, asked: Sequence[Conclusion]) -> None:
        """Do what each asks for, and write into each what came of it. Raises nothing that is of one of them."""
        storing, others = _part(asked)
        if storing and others:
            # Who only settles does not wait for the other instance.
            await asyncio.gather(self._write(tenant, others), self._store(tenant, storing))
        elif storing:
            await self._store(tenant, storing)
        elif others:
            await self._write(tenant, others)

    async def _store(self, tenant: str, asked: list[Conclusion]) -> None:
        """Those with a whole answer: it is where it can be found before its lease ends."""
        if sealing := self._take_grants(tenant, asked):
            await self._seal(tenant, sealing)
        storing, fresh = self._judge_answers(asked)
        if storing:
            for one, is_stored in zip(storing, await self._put(tenant, fresh), strict=True):
                one.is_stored = is_stored
        await self._write(tenant, asked)
        for one in asked:
            if _is_forgotten(one):
                await self._take_back(tenant, one)

    def _take_grants(self, tenant: str, asked: list[Conclusion]) -> list[Conclusion]:
        """What is certainly held, and whole as it comes, needs no look at the state; the others are returned."""
        others: list[Conclusion] = []
        now_s = time.monotonic()
        for one in asked:
            if self._grants.take(tenant, one.cache_key, one.fence, now_s) and one.is_all:
                one.is_granted, one.chunk = True, one.rest
            else:
                others.append(one)
        return others

    def _judge_answers(self, asked: list[Conclusion]) -> tuple[list[Conclusion], list[Fresh]]:
        """Those whose answers may be stored, and the answers."""
        storing: list[Conclusion] = []
        fresh: list[Fresh] = []
        for one in asked:
            chunk = one.chunk
            if chunk is None:
                continue
            if len(chunk) > self._max_answer_bytes:
                self._metrics.not_stored.labels("too_large").inc()
            elif not is_whole(chunk):
                one.is_unfit = True
                self._metrics.not_stored.labels("not_whole").inc()
            else:
                storing.append(one)
                fresh.append(Fresh(one.cache_key, one.fence, chunk, one.model, one.ttl_ms or self._answer_ttl_ms))
        return storing, fresh

    async def _seal(self, tenant: str, asked: list[Conclusion]) -> None:
        """Hold the leases while their answers are stored, and read what is generated of each that may be."""
        leases = [(one.cache_key, one.fence) for one in asked]
        try:
            _, _, *sealed = await self._state.run(scripts.seal(self._layout.of_tenant(tenant), leases))
        except MeshError as error:
            for one in asked:
                one.committed = error
            return
        for one, outcome, appended in zip(asked, sealed[::2], sealed[1::2], strict=True):
            if outcome == b"lost":
                one.committed = _lease_lost()
            elif outcome == b"overflowed":
                self._metrics.not_stored.labels("too_large").inc()
            else:
                one.chunk = scripts.data(appended) + one.rest if appended else one.rest

    async def _take_back(self, tenant: str, one: Conclusion) -> None:
        """The state has forgotten a lease that it gave: whoever has it now stores, or has stored, a later answer."""
        _log.warning("a lease was forgotten by the state; its answer is taken back", extra={"tenant": tenant})
        self._metrics.not_stored.labels("superseded").inc()
        try:
            await self._answers.drop(tenant, one.cache_key, before=one.fence + 1)
        except MeshError as error:
            _log.warning("an answer could not be taken back", extra={"tenant": tenant, "reason": error.reason_name})

    async def _put(self, tenant: str, fresh: Sequence[Fresh]) -> Sequence[bool]:
        try:
            stored = await self._answers.put_all(tenant, fresh)
        except MeshError:
            self._metrics.not_stored.labels("unavailable").inc(len(fresh))
            return [False] * len(fresh)
        if superseded := stored.count(False):
            self._metrics.not_stored.labels("superseded").inc(superseded)
        return stored

    async def _write(self, tenant: str, asked: list[Conclusion]) -> None:
        """Settle and end what is not judged yet, in one script."""
        keys = self._layout.of_tenant(tenant)
        settling, ending, settlements, endings = _describe(asked)
        if not settling and not ending:
            return
        try:
            reply = await self._state.run(scripts.conclude(keys, self._limits, settlements, endings))
        except MeshError as error:
            for one in settling:
                one.settled = error
            for one in ending:
                one.committed = error
            return
        followed = self._take(settling, ending, endings, reply)
        if followed:
            await self._end_followed(keys, followed)

    def _take(
        self, settling: list[Conclusion], ending: list[Conclusion], endings: list[Ending], reply: Reply
    ) -> list[tuple[Conclusion, Ending]]:
        """Write into each what the state says; those are returned that somebody follows."""
        last = 2 + 2 * len(settling)
        charges = cast("list[int]", reply[3:last:2])
        for outcome, count in scripts.count_each(reply[2:last:2]).items():
            self._metrics.settlements.labels(scripts.word(outcome)).inc(count)
        self._metrics.charged_tokens.inc(sum(charges))
        for one, charged in zip(settling, charges, strict=True):
            one.settled = min(charged, _MOST_CHARGED)
        followed: list[tuple[Conclusion, Ending]] = []
        for one, described, outcome in zip(ending, endings, reply[last:], strict=True):
            if outcome == b"followed":
                followed.append((one, described))
            else:
                one.committed = _judge(outcome, not one.is_unfit)
        self._count_ends(reply[last:])
        return followed

    async def _end_followed(self, keys: TenantKeys, followed: list[tuple[Conclusion, Ending]]) -> None:
        """Those whose bytes somebody waits for: few enough to be told of apart."""
        call = scripts.end(
            keys,
            [(described, one.rest) for one, described in followed],
            max_backlog_bytes=self._settings.max_backlog_bytes,
        )
        try:
            reply = await self._state.run(call)
        except MeshError as error:
            for one, _ in followed:
                one.committed = error
            return
        for (one, _), outcome in zip(followed, reply[2:], strict=True):
            one.committed = _judge(outcome, not one.is_unfit)
        self._count_ends(reply[2:])

    def _count_ends(self, outcomes: Reply) -> None:
        for outcome, count in scripts.count_each(outcomes).items():
            if outcome != b"followed":
                self._metrics.commits.labels(scripts.word(outcome)).inc(count)


def _part(asked: Sequence[Conclusion]) -> tuple[list[Conclusion], list[Conclusion]]:
    """Those with a whole answer, and the others; what is malformed is judged."""
    storing: list[Conclusion] = []
    others: list[Conclusion] = []
    for one in asked:
        _check(one)
        is_storing = one.has_commit and one.is_complete and one.committed is None
        (storing if is_storing else others).append(one)
    return storing, others


def _check(one: Conclusion) -> None:
    if one.settle is not None:
        try:
            check_request_id(one.settle[0])
        except MeshError as error:
            one.settled = error
    if one.has_commit:
        try:
            check_key(one.cache_key)
            check_ttl(one.ttl_ms)
            if len(one.model.encode()) > MAX_MODEL_BYTES:
                raise invalid_request(("model", f"is longer than {MAX_MODEL_BYTES} bytes"))
        except MeshError as error:
            one.committed = error


def _describe(
    asked: list[Conclusion],
) -> tuple[list[Conclusion], list[Conclusion], list[Settlement], list[Ending]]:
    """Those that settle, those that end a generation, and what the script is asked for them."""
    settling: list[Conclusion] = []
    ending: list[Conclusion] = []
    settlements: list[Settlement] = []
    endings: list[Ending] = []
    for one in asked:
        if one.settle is not None and one.settled is None:
            settling.append(one)
            settlements.append(one.settle)
        if one.has_commit and one.committed is None:
            is_complete, is_stored = one.is_complete and not one.is_unfit, one.is_stored
            ending.append(one)
            endings.append((one.cache_key, one.fence, is_complete, is_stored))
    return settling, ending, settlements, endings


def _is_forgotten(one: Conclusion) -> bool:
    """Its answer was stored under a lease that the state does not know any more."""
    return one.is_granted and one.is_stored and _is_lost(one.committed)


def _judge(outcome: int | bytes, is_fit: bool) -> Committed:
    if outcome == b"lost":
        return _lease_lost()
    if not is_fit:
        return invalid_request(("chunk", "is not a whole answer: frames from 1 without gaps to an end with verdict OK"))
    return True


def _error_of(outcome: Settled | Committed | None) -> MeshError:
    if not isinstance(outcome, MeshError):
        raise TypeError("a request was concluded without an outcome")
    return outcome


def _is_lost(outcome: Committed | None) -> bool:
    return isinstance(outcome, MeshError) and outcome.reason == ErrorReason.ERROR_REASON_LEASE_LOST


def _lease_lost() -> MeshError:
    return MeshError(ErrorReason.ERROR_REASON_LEASE_LOST, "the lease is over, or another request has it")
