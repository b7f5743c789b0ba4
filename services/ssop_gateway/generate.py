"""POST /v1/generate: SSOP over HTTP."""

from typing import Any, Final

from google.protobuf.message import Message

from ssop.v1 import frame_pb2, mesh_pb2, router_pb2
from ssop.v1.frame_pb2 import Frame
from ssop_gateway.core.faults import EdgeError, invalid, of_answer
from ssop_gateway.core.frames import (
    Delivery,
    delivery_of,
    dump,
    frame_event,
    is_mesh_frame,
    ndjson_line,
    split_chunk,
    sse_event,
    to_json,
)
from ssop_gateway.core.generate_body import GenerateBody, plan_body
from ssop_gateway.core.reading import (
    JSON_TYPE,
    NDJSON_TYPE,
    SSE_TYPE,
    SSOP_TYPE,
    Caller,
    choose_type,
    is_request_id,
    media_type,
    read_json,
    read_model,
)
from ssop_gateway.exchange import Exchange, error_event, timeout_ms
from ssop_gateway.upstream import GENERATE, RESUME
from ssop_sdk.answer import Answer
from ssop_sdk.errors import SsopError
from ssop_sdk.json_text import dump_json
from ssop_sdk.request import Plan

_SSE: Final = f"{SSE_TYPE}; charset=utf-8"
# Proxies that hold a response back until they have a buffer full defeat its purpose.
_STREAM_HEADERS: Final = {"x-accel-buffering": "no"}


async def read_object(exchange: Exchange, schema_hint: str) -> dict[str, Any]:
    """The JSON object of a body. Raises UNSUPPORTED_MEDIA_TYPE, for a schema that its content type does not carry too.

    A schema must never be dropped without a word, so a request that holds one and does not say that it speaks SSOP is
    refused: whoever wrote it expects frames, and a plain JSON client would not understand them.
    """
    kind = media_type(exchange.headers.get("content-type", ""))
    if kind not in (JSON_TYPE, SSOP_TYPE):
        raise EdgeError("UNSUPPORTED_MEDIA_TYPE", f"the body is {JSON_TYPE} or {SSOP_TYPE}")
    value = read_json(await exchange.read_body())
    if value.get("output_schema") is not None and kind != SSOP_TYPE:
        raise EdgeError(
            "UNSUPPORTED_MEDIA_TYPE",
            f"output_schema needs `Content-Type: {SSOP_TYPE}`; {schema_hint}",
            fields=(("output_schema", f"needs the content type {SSOP_TYPE}"),),
        )
    return value


async def generate(exchange: Exchange) -> None:
    """Serve POST /v1/generate."""
    caller = exchange.caller()
    value = await read_object(exchange, "without it the schema would be ignored, and the answer not what you expect")
    await generate_of(exchange, caller, value)


async def generate_of(exchange: Exchange, caller: Caller, value: dict[str, Any]) -> None:
    """Generate what a body asks for."""
    body = read_model(GenerateBody, value)
    if body.request_id is not None:
        exchange.rename(body.request_id)
        caller = Caller(caller.key, body.request_id, caller.policy, caller.traceparent)
    plan = plan_body(body, request_id=exchange.request_id, timeout_ms=timeout_ms(exchange, body.timeout_ms))
    accept = exchange.headers.get("accept", "")
    if not body.streaming:
        choose_type(accept, (JSON_TYPE, SSOP_TYPE, SSE_TYPE, NDJSON_TYPE))
        await exchange.until_gone(_answer_whole(exchange, caller, plan))
        return
    kind = choose_type(accept, (SSE_TYPE, NDJSON_TYPE, SSOP_TYPE, JSON_TYPE))
    if kind in (SSOP_TYPE, JSON_TYPE):
        await exchange.until_gone(_answer_whole(exchange, caller, plan))
    else:
        stream = _FrameStream(exchange, caller, is_sse=kind == SSE_TYPE)
        await exchange.until_gone(stream.run(GENERATE, plan.request, plan.timeout_s))


async def resume(exchange: Exchange) -> None:
    """Serve GET /v1/generate/ID: go on with an answer whose connection was lost, within its `resume_window_ms`.

    `Last-Event-ID` (which browsers send by themselves) or `?after_seq=` names the last document frame that arrived.
    """
    caller = exchange.caller()
    request_id = exchange.path_parameters["request_id"]
    if not is_request_id(request_id):
        raise invalid("request_id", "is not 1 to 64 characters of [A-Za-z0-9._:-]")
    last = exchange.headers.get("last-event-id") or exchange.query.get("after_seq") or "0"
    if not (last.isascii() and last.isdecimal() and len(last) <= 18):
        raise invalid("after_seq", "is no sequence number")
    kind = choose_type(exchange.headers.get("accept", ""), (SSE_TYPE, NDJSON_TYPE))
    request = router_pb2.ResumeRequest(request_id=request_id, after_seq=int(last))
    stream = _FrameStream(exchange, caller, is_sse=kind == SSE_TYPE)
    await exchange.until_gone(stream.run(RESUME, request, timeout_ms(exchange, None) / 1000))


