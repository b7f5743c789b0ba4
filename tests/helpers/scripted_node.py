"""Inference services that do what a test says."""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ssop.v1 import inference_pb2, mesh_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.frame_pb2 import Chunk, FrameKind
from ssop_chassis.call import Call, Service, bind
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import Principal
from ssop_codec import Encoder, compile_schema, mesh_chunk, scan_heads, text_schema

SCHEMA = {
    "type": "object",
    "properties": {"mood": {"type": "string"}, "score": {"type": "integer", "maximum": 10}},
    "required": ["mood", "score"],
    "additionalProperties": False,
}
R = ErrorReason
Script = Callable[[Call, inference_pb2.InferenceServiceGenerateRequest], Awaitable[None]]


def encode(
    text: str, *, schema: Mapping[str, Any] | None = SCHEMA, buffer_bytes: int = 0, incomplete_reason: int = 0
) -> list[bytes]:
    """The chunks of a document: header and first field, then one for each later piece, then the end."""
    encoder = Encoder(
        compile_schema(json.dumps(schema)) if schema is not None else text_schema(), stream_buffer_bytes=buffer_bytes
    )
    chunks: list[bytes] = []
    for byte in text.encode():
        encoder.feed(bytes([byte]))
        chunks += encoder.drain(flush=True)

    encoder.finish(finish_reason=1, incomplete_reason=incomplete_reason, input_tokens=7, output_tokens=3)
    return chunks + encoder.drain(flush=True)


def node_status_chunk(mode: mesh_pb2.ConstraintMode.ValueType = mesh_pb2.CONSTRAINT_MODE_FULL) -> bytes:
    """What a node says first."""
    status = mesh_pb2.DeliveryStatus(constraint_mode=mode, engine_limits=["maxLength=512 at /mood"])
    return mesh_chunk(FrameKind.FRAME_KIND_STATUS, status.SerializeToString())


GOOD = '{"mood":"fine","score":3}'


def answering(text: str = GOOD, *, schema: Mapping[str, Any] | None = SCHEMA) -> Script:
    """A script that sends a document at once."""
    chunks = encode(text, schema=schema)

    async def script(call: Call, _: Any) -> None:
        await call.write(node_status_chunk())
        for chunk in chunks:
            await call.write(chunk)

    return script


def judged(
    *confidences: float,
    text: str = GOOD,
    schema: Mapping[str, Any] | None = SCHEMA,
    is_choice: bool = True,
    is_null: bool = False,
    incomplete_reason: int = 0,
    until: asyncio.Event | None = None,
) -> Script:
    """A script whose values have these confidences, the last for all that follow; 0 is for a backend without any.

    `until`: after the first value nothing comes before this is set.
    """
    chunks = encode(text, schema=schema, incomplete_reason=incomplete_reason)

    async def script(call: Call, _: Any) -> None:
        await call.write(node_status_chunk())
        left = list(confidences)
        for chunk in chunks:
            message = mesh_pb2.Confidence(usage=mesh_pb2.Usage(input_tokens=70, output_tokens=5), has_choices=is_choice)
            for kind, seq, node in scan_heads(chunk):
                if kind == FrameKind.FRAME_KIND_VALUE:
                    value = left.pop(0) if len(left) > 1 else left[0]
                    logprob = math.log(value) if value else 0.0
                    message.fields.add(
                        seq=seq,
                        node=node,
                        tokens=int(value > 0),
                        sum_logprob=logprob,
                        min_logprob=logprob,
                        is_choice=is_choice,
                        is_null=is_null,
                    )
            if message.fields:
                await call.write(mesh_chunk(FrameKind.FRAME_KIND_CONFIDENCE, message.SerializeToString()))
            await call.write(chunk)
            if message.fields and until is not None:
                await until.wait()

    return script


def failing(reason: ErrorReason.ValueType = R.ERROR_REASON_BACKEND_FAILED, after: int = 0) -> Script:
    """A script that sends the first `after` chunks and fails."""
    chunks = encode(GOOD)

    async def script(call: Call, _: Any) -> None:
        await call.write(node_status_chunk())
        for chunk in chunks[:after]:
            await call.write(chunk)
        raise MeshError(reason, "scripted")

    return script


