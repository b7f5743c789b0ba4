"""A client that reads slower than the mesh's own deadlines: it has all of an answer, or is told that it has not."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from helpers import session_client
from helpers.eventually import eventually
from helpers.scripted_mesh import GOOD, Mesh, R, ask, encode, hanging, node_status_chunk, run_router
from ssop.v1.frame_pb2 import Chunk, Frame, FrameKind
from ssop.v1.mesh_pb2 import Receipt
from ssop.v1.router_pb2 import SessionBegin, SessionCredit
from ssop_chassis.call import Arity, Call, Method, Service
from ssop_chassis.deadline import Deadline
from ssop_chassis.errors import MeshError
from ssop_chassis.grpc_peer import connect
from ssop_chassis.grpc_server import start_server
from ssop_chassis.identity import Principal
from ssop_router.job import Intake
from ssop_router.outlet import finish

OWNER = Principal("acme", "k", frozenset({"lite", "full", "ssop"}))
WHOLE = list(Chunk.FromString(b"".join(encode(GOOD))).frames)
REQUEST_S = 2.5
# What a router takes of it.
ROUTER_S = 0.9 * REQUEST_S
# What the streams that a request reads from have of it.
STREAM_S = 0.5
READS_AGAIN_S = STREAM_S + 0.2


class Client:
    """Takes chunks; has not read enough for more after the `slow_at`-th until `room` is set."""

    def __init__(self, slow_at: int = 0) -> None:
        self.chunks: list[bytes] = []
        self.room = asyncio.Event()
        self._slow_at = slow_at

    def send(self, chunk: bytes) -> Awaitable[Any] | None:
        self.chunks.append(chunk)
        return self.room.wait() if len(self.chunks) == self._slow_at else None

    @property
    def frames(self) -> list[Frame]:
        return list(Chunk.FromString(b"".join(self.chunks)).frames)

    @property
    def documents(self) -> list[Frame]:
        return [frame for frame in self.frames if frame.kind < FrameKind.FRAME_KIND_DECISION]


async def serve(mesh: Mesh, client: Client, *, buffer_bytes: int = 0, timeout_s: float = REQUEST_S) -> None:
    """One request, which outlives the streams that it reads from."""
    request = ask()
    request.prompt.stream_buffer_size = buffer_bytes
    with Deadline(timeout_s):
        job = mesh.router.pipeline.accept(Intake(request, OWNER, timeout_s))
        await mesh.router.pipeline.serve(job, client.send, lambda work, _: work)


async def write_at_once(call: Call, _: Any) -> None:
    """A node that has all of its answer in one chunk."""
    await call.write(node_status_chunk() + Chunk(frames=WHOLE).SerializeToString(deterministic=True))


async def lead(mesh: Mesh, client: Client, *, buffer_bytes: int = 0) -> None:
    """The request asks a node."""
    await serve(mesh, client, buffer_bytes=buffer_bytes)


async def follow(mesh: Mesh, client: Client, *, buffer_bytes: int = 0) -> None:
    """The request follows another one."""
    gate = asyncio.Event()

    async def write_later(call: Call, request: Any) -> None:
        await gate.wait()
        await write_at_once(call, request)

    for node in mesh.nodes.values():
        node.script = write_later
    leader = asyncio.ensure_future(serve(mesh, Client(), buffer_bytes=buffer_bytes, timeout_s=2 * REQUEST_S))
    await eventually(lambda: any(node.running for node in mesh.nodes.values()))
    follower = asyncio.ensure_future(serve(mesh, client, buffer_bytes=buffer_bytes))
    await eventually(lambda: [one.followers for one in mesh.cache.generations.values()] == [1])
    gate.set()
    await leader
    await follower


WAYS = pytest.mark.parametrize("way", [lead, follow])
Way = Callable[..., Awaitable[None]]


def run_hurried_router() -> Any:
    return run_router(hop_margin_ms=int((ROUTER_S - STREAM_S) * 1000), append_interval_ms=5)


@WAYS
async def test_frames_count_once_they_are_handed_over(way: Way) -> None:
    """The wait for a client ends with the stream of who wrote; what was handed to the transport arrives."""
    client = Client(slow_at=1)
    async with run_hurried_router() as mesh:
        for node in mesh.nodes.values():
            node.script = write_at_once
        await way(mesh, client, buffer_bytes=4096)
    assert client.documents == WHOLE
    accounting = [frame.accounting for frame in client.frames if frame.kind == FrameKind.FRAME_KIND_ACCOUNTING]
    assert [one.frames_sent for one in accounting] == [len(WHOLE)]


@WAYS
async def test_pieces_outlast_the_stream_that_they_were_read_from(way: Way) -> None:
    client = Client(slow_at=2)
    asyncio.get_running_loop().call_later(READS_AGAIN_S, client.room.set)
    async with run_hurried_router() as mesh:
        for node in mesh.nodes.values():
            node.script = write_at_once
        await way(mesh, client, buffer_bytes=64)
    assert client.documents == WHOLE
    assert client.frames[-1].accounting.frames_sent == len(WHOLE)


@WAYS
@pytest.mark.parametrize("slow_at", [1, 2])
async def test_an_answer_of_which_pieces_are_missing_is_no_answer(way: Way, slow_at: int) -> None:
    client = Client(slow_at)
    async with run_hurried_router() as mesh:
        for node in mesh.nodes.values():
            node.script = write_at_once
        with pytest.raises(MeshError) as caught:
            await way(mesh, client, buffer_bytes=64)
    assert caught.value.reason == R.ERROR_REASON_DEADLINE_EXCEEDED
    sent = client.documents
    assert sent == WHOLE[: len(sent)]
    assert len(sent) < len(WHOLE)
    assert caught.value.metadata["last_seq"] == str(len(sent))
    assert FrameKind.FRAME_KIND_ACCOUNTING not in [frame.kind for frame in client.frames]


BUFFERS = pytest.mark.parametrize("buffer_bytes", [64, 4096], ids=["pieces", "one_chunk"])


async def begin(client: session_client.Client, buffer_bytes: int, *, credit_bytes: int = 1) -> None:
    """A request of a session whose client has no room for all of it yet."""
    request = ask(timeout_ms=int(REQUEST_S * 900))
    request.prompt.stream_buffer_size = buffer_bytes
    await client.send("a", begin=SessionBegin(request=request, is_complete=True, initial_credit_bytes=credit_bytes))


@BUFFERS
async def test_what_waits_for_credit_outlasts_the_stream_that_it_was_read_from(buffer_bytes: int) -> None:
    async with run_hurried_router() as mesh, session_client.open_session(mesh) as client:
        for node in mesh.nodes.values():
            node.script = write_at_once
        await begin(client, buffer_bytes)
        later = asyncio.Event()
        asyncio.get_running_loop().call_later(READS_AGAIN_S, later.set)
        await later.wait()
        await client.send("a", credit=SessionCredit(bytes=100_000))
        await client.until_finished("a")
    assert client.finished["a"] is None
    assert [frame for frame in client.frames["a"] if frame.kind < FrameKind.FRAME_KIND_DECISION] == WHOLE


@BUFFERS
async def test_what_never_gets_credit_is_no_answer(buffer_bytes: int) -> None:
    async with run_hurried_router() as mesh, session_client.open_session(mesh) as client:
        for node in mesh.nodes.values():
            node.script = write_at_once
        await begin(client, buffer_bytes)
        await client.until_finished("a")
    error = client.finished["a"]
    assert error is not None
    assert error.reason == R.ERROR_REASON_DEADLINE_EXCEEDED
    assert "a" not in client.frames


@BUFFERS
async def test_an_answer_that_never_gets_credit_counts_as_what_its_client_hears(buffer_bytes: int) -> None:
    """Neither as answered, nor are its frames lost."""
    async with run_hurried_router() as mesh, session_client.open_session(mesh) as client:
        for node in mesh.nodes.values():
            node.script = write_at_once
        await begin(client, buffer_bytes)
        await client.until_finished("a")
        await client.send("a", receipt=Receipt())
        await client.stream.finish_writing()
        assert not await client.read()
    assert mesh.metric("ssop_router_requests_total", outcome="OK") == 0
    assert mesh.metric("ssop_router_requests_total", outcome="DEADLINE_EXCEEDED") == 1
    assert mesh.metric("ssop_router_frames_lost_total") == 0
    assert mesh.metric("ssop_router_frames_sent_total") == 0


async def test_an_error_names_the_last_frame_that_there_was_credit_for() -> None:
    async with run_hurried_router() as mesh, session_client.open_session(mesh) as client:
        for node in mesh.nodes.values():
            node.script = write_at_once
        await begin(client, 64, credit_bytes=200)
        await client.until_finished("a")
    error, frames = client.finished["a"], client.frames["a"]
    assert error is not None
    sent = [frame for frame in frames if frame.kind < FrameKind.FRAME_KIND_DECISION]
    assert 0 < len(sent) < len(WHOLE)
    assert error.metadata["last_seq"] == str(sent[-1].seq)
    assert mesh.metric("ssop_router_frames_sent_total") == len(sent)


async def test_a_follower_that_runs_out_of_time_says_where_and_after_which_frame() -> None:
    """Its leader goes on, and has more time."""
    client = Client()
    async with run_hurried_router() as mesh:
        for node in mesh.nodes.values():
            node.script = hanging(after=2)
        leader = asyncio.ensure_future(serve(mesh, Client(), timeout_s=2 * REQUEST_S))
        await eventually(lambda: any(node.running for node in mesh.nodes.values()))
        with pytest.raises(MeshError) as caught:
            await serve(mesh, client)
        leader.cancel()
        await asyncio.wait({leader})
    assert caught.value.reason == R.ERROR_REASON_DEADLINE_EXCEEDED
    assert caught.value.metadata["stage"] == "follow"
    assert caught.value.metadata.get("last_seq", "0") == str(len(client.documents))


async def test_a_recording_takes_what_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for a client that is behind may be cut in the turn in which it begins."""
    monkeypatch.setattr("ssop_router.resume._LAG_BYTES", 0)
    async with run_hurried_router() as mesh:
        job = mesh.router.pipeline.accept(Intake(ask(), OWNER, REQUEST_S))
        recording, reader = mesh.router.pipeline._recordings.open(job), object()
        recording.attach(reader, 0)
        for chunk in (b"1", b"2"):
            if isinstance(pending := recording.put(chunk, 0), Coroutine):
                pending.close()
        assert [await recording.next(reader) for _ in range(2)] == [b"1", b"2"]
        mesh.router.pipeline.discard(job)


@pytest.mark.parametrize("has_written_last", [False, True])
async def test_a_grpc_call_hands_over_what_nobody_waits_for(has_written_last: bool) -> None:
    """The wait for a chunk may be cut in the turn in which it begins."""
    messages = [b"1", b"2", b"3"]

    async def stream(call: Call) -> None:
        for message in messages[: -1 if has_written_last else None]:
            asyncio.ensure_future(finish(call.send(message))).cancel()
        if has_written_last:
            await call.write(messages[-1])

    services = [Service("test", [Method("/test/Stream", Arity.SERVER_STREAM, stream, needs_principal=False)])]
    server = await start_server(services, ["127.0.0.1:0"], authenticate=lambda _: OWNER)
    peer = connect(server.addresses[0])
    came: list[bytes] = []
    await peer.stream("/test/Stream", b"", came.append, timeout_s=REQUEST_S)
    await peer.close()
    await server.stop(0)
    assert came == messages
