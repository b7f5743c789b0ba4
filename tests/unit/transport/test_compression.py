"""Messages that are compressed: by the rules, against them, and as bombs."""

import gzip
import random
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from hpack import Decoder

from helpers.raw_http2 import ACK, CALL, DATA, END_STREAM, HEADERS, PING, RawClient, call, frame, message
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Arity, Call, Method, Service
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.transport import Kind, connector, server_starter
from ssop_transport import compression
from unit.chassis.transports import SECRET, echo, hang

pytestmark = pytest.mark.needs("native_transport")
LIMIT_BYTES = 100_000
TEXT = b"a prompt that repeats itself; " * 1_000
GZIPPED = (*CALL, (b"grpc-encoding", b"gzip"))


async def repeat(call: Call) -> None:
    """Write the request three times, and a short message."""
    for _ in range(3):
        await call.write(call.request)
    await call.write(b"short")


SERVICE = Service(
    "test.T",
    [
        Method("/test.T/M", Arity.UNARY, echo, needs_principal=False),
        Method("/test.T/Hang", Arity.BIDI, hang, needs_principal=False),
        Method("/test.T/Repeat", Arity.SERVER_STREAM, repeat, needs_principal=False),
    ],
)


async def start(folder: Path, kind: Kind = "native", **options: Any) -> Any:
    return await server_starter(kind, "test")(
        [SERVICE],
        [f"unix:{folder}/s"],
        authenticate=inner_authenticate(SECRET),
        max_message_bytes=LIMIT_BYTES,
        **options,
    )


async def answer(folder: Path, request: bytes) -> dict[bytes, bytes]:
    """The trailers of a call that is sent by hand."""
    server = await start(folder)
    client = await RawClient.connect(f"{folder}/s")
    await client.send(request)
    decoder, found = Decoder(), None
    while (found := await client.until(HEADERS, 1)) is not None:
        pairs = decoder.decode(found.payload, raw=True)
        if found.flags & END_STREAM:
            client.close()
            await server.stop(0)
            return dict(pairs)
    raise AssertionError("the server hung up")


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate"])
def test_what_is_packed_is_unpacked(encoding: bytes) -> None:
    packed = compression.pack(TEXT) if encoding == b"gzip" else zlib.compress(TEXT)
    assert compression.unpack(encoding, packed, len(TEXT)) == TEXT


def test_empty_message_is_unpacked() -> None:
    assert compression.unpack(b"gzip", compression.pack(b""), 0) == b""


@pytest.mark.parametrize("most_bytes", [0, 1, len(TEXT) - 1])
def test_message_over_the_limit_is_refused(most_bytes: int) -> None:
    with pytest.raises(compression.PackTooLargeError):
        compression.unpack(b"gzip", gzip.compress(TEXT), most_bytes)


def test_every_cut_and_every_flipped_byte_is_an_error_or_the_message() -> None:
    text = random.Random(7).randbytes(200)
    packed = compression.pack(text)
    for cut in range(len(packed)):
        with pytest.raises(compression.PackError):
            compression.unpack(b"gzip", packed[:cut], 1_000)
    for place in range(len(packed)):
        damaged = packed[:place] + bytes([packed[place] ^ 0x55]) + packed[place + 1 :]
        try:
            # Some bytes of the header of gzip mean nothing.
            assert compression.unpack(b"gzip", damaged, 1_000) == text
        except (compression.PackError, compression.PackTooLargeError):
            continue


def test_what_follows_the_end_is_an_error() -> None:
    with pytest.raises(compression.PackError):
        compression.unpack(b"gzip", compression.pack(b"a") + b"b", 1_000)


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [(b"gzip", True), (b"identity, deflate , gzip", True), (b"identity", False), (b"", False), (b"xgzip", False)],
)
def test_list_of_encodings_is_read(accepted: bytes, expected: bool) -> None:
    assert compression.accepts_gzip(accepted) is expected


@pytest.mark.parametrize(("client", "server"), [("grpc", "native"), ("native", "grpc"), ("native", "native")])
async def test_both_sides_compress_when_told_to(tmp_path: Path, client: Kind, server: Kind) -> None:
    served = await start(tmp_path, server, compression="gzip")
    peer = connector(client, "gzip")(f"unix:{tmp_path}/s")
    found: list[bytes] = []
    await peer.stream("/test.T/Repeat", TEXT, found.append, timeout_s=60)
    assert found == [TEXT, TEXT, TEXT, b"short"]
    assert await peer.unary("/test.T/M", b"small", timeout_s=60) == b"small"
    await peer.close()
    await served.stop(0)


