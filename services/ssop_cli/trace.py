"""`ssop trace`: a request as a table of moments, from its arrival to its end."""

import time
from collections.abc import Iterator
from typing import Any

from google.protobuf.json_format import MessageToDict
from rich.table import Table

from ssop.v1 import mesh_pb2
from ssop.v1.frame_pb2 import FrameKind
from ssop.v1.router_pb2 import GetTraceResponse, TraceChunk, TraceFrame
from ssop_cli.words import word

_FIELDS = frozenset({FrameKind.FRAME_KIND_VALUE, FrameKind.FRAME_KIND_PART, FrameKind.FRAME_KIND_CLOSE})


def trace_json(trace: GetTraceResponse) -> dict[str, Any]:
    """As JSON; 64-bit counts are strings, as in protobuf's JSON."""
    found: dict[str, Any] = MessageToDict(trace, preserving_proto_field_name=True)
    return found


def trace_table(trace: GetTraceResponse) -> Table:
    """Marks and chunks in the order of their times."""
    table = Table(box=None, header_style="bold")
    table.add_column("ms", justify="right")
    table.add_column("what")
    table.add_column("", overflow="fold")
    moments = [(mark.at_us, 0, mark.name, mark.detail) for mark in trace.marks]
    moments += [(chunk.at_us, 1, f"{chunk.size_bytes:,} bytes", _describe(chunk, trace)) for chunk in trace.chunks]
    for at_us, _, name, detail in sorted(moments, key=lambda moment: moment[:2]):
        table.add_row(f"{at_us / 1000:,.1f}", name, detail)
    return table


def describe_ending(trace: GetTraceResponse) -> Iterator[str]:
    """How it ended, and where it went."""
    decision = trace.decision
    if trace.chunks_left_out:
        yield f"{trace.chunks_left_out:,} later chunks are not kept; a request with debug keeps more"
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(trace.started_at_ms / 1000))
    state = "it still runs" if trace.is_running else f"outcome {trace.outcome}"
    yield f"arrived {started} UTC; {state}; degraded level {trace.degraded_level}"
    where = f"{decision.node or '-'} ({decision.model or '-'})"
    yield (
        f"tier {word(mesh_pb2.Tier, decision.tier, 'TIER_')} "
        f"({word(mesh_pb2.TierReason, decision.tier_reason, 'TIER_REASON_')}), node {where}, "
        f"cache {word(mesh_pb2.CacheReason, decision.cache_reason, 'CACHE_REASON_')}"
    )
    yield (
        f"document frames: {trace.frames_sent:,} sent, {trace.frames_received:,} received and "
        f"{trace.frames_verified:,} verified as the client says"
    )


def _describe(chunk: TraceChunk, trace: GetTraceResponse) -> str:
    return " ".join(_name(frame, trace) for frame in chunk.frames)


def _name(frame: TraceFrame, trace: GetTraceResponse) -> str:
    kind = word(FrameKind, frame.kind, "FRAME_KIND_")
    if frame.kind not in _FIELDS:
        return kind
    pointer = trace.pointers[frame.node] if frame.node < len(trace.pointers) else f"node {frame.node}"
    name = pointer or "(root)"
    return name if frame.kind == FrameKind.FRAME_KIND_VALUE else f"{name}({kind})"
