"""A router whose nodes, cache and retrieval service do what a test says, on the in-memory transport."""

import asyncio
import hashlib
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from helpers.eventually import eventually
from helpers.scripted_node import (
    GOOD,
    SCHEMA,
    R,
    Script,
    ScriptedNode,
    answering,
    encode,
    failing,
    going_on,
    hanging,
    judged,
    node_status_chunk,
    pausing,
)
from helpers.scripted_stores import ScriptedCache, ScriptedRag
from ssop.v1 import mesh_pb2, router_pb2
from ssop.v1.content_pb2 import ContentPart, Message, OutputSchema, Prompt, Role
from ssop.v1.frame_pb2 import Chunk, Frame, FrameKind
from ssop_chassis.api_keys import KeyRecord, hash_key, make_key
from ssop_chassis.call import Peer
from ssop_chassis.deadline import monotonic_ms
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import Principal, Secrets, Signer
from ssop_chassis.key_ring import KeyRing
from ssop_chassis.memory import MemoryPeer, MemoryStream
from ssop_router.assembly import Router, assemble
from ssop_router.canned import load_canned
from ssop_router.core.complexity import ComplexityModel
from ssop_router.scoring import Classifier
from ssop_router.settings import RouterSettings
from ssop_router.similar_settings import load_similar

__all__ = [
    "GENERATE",
    "GOOD",
    "RESUME",
    "SCHEMA",
    "SECRET",
    "SESSION",
    "Answer",
    "Keys",
    "Mesh",
    "R",
    "Script",
    "ScriptedCache",
    "ScriptedNode",
    "ScriptedRag",
    "answering",
    "ask",
    "default_nodes",
    "encode",
    "failing",
    "going_on",
    "hanging",
    "judged",
    "node_status_chunk",
    "pausing",
    "read_all",
    "reason",
    "run_router",
    "used",
]

SECRET = hashlib.sha256(b"a secret for tests").digest()
GENERATE = "/ssop.v1.RouterService/Generate"
SESSION = "/ssop.v1.RouterService/Session"
RESUME = "/ssop.v1.RouterService/Resume"


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
    def last_status(self) -> mesh_pb2.DeliveryStatus:
        return [frame.status for frame in self.frames if frame.kind == FrameKind.FRAME_KIND_STATUS][-1]

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
        ring = KeyRing([record for _, record in self._made.values()], Secrets(SECRET))
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
        timeout_s: float = 60.0,
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
async def run_router(
    nodes: dict[str, ScriptedNode] | None = None,
    *,
    has_rag: bool = True,
    cache_peer: Peer | None = None,
    rag_peer: Peer | None = None,
    classifier: ComplexityModel | None = None,
    renew: Callable[[Principal], Principal] = lambda principal: principal,
    **settings: Any,
) -> AsyncIterator[Mesh]:
    """A router that knows its nodes' status, until the block ends. Peers stand for the scripted stores."""
    nodes = nodes if nodes is not None else default_nodes()
    cache, rag, keys = ScriptedCache(), ScriptedRag(), Keys()
    inner = inner_authenticate(SECRET)
    peers: dict[str, Peer] = {name: MemoryPeer([node.service()], inner, address=name) for name, node in nodes.items()}
    registry = CollectorRegistry()
    values: dict[str, Any] = {
        "keys_file": Path("unused"),
        "nodes": list(nodes),
        "continue_wait_ms": 0,
        **settings,
    }
    parsed = RouterSettings.model_validate(values)
    router = assemble(
        parsed,
        node_peers=peers,
        cache_peer=cache_peer or MemoryPeer([cache.service()], inner, address="cache"),
        rag_peer=rag_peer or (MemoryPeer([rag.service()], inner, address="rag") if has_rag else None),
        registry=registry,
        sign=Signer(SECRET, "router", lambda: time.time_ns() // 1_000_000).metadata,
        renew=renew,
        clock_ms=monotonic_ms,
        wall_ms=lambda: time.time_ns() // 1_000_000,
        rng=random.Random(1),
        classifier=Classifier(classifier, "") if classifier is not None else Classifier(),
        canned=load_canned(parsed.canned),
        similar_rules=load_similar(parsed.similar),
    )
    peer = MemoryPeer(router.services, keys.authenticate, address="router")
    async with AsyncExitStack() as stack:
        watching = asyncio.ensure_future(router.nodes.watch())

        async def stop() -> None:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

        recording = asyncio.ensure_future(router.recorder.run())

        async def stop_recording() -> None:
            recording.cancel()
            with suppress(asyncio.CancelledError):
                await recording

        stack.push_async_callback(stop_recording)
        stack.push_async_callback(router.background.finish, 1.0)
        stack.push_async_callback(stop)
        await eventually(lambda: all(node.is_connected for node in router.nodes))
        yield Mesh(router, peer, cache, rag, nodes, keys, registry)


def reason(answer: Answer) -> int:
    """Why a call failed."""
    assert answer.error is not None
    return answer.error.reason


def used(mesh: Mesh) -> list[str]:
    """The node of every attempt."""
    return [name for name, node in mesh.nodes.items() for _ in node.requests]
