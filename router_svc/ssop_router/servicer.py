# cython: annotation_typing=False
"""RouterService: thin methods; the pipeline, sessions and the inspection do the work.

`servicer.pxd` gives the types with which this very file is compiled.
"""

from collections.abc import Callable

from ssop.v1.router_pb2 import (
    CheckSchemaRequest,
    ExplainDecisionRequest,
    GenerateRequest,
    GetMeshStatusRequest,
    GetTraceRequest,
    ListModelsRequest,
    ResumeRequest,
    SessionRequest,
)
from ssop_chassis.call import Call
from ssop_chassis.identity import Principal
from ssop_router.background import Background
from ssop_router.dependency import InnerMetadata
from ssop_router.inspection import Inspection
from ssop_router.job import Intake
from ssop_router.pipeline import Pipeline
from ssop_router.receipts import Receipts
from ssop_router.resume import Recordings
from ssop_router.retrieval import Retrieval
from ssop_router.session import Session
from ssop_router.sessions import Sessions
from ssop_router.settings import RouterSettings
from ssop_router.traces import Traces
from ssop_router.validation import check_request_id

POLICY_METADATA = "x-router-policy"


class RouterServicer:
    """See `router.proto`. `sign` makes the metadata that carries a principal inside; `sessions` are the open ones.

    `renew` says what the caller of a session may do by the time of its next request.
    """

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        inspection: Inspection,
        retrieval: Retrieval,
        recordings: Recordings,
        receipts: Receipts,
        traces: Traces,
        settings: RouterSettings,
        background: Background,
        sign: Callable[[Principal], InnerMetadata],
        renew: Callable[[Principal], Principal],
        sessions: Sessions,
    ) -> None:
        self._pipeline = pipeline
        self._inspection = inspection
        self._retrieval = retrieval
        self._recordings = recordings
        self._receipts = receipts
        self._traces = traces
        self._settings = settings
        self._background = background
        self._sign = sign
        self._renew = renew
        self._sessions = sessions

    async def generate(self, call: Call) -> None:
        """See the rpc Generate."""
        request = GenerateRequest.FromString(call.request)
        job = self._pipeline.accept(Intake(request, call.principal, call.remaining_s(), _policy(call)))
        try:
            await self._pipeline.serve(job, call.send, call.carry)
        finally:
            call.set_trailing_metadata(job.trailers())

    async def session(self, call: Call) -> None:
        """See the rpc Session."""
        session = Session(
            call,
            self._pipeline,
            self._retrieval,
            self._settings,
            self._background,
            sign=lambda: self._sign(call.principal),
            renew=self._renew,
            policy=_policy(call),
            record_receipts=self._record_receipt,
            sessions=self._sessions,
        )
        await session.serve()

    async def resume(self, call: Call) -> None:
        """See the rpc Resume."""
        request = ResumeRequest.FromString(call.request)
        check_request_id(request.request_id)
        recording = self._recordings.find(call.principal.tenant, request.request_id)
        for scope in recording.job.scopes_used:
            call.principal.require(scope)
        try:
            await self._recordings.deliver(recording, call.send, after_seq=request.after_seq)
        finally:
            call.set_trailing_metadata(recording.job.trailers())

    async def check_schema(self, call: Call) -> None:
        """See the rpc CheckSchema."""
        request = CheckSchemaRequest.FromString(call.request)
        response = await self._inspection.check_schema(request, self._sign(call.principal))
        await call.write(response.SerializeToString())

    async def explain_decision(self, call: Call) -> None:
        """See the rpc ExplainDecision."""
        request = ExplainDecisionRequest.FromString(call.request).request
        response = await self._inspection.explain(Intake(request, call.principal, call.remaining_s(), _policy(call)))
        await call.write(response.SerializeToString())

    async def list_models(self, call: Call) -> None:
        """See the rpc ListModels."""
        ListModelsRequest.FromString(call.request)
        await call.write(self._inspection.list_models(call.principal).SerializeToString())

    async def get_trace(self, call: Call) -> None:
        """See the rpc GetTrace."""
        request_id = GetTraceRequest.FromString(call.request).request_id
        check_request_id(request_id)
        await call.write(self._traces.find(call.principal.tenant, request_id).SerializeToString())

    async def get_mesh_status(self, call: Call) -> None:
        """See the rpc GetMeshStatus."""
        call.principal.require("admin")
        GetMeshStatusRequest.FromString(call.request)
        await call.write((await self._inspection.mesh_status()).SerializeToString())

    def _record_receipt(self, tenant: str, message: SessionRequest) -> None:
        receipt = message.receipt
        receipt.request_id = message.request_id
        self._receipts.record(tenant, [receipt])


def _policy(call: Call) -> str:
    """The policy of the call's metadata, for requests that name none."""
    value = call.metadata.get(POLICY_METADATA, "")
    return value if isinstance(value, str) else value.decode("ascii", "replace")