def going_on(text: str = GOOD, *, frames: int | None = None, schema: Mapping[str, Any] | None = SCHEMA) -> Script:
    """A script that goes on with a document from where it is asked to, and fails after so many frames of its own."""
    whole = list(Chunk.FromString(b"".join(encode(text, schema=schema))).frames)

    async def script(call: Call, request: inference_pb2.InferenceServiceGenerateRequest) -> None:
        await call.write(node_status_chunk())
        begun = request.continue_from.next_seq - 1 if request.HasField("continue_from") else 0
        rest = whole[begun:]
        for frame in rest[:frames]:
            await call.write(Chunk(frames=[frame]).SerializeToString(deterministic=True))
        if frames is not None and frames < len(rest):
            raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "scripted")

    return script


def pausing(go_on: asyncio.Event, after: int = 0) -> Script:
    """Sends `after` chunks of an answer, and the others once `go_on` is set."""

    async def script(call: Call, _: object) -> None:
        chunks = encode(GOOD)
        for chunk in chunks[:after]:
            await call.write(chunk)
        await go_on.wait()
        for chunk in chunks[after:]:
            await call.write(chunk)

    return script


def hanging(after: int = 0) -> Script:
    """A script that sends the first `after` chunks and then nothing, until it is cancelled."""
    chunks = encode(GOOD)

    async def script(call: Call, _: Any) -> None:
        await call.write(node_status_chunk())
        for chunk in chunks[:after]:
            await call.write(chunk)
        await asyncio.Event().wait()

    return script


class ScriptedNode:
    """An InferenceService."""

    def __init__(self, name: str, tiers: Sequence[mesh_pb2.Tier.ValueType], script: Script | None = None) -> None:
        self.script = script or answering()
        self.requests: list[inference_pb2.InferenceServiceGenerateRequest] = []
        self.principals: list[Principal] = []
        self.metadata: list[Mapping[str, Any]] = []
        self.running = 0
        self.cancelled = 0
        self.remaining_s = 0.0
        self.is_well = True
        self.warm_up_fault = R.ERROR_REASON_BACKEND_FAILED
        self.warm_ups = 0
        self.status = inference_pb2.WatchStatusResponse(node=name)
        self.status.models.add(
            model=f"{name}-model",
            state=inference_pb2.MODEL_STATE_READY,
            tiers=tiers,
            context_tokens=4096,
            slots_total=4,
        )

    def forget(self) -> None:
        """Drop what it remembers of its requests."""
        self.requests.clear()
        self.principals.clear()
        self.metadata.clear()

    async def generate(self, call: Call) -> None:
        request = inference_pb2.InferenceServiceGenerateRequest.FromString(call.request)
        self.requests.append(request)
        self.principals.append(call.principal)
        self.metadata.append(call.metadata)
        self.remaining_s = call.remaining_s()
        self.running += 1
        try:
            await self.script(call, request)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def watch_status(self, call: Call) -> None:
        while True:
            await call.write(self.status.SerializeToString())
            await asyncio.sleep(0.05)

    async def warm_up(self, call: Call) -> None:
        """One generation, as the script does them."""
        self.warm_ups += 1
        if not self.is_well:
            raise MeshError(self.warm_up_fault, "scripted")
        await call.write(inference_pb2.WarmUpResponse().SerializeToString())

    async def count_tokens(self, call: Call) -> None:
        raise MeshError(R.ERROR_REASON_UNSUPPORTED, "scripted")

    async def check_constraint(self, call: Call) -> None:
        request = inference_pb2.CheckConstraintRequest.FromString(call.request)
        response = inference_pb2.CheckConstraintResponse(
            constraint_mode=mesh_pb2.CONSTRAINT_MODE_RELAXED, detail="pattern", model=request.model
        )
        await call.write(response.SerializeToString())

    def service(self) -> Service:
        return bind(inference_pb2.DESCRIPTOR.services_by_name["InferenceService"], self)
