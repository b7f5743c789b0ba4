"""A router whose nodes, cache and retrieval service do what a test says, on the in-memory transport."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from helpers.eventually import eventually
from ssop.v1 import cache_pb2, inference_pb2, mesh_pb2, rag_pb2, router_pb2
from ssop.v1.cache_pb2 import CacheOutcome
from ssop.v1.content_pb2 import ContentPart, Message, OutputSchema, Prompt, Role
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.frame_pb2 import Chunk, Frame, FrameKind
from ssop_chassis.call import Call, Peer, Service, bind
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import KeyRecord, KeyRing, Principal, Signer, hash_key, make_key
from ssop_chassis.memory import MemoryPeer, MemoryStream
from ssop_codec import Encoder, compile_schema, mesh_chunk, text_schema
from ssop_router.assembly import Router, assemble
from ssop_router.inspection import monotonic_ms
from ssop_router.settings import RouterSettings

SECRET = bytes(range(32))
SCHEMA = {
    "type": "object",
    "properties": {"mood": {"type": "string"}, "score": {"type": "integer", "maximum": 10}},
    "required": ["mood", "score"],
    "additionalProperties": False,
}
GENERATE = "/ssop.v1.RouterService/Generate"
SESSION = "/ssop.v1.RouterService/Session"
RESUME = "/ssop.v1.RouterService/Resume"
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


def failing(reason: ErrorReason.ValueType = R.ERROR_REASON_BACKEND_FAILED, after: int = 0) -> Script:
    """A script that sends the first `after` chunks and fails."""
    chunks = encode(GOOD)

    async def script(call: Call, _: Any) -> None:
        await call.write(node_status_chunk())
        for chunk in chunks[:after]:
            await call.write(chunk)
        raise MeshError(reason, "scripted")

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
        self.status = inference_pb2.WatchStatusResponse(node=name)
        self.status.models.add(
            model=f"{name}-model",
            state=inference_pb2.MODEL_STATE_READY,
            tiers=tiers,
            context_tokens=4096,
            slots_total=4,
        )

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
        raise MeshError(R.ERROR_REASON_UNSUPPORTED, "scripted")

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


@dataclass
class _Generation:
    chunks: list[bytes] = field(default_factory=list)
    fence: int = 0
    state: str = "open"
    followers: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class ScriptedCache:
    """A CacheService that really stores, in memory, until a test makes it fail."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, bytes], tuple[bytes, str]] = {}
        self.generations: dict[tuple[str, bytes], _Generation] = {}
        self.admitted: list[cache_pb2.AdmitRequest] = []
        self.settled: dict[str, mesh_pb2.Usage] = {}
        self.commits: list[cache_pb2.CommitRequest] = []
        self.appends = 0
        self.calls = 0
        self.error: MeshError | None = None
        self.is_frozen = False

    async def _meet(self) -> None:
        self.calls += 1
        if self.is_frozen:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error

    async def admit(self, call: Call) -> None:
        await self._meet()
        request = cache_pb2.AdmitRequest.FromString(call.request)
        self.admitted.append(request)
        response = cache_pb2.AdmitResponse()
        name = (call.principal.tenant, request.cache_key)
        if request.cache_key:
            generation = self.generations.get(name)
            if name in self.stored:
                chunk, model = self.stored[name]
                response.outcome = CacheOutcome.CACHE_OUTCOME_HIT
                response.answer.MergeFrom(cache_pb2.StoredAnswer(chunk=chunk, age_ms=1234, model=model))
            elif request.no_lease:
                response.outcome = CacheOutcome.CACHE_OUTCOME_MISS
            elif generation is not None and generation.state == "open":
                response.outcome = CacheOutcome.CACHE_OUTCOME_FOLLOW
            else:
                fence = len(self.admitted)
                self.generations[name] = _Generation(fence=fence)
                response.outcome = CacheOutcome.CACHE_OUTCOME_LEASE
                response.fencing_token = fence
        await call.write(response.SerializeToString())

    async def settle(self, call: Call) -> None:
        await self._meet()
        request = cache_pb2.SettleRequest.FromString(call.request)
        self.settled.setdefault(request.request_id, request.usage)
        await call.write(cache_pb2.SettleResponse().SerializeToString())

    async def lookup(self, call: Call) -> None:
        await self._meet()
        request = cache_pb2.LookupRequest.FromString(call.request)
        is_hit = (call.principal.tenant, request.cache_key) in self.stored
        outcome = CacheOutcome.CACHE_OUTCOME_HIT if is_hit else CacheOutcome.CACHE_OUTCOME_MISS
        await call.write(cache_pb2.LookupResponse(outcome=outcome).SerializeToString())

    async def follow(self, call: Call) -> None:
        request = cache_pb2.FollowRequest.FromString(call.request)
        generation = self.generations.get((call.principal.tenant, request.cache_key))
        if generation is None:
            raise MeshError(R.ERROR_REASON_REQUEST_UNKNOWN, "scripted")
        generation.followers += 1
        sent = 0
        while True:
            while sent < len(generation.chunks):
                sent += 1
                await call.write(cache_pb2.FollowResponse(chunk=generation.chunks[sent - 1]).SerializeToString())
            if generation.state == "lost":
                raise MeshError(R.ERROR_REASON_LEASE_LOST, "scripted")
            if generation.state == "done":
                return
            generation.changed.clear()
            await generation.changed.wait()

    async def append(self, call: Call) -> None:
        await self._meet()
        self.appends += 1
        request = cache_pb2.AppendRequest.FromString(call.request)
        generation = self._leased(call, request.cache_key, request.fencing_token)
        generation.chunks.append(request.chunk)
        generation.changed.set()
        response = cache_pb2.AppendResponse(has_followers=generation.followers > 0)
        await call.write(response.SerializeToString())

    async def commit(self, call: Call) -> None:
        await self._meet()
        request = cache_pb2.CommitRequest.FromString(call.request)
        self.commits.append(request)
        generation = self._leased(call, request.cache_key, request.fencing_token)
        generation.chunks.append(request.chunk)
        generation.state = "done" if request.is_complete else "lost"
        generation.changed.set()
        if request.is_complete:
            self.stored[(call.principal.tenant, request.cache_key)] = (b"".join(generation.chunks), request.model)
        await call.write(cache_pb2.CommitResponse().SerializeToString())

    def _leased(self, call: Call, key: bytes, fence: int) -> _Generation:
        generation = self.generations.get((call.principal.tenant, key))
        if generation is None or generation.fence != fence or generation.state != "open":
            raise MeshError(R.ERROR_REASON_LEASE_LOST, "scripted")
        return generation

    def service(self) -> Service:
        return bind(cache_pb2.DESCRIPTOR.services_by_name["CacheService"], self)


