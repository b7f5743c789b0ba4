"""What many requests ask of the cache service in one call of their router."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ssop.v1.cache_pb2 import (
    AdmitRequest,
    AdmitResponse,
    BatchEntry,
    BatchOutcome,
    RunBatchRequest,
    RunBatchResponse,
    SettleRequest,
    SettleResponse,
)
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Call
from ssop_chassis.dispatch import Authenticate
from ssop_chassis.errors import MeshError, invalid_request
from ssop_chassis.identity import PRINCIPAL_METADATA, RESERVED_TENANT

MAX_ENTRIES: Final = 64
MAX_RESPONSE_BYTES: Final = 2_097_152
"""Stored answers beyond this are left to calls of their own."""


class Batches:
    """Runs the entries side by side, so that their scripts reach the stores together."""

    def __init__(
        self,
        authenticate: Authenticate,
        admit: Callable[[str, AdmitRequest], Awaitable[AdmitResponse]],
        settle: Callable[[str, SettleRequest], Awaitable[SettleResponse]],
    ) -> None:
        self._authenticate = authenticate
        self._admit = admit
        self._settle = settle

    async def run(self, call: Call) -> RunBatchResponse:
        """See CacheService.RunBatch."""
        if call.principal.tenant != RESERVED_TENANT:
            raise MeshError(ErrorReason.ERROR_REASON_PRINCIPAL_INVALID, "only routers send batches")
        request = RunBatchRequest.FromString(call.request)
        if len(request.entries) > MAX_ENTRIES:
            raise invalid_request(("entries", f"are more than {MAX_ENTRIES}"))
        response = RunBatchResponse()
        size_bytes = 0
        for outcome in await asyncio.gather(*map(self._run, request.entries)):
            size_bytes += outcome.ByteSize()
            if size_bytes > MAX_RESPONSE_BYTES and outcome.admitted.HasField("answer"):
                size_bytes -= outcome.ByteSize()
                outcome.is_too_large = True
            response.outcomes.append(outcome)
        return response

    async def _run(self, entry: BatchEntry) -> BatchOutcome:
        try:
            tenant = self._authenticate({PRINCIPAL_METADATA: entry.principal}).tenant
            match entry.WhichOneof("work"):
                case "admit":
                    return BatchOutcome(admitted=await self._admit(tenant, entry.admit))
                case "settle":
                    return BatchOutcome(settled=await self._settle(tenant, entry.settle))
                case _:
                    raise invalid_request(("entries", "has one that asks for nothing"))
        except MeshError as error:
            return BatchOutcome(status=error.to_status().SerializeToString())
