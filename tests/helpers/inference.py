"""A node in the test's process, a client for it, and a backend that says what the test wants."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from prometheus_client import CollectorRegistry

from helpers.models import models_dir
from ssop.v1 import content_pb2, frame_pb2, inference_pb2, mesh_pb2
from ssop_chassis.call import bind
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import Principal
from ssop_chassis.memory import MemoryPeer, MemoryStream
from ssop_codec import Decoder
from ssop_inference.assembly import build_node
from ssop_inference.backend import Backend, Capabilities, GenerateRequest, Load, Outcome, Stop, Token
from ssop_inference.core.asking import read_request
from ssop_inference.core.constraint import Constraint, Mode
from ssop_inference.core.prompt import ChatMessage, ControlTokens
from ssop_inference.core.request import Asked
from ssop_inference.embedded import EmbeddedBackend
from ssop_inference.metrics import NodeMetrics
from ssop_inference.node import Model, Node
from ssop_inference.resource import Memory
from ssop_inference.servicer import InferenceServicer
from ssop_inference.settings import InferenceSettings

HELD = Constraint(Mode.FULL)
POST = "The battery of my new Aurora phone swelled after a week. Support never answered. Avoid!"
OPINION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "main_entity": {"type": "string", "maxLength": 24},
        "sentiment": {"enum": ["positive", "negative", "neutral"]},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "is_urgent": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 1, "maxItems": 2},
        "summary": {"type": "string", "maxLength": 60},
    },
    "required": ["main_entity", "sentiment", "score", "is_urgent", "tags", "summary"],
    "additionalProperties": False,
}
LONG = "Write a very long story about the sea."
SERVICE = inference_pb2.DESCRIPTOR.services_by_name["InferenceService"]


def user_prompt(text: str, *, schema: Any = None, **sampling: Any) -> content_pb2.Prompt:
    """A prompt of one user message."""
    prompt = content_pb2.Prompt(
        messages=[content_pb2.Message(role=content_pb2.ROLE_USER, parts=[content_pb2.ContentPart(text=text)])],
        sampling=content_pb2.Sampling(**sampling),
    )
    if schema is not None:
        prompt.output_schema.json_schema = json.dumps(schema)
    return prompt


def asked(prompt: content_pb2.Prompt, **fields: Any) -> Asked:
    """What a node reads of a request."""
    fields = {"request_id": "r-1", "prompt": prompt, **fields}
    return read_request(inference_pb2.InferenceServiceGenerateRequest(**fields).SerializeToString())


@dataclass
class Answer:
    """What one Generate call gave."""

    messages: list[frame_pb2.Chunk] = field(default_factory=list)
    decoder: Decoder = field(default_factory=Decoder)

    def take(self, message: bytes) -> None:
        self.messages.append(frame_pb2.Chunk.FromString(message))
        self.decoder.feed(message)

    @property
    def frames(self) -> list[frame_pb2.Frame]:
        return [frame for message in self.messages for frame in message.frames]

    def of_kind(self, kind: int) -> list[frame_pb2.Frame]:
        return [frame for frame in self.frames if frame.kind == kind]

    @property
    def status(self) -> mesh_pb2.DeliveryStatus:
        return self.of_kind(frame_pb2.FRAME_KIND_STATUS)[0].status

    @property
    def end(self) -> frame_pb2.End:
        (frame,) = self.of_kind(frame_pb2.FRAME_KIND_END)
        return frame.end


class NodeClient:
    """Calls a node."""

    def __init__(self, peer: MemoryPeer) -> None:
        self._peer = peer

    def open(self, prompt: content_pb2.Prompt, *, timeout_s: float = 60, **fields: Any) -> MemoryStream:
        request = inference_pb2.InferenceServiceGenerateRequest(
            request_id=fields.pop("request_id", "r-1"), prompt=prompt, **fields
        )
        return self._peer.open("/ssop.v1.InferenceService/Generate", request.SerializeToString(), timeout_s=timeout_s)

    async def generate(
        self,
        prompt: content_pb2.Prompt,
        *,
        timeout_s: float = 60,
        on_message: Callable[[Answer], None] = lambda _: None,
        **fields: Any,
    ) -> Answer:
        answer = Answer()
        async with self.open(prompt, timeout_s=timeout_s, **fields) as stream:
            while (message := await stream.read()) is not None:
                answer.take(message)
                on_message(answer)
        return answer

    async def count_tokens(self, prompt: content_pb2.Prompt, *, model: str = "") -> int:
        request = inference_pb2.CountTokensRequest(prompt=prompt, model=model)
        return inference_pb2.CountTokensResponse.FromString(await self._unary("CountTokens", request)).input_tokens

    async def check_constraint(self, schema: Any) -> inference_pb2.CheckConstraintResponse:
        request = inference_pb2.CheckConstraintRequest(
            output_schema=content_pb2.OutputSchema(json_schema=json.dumps(schema))
        )
        return inference_pb2.CheckConstraintResponse.FromString(await self._unary("CheckConstraint", request))

    async def warm_up(self, model: str = "") -> dict[str, int]:
        request = inference_pb2.WarmUpRequest(model=model)
        return dict(inference_pb2.WarmUpResponse.FromString(await self._unary("WarmUp", request)).generation_ms)

    def watch_status(self) -> MemoryStream:
        return self._peer.open("/ssop.v1.InferenceService/WatchStatus", b"", timeout_s=60)

    async def status(self) -> inference_pb2.WatchStatusResponse:
        async with self.watch_status() as stream:
            return inference_pb2.WatchStatusResponse.FromString(await stream.read() or b"")

    async def _unary(self, name: str, request: Any) -> bytes:
        return await self._peer.unary(f"/ssop.v1.InferenceService/{name}", request.SerializeToString(), timeout_s=60)


@dataclass(frozen=True)
class NodeUnderTest:
    """A node, what calls it, and its metrics."""

    node: Node
    client: NodeClient
    registry: CollectorRegistry

    def metric(self, name: str, **labels: str) -> float:
        """A sample's value; 0 when it was never counted."""
        return self.registry.get_sample_value(name, labels) or 0.0