class ScriptedRag:
    """A RagService with one passage, in the collections that a test names."""

    def __init__(self) -> None:
        self.collections: dict[str, dict[str, int]] = {}
        self.prefetches: list[rag_pb2.PrefetchRequest] = []
        self.cancelled_prefetches: list[str] = []
        self.retrievals: list[rag_pb2.RetrieveRequest] = []
        self.error: MeshError | None = None
        self.is_frozen = False

    async def _meet(self) -> None:
        if self.is_frozen:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error

    async def list_collections(self, call: Call) -> None:
        await self._meet()
        response = rag_pb2.ListCollectionsResponse()
        for name, version in self.collections.get(call.principal.tenant, {}).items():
            response.collections.add(collection=name, passages=1, index_version=version)
        await call.write(response.SerializeToString())

    async def prefetch(self, call: Call) -> None:
        await self._meet()
        self.prefetches.append(rag_pb2.PrefetchRequest.FromString(call.request))
        await call.write(rag_pb2.PrefetchResponse(is_started=True).SerializeToString())

    async def cancel_prefetch(self, call: Call) -> None:
        await self._meet()
        self.cancelled_prefetches.append(rag_pb2.CancelPrefetchRequest.FromString(call.request).request_id)
        await call.write(rag_pb2.CancelPrefetchResponse().SerializeToString())

    async def retrieve(self, call: Call) -> None:
        await self._meet()
        request = rag_pb2.RetrieveRequest.FromString(call.request)
        self.retrievals.append(request)
        mine = self.collections.get(call.principal.tenant, {})
        for name in request.collections:
            if name not in mine:
                raise MeshError(R.ERROR_REASON_COLLECTION_UNKNOWN, "scripted")
        versions = [f"{name}:{mine[name]}" for name in sorted(request.collections or mine)]
        response = rag_pb2.RetrieveResponse(
            index_version=",".join(versions),
            is_prefetch_hit=any(p.request_id == request.request_id for p in self.prefetches),
        )
        response.passages.add(ref=mesh_pb2.PassageRef(collection="c", document_id="d"), text="a passage")
        await call.write(response.SerializeToString())

    async def upsert_documents(self, call: Call) -> None:
        raise MeshError(R.ERROR_REASON_UNSUPPORTED, "scripted")

    async def delete_documents(self, call: Call) -> None:
        raise MeshError(R.ERROR_REASON_UNSUPPORTED, "scripted")

    def service(self) -> Service:
        return bind(rag_pb2.DESCRIPTOR.services_by_name["RagService"], self)


