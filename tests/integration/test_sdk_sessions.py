"""Sessions of the SDK: pieces, credit, errors and ends."""

# ruff: noqa: F401, F811 - fixtures are imported, and named again as arguments
import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from helpers.answers import (
    document_chunks,
)
from helpers.eventually import eventually
from helpers.scripted_router import ScriptedRouter, abort
from helpers.sdk_clients import address, client, router
from ssop.v1 import router_pb2 as pb
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.frame_pb2 import Chunk
from ssop_chassis.errors import MeshError
from ssop_sdk import (
    AsyncSsopClient,
    AuthenticationError,
    Cancelled,
    DeadlineExceeded,
    ProtocolError,
    ScopeMissing,
    SessionStream,
    Unavailable,
)
from ssop_sdk.session import CREDIT_BYTES


def session_chunks(request_id: str, chunks: list[bytes]) -> list[pb.SessionResponse]:
    return [pb.SessionResponse(request_id=request_id, chunk=Chunk.FromString(chunk)) for chunk in chunks if chunk]


def finished(request_id: str, error: MeshError | None = None) -> pb.SessionResponse:
    status = pb.SessionStatus()
    if error is not None:
        status.ParseFromString(error.to_status().SerializeToString())
    return pb.SessionResponse(request_id=request_id, finished=pb.SessionFinished(status=status))


class SessionLog:
    """A session's server: answers what was committed with its own prompt as the name."""

    def __init__(self) -> None:
        self.seen: list[pb.SessionRequest] = []
        self.errors: dict[str, MeshError] = {}
        self.silent: set[str] = set()

    def of(self, kind: str) -> list[pb.SessionRequest]:
        return [message for message in self.seen if message.WhichOneof("message") == kind]

    async def script(self, requests: Any, context: Any) -> AsyncIterator[pb.SessionResponse]:
        prompts: dict[str, str] = {}
        async for message in requests:
            self.seen.append(message)
            kind, name = message.WhichOneof("message"), message.request_id
            if kind == "begin":
                prompts[name] = message.begin.request.prompt.messages[-1].parts[0].text
            elif kind == "piece":
                prompts[name] += message.piece
            if kind == "commit" or (kind == "begin" and message.begin.is_complete):
                if name in self.silent:
                    continue
                if name in self.errors:
                    yield finished(name, self.errors[name])
                    continue
                for response in session_chunks(name, document_chunks({"name": prompts[name], "age": 1})):
                    yield response
                yield finished(name)


@pytest.fixture
def log(router: ScriptedRouter) -> SessionLog:
    log = SessionLog()
    router.session_script = log.script
    return log


async def test_session_prompt_grows_by_pieces(log: SessionLog, client: AsyncSsopClient) -> None:
    async with client.session() as session:
        stream = await session.begin("What ")
        await stream.piece("is ")
        await stream.piece("it?")
        await stream.commit()
        assert (await stream.result())["name"] == "What is it?"
        await eventually(lambda: len(log.of("receipt")) == 1)


async def test_session_runs_many_requests_at_once(log: SessionLog, client: AsyncSsopClient) -> None:
    async with client.session() as session:
        streams = [await session.begin(f"p{n}", is_complete=True) for n in range(20)]
        results = await asyncio.gather(*(stream.result() for stream in streams))
    assert [result["name"] for result in results] == [f"p{n}" for n in range(20)]


async def test_error_on_a_session_ends_its_request_only(log: SessionLog, client: AsyncSsopClient) -> None:
    log.errors["bad"] = MeshError(ErrorReason.ERROR_REASON_SCOPE_MISSING, "m", metadata={"scope": "generate"})
    async with client.session() as session:
        bad = await session.begin("x", request_id="bad", is_complete=True)
        with pytest.raises(ScopeMissing) as caught:
            await bad.result()
        assert caught.value.scope == "generate"
        assert (await (await session.begin("ok", is_complete=True)).result())["name"] == "ok"


async def test_cancel_on_a_session_reaches_the_mesh(log: SessionLog, client: AsyncSsopClient) -> None:
    log.silent.add("r")
    async with client.session() as session:
        stream = await session.begin("x", request_id="r", is_complete=True)
        await stream.cancel()
        with pytest.raises(Cancelled):
            await stream.result()
        await eventually(lambda: len(log.of("cancel")) == 1)


