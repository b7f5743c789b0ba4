"""POST /v1/chat/completions, GET /v1/models: what OpenAI's SDKs call."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from ssop.v1 import mesh_pb2, router_pb2
from ssop_gateway.core.chat_body import ChatBody, plan_chat
from ssop_gateway.core.chat_reply import ChatReply
from ssop_gateway.core.faults import EdgeError, of_answer
from ssop_gateway.core.frames import Delivery, delivery_of, dump, sse_event
from ssop_gateway.core.reading import SSE_TYPE, SSOP_TYPE, Caller, media_type, read_model
from ssop_gateway.exchange import Exchange, Handle, error_event, timeout_ms
from ssop_gateway.generate import generate_of, read_object
from ssop_gateway.upstream import GENERATE, LIST_MODELS
from ssop_sdk.answer import Answer
from ssop_sdk.errors import SsopError
from ssop_sdk.json_text import dump_json
from ssop_sdk.request import Plan

_SSE: Final = f"{SSE_TYPE}; charset=utf-8"
_DONE: Final = b"data: [DONE]\n\n"
_HEADERS: Final = {"x-accel-buffering": "no"}
_HINT: Final = "without it, send the schema as response_format"


async def chat_completions(exchange: Exchange) -> None:
    """Serve POST /v1/chat/completions; a body of the SSOP content type gets frames, as at /v1/generate."""
    caller = exchange.caller()
    value = await read_object(exchange, _HINT)
    if media_type(exchange.headers.get("content-type", "")) == SSOP_TYPE:
        if "stream" in value and "streaming" not in value:
            value["streaming"] = value.pop("stream")
        await generate_of(exchange, caller, value)
        return
    body = read_model(ChatBody, value)
    if body.stream_options is not None and not body.stream:
        raise EdgeError(
            "REQUEST_INVALID",
            "stream_options: is for streams; set stream",
            fields=(("stream_options", "is for streams"),),
        )
    plan = plan_chat(body, request_id=exchange.request_id, timeout_ms=timeout_ms(exchange, None))
    answer = Answer(exchange.request_id, allow_degraded=True)
    reply = ChatReply(
        answer,
        created_s=int(exchange.edge.now_s()),
        has_schema=plan.schema is not None,
        has_logprobs=bool(body.logprobs),
        model=body.model,
    )
    if not body.stream:
        await exchange.until_gone(_answer_whole(exchange, caller, plan, reply))
        return
    has_usage = body.stream_options is not None and body.stream_options.include_usage
    await exchange.until_gone(_ChunkStream(exchange, caller, plan, reply, has_usage=has_usage).run())


async def _collect(
    exchange: Exchange, caller: Caller, plan: Plan, reply: ChatReply, on_text: Callable[[str], Awaitable[None]]
) -> None:
    """Read the answer to its end. Raises EdgeError."""

    async def take(chunk: bytes) -> None:
        try:
            text = reply.take(reply.answer.feed(chunk))
        except SsopError as error:
            raise of_answer(error) from error
        await on_text(text)

    trailers = await exchange.edge.router.stream(GENERATE, plan.request, take, caller=caller, timeout_s=plan.timeout_s)
    try:
        reply.finish(trailers)
    except SsopError as error:
        raise of_answer(error) from error


async def _answer_whole(exchange: Exchange, caller: Caller, plan: Plan, reply: ChatReply) -> None:
    pieces: list[str] = []

    async def keep(text: str) -> None:
        pieces.append(text)

    await _collect(exchange, caller, plan, reply, keep)
    exchange.take_delivery(delivery_of(reply.answer.status))
    await exchange.answer_json(200, dump_json(reply.whole("".join(pieces))))


class _ChunkStream:
    """A stream of chunks. Its head waits for the status, so that it can say whether the answer is degraded."""

    def __init__(self, exchange: Exchange, caller: Caller, plan: Plan, reply: ChatReply, *, has_usage: bool) -> None:
        self._exchange = exchange
        self._caller = caller
        self._plan = plan
        self._reply = reply
        self._has_usage = has_usage

    async def run(self) -> None:
        """Stream; an error before the head is a response of its own, a later one an event with `error`."""
        exchange = self._exchange
        async with exchange.kept_alive(lambda: exchange.is_started):
            try:
                await _collect(exchange, self._caller, self._plan, self._reply, self._send)
                await self._end()
            except EdgeError as error:
                if not exchange.is_started:
                    raise
                await exchange.write(sse_event("", error_event(exchange, error)))
        await exchange.finish()

    async def _send(self, text: str) -> None:
        # What is there together is written together: each write is a call into the kernel.
        chunks: list[dict[str, Any]] = []
        if not self._exchange.is_started:
            if self._reply.answer.status is None and not self._reply.answer.last_seq:
                return
            chunks.append(await self._begin(delivery_of(self._reply.answer.status)))
        deltas: list[dict[str, Any]] = [{"content": text}] if text else []
        calls = self._reply.new_call_deltas()
        deltas += [{"tool_calls": calls}] if calls else []
        logprobs = self._reply.new_logprobs()
        if logprobs is not None and not deltas:
            deltas.append({"content": ""})
        for delta in deltas:
            chunks.append(self._reply.chunk(delta, logprobs=logprobs))
            logprobs = None
        if chunks:
            await self._write(chunks)

    async def _begin(self, delivery: Delivery) -> dict[str, Any]:
        """Send the head; the first chunk."""
        self._exchange.take_delivery(delivery)
        await self._exchange.start(200, _SSE, _HEADERS)
        return {**self._reply.chunk({"role": "assistant", "content": ""}), **self._reply.mesh()}

    async def _end(self) -> None:
        chunks: list[dict[str, Any]] = []
        if not self._exchange.is_started:
            chunks.append(await self._begin(delivery_of(self._reply.answer.status)))
        last = self._reply.chunk({}, finish_reason=self._reply.finish_reason)
        status = self._reply.answer.status
        if status is not None and status.continuations:
            # The first chunk could not say that another node would go on, nor whether the answer is degraded since.
            last |= self._reply.mesh()
        chunks.append(last)
        if self._has_usage:
            chunks.append({**self._reply.last_chunk(), **self._reply.mesh()})
        await self._write(chunks, _DONE)

    async def _write(self, chunks: list[dict[str, Any]], end: bytes = b"") -> None:
        events = [sse_event("", dump(chunk)) for chunk in chunks]
        await self._exchange.write(b"".join((*events, end)))


async def _models(exchange: Exchange) -> list[dict[str, Any]]:
    call = exchange.edge.router.unary(
        LIST_MODELS,
        router_pb2.ListModelsRequest(),
        router_pb2.ListModelsResponse,
        caller=exchange.caller(),
        timeout_s=timeout_ms(exchange, None) / 1000,
    )
    response: router_pb2.ListModelsResponse = await exchange.until_gone(call)
    return [
        {
            "id": model.model,
            "object": "model",
            "created": 0,
            "owned_by": "ssop",
            "ssop": {
                "tier": _tier_word(model.tier),
                "context_tokens": model.context_tokens,
            },
        }
        for model in response.models
    ]


def _tier_word(tier: mesh_pb2.Tier.ValueType) -> str:
    """`lite` or `full`; of a tier that a later version has, its number."""
    name = mesh_pb2.Tier.Name(tier) if tier in mesh_pb2.Tier.values() else str(tier)
    return name.removeprefix("TIER_").lower()


async def list_models(exchange: Exchange) -> None:
    """GET /v1/models."""
    await exchange.answer_json(200, {"object": "list", "data": await _models(exchange)})


async def show_model(exchange: Exchange) -> None:
    """GET /v1/models/NAME."""
    name = exchange.path_parameters.get("model", "")
    found = next((model for model in await _models(exchange) if model["id"] == name), None)
    if found is None:
        raise EdgeError("MODEL_UNKNOWN", "there is no model of this name")
    await exchange.answer_json(200, found)


def not_served(what: str) -> Handle:
    """A path of OpenAI's API that is known and not served: a 404 that says so."""

    async def refuse(_: Exchange) -> None:
        raise EdgeError("PATH_UNKNOWN", f"{what} is not served here; /v1/chat/completions is")

    return refuse
