"""Nobody is told more than is so: who hears OK has one whole answer, and who does not has the beginning of one."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from helpers.eventually import eventually
from helpers.scripted_mesh import SECRET, Mesh, R, Script, ScriptedCache, ask, encode, node_status_chunk, run_router
from helpers.session_client import Client as SessionClient
from helpers.session_client import open_session
from ssop.v1.cache_pb2 import FindSimilarResponse, SettleRequest, StoredAnswer
from ssop.v1.content_pb2 import Tool
from ssop.v1.frame_pb2 import Chunk, Frame, FrameKind
from ssop.v1.router_pb2 import GenerateRequest, SessionBegin, SessionCredit
from ssop_chassis.call import Call, Outlives
from ssop_chassis.deadline import Deadline
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import Principal
from ssop_chassis.memory import MemoryPeer
from ssop_router.job import Intake, Job

REQUESTS: Final = 100
FIELDS: Final = "abcdef"
SCHEMA: Final = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in FIELDS},
    "required": list(FIELDS),
    "additionalProperties": False,
}
TENANTS: Final = ("acme", "beta")
SCOPES: Final = frozenset({"lite", "full", "ssop"})
TIMEOUTS_S: Final = (0.05, 0.15, 0.4, 2.0)
QUESTIONS: Final = tuple(f"question {number}" for number in range(5))

Frames = tuple[bytes, ...]


def cut(frames: list[Frame] | Any) -> Frames:
    """Document frames, as bytes that can be compared."""
    return tuple(f.SerializeToString(deterministic=True) for f in frames if f.kind < FrameKind.FRAME_KIND_DECISION)


@dataclass
class Library:
    """All that was ever written for anybody: whole documents by tenant and question."""

    written: dict[tuple[str, str], list[Frames]] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    """How many nodes were asked, by the id of the request."""

    def add(self, tenant: str, question: str, frames: Frames) -> None:
        self.written.setdefault((tenant, question), []).append(frames)

    def write(self, tenant: str, question: str) -> list[Frame]:
        """A document that nobody has seen yet."""
        number = sum(map(len, self.written.values()))
        values = {name: f"{tenant}/{question}/{number}/{name}" for name in FIELDS}
        frames = list(Chunk.FromString(b"".join(encode(json.dumps(values), schema=SCHEMA))).frames)
        self.add(tenant, question, cut(frames))
        return frames

    def find(self, tenant: str, question: str, begun: Frames) -> list[Frame]:
        """The document that begins so; nobody is told to go on with another."""
        found = next(frames for frames in self.written[tenant, question] if frames[: len(begun)] == begun)
        return [Frame.FromString(frame) for frame in found]

    def holds(self, tenant: str, question: str, frames: Frames) -> bool:
        return frames in self.written.get((tenant, question), [])

    def begins(self, tenant: str, question: str, frames: Frames) -> bool:
        return not frames or any(one[: len(frames)] == frames for one in self.written.get((tenant, question), []))


class Reader:
    """A client on a transport that takes each chunk at once, and has room for the next some time later, or never."""

    def __init__(self, rng: random.Random) -> None:
        self.task: asyncio.Task[None] | None = None
        self.chunks: list[bytes] = []
        self.is_gone = False
        self._rng = rng
        self._outlives: Outlives | None = None

    def send(self, chunk: bytes) -> Awaitable[None] | None:
        self.chunks.append(chunk)
        return self._wait() if self._rng.random() < 0.3 else None

    async def _wait(self) -> None:
        room = asyncio.Event()
        if self._rng.random() < 0.9:
            asyncio.get_running_loop().call_later(self._rng.random() * self._rng.choice([0.005, 0.05]), room.set)
        await room.wait()

    def carry(self, work: Coroutine[Any, Any, None], outlives: Outlives) -> Awaitable[None]:
        self._outlives = outlives
        return work

    def leave(self) -> None:
        if self.task is None or self.is_gone:
            return
        self.is_gone = True
        if self._outlives is None or not self._outlives(self.task):
            self.task.cancel()

    @property
    def frames(self) -> list[Frame]:
        return list(Chunk.FromString(b"".join(self.chunks)).frames)

    @property
    def documents(self) -> Frames:
        return cut(self.frames)


class CountingCache(ScriptedCache):
    """Counts what is settled how often."""

    def __init__(self) -> None:
        super().__init__()
        self.settlements: list[str] = []

    async def settle(self, call: Call) -> None:
        self.settlements.append(SettleRequest.FromString(call.request).request_id)
        await super().settle(call)


def question_of(request: Any) -> str:
    return str(request.prompt.messages[-1].parts[-1].text)


def unsteady(library: Library, rng: random.Random) -> Script:
    """A node that writes another document each time, goes on with those it is asked to, and breaks in many ways."""

    async def script(call: Call, request: Any) -> None:
        tenant, question = call.principal.tenant, question_of(request)
        library.generations[request.request_id] = library.generations.get(request.request_id, 0) + 1
        await call.write(node_status_chunk())
        begun = 0
        if request.prompt.tools:
            frames = write_calls(library, tenant, question)
        elif request.HasField("continue_from"):
            before = cut(Chunk.FromString(request.continue_from.chunk).frames)
            begun = len(before)
            assert request.continue_from.next_seq == begun + 1
            frames = library.find(tenant, question, before)
        else:
            frames = library.write(tenant, question)
        rest = frames[begun:]
        while rest:
            size = rng.choice([1, 1, 1, 3, len(rest)])
            chance = rng.random()
            if chance < 0.1:
                await asyncio.sleep(rng.random() * 0.03)
            elif chance < 0.17:
                raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "scripted")
            elif chance < 0.18:
                await asyncio.Event().wait()
            elif chance < 0.21 and rest[0].seq > 1:
                # Between two documents that would be an answer.
                return
            await call.write(Chunk(frames=rest[:size]).SerializeToString(deterministic=True))
            rest = rest[size:]

    return script


def write_calls(library: Library, tenant: str, question: str) -> list[Frame]:
    """Two calls of a tool, each a document with numbers of its own."""
    calls = []
    for number in (1, 2):
        for frame in library.write(tenant, question):
            frame.document = number
            calls.append(frame)
    library.add(tenant, question, cut(calls))
    return calls


def draw_request(rng: random.Random, request_id: str) -> GenerateRequest:
    request = ask(rng.choice(QUESTIONS), schema=SCHEMA, request_id=request_id)
    request.policy = rng.choice(["", "", "cascade", "lite", "no_cache"])
    request.prompt.stream_buffer_size = rng.choice([0, 64, 64, 256])
    request.prompt.linger_ms = rng.choice([0, 0, 5])
    request.resume_window_ms = rng.choice([0, 0, 40])
    if rng.random() < 0.3:
        request.max_degraded_level = rng.randrange(4)
    if rng.random() < 0.1:
        request.prompt.ClearField("output_schema")
        request.prompt.tools.append(Tool(name="look", parameters_schema=json.dumps(SCHEMA)))
    return request


@dataclass
class World:
    """A router, those who ask it, and what they may be told."""

    mesh: Mesh
    rng: random.Random
    library: Library
    jobs: list[Job] = field(default_factory=list)
    answered: Counter[str] = field(default_factory=Counter)

    def check(
        self, tenant: str, request: GenerateRequest, frames: list[Frame], *, is_ok: bool, had: Frames = ()
    ) -> None:
        """What came for a request, after the frames that its client `had` before, is what is said of it."""
        question, documents = question_of(request), had + cut(frames)
        if is_ok:
            assert self.library.holds(tenant, question, documents)
            assert frames[-1].accounting.frames_sent == len(documents) - len(had)
            assert len([frame for frame in frames if frame.kind == FrameKind.FRAME_KIND_ACCOUNTING]) == 1
        assert self.library.begins(tenant, question, documents)
        for frame in frames:
            if frame.kind == FrameKind.FRAME_KIND_DECISION:
                assert frame.decision.request_id == request.request_id
            if frame.kind == FrameKind.FRAME_KIND_STATUS and request.HasField("max_degraded_level"):
                assert frame.status.degraded_level <= request.max_degraded_level
        self.answered["whole" if is_ok else "begun" if documents else "nothing"] += 1

    async def ask(self, number: int) -> None:
        """One request, to whatever end; some come back to it."""
        rng = self.rng
        reader, timeout_s, tenant = Reader(rng), rng.choice(TIMEOUTS_S), rng.choice(TENANTS)
        request = draw_request(rng, f"r{number}")
        pipeline = self.mesh.router.pipeline

        async def serve() -> None:
            with Deadline(timeout_s):
                job = pipeline.accept(Intake(request, Principal(tenant, "k", SCOPES), timeout_s))
                self.jobs.append(job)
                await pipeline.serve(job, reader.send, reader.carry)

        error = await self._run(reader, serve())
        is_ok = error is None and not reader.is_gone
        self.check(tenant, request, reader.frames, is_ok=is_ok)
        self._check_error(request, error, reader.documents)
        had = reader.documents
        while request.resume_window_ms and rng.random() < 0.7:
            if rng.random() < 0.5:
                await asyncio.sleep(rng.random() * 0.02)
            had = await self._come_back(tenant, request, had)

    async def _come_back(self, tenant: str, request: GenerateRequest, had: Frames) -> Frames:
        """Resume somewhere in what came before; what is there then."""
        reader = Reader(self.rng)
        kept = () if request.prompt.tools else had[: self.rng.randint(0, len(had))]
        recordings = self.mesh.router.pipeline._recordings

        async def serve() -> None:
            with Deadline(self.rng.choice(TIMEOUTS_S)):
                await recordings.deliver(recordings.find(tenant, request.request_id), reader.send, after_seq=len(kept))

        error = await self._run(reader, serve())
        self.check(tenant, request, reader.frames, is_ok=error is None and not reader.is_gone, had=kept)
        self._check_error(request, error, kept + reader.documents)
        return kept + reader.documents

    async def _run(self, reader: Reader, work: Coroutine[Any, Any, None]) -> BaseException | None:
        """Run what serves a reader, who may go; the error that it heard."""
        reader.task = asyncio.get_running_loop().create_task(work)
        if self.rng.random() < 0.4:
            asyncio.get_running_loop().call_later(self.rng.choice([0, 0.002, 0.01, 0.05]), reader.leave)
        await asyncio.wait({reader.task})
        error = asyncio.CancelledError() if reader.task.cancelled() else reader.task.exception()
        assert isinstance(error, MeshError | TimeoutError | asyncio.CancelledError | None)
        return error

    @staticmethod
    def _check_error(request: GenerateRequest, error: BaseException | None, documents: Frames) -> None:
        """What an error says is so, and what it has to say is there."""
        if not isinstance(error, MeshError):
            return
        assert error.reason != R.ERROR_REASON_INTERNAL
        assert error.reason != R.ERROR_REASON_DEADLINE_EXCEEDED or "stage" in error.metadata
        assert error.reason != R.ERROR_REASON_GENERATION_INTERRUPTED or "last_seq" in error.metadata
        if not request.prompt.tools:
            assert int(error.metadata.get("last_seq", 0)) <= len(documents)

    async def talk(self, number: int) -> None:
        """A session with some requests, whose prompts come in pieces and whose client has little room."""
        rng, tenant = self.rng, self.rng.choice(TENANTS)
        key = self.mesh.keys.of(tenant)
        requests = {f"s{number}-{index}": draw_request(rng, f"s{number}-{index}") for index in range(5)}
        async with open_session(self.mesh, policy="", key=key) as client:
            reading = asyncio.ensure_future(client.until_finished(*requests))
            for request_id, request in requests.items():
                request.timeout_ms = int(1000 * rng.choice(TIMEOUTS_S))
                text, begun = question_of(request), rng.randrange(4)
                begin = SessionBegin(request=request, initial_credit_bytes=rng.choice([1, 400, 100_000]))
                begin.request.prompt.messages[-1].parts[-1].text = text[:begun]
                await client.send(request_id, begin=begin)
                await client.send(request_id, piece=text[begun:])
                await client.send(request_id, commit={})
                if rng.random() < 0.2:
                    await client.send(request_id, cancel={})
            giving = asyncio.ensure_future(self._give(client, list(requests)))
            await reading
            giving.cancel()
            await asyncio.wait({giving})
        for request_id, request in requests.items():
            error, frames = client.finished[request_id], client.frames.get(request_id, [])
            self.check(tenant, request, frames, is_ok=error is None)
            self._check_error(request, error, cut(frames))

    async def _give(self, client: SessionClient, names: list[str]) -> None:
        while True:
            await asyncio.sleep(self.rng.random() * 0.03)
            credit = SessionCredit(bytes=self.rng.choice([50, 300, 5000]))
            await client.send(self.rng.choice(names), credit=credit)


def stand_ready(folder: Path) -> list[dict[str, str]]:
    """Settings of a document for when nothing else is left."""
    schema, document = folder / "schema.json", folder / "document.json"
    schema.write_text(json.dumps(SCHEMA))
    document.write_text(json.dumps(dict.fromkeys(FIELDS, "canned")))
    return [{"schema_file": str(schema), "document_file": str(document)}]


@pytest.mark.parametrize("seed", range(3))
async def test_nobody_is_told_more_than_is_so(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    cache, library = CountingCache(), Library()
    async with run_router(
        cache_peer=MemoryPeer([cache.service()], inner_authenticate(SECRET)),
        canned=stand_ready(tmp_path),
        similar=[{"tenant": "acme", "allow_hits": True}],
        hop_margin_ms=rng.choice([5, 30, 100]),
        append_interval_ms=5,
        continue_wait_ms=30,
        first_field_timeout_ms=60,
        stall_timeout_ms=60,
        # An admission whose answer is lost keeps its lease until that lapses.
        admission_timeout_ms=60_000,
    ) as mesh:
        similar = b"".join(encode(json.dumps(dict.fromkeys(FIELDS, "acme's")), schema=SCHEMA))
        cache.similar["acme"] = FindSimilarResponse(
            answer=StoredAnswer(chunk=similar), similarity=0.97, cache_key=bytes(32)
        )
        for question in QUESTIONS:
            library.add("acme", question, cut(Chunk.FromString(similar).frames))
            for tenant in TENANTS:
                for chunk in mesh.router.pipeline._canned._chunks.values():
                    library.add(tenant, question, cut(Chunk.FromString(chunk).frames))
        for node in mesh.nodes.values():
            node.script = unsteady(library, rng)
            node.status.models[0].capabilities.append("tools")
        await eventually(lambda: all("tools" in n.models[0].capabilities for n in mesh.router.nodes.snapshot().nodes))
        world = World(mesh, rng, library)
        async with asyncio.TaskGroup() as group:
            for number in range(REQUESTS):
                group.create_task(world.talk(number) if number % 20 == 0 else world.ask(number))
                if rng.random() < 0.5:
                    await asyncio.sleep(rng.random() * 0.006)
        await eventually(mesh.is_quiet)
    for (tenant, _), (chunk, _) in cache.stored.items():
        stored = cut(Chunk.FromString(chunk).frames)
        assert any(stored in library.written[name] for name in library.written if name[0] == tenant)
    settled = Counter(cache.settlements)
    assert {one.request_id for one in cache.admitted} <= settled.keys()
    assert set(settled.values()) == {1}
    for request_id, usage in cache.settled.items():
        if not library.generations.get(request_id):
            assert (usage.input_tokens, usage.output_tokens) == (0, 0)