async def test_server_that_compresses_sends_as_it_is_to_those_who_do_not_read_it(tmp_path: Path) -> None:
    served = await start(tmp_path, compression="gzip")
    client = await RawClient.connect(f"{tmp_path}/s")
    await client.send(call(1) + message(1, b"x" * 5_000))
    found = await client.until(DATA, 1)
    assert found is not None
    assert found.payload[0] == 0
    await client.send(call(3, [*CALL, (b"grpc-accept-encoding", b"gzip")]) + message(3, b"x" * 5_000))
    found = await client.until(DATA, 3)
    assert found is not None
    assert found.payload[0] == 1
    assert gzip.decompress(found.payload[5:]) == b"x" * 5_000
    client.close()
    await served.stop(0)


async def test_bomb_is_refused(tmp_path: Path) -> None:
    bomb = compression.pack(bytes(LIMIT_BYTES * 20))
    assert len(bomb) < LIMIT_BYTES // 10
    assert (await answer(tmp_path, call(1, GZIPPED) + message(1, bomb, flag=1)))[b"grpc-status"] == b"8"


async def test_compressed_messages_that_nobody_takes_are_kept_as_they_came(tmp_path: Path) -> None:
    server = await start(tmp_path)
    client = await RawClient.connect(f"{tmp_path}/s")
    packed = compression.pack(bytes(LIMIT_BYTES))
    count = 60_000 // (len(packed) + 5)
    tracemalloc.start()
    many = b"".join(message(1, packed, flag=1, is_last=False) for _ in range(count))
    await client.send(
        call(1, [*GZIPPED[:2], (b":path", b"/test.T/Hang"), *GZIPPED[3:]]) + many + frame(PING, 0, 0, bytes(8))
    )
    while (found := await client.until(PING)) is not None and not found.flags & ACK:
        pass
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    client.close()
    await server.stop(0)
    assert count > 100
    assert held_bytes < 10 * LIMIT_BYTES


async def test_compressed_message_of_no_encoding_is_the_clients_fault(tmp_path: Path) -> None:
    packed = message(1, compression.pack(TEXT), flag=1)
    assert (await answer(tmp_path, call(1) + packed))[b"grpc-status"] == b"13"
    identity = [*CALL, (b"grpc-encoding", b"identity")]
    assert (await answer(tmp_path, call(1, identity) + packed))[b"grpc-status"] == b"13"


@pytest.mark.parametrize("payload", [b"", b"plain text", compression.pack(TEXT)[:-1], zlib.compress(TEXT)])
async def test_damaged_message_ends_its_call(tmp_path: Path, payload: bytes) -> None:
    assert (await answer(tmp_path, call(1, GZIPPED) + message(1, payload, flag=1)))[b"grpc-status"] == b"13"


async def test_unknown_encoding_is_answered_with_those_that_are_known(tmp_path: Path) -> None:
    found = await answer(tmp_path, call(1, [*CALL, (b"grpc-encoding", b"snappy")]) + message(1, b"x", flag=1))
    assert (found[b"grpc-status"], found[b"grpc-accept-encoding"]) == (b"12", b"identity,deflate,gzip")


async def test_message_as_it_is_may_follow_under_an_encoding(tmp_path: Path) -> None:
    assert (await answer(tmp_path, call(1, GZIPPED) + message(1, TEXT[:5_000])))[b"grpc-status"] == b"0"


async def test_client_refuses_a_bomb(tmp_path: Path) -> None:
    server = await start(tmp_path, compression="gzip")
    peer = connector("native", "gzip")(f"unix:{tmp_path}/s", max_message_bytes=len(TEXT) - 1)
    with pytest.raises(MeshError) as caught:
        await peer.unary("/test.T/M", TEXT, timeout_s=60)
    assert caught.value.reason == ErrorReason.ERROR_REASON_MESSAGE_TOO_LARGE
    await peer.close()
    await server.stop(0)


async def test_message_may_come_long_after_the_headers_that_name_its_encoding(tmp_path: Path) -> None:
    server = await start(tmp_path)
    client = await RawClient.connect(f"{tmp_path}/s")
    await client.send(call(1, GZIPPED))
    # The server has taken the headers apart by the time it answers this.
    await client.send(frame(PING, 0, 0, bytes(8)))
    while (found := await client.until(PING)) is not None and not found.flags & ACK:
        pass
    await client.send(message(1, gzip.compress(b"late"), flag=1))
    data = await client.until(DATA, 1)
    client.close()
    await server.stop(0)
    assert data is not None
    assert data.payload == b"\0\0\0\0\4late"
