"""The methods of the router as raw-bytes calls, and statuses as errors."""

from collections.abc import Iterable
from typing import Any, Final

import grpc

from ssop_sdk.errors import SsopError
from ssop_sdk.statuses import error_of_status

GENERATE: Final = "/ssop.v1.RouterService/Generate"
SESSION: Final = "/ssop.v1.RouterService/Session"
RESUME: Final = "/ssop.v1.RouterService/Resume"
CHECK_SCHEMA: Final = "/ssop.v1.RouterService/CheckSchema"
EXPLAIN_DECISION: Final = "/ssop.v1.RouterService/ExplainDecision"
LIST_MODELS: Final = "/ssop.v1.RouterService/ListModels"
GET_MESH_STATUS: Final = "/ssop.v1.RouterService/GetMeshStatus"
GET_TRACE: Final = "/ssop.v1.RouterService/GetTrace"
GET_USAGE: Final = "/ssop.v1.UsageService/GetUsage"
UPSERT: Final = "/ssop.v1.RagService/UpsertDocuments"
DELETE: Final = "/ssop.v1.RagService/DeleteDocuments"
COLLECTIONS: Final = "/ssop.v1.RagService/ListCollections"
DOCUMENTS: Final = "/ssop.v1.RagService/ListDocuments"
RETRIEVE: Final = "/ssop.v1.RagService/Retrieve"
WARM_QUERIES: Final = "/ssop.v1.RagService/WarmQueries"
PREFETCH_USAGE: Final = "/ssop.v1.RagService/GetPrefetchUsage"
CREATE_SNAPSHOT: Final = "/ssop.v1.RagService/CreateSnapshot"
LIST_SNAPSHOTS: Final = "/ssop.v1.RagService/ListSnapshots"
RESTORE_SNAPSHOT: Final = "/ssop.v1.RagService/RestoreSnapshot"
DELETE_SNAPSHOT: Final = "/ssop.v1.RagService/DeleteSnapshot"

_DETAILS_KEY: Final = "grpc-status-details-bin"


def read_trailers(metadata: Iterable[Any] | None) -> dict[str, str | bytes]:
    """Trailing metadata as a mapping; the last value of a key counts."""
    return dict(tuple(pair) for pair in metadata or ())


def error_of_rpc(error: grpc.RpcError, request_id: str = "") -> SsopError:
    """The error for a call that failed. Its text is what the mesh wrote for callers, or gRPC's own."""
    call: Any = error
    details = read_trailers(call.trailing_metadata()).get(_DETAILS_KEY)
    return error_of_status(
        call.code(),
        call.details() or "",
        details if isinstance(details, bytes) else None,
        request_id=request_id,
    )
