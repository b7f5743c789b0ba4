"""What many requests ask of the cache service in one call of their router."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from ssop.v1.cache_pb2 import AdmitRequest, BatchEntry, BatchOutcome, RunBatchRequest, RunBatchResponse
from ssop.v1.errors_pb2 import ErrorReason
from ssop_cache.admissions import Admissions, Admitting
from ssop_cache.conclusions import Conclusion, Conclusions
from ssop_chassis.call import Call
from ssop_chassis.dispatch import Authenticate
from ssop_chassis.errors import MeshError, invalid_request
from ssop_chassis.identity import PRINCIPAL_METADATA, RESERVED_TENANT

MAX_ENTRIES: Final = 64
MAX_RESPONSE_BYTES: Final = 2_097_152
"""Stored answers beyond this are left to calls of their own."""


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
        request = RunBatchRequest.FromString(call.request)
        if len(request.entries) > MAX_ENTRIES:
            raise invalid_request(("entries", f"are more than {MAX_ENTRIES}"))
        response = RunBatchResponse()
        outcomes = [response.outcomes.add() for _ in request.entries]
        admitting: dict[str, list[tuple[Admitting, BatchOutcome]]] = {}
        concluding: dict[str, list[tuple[Conclusion, BatchOutcome]]] = {}
        for entry, outcome in zip(request.entries, outcomes, strict=True):
            try:
                tenant = self._authenticate({PRINCIPAL_METADATA: entry.principal}).tenant
                asked = _read(entry)
            except MeshError as error:
                outcome.status = error.to_status().SerializeToString()
                continue
            if isinstance(asked, AdmitRequest):
                admitting.setdefault(tenant, []).append((Admitting(asked, outcome.admitted), outcome))
            else:
                concluding.setdefault(tenant, []).append((asked, outcome))
        works: list[Coroutine[Any, Any, None]] = [self._admit(tenant, some) for tenant, some in admitting.items()]
        works += [self._conclude(tenant, some) for tenant, some in concluding.items()]
        if len(works) == 1:
            await works[0]
        else:
            await asyncio.gather(*works)
        message = response.SerializeToString()
        if len(message) > MAX_RESPONSE_BYTES:
            _bound(outcomes)
            message = response.SerializeToString()
        return message

    async def _admit(self, tenant: str, asked: Sequence[tuple[Admitting, BatchOutcome]]) -> None:
        await self._admissions.admit_all(tenant, [admitting for admitting, _ in asked])
        for admitting, outcome in asked:
            if admitting.error is not None:
                outcome.status = admitting.error.to_status().SerializeToString()

    async def _conclude(self, tenant: str, asked: Sequence[tuple[Conclusion, BatchOutcome]]) -> None:
        await self._conclusions.conclude_all(tenant, [one for one, _ in asked])
        for one, outcome in asked:
            if isinstance(one.settled, MeshError):
                outcome.status = one.settled.to_status().SerializeToString()
            elif one.settled is not None:
                outcome.settled.CopyFrom(one.settled)
            if isinstance(one.committed, MeshError):
                outcome.commit_status = one.committed.to_status().SerializeToString()
            elif one.committed is not None:
                outcome.committed.CopyFrom(one.committed)


def _read(entry: BatchEntry) -> AdmitRequest | Conclusion:
    commit = entry.commit if entry.HasField("commit") else None
    if entry.HasField("settle"):
        return Conclusion(entry.settle, commit)
    if commit is not None:
        raise invalid_request(("entries", "has one that ends a generation without a settlement"))
    if not entry.HasField("admit"):
        raise invalid_request(("entries", "has one that asks for nothing"))
    return entry.admit


def _bound(outcomes: Sequence[BatchOutcome]) -> None:
    """Leave out the stored answers that no message holds."""
    size_bytes = 0
    for outcome in outcomes:
        size_bytes += outcome.ByteSize()
        if size_bytes > MAX_RESPONSE_BYTES and outcome.admitted.HasField("answer"):
            size_bytes -= outcome.ByteSize()
            outcome.is_too_large = True
