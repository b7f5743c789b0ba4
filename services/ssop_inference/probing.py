"""What a model server can do, found out by doing it: `ssop backend probe`."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from ssop.v1 import frame_pb2
from ssop_chassis.errors import MeshError
from ssop_codec import Verdict, compile_schema
from ssop_inference.backend import GenerateRequest
from ssop_inference.core.constraint import TEXT, Constraint, Mode
from ssop_inference.core.document import DocumentWriter, Ending
from ssop_inference.core.prompt import ChatMessage, compact_schema
from ssop_inference.core.request import SamplingOptions
from ssop_inference.upstream import UpstreamBackend

SCHEMA: Final[Any] = {
    "type": "object",
    "properties": {
        "fruit": {"type": "string", "enum": ["apple", "pear", "plum"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "is_ripe": {"type": "boolean"},
    },
    "required": ["fruit", "count", "is_ripe"],
    "additionalProperties": False,
}
_STORY: Final = ChatMessage("user", "Write a very long story about the sea.")
_QUESTION: Final = ChatMessage("user", "Invent a fruit basket.")
_UNREAD: Final = ChatMessage("user", "word " * 1_000)
_STORY_TOKENS: Final = 300
_READ_TOKENS: Final = 16
_POLL_S: Final = 0.005
_FREED_TIMEOUT_S: Final = 10.0
_BUFFER_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Freed:
    """What became of a slot after a cancel. `after_ms` None: `why` says why it is not known, or that it was not."""

    after_ms: int | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """What was found. 0 and empty: not known. `verdict` of a document that was held to a small schema."""

    dialect: str
    model: str
    context_tokens: int
    slots: int
    has_logprobs: bool
    has_usage: bool
    load_page: str
    load: str
    mode: str
    mode_detail: str
    verdict: str
    first_token_ms: int
    tokens_per_s: float
    cancel_in_the_middle: Freed
    cancel_before_the_first_token: Freed


async def probe_backend(backend: UpstreamBackend, *, timeout_s: float) -> Probe:
    """Find out what the server of a backend can do: takes a few generations. Raises MeshError, and TimeoutError."""
    async with asyncio.timeout(timeout_s):
        await backend.load()
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        constraint = backend.constrain(SCHEMA, format_assertion=True)
        verdict = await _hold(backend, constraint, deadline_s)
        first_token_ms, tokens_per_s = await _measure(backend, deadline_s)
        load = await backend.server_load()
        facts, wire = backend.facts, backend.wire
        return Probe(
            dialect=wire.dialect_name,
            model=wire.model,
            context_tokens=facts.context_tokens,
            slots=facts.slots,
            has_logprobs=facts.has_logprobs,
            has_usage=facts.has_usage,
            load_page=wire.load_page,
            load="" if load is None else f"{load.running} run, {load.waiting} wait",
            mode=constraint.mode.name.lower(),
            mode_detail=constraint.detail,
            verdict=verdict,
            first_token_ms=first_token_ms,
            tokens_per_s=tokens_per_s,
            cancel_in_the_middle=await _cancel(backend, _STORY, deadline_s, is_begun=True),
            cancel_before_the_first_token=await _cancel(backend, _UNREAD, deadline_s, is_begun=False),
        )


def _request(
    message: ChatMessage, deadline_s: float, max_output_tokens: int, constraint: Constraint
) -> GenerateRequest:
    sampling = SamplingOptions(max_output_tokens=max_output_tokens)
    return GenerateRequest((message,), deadline_s, sampling, constraint)


async def _hold(backend: UpstreamBackend, constraint: Constraint, deadline_s: float) -> str:
    message = _QUESTION
    if constraint.mode is Mode.ENVELOPE:
        hint = f"Answer with one JSON document of this JSON Schema: {compact_schema(SCHEMA)}"
        message = ChatMessage("user", f"{message.content} {hint}")
    writer = DocumentWriter(
        compile_schema(compact_schema(SCHEMA)),
        stream_buffer_bytes=_BUFFER_BYTES,
        is_envelope=constraint.mode is Mode.ENVELOPE,
        has_logprobs=False,
    )
    async with backend.generate(_request(message, deadline_s, _STORY_TOKENS, constraint)) as generation:
        while not writer.is_settled and (tokens := await generation.read()):
            writer.feed(tokens)
    writer.finish(Ending(frame_pb2.FINISH_REASON_STOP, frame_pb2.INCOMPLETE_REASON_STOPPED_EARLY))
    name = Verdict(writer.verdict).name.lower()
    return f"{name} ({writer.violation_rule})" if writer.violation_rule else name


async def _measure(backend: UpstreamBackend, deadline_s: float) -> tuple[int, float]:
    started_s = time.monotonic()
    async with backend.generate(_request(_STORY, deadline_s, 64, TEXT)) as generation:
        await generation.read()
        first_s = time.monotonic()
        while await generation.read():
            pass
        tokens = generation.outcome.output_tokens
    decode_s = time.monotonic() - first_s
    return round((first_s - started_s) * 1000), (tokens - 1) / decode_s if tokens > 1 and decode_s > 0 else 0.0


async def _cancel(backend: UpstreamBackend, message: ChatMessage, deadline_s: float, *, is_begun: bool) -> Freed:
    if (before := await backend.server_load()) is None:
        return Freed(None, "the server says no load, so it can't be seen")
    async with backend.generate(_request(message, deadline_s, _STORY_TOKENS, TEXT)) as generation:
        read = 0
        while is_begun and read < _READ_TOKENS and (tokens := await generation.read()):
            read += len(tokens)
        if not await _until(backend, lambda running: running > before.running, 1.0):
            return Freed(None, "the load page did not show the generation")
    started_s = time.monotonic()
    if not await _until(backend, lambda running: running <= before.running, _FREED_TIMEOUT_S):
        return Freed(None, f"the slot was still in use after {_FREED_TIMEOUT_S:g} s")
    return Freed(round((time.monotonic() - started_s) * 1000))


async def _until(backend: UpstreamBackend, holds: Callable[[int], bool], timeout_s: float) -> bool:
    """Whether the number of running requests comes to hold in time. The server may be too busy to say it meanwhile."""
    ends_s = time.monotonic() + timeout_s
    while time.monotonic() < ends_s:
        with suppress(MeshError):
            if (load := await backend.server_load()) is not None and holds(load.running):
                return True
        await asyncio.sleep(_POLL_S)
    return False
