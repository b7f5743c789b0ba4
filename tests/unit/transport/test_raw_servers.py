"""The native client against servers by hand: what it sends, and what it makes of answers that no library gives."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.raw_http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    Frame,
    RawClient,
    accept_raw,
    block,
    frame,
    message,
)
from ssop_chassis.errors import MeshError
from ssop_chassis.transport import connector
from ssop_transport import wire

pytestmark = pytest.mark.needs("native_transport")
METHOD = "/test.T/M"
OK = ((b":status", b"200"), (b"content-type", b"application/grpc"))
GOOD_END = ((b"grpc-status", b"0"),)
CANCEL = 8
LARGE_BYTES = 200_000
"""More than a stream's window."""


def answer(stream_id: int, headers: Any, *, is_last: bool = False) -> bytes:
    return frame(HEADERS, END_HEADERS | (END_STREAM if is_last else 0), stream_id, block(headers))


def whole(stream_id: int, payload: bytes = b"a") -> bytes:
    body = message(stream_id, payload, is_last=False)
    return answer(stream_id, OK) + body + answer(stream_id, GOOD_END, is_last=True)


@asynccontextmanager
async def calling(folder: Path) -> AsyncIterator[tuple[Any, "asyncio.Queue[RawClient]"]]:
    """The native client, and the connections that it makes."""
    path = f"{folder}/s.sock"
    async with accept_raw(path) as accepted:
        peer = connector("native")(f"unix:{path}")
        yield peer, accepted
        await peer.close()


async def outcome_of(folder: Path, sent: bytes, request: bytes = b"q") -> Any:
    """What a unary call comes to whose server answers with these bytes: a message, or an error."""
    async with calling(folder) as (peer, accepted):
        call = asyncio.ensure_future(peer.unary(METHOD, request, timeout_s=60))
        server = await accepted.get()
        assert await server.until(HEADERS) is not None
        await server.send(sent)
        await asyncio.wait([call])
        server.close()
        return call.exception() or call.result()


async def error_of(folder: Path, sent: bytes, request: bytes = b"q") -> MeshError:
    found = await outcome_of(folder, sent, request)
    assert isinstance(found, MeshError), found
    return found


async def frames_until_ping(server: RawClient) -> list[Frame]:
    """What came before the answer to a ping that is sent now."""
    await server.send(frame(PING, 0, 0, b"marked.."))
    frames: list[Frame] = []
    while (found := await server.next()) is not None:
        if found.kind == PING and found.payload == b"marked..":
            return frames
        frames.append(found)
    raise AssertionError("the client hung up")


async def test_call_by_hand_gets_its_answer(tmp_path: Path) -> None:
    assert await outcome_of(tmp_path, whole(1, b"hello")) == b"hello"


async def test_call_that_is_reset_twice_before_it_is_sent_leaves_nothing_on_the_wire(tmp_path: Path) -> None:
    async with calling(tmp_path) as (peer, accepted):
        first = asyncio.ensure_future(peer.unary(METHOD, b"", timeout_s=60))
        server = await accepted.get()
        assert await server.until(DATA, 1) is not None
        await server.send(whole(1))
        await first
        connection = peer._pick()
        stream = connection.open(
            wire.request_headers(wire.begin_request(b"http", b"test", METHOD), 60, {}), lambda: None
        )
        stream.reset()
        stream.reset()
        frames = await frames_until_ping(server)
        server.close()
    # A reset of a stream that was never opened is an error of the whole connection (RFC 9113, 6.4).
    assert [found for found in frames if found.stream_id == stream.id] == []


async def test_answer_that_ends_before_the_request_is_read_breaks_the_request_off(tmp_path: Path) -> None:
    async with calling(tmp_path) as (peer, accepted):
        call = asyncio.ensure_future(peer.unary(METHOD, bytes(LARGE_BYTES), timeout_s=60))
        server = await accepted.get()
        assert await server.until(HEADERS, 1) is not None
        await server.send(answer(1, [*OK, (b"grpc-status", b"8"), (b"grpc-message", b"no room")], is_last=True))
        with pytest.raises(MeshError, match="no room"):
            await call
        assert await server.until(RST_STREAM, 1) is not None
        server.close()


async def test_answer_that_ends_without_trailers_ends_the_call(tmp_path: Path) -> None:
    sent = answer(1, OK) + frame(DATA, END_STREAM, 1)
    found = await error_of(tmp_path, sent, bytes(LARGE_BYTES))
    assert (found.reason_name, found.message) == ("INTERNAL", "a call ended without a status")