@dataclass
class Answer:
    """What a client got of one call."""

    chunks: list[bytes]
    trailers: Mapping[str, Any] = field(default_factory=dict)
    error: MeshError | None = None

    @property
    def frames(self) -> list[Frame]:
        return list(Chunk.FromString(b"".join(self.chunks)).frames)

    @property
    def kinds(self) -> list[int]:
        return [frame.kind for frame in self.frames]

    @property
    def documents(self) -> list[Frame]:
        return [frame for frame in self.frames if frame.kind < FrameKind.FRAME_KIND_DECISION]

    @property
    def decision(self) -> mesh_pb2.Decision:
        return next(frame.decision for frame in self.frames if frame.kind == FrameKind.FRAME_KIND_DECISION)

    @property
    def status(self) -> mesh_pb2.DeliveryStatus:
        return next(frame.status for frame in self.frames if frame.kind == FrameKind.FRAME_KIND_STATUS)

    @property
    def accounting(self) -> mesh_pb2.Accounting:
        return next(frame.accounting for frame in self.frames if frame.kind == FrameKind.FRAME_KIND_ACCOUNTING)


class Keys:
    """API keys of a test, by tenant and scopes."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, frozenset[str]], tuple[str, KeyRecord]] = {}

    def of(self, tenant: str = "acme", scopes: Sequence[str] = ("lite", "full", "rag", "ssop")) -> str:
        name = (tenant, frozenset(scopes))
        if name not in self._made:
            key_id = f"k{len(self._made)}"
            key = make_key(key_id)
            self._made[name] = (key, KeyRecord(key_id, tenant, frozenset(scopes), hash_key(key, SECRET)))
        return self._made[name][0]

    def authenticate(self, metadata: Mapping[str, Any]) -> Principal:
        ring = KeyRing([record for _, record in self._made.values()], SECRET)
        return ring.authenticate(metadata.get("authorization"), now_ms=time.time_ns() // 1_000_000)


@dataclass
class Mesh:
    """A router with its scripted surroundings."""

    router: Router
    peer: MemoryPeer
    cache: ScriptedCache
    rag: ScriptedRag
    nodes: dict[str, ScriptedNode]
    keys: Keys

    def metadata(self, key: str | None = None, **more: str) -> dict[str, str | bytes]:
        return {"authorization": f"Bearer {key or self.keys.of()}", **more}

    def open(
        self,
        request: router_pb2.GenerateRequest | None = None,
        *,
        key: str | None = None,
        timeout_s: float = 5.0,
        policy: str = "",
    ) -> MemoryStream:
        metadata = self.metadata(key, **({"x-router-policy": policy} if policy else {}))
        request = request or ask()
        return self.peer.open(GENERATE, request.SerializeToString(), timeout_s=timeout_s, metadata=metadata)

    async def generate(self, request: router_pb2.GenerateRequest | None = None, **options: Any) -> Answer:
        async with self.open(request, **options) as stream:
            return await read_all(stream)

    def is_quiet(self) -> bool:
        """Nothing runs any more."""
        return (
            self.router.pipeline.in_flight == 0
            and len(self.router.background) == 0
            and all(node.running == 0 for node in self.nodes.values())
        )

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)


async def read_all(stream: MemoryStream) -> Answer:
    """Read a call to its end, good or bad."""
    chunks: list[bytes] = []
    try:
        while (chunk := await stream.read()) is not None:
            chunks.append(chunk)
    except MeshError as error:
        return Answer(chunks, stream.trailing, error)
    return Answer(chunks, stream.trailing)


def ask(text: str = "How is the mood?", **fields: Any) -> router_pb2.GenerateRequest:
    """A request with a schema."""
    schema = fields.pop("schema", SCHEMA)
    prompt = Prompt(messages=[Message(role=Role.ROLE_USER, parts=[ContentPart(text=text)])])
    if schema is not None:
        prompt.output_schema.CopyFrom(OutputSchema(json_schema=json.dumps(schema)))
    request = router_pb2.GenerateRequest(prompt=prompt)
    for name, value in fields.items():
        target = getattr(request, name)
        if hasattr(target, "CopyFrom"):
            target.CopyFrom(value)
        elif hasattr(target, "extend"):
            target.extend(value)
        else:
            setattr(request, name, value)
    return request


def default_nodes() -> dict[str, ScriptedNode]:
    """Two full nodes and a lite one."""
    return {
        "full-1": ScriptedNode("full-1", [mesh_pb2.TIER_FULL]),
        "full-2": ScriptedNode("full-2", [mesh_pb2.TIER_FULL]),
        "lite-1": ScriptedNode("lite-1", [mesh_pb2.TIER_LITE]),
    }


@asynccontextmanager
async def run_router(nodes: dict[str, ScriptedNode] | None = None, **settings: Any) -> AsyncIterator[Mesh]:
    """A router that knows its nodes' status, until the block ends."""
    nodes = nodes if nodes is not None else default_nodes()
    cache, rag, keys = ScriptedCache(), ScriptedRag(), Keys()
    inner = inner_authenticate(SECRET)
    peers: dict[str, Peer] = {name: MemoryPeer([node.service()], inner, address=name) for name, node in nodes.items()}
    registry = CollectorRegistry()
    values: dict[str, Any] = {"keys_file": Path("unused"), "nodes": list(nodes), **settings}
    router = assemble(
        RouterSettings.model_validate(values),
        node_peers=peers,
        cache_peer=MemoryPeer([cache.service()], inner, address="cache"),
        rag_peer=MemoryPeer([rag.service()], inner, address="rag"),
        registry=registry,
        sign=Signer(SECRET, "router", lambda: time.time_ns() // 1_000_000).metadata,
        clock_ms=monotonic_ms,
        rng=random.Random(1),
    )
    peer = MemoryPeer([router.service], keys.authenticate, address="router")
    async with AsyncExitStack() as stack:
        watching = asyncio.ensure_future(router.nodes.watch())

        async def stop() -> None:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

        stack.push_async_callback(router.background.finish, 1.0)
        stack.push_async_callback(stop)
        await eventually(lambda: all(node.is_connected for node in router.nodes))
        yield Mesh(router, peer, cache, rag, nodes, keys, registry)