def serve(node: Node, *, max_schemas: int = 8, linger_ms: int = 0) -> NodeUnderTest:
    """Serve a node in memory."""
    registry = CollectorRegistry()
    servicer = InferenceServicer(
        node, NodeMetrics(registry), max_schemas=max_schemas, warm_up_timeout_s=60, linger_ms=linger_ms
    )
    peer = MemoryPeer([bind(SERVICE, servicer)], lambda _: Principal("acme", "k1"))
    return NodeUnderTest(node, NodeClient(peer), registry)


@asynccontextmanager
async def running_node(**settings: Any) -> AsyncIterator[NodeUnderTest]:
    """A node with the real small model."""
    node = build_node(InferenceSettings(models_dir=models_dir(), **settings))
    try:
        await node.start(timeout_s=60)
        yield serve(node)
    finally:
        await node.close()


class SteppedLoop:
    """The clock and the timers of a loop, moved by the test."""

    def __init__(self) -> None:
        self._now_s = 1_000.0
        self._due: list[tuple[float, asyncio.TimerHandle]] = []

    def time(self) -> float:
        return self._now_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        at_s = self._now_s + delay_s
        handle = asyncio.TimerHandle(at_s, callback, (), cast("Any", self))
        self._due.append((at_s, handle))
        return handle

    def pass_time(self, seconds: float) -> None:
        """Ring what is due."""
        self._now_s += seconds
        due = [handle for at_s, handle in self._due if at_s <= self._now_s and not handle.cancelled()]
        self._due = [(at_s, handle) for at_s, handle in self._due if at_s > self._now_s]
        for handle in due:
            handle._run()

    @property
    def timers(self) -> int:
        """Those that have not rung."""
        return sum(not handle.cancelled() for _, handle in self._due)

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None: ...


@dataclass
class Script:
    """What a scripted generation does: `pieces` one read each; a float waits so long, an exception is raised."""

    pieces: Sequence[bytes | float | BaseException | Sequence[Token]]
    stop: Stop = Stop.END
    input_tokens: int = 11