class _FrameStream:
    """Frames as they come. The head waits for the STATUS frame, so that it can say whether the answer is degraded."""

    def __init__(self, exchange: Exchange, caller: Caller, *, is_sse: bool) -> None:
        self._exchange = exchange
        self._caller = caller
        self._is_sse = is_sse
        self._held: list[Frame] = []
        self._has_document = False
        self._open: set[int] = set()
        self._has_told_degraded = False

    async def run(self, method: str, request: Message, timeout_s: float) -> None:
        """Stream; an error before the head is a response of its own, a later one an event."""
        exchange = self._exchange
        async with exchange.kept_alive(lambda: self._is_sse and exchange.is_started):
            try:
                await exchange.edge.router.stream(method, request, self._take, caller=self._caller, timeout_s=timeout_s)
                if not exchange.is_started:
                    await self._begin(None)
                # Somebody who resumes after the last frame gets no document frame any more.
                if self._has_document or method != RESUME:
                    self._check_end()
            except EdgeError as error:
                if not exchange.is_started:
                    raise
                await exchange.write(self._error(error))
        await exchange.finish()

    def _check_end(self) -> None:
        if self._open or not self._has_document:
            raise EdgeError("FRAME_LOSS", "the answer ended without its END frame")

    async def _take(self, chunk: bytes) -> None:
        frames = list(split_chunk(chunk))
        for frame in frames:
            if not is_mesh_frame(frame):
                self._has_document = True
                is_end = frame.kind == frame_pb2.FRAME_KIND_END
                (self._open.discard if is_end else self._open.add)(frame.document)
        if self._exchange.is_started:
            # Another node may go on with an answer, from below the tier that was chosen.
            for frame in frames:
                if frame.kind == frame_pb2.FRAME_KIND_STATUS:
                    await self._tell_degraded(delivery_of(frame.status))
            await self._send(frames)
            return
        self._held += frames
        status = next((frame.status for frame in self._held if frame.kind == frame_pb2.FRAME_KIND_STATUS), None)
        if status is not None or not all(map(is_mesh_frame, self._held)):
            await self._begin(status)

    async def _begin(self, status: mesh_pb2.DeliveryStatus | None) -> None:
        delivery = delivery_of(status)
        self._exchange.take_delivery(delivery)
        await self._exchange.start(200, _SSE if self._is_sse else NDJSON_TYPE, _STREAM_HEADERS)
        await self._tell_degraded(delivery)
        held, self._held = self._held, []
        await self._send(held)

    async def _tell_degraded(self, delivery: Delivery) -> None:
        """An event of its own, once."""
        if delivery.is_degraded and self._is_sse and not self._has_told_degraded:
            self._has_told_degraded = True
            await self._exchange.write(sse_event("degraded", dump(delivery.flags())))

    async def _send(self, frames: list[Frame]) -> None:
        data = b"".join(frame_event(frame) if self._is_sse else ndjson_line(dump(to_json(frame))) for frame in frames)
        if data:
            await self._exchange.write(data)

    def _error(self, error: EdgeError) -> bytes:
        text = error_event(self._exchange, error)
        return sse_event("error", text) if self._is_sse else ndjson_line(text)


async def collect(exchange: Exchange, caller: Caller, plan: Plan) -> Answer:
    """The whole answer. Raises EdgeError where the call, the delivery or the verdict is bad."""
    answer = Answer(plan.request.request_id, allow_degraded=True)

    async def take(chunk: bytes) -> None:
        answer.feed(chunk)

    try:
        trailers = await exchange.edge.router.stream(
            GENERATE, plan.request, take, caller=caller, timeout_s=plan.timeout_s
        )
        answer.finish(trailers)
    except SsopError as error:
        raise of_answer(error) from error
    return answer


async def _answer_whole(exchange: Exchange, caller: Caller, plan: Plan) -> None:
    answer = await collect(exchange, caller, plan)
    delivery = delivery_of(answer.status)
    exchange.take_delivery(delivery)
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in answer.tool_calls]
    body: dict[str, Any] = {
        "request_id": plan.request.request_id,
        **delivery.flags(),
        "output": answer.document,
        **({"tool_calls": calls} if calls else {}),
        "finish_reason": answer.finish_reason,
        **_mesh_json("usage", answer.usage),
        **_mesh_json("decision", answer.decision),
        **_mesh_json("delivery", answer.status),
        **_mesh_json("accounting", answer.accounting),
    }
    if answer.logprobs:
        body["logprobs"] = [to_json(entry) for entry in answer.logprobs]
    await exchange.answer(200, SSOP_TYPE, dump_json(body).encode())


def _mesh_json(name: str, message: Any) -> dict[str, Any]:
    return {} if message is None else {name: to_json(message)}
