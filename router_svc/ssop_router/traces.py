# cython: annotation_typing=False
"""The last requests of this router: what happened when, for `GetTrace`. Bounded, and without texts.

`traces.pxd` gives the types with which this very file is compiled.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.router_pb2 import GetTraceResponse, TraceChunk, TraceFrame, TraceMark
from ssop_chassis.errors import MeshError
from ssop_codec import FieldNode, FieldStep, read_heads
from ssop_router.core.timeline import MAX_FRAMES, MAX_FRAMES_DEBUG, Timeline
from ssop_router.delivery import DecisionFacts, describe_decision, gather
from ssop_router.job import Job
from ssop_router.receipts import Receipts

_MAX_POINTERS: Final = 128


class _Entry:
    """`job` is there while the request runs; it holds a prompt, which must not outlive it."""

    def __init__(self, started_at_ms: int, timeline: Timeline, nodes: Sequence[FieldNode], job: Job) -> None:
        self.started_at_ms = started_at_ms
        self.timeline = timeline
        self.nodes = nodes
        self.job: Job | None = job
        self.outcome = ""
        self.decision: DecisionFacts | None = None
        self.degraded_level = 0


class Traces:
    """A ring of `size` requests; 0: none are kept. `wall_ms` tells the time."""

    def __init__(self, size: int, receipts: Receipts, wall_ms: Callable[[], int]) -> None:
        self._size = size
        self._receipts = receipts
        self._wall_ms = wall_ms
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()

    def open(self, job: Job) -> None:
        """A request was accepted."""
        if not self._size:
            return
        sends, schema, entries = job.sends, job.schema, self._entries
        sends.note_up_to(MAX_FRAMES_DEBUG if job.request.debug else MAX_FRAMES)
        timeline = job.timeline = Timeline(sends, job.started_s)
        timeline.mark(monotonic(), "decided")
        nodes = schema.nodes[:_MAX_POINTERS] if schema is not None else ()
        name = (job.tenant, job.request_id)
        entries[name] = _Entry(self._wall_ms() - job.elapsed_ms(), timeline, nodes, job)
        entries.move_to_end(name)
        if len(entries) > self._size:
            entries.popitem(last=False)

    def end(self, job: Job, outcome: str) -> None:
        """It has ended: `OK`, or the reason of its error."""
        job.mark("ended", outcome)
        entry = self._entries.get((job.tenant, job.request_id))
        if entry is not None and entry.job is job:
            entry.outcome, entry.decision = outcome, gather(job)
            entry.degraded_level, entry.job = job.degraded_level, None

    def find(self, tenant: str, request_id: str) -> GetTraceResponse:
        """What is known of a tenant's request. Raises REQUEST_UNKNOWN."""
        entry = self._entries.get((tenant, request_id))
        if entry is None:
            raise MeshError(
                ErrorReason.ERROR_REASON_REQUEST_UNKNOWN,
                "this router has no trace of such a request of the key's tenant",
                metadata={"request_id": request_id},
            )
        job, timeline = entry.job, entry.timeline
        decision = gather(job) if job is not None else entry.decision
        sent, received, verified = self._receipts.of_request(tenant, request_id)
        return GetTraceResponse(
            request_id=request_id,
            started_at_ms=entry.started_at_ms,
            is_running=job is not None,
            outcome=entry.outcome,
            decision=describe_decision(decision) if decision is not None else None,
            degraded_level=job.degraded_level if job is not None else entry.degraded_level,
            marks=[TraceMark(at_us=mark.at_us, name=mark.name, detail=mark.detail) for mark in timeline.marks],
            chunks=[
                TraceChunk(
                    at_us=chunk.at_us,
                    size_bytes=chunk.size_bytes,
                    frames=[_frame(*head) for head in read_heads(chunk.heads)],
                )
                for chunk in timeline.sent
            ],
            chunks_left_out=timeline.left_out,
            pointers=name_nodes(entry.nodes),
            frames_sent=max(sent, job.sends.frames if job is not None else 0),
            frames_received=received,
            frames_verified=verified,
        )


def name_nodes(nodes: Sequence[FieldNode]) -> list[str]:
    """The JSON Pointer (RFC 6901) of each node of a field table, with `*` for an item and for a value of a map."""
    pointers: list[str] = []
    for node in nodes:
        if node.step == FieldStep.ROOT:
            pointers.append("")
            continue
        step = "*"
        if node.step == FieldStep.PROPERTY:
            step = node.key.replace("~", "~0").replace("/", "~1")
        elif node.step == FieldStep.PREFIX_ITEM:
            step = str(node.index)
        pointers.append(f"{pointers[node.parent]}/{step}")
    return pointers


def _frame(kind: int, seq: int, node: int) -> TraceFrame:
    frame = TraceFrame(seq=seq, node=node)
    # A kind of a later version of the protocol is a number that the enum does not have.
    frame.kind = kind  # type: ignore[assignment]
    return frame
