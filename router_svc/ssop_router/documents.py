"""RagService at the edge: documents come in with an API key and go on with a signed principal, as bytes."""

import logging
import secrets
from collections.abc import Callable
from typing import Final

from google.rpc import code_pb2

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Call, Peer
from ssop_chassis.dispatch import REQUEST_ID_METADATA
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import Principal
from ssop_router.answers import Answers
from ssop_router.core.ladder import RETRY_AFTER_MS
from ssop_router.dependency import InnerMetadata, Unavailable
from ssop_router.metrics import RouterMetrics
from ssop_router.retrieval import Retrieval
from ssop_router.settings import RouterSettings

R = ErrorReason
SCOPE: Final = "rag"
_log = logging.getLogger(__name__)


class DocumentEdge:
    """See `rag.proto`. Calls are bounded in number, count for the tenant's rate limit, and keep their deadline.

    It asks the retrieval service itself: a slow upsert says nothing about whether requests find their passages.
    """

    def __init__(
        self,
        rag: Peer | None,
        answers: Answers,
        retrieval: Retrieval,
        settings: RouterSettings,
        metrics: RouterMetrics,
        *,
        sign: Callable[[Principal], InnerMetadata],
    ) -> None:
        self._rag = rag
        self._answers = answers
        self._retrieval = retrieval
        self._settings = settings
        self._metrics = metrics
        self._sign = sign
        self._running = 0

    async def upsert_documents(self, call: Call) -> None:
        """See the rpc UpsertDocuments."""
        await self._change(call)

    async def delete_documents(self, call: Call) -> None:
        """See the rpc DeleteDocuments."""
        await self._change(call)

    async def restore_snapshot(self, call: Call) -> None:
        """See the rpc RestoreSnapshot."""
        await self._change(call)

    async def list_collections(self, call: Call) -> None:
        """See the rpc ListCollections."""
        await self._forward(call)

    async def list_documents(self, call: Call) -> None:
        """See the rpc ListDocuments."""
        await self._forward(call)

    async def get_prefetch_usage(self, call: Call) -> None:
        """See the rpc GetPrefetchUsage."""
        await self._forward(call)

    async def warm_queries(self, call: Call) -> None:
        """See the rpc WarmQueries."""
        await self._forward(call)

    async def create_snapshot(self, call: Call) -> None:
        """See the rpc CreateSnapshot."""
        await self._forward(call)

    async def list_snapshots(self, call: Call) -> None:
        """See the rpc ListSnapshots."""
        await self._forward(call)

    async def delete_snapshot(self, call: Call) -> None:
        """See the rpc DeleteSnapshot."""
        await self._forward(call)

    async def retrieve(self, call: Call) -> None:
        """See the rpc Retrieve."""
        await self._forward(call)

    async def prefetch(self, call: Call) -> None:
        """See the rpc Prefetch: a session does it for its requests."""
        raise _unsupported(call)

    async def cancel_prefetch(self, call: Call) -> None:
        """See the rpc CancelPrefetch: a session does it for its requests."""
        raise _unsupported(call)

    async def embed(self, call: Call) -> None:
        """See the rpc Embed."""
        await self._forward(call)

    async def _change(self, call: Call) -> None:
        try:
            await self._forward(call)
        finally:
            # Also after an error: a call whose answer was lost may have changed something.
            self._retrieval.forget(call.principal.tenant)

    async def _forward(self, call: Call) -> None:
        principal = call.principal
        principal.require(SCOPE)
        if self._rag is None:
            raise MeshError(R.ERROR_REASON_STORE_UNAVAILABLE, "this mesh has no retrieval service")
        if self._running >= self._settings.max_document_calls:
            raise MeshError(
                R.ERROR_REASON_OVERLOADED,
                "the router serves as many calls about documents as it can",
                retry_after_ms=RETRY_AFTER_MS,
            )
        self._running += 1
        try:
            await call.write(await self._ask(self._rag, call, principal))
        finally:
            self._running -= 1

    async def _ask(self, rag: Peer, call: Call, principal: Principal) -> bytes:
        request_id = secrets.token_hex(16)
        metadata = {**self._sign(principal), REQUEST_ID_METADATA: request_id}
        try:
            await self._answers.admit_call(request_id, metadata)
        except Unavailable:
            self._metrics.unavailable.labels("cache").inc()
            for name in self._answers.admit_alone(principal.tenant, is_generating=False):
                self._metrics.unavailable.labels(name).inc()
        remaining_s = min(call.remaining_s(), self._settings.max_timeout_ms / 1000)
        timeout_s = remaining_s - min(self._settings.hop_margin_ms / 1000, remaining_s / 10)
        try:
            return await rag.unary(call.method, call.request, timeout_s=max(0.001, timeout_s), metadata=metadata)
        except MeshError as error:
            if error.reason == R.ERROR_REASON_PRINCIPAL_INVALID:
                # The caller's key is good; what differs is the mesh's secret or the hosts' clocks.
                _log.error("the retrieval service refuses this router", extra={"cause": error.message})
            elif error.code != code_pb2.UNAVAILABLE or error.reason == R.ERROR_REASON_STORE_UNAVAILABLE:
                raise
            self._metrics.unavailable.labels("rag").inc()
            raise MeshError(
                R.ERROR_REASON_STORE_UNAVAILABLE, "the retrieval service does not answer", retry_after_ms=RETRY_AFTER_MS
            ) from error


def _unsupported(call: Call) -> MeshError:
    call.principal.require(SCOPE)
    return MeshError(
        R.ERROR_REASON_UNSUPPORTED,
        "the router does this itself, for the requests that it serves",
        metadata={"feature": call.method},
    )
