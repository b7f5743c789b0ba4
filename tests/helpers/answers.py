"""Chunks of answers, as a router sends them."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ssop.v1 import mesh_pb2
from ssop_codec import Encoder, FrameKind, IncompleteReason, compile_schema, mesh_chunk, scan_heads, text_schema

PERSON_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "maximum": 150},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
PERSON = {"name": "Ada", "age": 36, "tags": ["math", "engines"]}


def document_chunks(
    value: Any = None,
    *,
    schema: Mapping[str, Any] | None = PERSON_SCHEMA,
    text: bytes | None = None,
    token_bytes: int = 4,
    buffer_bytes: int = 0,
    incomplete_reason: int = IncompleteReason.MAX_OUTPUT_TOKENS,
    document: int = 0,
    tool_name: str = "",
    tool_call_id: str = "",
) -> list[bytes]:
    """Chunks of one document, one or more a token. `text` is the model's output where it is not simply `value`."""
    if text is None:
        text = value.encode() if schema is None else json.dumps(value, ensure_ascii=False).encode()
    encoder = Encoder(
        text_schema() if schema is None else compile_schema(json.dumps(schema)),
        stream_buffer_bytes=buffer_bytes,
        document=document,
        tool_name=tool_name,
        tool_call_id=tool_call_id,
    )
    chunks: list[bytes] = []
    for start in range(0, len(text), token_bytes):
        encoder.feed(text[start : start + token_bytes])
        chunks += encoder.drain(flush=True)
    encoder.finish(
        incomplete_reason=0 if encoder.is_done or schema is None else incomplete_reason,
        finish_reason=1,
        input_tokens=11,
        output_tokens=7,
    )
    return [chunk for chunk in (*chunks, *encoder.drain(flush=True)) if chunk]


def decision_chunk(request_id: str = "r", model: str = "small") -> bytes:
    """A chunk with the decision."""
    decision = mesh_pb2.Decision(request_id=request_id, tier=mesh_pb2.TIER_LITE, model=model)
    return mesh_chunk(FrameKind.DECISION, decision.SerializeToString())


def status_chunk(degraded_level: int = 0, *, first_seq: int = 0) -> bytes:
    """A chunk with the delivery status; `first_seq`: another node goes on from there."""
    status = mesh_pb2.DeliveryStatus(
        state=mesh_pb2.DELIVERY_STATE_DEGRADED if degraded_level else mesh_pb2.DELIVERY_STATE_OK,
        degraded_level=degraded_level,
        degraded_reason=(
            mesh_pb2.DEGRADED_REASON_NODES_FAILED if degraded_level else mesh_pb2.DEGRADED_REASON_UNSPECIFIED
        ),
        fallback_used=degraded_level > 0,
        continuations=(
            [mesh_pb2.Continuation(first_seq=first_seq, node="n-2", cause="BACKEND_FAILED")] if first_seq else []
        ),
    )
    return mesh_chunk(FrameKind.STATUS, status.SerializeToString())


def accounting_chunk(frames_sent: int = 0) -> bytes:
    """A chunk with the accounting."""
    accounting = mesh_pb2.Accounting(
        usage=mesh_pb2.Usage(input_tokens=11, output_tokens=7), is_billed=True, frames_sent=frames_sent
    )
    return mesh_chunk(FrameKind.ACCOUNTING, accounting.SerializeToString())


def delivery(documents: Iterable[bytes], *, degraded_level: int = 0) -> list[bytes]:
    """A whole delivery: decision, status, document frames, accounting."""
    return [decision_chunk(), status_chunk(degraded_level), *documents, accounting_chunk()]


def continued_delivery(*, degraded_level: int = 0) -> list[bytes]:
    """The delivery of PERSON, with which another node goes on after the name."""
    chunks = document_chunks(PERSON)
    kinds = [{kind for kind, _, _ in scan_heads(chunk)} for chunk in chunks]
    begun = 1 + next(number for number, found in enumerate(kinds) if FrameKind.VALUE in found)
    first_seq = scan_heads(chunks[begun])[0][1]
    middle = status_chunk(degraded_level, first_seq=first_seq)
    return delivery([*chunks[:begun], middle, *chunks[begun:]])
