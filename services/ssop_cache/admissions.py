# cython: annotation_typing=False
"""Who is let in, and what is stored of the answer: for all requests of a tenant that came together, one script each."""

import asyncio
import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from ssop.v1 import cache_pb2
from ssop.v1.cache_pb2 import AdmitResponse, CacheOutcome
from ssop.v1.errors_pb2 import ErrorReason
from ssop_cache.answers import Answer, AnswerStore, Wanted
from ssop_cache.checks import check_key, check_lease, check_request_id, check_share
from ssop_cache.core import scripts
from ssop_cache.core.asked import AdmitAsked
from ssop_cache.core.grants import Grants
from ssop_cache.core.keys import Layout
from ssop_cache.core.scripts import Admission, Admit, Limits, Outcome
from ssop_cache.metrics import CacheMetrics
from ssop_cache.store import RedisStore
from ssop_chassis.errors import MeshError

_RECHECKS: Final = 3
_HIT: Final = Outcome.HIT
_LEASE: Final = Outcome.LEASE
_RECHECK: Final = Outcome.RECHECK
_OUTCOMES: Final = {
    _HIT: CacheOutcome.CACHE_OUTCOME_HIT,
    _LEASE: CacheOutcome.CACHE_OUTCOME_LEASE,
    Outcome.FOLLOW: CacheOutcome.CACHE_OUTCOME_FOLLOW,
    Outcome.MISS: CacheOutcome.CACHE_OUTCOME_MISS,
}
_NOT_ASKED: Final = CacheOutcome.CACHE_OUTCOME_UNSPECIFIED
_Said = tuple[Sequence[Answer | None], Sequence[Admission | MeshError]]
"""For each the answer that was found, and what the state says."""
_log = logging.getLogger(__name__)


class Admitting:
    """What one request asks for at its beginning, and what came of it: `error` is set, or the others are.

    `fence` 0: no lease. `budget_left` -1: there is no budget.
    """

    __slots__ = (
        *("answer", "budget_left", "cache_key", "error", "fence", "lease_ms", "max_age_ms", "no_lease"),
        *("outcome", "rate_share", "request_id", "reservation_ms", "reserve_tokens", "seen_fence"),
    )

    def __init__(self, asked: AdmitAsked) -> None:
        # Taken apart once: a field of a tuple costs a look-up each time.
        (
            self.request_id,
            self.cache_key,
            self.reserve_tokens,
            self.lease_ms,
            self.max_age_ms,
            self.no_lease,
            self.rate_share,
            self.reservation_ms,
        ) = asked
        self.error: MeshError | None = None
        self.outcome: CacheOutcome.ValueType = _NOT_ASKED
        self.answer: Answer | None = None
        self.fence = 0
        self.budget_left = -1
        self.seen_fence = 0
        """Of the commit after which its answer was looked for again."""