class ScriptedGeneration:
    """See `ssop_inference.backend.Generation`."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._pieces = list(script.pieces)
        self._output_tokens = 0
        self.is_cancelled = False
        self.queue_s = 0.0

    @property
    def outcome(self) -> Outcome:
        stop = Stop.CANCELLED if self.is_cancelled else self._script.stop
        return Outcome(stop, self._script.input_tokens, self._output_tokens)

    @property
    def is_over(self) -> bool:
        return self.is_cancelled or not self._pieces

    async def read(self) -> Sequence[Token]:
        while self._pieces and not self.is_cancelled:
            piece = self._pieces.pop(0)
            if isinstance(piece, float):
                await asyncio.sleep(piece)
            elif isinstance(piece, BaseException):
                raise piece
            else:
                tokens = [Token(piece)] if isinstance(piece, bytes) else piece
                self._output_tokens += len(tokens)
                return tokens
        return []

    def cancel(self) -> None:
        self.is_cancelled = True


class ScriptedBackend:
    """See `ssop_inference.backend.Backend`."""

    def __init__(
        self,
        *scripts: Script,
        name: str = "scripted",
        constraint: Constraint = HELD,
        has_logprobs: bool = True,
        has_prefill: bool = True,
    ) -> None:
        self.name = name
        self.control = ControlTokens()
        self.scripts = list(scripts)
        self.constraint = constraint
        self.requests: list[GenerateRequest] = []
        self.generations: list[ScriptedGeneration] = []
        self.load_value = Load(0, 0, 0.0, 0.0)
        self.load_error: MeshError | None = None
        self.is_closed = False
        self.capabilities = Capabilities(
            2048, 4, has_logprobs=has_logprobs, strictest_mode=Mode.FULL, has_prefill=has_prefill
        )

    async def load(self) -> None:
        if self.load_error is not None:
            raise self.load_error

    def load_now(self) -> Load:
        return self.load_value

    def constrain(self, schema: Any, *, format_assertion: bool) -> Constraint:
        return self.constraint

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncIterator[ScriptedGeneration]:
        self.requests.append(request)
        generation = ScriptedGeneration(self.scripts.pop(0) if self.scripts else Script([b"Hello"]))
        self.generations.append(generation)
        try:
            yield generation
        finally:
            generation.cancel()

    def check_grammar(self, grammar: str) -> str:
        """See `backend.Backend`."""
        return ""

    async def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        return sum(len(message.content.split()) for message in messages)

    async def close(self) -> None:
        self.is_closed = True


def ready_model(backend: Backend, **fields: Any) -> Model:
    """A model that serves."""
    return Model(backend, ("lite",), state=inference_pb2.MODEL_STATE_READY, **fields)


def scripted_node(*backends: ScriptedBackend, **fields: Any) -> NodeUnderTest:
    """A node whose models serve at once."""
    models = [ready_model(backend, **fields) for backend in backends]
    return serve(Node("node-1", models, memory=lambda: Memory(100, 200, 0)))


def now_ms() -> float:
    """A steady clock, in milliseconds."""
    return time.monotonic() * 1000


def backend_of(running: NodeUnderTest) -> EmbeddedBackend:
    """The real model's backend."""
    backend = running.node.models[0].backend
    assert isinstance(backend, EmbeddedBackend)
    return backend


async def idle(running: NodeUnderTest, timeout_s: float = 60) -> None:
    """Wait until neither the node nor the engine counts a slot as busy: the engine ends its batch first."""
    backend = backend_of(running)
    async with asyncio.timeout(timeout_s):
        while backend.load_now().slots_busy or await backend.busy_engine_slots():
            await asyncio.sleep(0.002)


async def start_long(running: NodeUnderTest) -> Any:
    """A long generation that has begun: its stream, to be closed by the test."""
    stream = running.client.open(user_prompt(LONG, max_output_tokens=400, temperature=0.8))
    for _ in range(3):
        assert await stream.read() is not None
    return stream