async def test_answer_that_ends_in_the_middle_of_a_message_is_an_error_whatever_its_status(
    tmp_path: Path,
) -> None:
    cut = frame(DATA, 0, 1, b"\0\0\0\0\5he")
    found = await error_of(tmp_path, answer(1, OK) + cut + answer(1, GOOD_END, is_last=True))
    assert (found.reason_name, found.message) == ("INTERNAL", "the answer ends in the middle of a message")


async def test_call_whose_answer_has_begun_is_not_sent_again_though_it_is_refused(tmp_path: Path) -> None:
    async with calling(tmp_path) as (peer, accepted):
        call = asyncio.ensure_future(peer.unary(METHOD, b"", timeout_s=60))
        server = await accepted.get()
        assert await server.until(HEADERS, 1) is not None
        await server.send(answer(1, OK) + frame(RST_STREAM, 0, 1, wire.REFUSED_STREAM.to_bytes(4, "big")))
        with pytest.raises(MeshError):
            await call
        assert [found.kind for found in await frames_until_ping(server) if found.kind == HEADERS] == []
        server.close()


async def test_call_that_is_refused_again_is_given_up(tmp_path: Path) -> None:
    asked: list[int] = []

    async def refuse(server: RawClient) -> None:
        while (found := await server.next()) is not None:
            if found.kind == HEADERS:
                asked.append(found.stream_id)
                await server.send(frame(RST_STREAM, 0, found.stream_id, wire.REFUSED_STREAM.to_bytes(4, "big")))

    async with calling(tmp_path) as (peer, accepted):
        call = asyncio.ensure_future(peer.unary(METHOD, b"", timeout_s=60))
        server = await accepted.get()
        refusing = asyncio.ensure_future(refuse(server))
        with pytest.raises(MeshError):
            await call
        await peer.close()
        await refusing
        server.close()
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (400, "INTERNAL"),
        (401, "PRINCIPAL_INVALID"),
        (403, "SCOPE_MISSING"),
        (404, "UNSUPPORTED"),
        (429, "BACKEND_FAILED"),
        (502, "BACKEND_FAILED"),
        (503, "BACKEND_FAILED"),
        (504, "BACKEND_FAILED"),
        (418, "INTERNAL"),
    ],
)
async def test_http_status_of_a_proxy_stands_for_a_status(tmp_path: Path, status: int, reason: str) -> None:
    headers = [(b":status", b"%d" % status), (b"content-type", b"text/html")]
    sent = answer(1, headers) + frame(DATA, END_STREAM, 1, b"<html>")
    assert (await error_of(tmp_path, sent)).reason_name == reason


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (0, "INTERNAL"),
        (1, "INTERNAL"),
        (2, "INTERNAL"),
        (8, "BACKEND_FAILED"),
        (11, "OVERLOADED"),
        (12, "SCOPE_MISSING"),
        (99, "INTERNAL"),
    ],
)
async def test_reset_stands_for_a_status(tmp_path: Path, code: int, reason: str) -> None:
    sent = answer(1, OK) + frame(RST_STREAM, 0, 1, code.to_bytes(4, "big"))
    assert (await error_of(tmp_path, sent)).reason_name == reason


async def test_informational_answers_come_before_the_answer(tmp_path: Path) -> None:
    early = answer(1, [(b":status", b"103"), (b"link", b"</style.css>")])
    assert await outcome_of(tmp_path, early + early + whole(1, b"late")) == b"late"


async def test_answer_may_consist_of_trailers_alone(tmp_path: Path) -> None:
    sent = answer(1, [*OK, (b"grpc-status", b"14"), (b"grpc-message", b"50%25 %E9%94%99")], is_last=True)
    found = await error_of(tmp_path, sent)
    assert (found.reason_name, found.message) == ("BACKEND_FAILED", "50% 错")


@pytest.mark.parametrize(
    ("sent", "message_"), [(b"a%", "a%"), (b"%zz", "%zz"), (b"%ff", "�"), (b"%41%4", "A%4")], ids=repr
)
async def test_malformed_message_is_read_as_far_as_it_goes(tmp_path: Path, sent: bytes, message_: str) -> None:
    headers = [*OK, (b"grpc-status", b"13"), (b"grpc-message", sent)]
    assert (await error_of(tmp_path, answer(1, headers, is_last=True))).message == message_


