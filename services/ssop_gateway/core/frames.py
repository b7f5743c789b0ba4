"""Frames as JSON: the mapping of codec/SPEC.md, section 12, and what the head of a response says of a delivery."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message

from ssop.v1 import mesh_pb2
from ssop.v1.frame_pb2 import Chunk, Frame, FrameKind
from ssop_gateway.core.faults import EdgeError


def split_chunk(chunk: bytes) -> Iterator[Frame]:
    """The frames of a chunk. Raises PROTOCOL_ERROR."""
    try:
        yield from Chunk.FromString(chunk).frames
    except DecodeError:
        raise EdgeError("PROTOCOL_ERROR", "the router sent what is no chunk") from None


def to_json(message: Message) -> dict[str, Any]:
    """A message in proto3 JSON, with the names of the proto files."""
    return MessageToDict(message, preserving_proto_field_name=True)


def dump(value: Any) -> str:
    """JSON text without line breaks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def sse_event(name: str, data: str, *, event_id: int = 0) -> bytes:
    """One event; `data` has no line breaks. An id above 0 is what a client that reconnects names as its last one."""
    head = f"event: {name}\n" if name else ""
    if event_id:
        head += f"id: {event_id}\n"
    return f"{head}data: {data}\n\n".encode()


def frame_event(frame: Frame) -> bytes:
    """A frame as an event; a document frame of the main document has its sequence number as id."""
    return sse_event("frame", dump(to_json(frame)), event_id=0 if frame.document else frame.seq)


def ndjson_line(data: str) -> bytes:
    """One line."""
    return f"{data}\n".encode()


@dataclass(frozen=True, slots=True)
class Delivery:
    """How an answer is delivered, as the response says before any field."""

    is_degraded: bool = False
    level: int = 0
    fallback_used: bool = False
    reason: str = ""

    def headers(self) -> dict[str, str]:
        """Headers of the response."""
        found = {"x-ssop-status": "DEGRADED" if self.is_degraded else "OK"}
        if self.is_degraded:
            found["x-ssop-degraded-level"] = str(self.level)
        return found

    def flags(self) -> dict[str, Any]:
        """Members of a body: `{"status": "DEGRADED", "fallback_used": true}` and the depth; or that it is OK."""
        if not self.is_degraded:
            return {"status": "OK", "fallback_used": self.fallback_used}
        return {
            "status": "DEGRADED",
            "fallback_used": True,
            "degraded_level": self.level,
            "degraded_reason": self.reason,
        }


def delivery_of(status: mesh_pb2.DeliveryStatus | None) -> Delivery:
    """What a STATUS frame means; nothing is degraded while there is none."""
    if status is None:
        return Delivery()
    is_degraded = status.state == mesh_pb2.DELIVERY_STATE_DEGRADED or status.degraded_level > 0
    names: Mapping[int, str] = {value: name for name, value in mesh_pb2.DegradedReason.items()}
    reason = names.get(status.degraded_reason, str(status.degraded_reason)).removeprefix("DEGRADED_REASON_")
    return Delivery(is_degraded, status.degraded_level, status.fallback_used, reason if is_degraded else "")


def is_mesh_frame(frame: Frame) -> bool:
    """It speaks of the delivery, not of the document."""
    return frame.kind >= FrameKind.FRAME_KIND_DECISION