class Admissions:
    """Looks answers up and admits. What it says of one request is no other's."""

    def __init__(
        self,
        state: RedisStore,
        answers: AnswerStore,
        layout: Layout,
        limits: Limits,
        metrics: CacheMetrics,
        *,
        grants: Grants,
    ) -> None:
        self._state = state
        self._answers = answers
        self._layout = layout
        self._limits = limits
        self._grants = grants
        self._metrics = metrics
        self._told = cache_pb2.TenantLimits(
            max_rps=limits.max_rps,
            burst=limits.burst,
            is_dynamic=limits.is_dynamic,
            min_rps=limits.min_rps,
            has_budget=limits.budget_tokens > 0,
        )
        self.limits: Final = self._told.SerializeToString()
        """The limits of a response, as bytes."""

    async def admit(self, tenant: str, request: AdmitAsked) -> AdmitResponse:
        """Admit one. Raises what CacheService.Admit may answer with."""
        asked = Admitting(request)
        await self.admit_all(tenant, (asked,))
        if asked.error is not None:
            raise asked.error
        return self.describe(asked)

    def describe(self, one: Admitting) -> AdmitResponse:
        """The response to one that was let in."""
        return AdmitResponse(
            outcome=one.outcome,
            answer=describe_answer(one.answer) if one.answer is not None else None,
            fencing_token=one.fence,
            budget_left_tokens=one.budget_left if one.budget_left >= 0 else None,
            limits=self._told,
        )

    async def admit_all(self, tenant: str, asked: Sequence[Admitting]) -> None:
        """Judge each, and write into it what came of it. Raises nothing that is of one of them."""
        alike = _group(asked)
        for terms in tuple(alike):
            try:
                _check_terms(terms)
            except MeshError as error:
                for one in alike.pop(terms):
                    one.error = error
        works = [self._admit_under(tenant, self._limits.under(share), some) for (share, *_), some in alike.items()]
        # One router sends one share and one duration, but for the moment in which they change.
        if len(works) == 1:
            await works[0]
        else:
            await asyncio.gather(*works)

    async def _admit_under(self, tenant: str, limits: Limits, asked: list[Admitting]) -> None:
        """Those that say the same share of the rate, and for how long leases and reservations are to last."""
        self._metrics.rate_limit_rps.set(limits.max_rps)
        looked_up: list[Outcome] = []
        for _ in range(_RECHECKS):
            asked = self._take(tenant, limits, asked, await self._ask(tenant, limits, asked), looked_up)
            if not asked:
                break
        for one in asked:
            one.error = self._refuse_to_wait()
        for outcome, count in scripts.count_each(looked_up).items():
            self._metrics.lookups.labels(str(outcome)).inc(count)

    def _take(
        self,
        tenant: str,
        limits: Limits,
        asked: list[Admitting],
        said: _Said,
        looked_up: list[Outcome],
    ) -> list[Admitting]:
        """Write into each what came of it; those are returned that are to look again."""
        again: list[Admitting] = []
        for one, answer, admission in zip(asked, *said, strict=True):
            if isinstance(admission, MeshError):
                one.error = admission
                continue
            outcome, _, fence, budget_left = admission
            if outcome is _RECHECK:
                one.seen_fence = fence
                again.append(one)
            elif outcome not in _OUTCOMES:
                one.error = self._refuse(tenant, admission, limits)
            else:
                one.budget_left = budget_left
                if one.cache_key:
                    looked_up.append(outcome)
                    one.outcome = _OUTCOMES[outcome]
                    if outcome is _LEASE:
                        one.fence = fence
                    elif outcome is _HIT:
                        one.answer = answer
        return again

    async def _ask(self, tenant: str, limits: Limits, admitting: list[Admitting]) -> _Said:
        """For each the answer that was found, and what the state says."""
        started_s = self._state.clock_s
        answers = await self._find(tenant, admitting)
        # Both instances together may cost one time-out; what the first did not use is the second's.
        left_s = self._state.timeout_s - (self._state.clock_s - started_s)
        asked = [_describe(one, answer) for one, answer in zip(admitting, answers, strict=True)]
        first = admitting[0]
        judge = partial(
            self._judge,
            tenant,
            limits,
            lease_ms=first.lease_ms,
            reservation_ms=first.reservation_ms,
            bound_s=max(left_s, self._state.timeout_s / 2),
        )
        misses = answers.count(None)
        if limits.interval_us > 0 or not 0 < misses < len(asked):
            return answers, await judge(asked)
        # A state that is full takes no writes, and hits need none.
        hits = [one for one, answer in zip(asked, answers, strict=True) if answer is not None]
        others = [one for one, answer in zip(asked, answers, strict=True) if answer is None]
        of_hits, of_others = map(iter, await asyncio.gather(judge(hits), judge(others)))
        return answers, [next(of_others if answer is None else of_hits) for answer in answers]

    async def _judge(
        self,
        tenant: str,
        limits: Limits,
        asked: list[Admit],
        *,
        lease_ms: int,
        reservation_ms: int,
        bound_s: float,
    ) -> Sequence[Admission | MeshError]:
        """What the state says of each."""
        asked_s = time.monotonic()
        try:
            keys = self._layout.of_tenant(tenant)
            call = scripts.admit(keys, limits, asked, lease_ms=lease_ms, reservation_ms=reservation_ms)
            reply = await self._state.run(call, bound_s)
        except MeshError as error:
            # A router that starts now must know what it is to hold by itself.
            error.metadata["limits"] = self.limits.hex()
            return [error] * len(asked)
        admissions = scripts.parse_admissions(reply)
        self._keep_grants(tenant, asked, admissions, asked_s + (lease_ms - scripts.SEAL_MS) / 1000)
        return admissions

    def _keep_grants(self, tenant: str, asked: list[Admit], admissions: list[Admission], until_s: float) -> None:
        for one, (outcome, _, fence, _) in zip(asked, admissions, strict=True):
            if outcome is _LEASE:
                self._grants.give(tenant, one[1], fence, until_s)

    async def _find(self, tenant: str, asked: list[Admitting]) -> list[Answer | None]:
        wanted = [wanted for one in asked if (wanted := _wanted(one)) is not None]
        if not wanted:
            return [None] * len(asked)
        answers: list[Answer | None] = []
        for one in await self._answers.find_all(tenant, wanted, timeout_s=self._state.timeout_s / 2):
            if one is not None and isinstance(one, MeshError):
                # Without the cache instance limits hold as before, and every request is a miss; the metric says so.
                self._metrics.lookups.labels("unavailable").inc()
                _log.debug("served without stored answers", extra={"reason": one.reason_name})
                answers.append(None)
            else:
                answers.append(one)
        if len(answers) == len(asked):
            return answers
        found = iter(answers)
        return [next(found) if one.cache_key else None for one in asked]

    def _refuse_to_wait(self) -> MeshError:
        error = MeshError(
            ErrorReason.ERROR_REASON_STORE_UNAVAILABLE,
            "the answer changes faster than it can be read",
            retry_after_ms=100,
        )
        error.metadata["limits"] = self.limits.hex()
        return error

    def _refuse(self, tenant: str, admission: Admission, limits: Limits) -> MeshError:
        """The error of a refusal."""
        outcome, retry_ms, _, budget_left = admission
        retry_after_ms = retry_ms if retry_ms >= 0 else None
        match outcome:
            case Outcome.RATE:
                self._metrics.refusals.labels("rate").inc()
                at_once = limits.tolerance_us // limits.interval_us
                limit = f"{limits.max_rps:g} requests per second, {at_once} at once"
                return MeshError(
                    ErrorReason.ERROR_REASON_RATE_LIMITED,
                    "the tenant's rate of requests is used up",
                    quotas=[(f"tenant:{tenant}", limit)],
                    retry_after_ms=retry_after_ms,
                )
            case Outcome.QUOTA:
                self._metrics.refusals.labels("quota").inc()
                limit = f"{limits.budget_tokens} tokens per {limits.window_ms} ms"
                return MeshError(
                    ErrorReason.ERROR_REASON_QUOTA_EXHAUSTED,
                    "the tenant's token budget is used up or reserved",
                    metadata={"budget_left_tokens": str(budget_left)},
                    quotas=[(f"tenant:{tenant}", limit)],
                    retry_after_ms=retry_after_ms,
                )
            case _:
                self._metrics.refusals.labels("duplicate").inc()
                return MeshError(
                    ErrorReason.ERROR_REASON_REQUEST_DUPLICATE, "a request with this id and another question runs"
                )


