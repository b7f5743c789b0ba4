# cython: annotation_typing=False
"""What many requests ask of the cache service in one call of their router."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from ssop.v1.cache_pb2 import BatchOutcome, CommitResponse, SettleResponse
from ssop.v1.errors_pb2 import ErrorReason
from ssop_cache.admissions import Admissions, Admitting
from ssop_cache.conclusions import Conclusion, Conclusions
from ssop_cache.core.asked import EntryAsked
from ssop_cache.messages import read_batch, write_admitted, write_batch, write_concluded
from ssop_chassis.call import Call
from ssop_chassis.dispatch import Authenticate
from ssop_chassis.errors import MeshError, invalid_request
from ssop_chassis.identity import PRINCIPAL_METADATA, RESERVED_TENANT

MAX_ENTRIES: Final = 64
MAX_RESPONSE_BYTES: Final = 2_097_152
"""Stored answers beyond this are left to calls of their own."""
_TOO_LARGE: Final = BatchOutcome(is_too_large=True).SerializeToString()
_Asked = Admitting | Conclusion


class Batches:
    """Runs the entries of each tenant together, and tenants side by side: their scripts travel in one write."""

    def __init__(self, authenticate: Authenticate, admissions: Admissions, conclusions: Conclusions) -> None:
        self._authenticate = authenticate
        self._admissions = admissions
        self._conclusions = conclusions

    async def run(self, call: Call) -> bytes:
        """See CacheService.RunBatch; the message of its response."""
        if call.principal.tenant != RESERVED_TENANT:
            raise MeshError(ErrorReason.ERROR_REASON_PRINCIPAL_INVALID, "only routers send batches")
        entries = read_batch(call.request)
        if len(entries) > MAX_ENTRIES:
            raise invalid_request(("entries", f"are more than {MAX_ENTRIES}"))
        admitting: dict[str, list[Admitting]] = {}
        concluding: dict[str, list[Conclusion]] = {}
        asked = self._part(entries, admitting, concluding)
        works: list[Coroutine[Any, Any, None]] = [
            *(self._admissions.admit_all(tenant, some) for tenant, some in admitting.items()),
            *(self._conclusions.conclude_all(tenant, some) for tenant, some in concluding.items()),
        ]
        if len(works) == 1:
            await works[0]
        else:
            await asyncio.gather(*works)
        outcomes = [self._write(one) for one in asked]
        if sum(map(len, outcomes)) > MAX_RESPONSE_BYTES:
            _bound(asked, outcomes)
        return write_batch(outcomes)

    def _part(
        self,
        entries: list[EntryAsked],
        admitting: dict[str, list[Admitting]],
        concluding: dict[str, list[Conclusion]],
    ) -> list[_Asked | MeshError]:
        """What each asks for, put to that of its tenant, or why nothing is done for it."""
        asked: list[_Asked | MeshError] = []
        tenants: dict[bytes, str] = {}
        for principal, admit, settle, commit in entries:
            try:
                tenant = tenants.get(principal)
                if tenant is None:
                    tenant = tenants[principal] = self._authenticate({PRINCIPAL_METADATA: principal}).tenant
                if settle is not None:
                    conclusion = Conclusion(settle, commit)
                    concluding.setdefault(tenant, []).append(conclusion)
                    asked.append(conclusion)
                    continue
                if commit is not None:
                    raise invalid_request(("entries", "has one that ends a generation without a settlement"))
                if admit is None:
                    raise invalid_request(("entries", "has one that asks for nothing"))
                one = Admitting(admit)
                admitting.setdefault(tenant, []).append(one)
                asked.append(one)
            except MeshError as error:
                # One that says nothing of the commit would pass for a service that knows none.
                asked.append(error if commit is None else _fail(error))
        return asked

    def _write(self, one: _Asked | MeshError) -> bytes:
        """The BatchOutcome."""
        if isinstance(one, Conclusion):
            return _conclude(one)
        if not isinstance(one, Admitting):
            return _refuse(one)
        admitted = one
        if admitted.error is not None:
            return _refuse(admitted.error)
        if admitted.answer is not None:
            return _serialize(BatchOutcome(admitted=self._admissions.describe(admitted)))
        return write_admitted(admitted.outcome, admitted.fence, admitted.budget_left, self._admissions.limits)


def _refuse(error: MeshError) -> bytes:
    return _serialize(BatchOutcome(status=error.to_status().SerializeToString()))


def _serialize(outcome: BatchOutcome) -> bytes:
    message: bytes = outcome.SerializeToString()
    return message


def _conclude(one: Conclusion) -> bytes:
    charged, committed = one.settled, one.committed
    if isinstance(charged, int) and (committed is None or committed is True):
        return write_concluded(charged, is_committed=committed is not None)
    outcome = BatchOutcome()
    if isinstance(charged, MeshError):
        outcome.status = charged.to_status().SerializeToString()
    elif charged is not None:
        outcome.settled.CopyFrom(SettleResponse(charged_tokens=charged))
    if isinstance(committed, MeshError):
        outcome.commit_status = committed.to_status().SerializeToString()
    elif committed is not None:
        outcome.committed.CopyFrom(CommitResponse())
    return _serialize(outcome)


def _fail(error: MeshError) -> Conclusion:
    one = Conclusion(None, None)
    one.settled = one.committed = error
    return one


def _bound(asked: Sequence[_Asked | MeshError], outcomes: list[bytes]) -> None:
    """Leave out the stored answers that no message holds."""
    size_bytes = 0
    for at, one in enumerate(asked):
        size_bytes += len(outcomes[at])
        if size_bytes > MAX_RESPONSE_BYTES and isinstance(one, Admitting) and one.answer is not None:
            size_bytes -= len(outcomes[at])
            outcomes[at] = _TOO_LARGE