@pytest.mark.parametrize("value", [b"q83v", b"q80=", b"q80"], ids=repr)
async def test_binary_trailers_are_read_with_and_without_padding(tmp_path: Path, value: bytes) -> None:
    async with calling(tmp_path) as (peer, accepted):
        call = asyncio.ensure_future(peer.stream(METHOD, b"", lambda _: None, timeout_s=60))
        server = await accepted.get()
        assert await server.until(HEADERS) is not None
        await server.send(answer(1, OK) + answer(1, [*GOOD_END, (b"x-bin", value)], is_last=True))
        found = (await call)["x-bin"]
        server.close()
    assert found[:2] == b"\xab\xcd"


async def test_calls_at_and_below_the_number_of_a_goaway_end_and_later_ones_are_sent_again(tmp_path: Path) -> None:
    async with calling(tmp_path) as (peer, accepted):
        first = asyncio.ensure_future(peer.unary(METHOD, b"first", timeout_s=60))
        server = await accepted.get()
        assert await server.until(DATA, 1) is not None
        second = asyncio.ensure_future(peer.unary(METHOD, b"second", timeout_s=60))
        assert await server.until(DATA, 3) is not None
        await server.send(frame(GOAWAY, 0, 0, (1).to_bytes(4, "big") + bytes(4)))
        other = await accepted.get()
        assert await other.until(DATA, 1) is not None
        await other.send(whole(1, b"from the other"))
        assert await second == b"from the other"
        await server.send(whole(1, b"from the first"))
        assert await first == b"from the first"
        server.close()
        other.close()


async def test_call_whose_time_is_up_is_reset(tmp_path: Path) -> None:
    async with calling(tmp_path) as (peer, accepted):
        call = asyncio.ensure_future(peer.unary(METHOD, b"", timeout_s=0.5))
        server = await accepted.get()
        assert await server.until(DATA, 1) is not None
        with pytest.raises(MeshError) as caught:
            await call
        reset = await server.until(RST_STREAM, 1)
        server.close()
    assert caught.value.reason_name == "DEADLINE_EXCEEDED"
    assert reset is not None
    assert int.from_bytes(reset.payload, "big") == CANCEL


async def test_call_that_waits_for_a_stream_is_late_alone_and_never_sent(tmp_path: Path) -> None:
    async with calling(tmp_path) as (peer, accepted):
        first = asyncio.ensure_future(peer.unary(METHOD, b"first", timeout_s=60))
        server = await accepted.get()
        await server.send(frame(SETTINGS, 0, 0, b"\0\3" + (1).to_bytes(4, "big")))
        assert await server.until(DATA, 1) is not None
        await frames_until_ping(server)
        with pytest.raises(MeshError) as caught:
            await peer.unary(METHOD, b"second", timeout_s=0.05)
        third = asyncio.ensure_future(peer.unary(METHOD, b"third", timeout_s=60))
        frames = await frames_until_ping(server)
        await server.send(whole(1, b"one"))
        assert await first == b"one"
        asked = await server.until(DATA)
        assert asked is not None
        await server.send(whole(asked.stream_id, b"three"))
        assert await third == b"three"
        server.close()
    assert caught.value.reason_name == "DEADLINE_EXCEEDED"
    assert [found for found in frames if found.stream_id > 1] == []
    assert asked.payload.endswith(b"third")


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(answer(1, OK) + answer(1, GOOD_END, is_last=True), id="no message"),
        pytest.param(
            answer(1, OK) + message(1, b"a", is_last=False) * 2 + answer(1, GOOD_END, is_last=True), id="two messages"
        ),
        pytest.param(
            answer(1, OK) + frame(DATA, 0, 1, b"\0\0") + answer(1, GOOD_END, is_last=True), id="half a prefix"
        ),
        pytest.param(answer(1, OK) + answer(1, [(b"grpc-status", b"soon")], is_last=True), id="a status that is none"),
        pytest.param(answer(1, OK) + answer(1, [*GOOD_END, (b"x-bin", b"!")], is_last=True), id="base64 that is none"),
        pytest.param(answer(1, [(b":status", b"200"), (b"content-type", b"text/html")], is_last=True), id="a page"),
        pytest.param(answer(1, [(b"content-type", b"application/grpc")]), id="no HTTP status"),
    ],
)
async def test_answer_against_the_rules_is_an_internal_error(tmp_path: Path, sent: bytes) -> None:
    assert (await error_of(tmp_path, sent)).reason_name == "INTERNAL"