def _group(asked: Sequence[Admitting]) -> dict[tuple[float, int, int], list[Admitting]]:
    """Those that are well-formed, by share of the rate, lease and reservation; the others get their errors."""
    alike: dict[tuple[float, int, int], list[Admitting]] = {}
    for one in asked:
        try:
            check_request_id(one.request_id)
            check_key(one.cache_key, is_required=False)
        except MeshError as error:
            one.error = error
            continue
        terms = one.rate_share, one.lease_ms, one.reservation_ms
        some = alike.get(terms)
        if some is None:
            some = alike[terms] = []
        some.append(one)
    return alike


def _wanted(one: Admitting) -> Wanted | None:
    """The answer that it looks for."""
    return (one.cache_key, one.max_age_ms) if one.cache_key else None


def _describe(one: Admitting, answer: Answer | None) -> Admit:
    """What the script is asked for it."""
    is_found, wants_lease = answer is not None, not one.no_lease
    return one.request_id, one.cache_key, one.reserve_tokens, is_found, wants_lease, one.seen_fence


def describe_answer(answer: Answer) -> cache_pb2.StoredAnswer:
    """The message of an answer."""
    return cache_pb2.StoredAnswer(chunk=answer.chunk, age_ms=answer.age_ms, model=answer.model, level=answer.level)


def _check_terms(terms: tuple[float, int, int]) -> None:
    rate_share, lease_ms, reservation_ms = terms
    check_lease(lease_ms)
    if reservation_ms:
        check_lease(reservation_ms, path="reservation_ms")
    check_share(rate_share)