async def test_silent_session_request_meets_its_deadline(log: SessionLog, client: AsyncSsopClient) -> None:
    log.silent.add("r")
    async with client.session() as session:
        stream = await session.begin("x", request_id="r", is_complete=True, timeout_s=0.1)
        with pytest.raises(DeadlineExceeded):
            await stream.result()
        await eventually(lambda: len(log.of("cancel")) == 1)
    assert log.of("begin")[0].begin.request.timeout_ms == 100


async def test_credit_comes_back_as_frames_are_consumed(router: ScriptedRouter, client: AsyncSsopClient) -> None:
    given: list[int] = []
    long = document_chunks({"name": "x" * 300_000, "age": 1}, token_bytes=4096)

    async def script(requests: Any, context: Any) -> AsyncIterator[pb.SessionResponse]:
        begin = await anext(requests)
        credit = begin.begin.initial_credit_bytes
        for response in session_chunks(begin.request_id, long):
            while credit < len(response.chunk.SerializeToString()):
                message = await anext(requests)
                given.append(message.credit.bytes)
                credit += message.credit.bytes
            credit -= len(response.chunk.SerializeToString())
            yield response
        yield finished(begin.request_id)

    router.session_script = script
    async with client.session() as session:
        stream = await session.begin("x", is_complete=True)
        result = await stream.result()
    assert len(result["name"]) == 300_000
    assert sum(given) > 100_000


async def test_what_has_arrived_outlives_the_session(router: ScriptedRouter, client: AsyncSsopClient) -> None:
    document = document_chunks({"name": "x" * (CREDIT_BYTES - 8_192), "age": 1}, token_bytes=4096)

    async def script(requests: Any, context: Any) -> AsyncIterator[pb.SessionResponse]:
        begin = await anext(requests)
        for response in session_chunks(begin.request_id, document):
            yield response
        yield finished(begin.request_id)

    router.session_script = script
    async with client.session() as session:
        stream = await session.begin("x", is_complete=True)
        await eventually(lambda: session._error is not None)
        assert len((await stream.result())["name"]) == CREDIT_BYTES - 8_192


async def revoke(requests: Any, context: Any) -> AsyncIterator[pb.SessionResponse]:
    """A session that ends after its first message."""
    await anext(requests)
    await abort(context, MeshError(ErrorReason.ERROR_REASON_KEY_INVALID, "revoked"))
    yield pb.SessionResponse()


async def test_write_to_an_ended_session_says_why_it_ended(router: ScriptedRouter, client: AsyncSsopClient) -> None:
    router.session_script = revoke
    async with client.session() as session:
        stream = await session.begin("x")
        await eventually(lambda: session._error is not None)
        with pytest.raises(AuthenticationError):
            await stream.piece("more")


async def test_write_that_meets_the_end_of_the_session_is_no_fault_of_the_mesh(
    router: ScriptedRouter, client: AsyncSsopClient
) -> None:
    router.session_script = revoke

    async def write_on(stream: SessionStream[Any]) -> None:
        while True:
            await stream.piece("more")

    async with client.session() as session:
        stream = await session.begin("x")
        # grpc.aio loses the status where the two meet; then all that is known is that the session is gone.
        with pytest.raises((AuthenticationError, Unavailable)):
            await write_on(stream)


async def test_peer_that_ignores_credit_is_cut_off(router: ScriptedRouter, client: AsyncSsopClient) -> None:
    long = document_chunks({"name": "x" * 400_000, "age": 1}, token_bytes=4096)
    sent = 0

    async def script(requests: Any, context: Any) -> AsyncIterator[pb.SessionResponse]:
        nonlocal sent
        begin = await anext(requests)
        for response in session_chunks(begin.request_id, long):
            yield response
            sent += response.chunk.ByteSize()
        await asyncio.Event().wait()

    router.session_script = script
    async with client.session() as session:
        stream = await session.begin("x", is_complete=True)
        await eventually(lambda: sent > 3 * CREDIT_BYTES)
        with pytest.raises(ProtocolError):
            await stream.result()


async def test_end_of_the_session_ends_its_requests(router: ScriptedRouter, client: AsyncSsopClient) -> None:
    async def script(requests: Any, context: Any) -> AsyncIterator[pb.SessionResponse]:
        await anext(requests)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "draining")
        yield pb.SessionResponse()

    router.session_script = script
    async with client.session() as session:
        stream = await session.begin("x", is_complete=True)
        with pytest.raises(Unavailable):
            await stream.result()
