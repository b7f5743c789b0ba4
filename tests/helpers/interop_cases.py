"""gRPC's interop cases for the clients that are written in Python: the native transport's and grpcio.

The names and what each case sends and expects are those of gRPC's "Interop Test Case Descriptions".
`python -m helpers.interop_cases native|grpcio MESSAGES HOST:PORT AUTHORITY CASE...` prints what every client program of
tests/polyglot/interop prints: a JSON line for each case, its `error` empty where it went well. AUTHORITY is the file of
an authority, or empty for plain text.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from google.rpc import code_pb2

from helpers.interop_channels import Channel, Ended, NativeDialogue, open_channel
from helpers.interop_packing import Unpacked
from helpers.interop_service import ECHO_INITIAL, ECHO_TRAILING, load_messages

SERVICE: Final = "/grpc.testing.TestService/"
REQUEST_BYTES: Final = (27_182, 8, 1_828, 45_904)
RESPONSE_BYTES: Final = (31_415, 9, 2_653, 58_979)
LARGE_REQUEST_BYTES: Final = 271_828
LARGE_RESPONSE_BYTES: Final = 314_159
MESSAGE: Final = "test status message"
SPECIAL_MESSAGE: Final = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"
SOAK_CALLS: Final = 40
SOAK_BYTES: Final = 20_000
AGING_PAUSE_S: Final = 0.02
"""The server drains its connections each 100 ms or so."""
TIMEOUT_S: Final = 60.0
OWN_FAULT: Final = Ended(code_pb2.INTERNAL, "Internal error from Core")
"""What grpcio's client says of a write that meets the end of its call, whoever serves: one call in ten or a hundred."""
TRIES: Final = 50


class Cases:
    """Each public method but `close` is a case. Raises AssertionError, or what the call raised."""

    def __init__(self, messages: Any, connect: Callable[..., Channel]) -> None:
        self._messages = messages
        self._connect = connect
        self._channel = connect()
        self._unpacked = Unpacked()
        self._unpacked.watch()

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()

    async def empty_unary(self) -> None:
        assert await self._channel.unary(SERVICE + "EmptyCall", b"", TIMEOUT_S) == b""

    async def large_unary(self) -> None:
        await self._large(self._channel, LARGE_REQUEST_BYTES, LARGE_RESPONSE_BYTES)

    async def gzip_large_unary(self) -> None:
        channel = self._connect(is_packing=True)
        try:
            await self._large(channel, LARGE_REQUEST_BYTES, LARGE_RESPONSE_BYTES)
        finally:
            await channel.close()

    async def client_compressed_unary(self) -> None:
        probe = self._simple(expect_compressed=True)
        assert (await self._one("UnaryCall", probe)).code == code_pb2.INVALID_ARGUMENT
        for is_packed in (True, False):
            channel = self._connect(is_packing=is_packed)
            try:
                found = await channel.unary(SERVICE + "UnaryCall", self._simple(expect_compressed=is_packed), TIMEOUT_S)
            finally:
                await channel.close()
            assert len(self._messages.SimpleResponse.FromString(found).payload.body) == LARGE_RESPONSE_BYTES

    async def client_compressed_streaming(self) -> None:
        probe = self._input(REQUEST_BYTES[0], expect_compressed=True)
        assert (await self._one("StreamingInputCall", probe)).code == code_pb2.INVALID_ARGUMENT
        channel = self._connect(is_packing=True)
        try:
            dialogue = await channel.dialogue(SERVICE + "StreamingInputCall", TIMEOUT_S)
            assert isinstance(dialogue, NativeDialogue), "this client can't tell messages apart"
            for size, is_packed in ((REQUEST_BYTES[0], True), (REQUEST_BYTES[3], False)):
                await dialogue.write(self._input(size, expect_compressed=is_packed), is_packed=is_packed)
            await dialogue.finish()
            response = self._messages.StreamingInputCallResponse.FromString(await dialogue.read())
            assert response.aggregated_payload_size == REQUEST_BYTES[0] + REQUEST_BYTES[3]
            assert (await dialogue.end()).code == code_pb2.OK
        finally:
            await channel.close()

    async def server_compressed_unary(self) -> None:
        channel = self._connect(is_packing=True)
        try:
            for is_packed in (True, False):
                request = self._simple(response_compressed=is_packed)
                found = await channel.unary(SERVICE + "UnaryCall", request, TIMEOUT_S)
                assert len(self._messages.SimpleResponse.FromString(found).payload.body) == LARGE_RESPONSE_BYTES
                assert (found in self._unpacked) is is_packed
        finally:
            await channel.close()

    async def server_compressed_streaming(self) -> None:
        wanted = ((31_415, True), (92_653, False))
        parameters = [
            self._messages.ResponseParameters(size=size, compressed=self._messages.BoolValue(value=is_packed))
            for size, is_packed in wanted
        ]
        request = self._messages.StreamingOutputCallRequest(response_parameters=parameters).SerializeToString()
        channel = self._connect(is_packing=True)
        try:
            found = await channel.collect(SERVICE + "StreamingOutputCall", request, TIMEOUT_S)
        finally:
            await channel.close()
        assert [(self._size(message), message in self._unpacked) for message in found] == list(wanted)

    async def client_streaming(self) -> None:
        dialogue = await self._channel.dialogue(SERVICE + "StreamingInputCall", TIMEOUT_S)
        for size in REQUEST_BYTES:
            request = self._messages.StreamingInputCallRequest(payload=self._payload(size))
            await dialogue.write(request.SerializeToString())
        await dialogue.finish()
        response = self._messages.StreamingInputCallResponse.FromString(await dialogue.read())
        assert response.aggregated_payload_size == sum(REQUEST_BYTES)
        assert await dialogue.read() is None
        assert (await dialogue.end()).code == code_pb2.OK

    async def server_streaming(self) -> None:
        found = await self._channel.collect(SERVICE + "StreamingOutputCall", self._output(*RESPONSE_BYTES), TIMEOUT_S)
        assert [self._size(message) for message in found] == list(RESPONSE_BYTES)

    async def ping_pong(self) -> None:
        dialogue = await self._channel.dialogue(SERVICE + "FullDuplexCall", TIMEOUT_S)
        for sent, expected in zip(REQUEST_BYTES, RESPONSE_BYTES, strict=True):
            await dialogue.write(self._output(expected, payload=sent))
            assert self._size(await dialogue.read()) == expected
        await dialogue.finish()
        assert await dialogue.read() is None
        assert (await dialogue.end()).code == code_pb2.OK

    async def empty_stream(self) -> None:
        dialogue = await self._channel.dialogue(SERVICE + "FullDuplexCall", TIMEOUT_S)
        await dialogue.finish()
        assert await dialogue.read() is None
        assert (await dialogue.end()).code == code_pb2.OK

    async def custom_metadata(self) -> None:
        sent: dict[str, str | bytes] = {ECHO_INITIAL: "test_initial_metadata_value", ECHO_TRAILING: b"\xab\xab\xab"}
        unary = self._messages.SimpleRequest(response_size=1, payload=self._payload(1)).SerializeToString()
        for method, message in (("UnaryCall", unary), ("FullDuplexCall", self._output(1))):
            ended = await self._one(method, message, sent)
            assert ended.code == code_pb2.OK
            assert ended.initial.get(ECHO_INITIAL) == sent[ECHO_INITIAL]
            assert ended.trailing.get(ECHO_TRAILING) == sent[ECHO_TRAILING]

    async def status_code_and_message(self) -> None:
        await self._expect_status(MESSAGE, "UnaryCall", "FullDuplexCall")

    async def special_status_message(self) -> None:
        await self._expect_status(SPECIAL_MESSAGE, "UnaryCall")

    async def unimplemented_method(self) -> None:
        ended = await self._one("UnimplementedCall", b"")
        assert ended.code == code_pb2.UNIMPLEMENTED

    async def unimplemented_service(self) -> None:
        ended = await self._one("/grpc.testing.UnimplementedService/UnimplementedCall", b"")
        assert ended.code == code_pb2.UNIMPLEMENTED

    async def cancel_after_begin(self) -> None:
        dialogue = await self._channel.dialogue(SERVICE + "StreamingInputCall", TIMEOUT_S)
        dialogue.cancel()
        assert (await dialogue.end()).code == code_pb2.CANCELLED

    async def cancel_after_first_response(self) -> None:
        dialogue = await self._channel.dialogue(SERVICE + "FullDuplexCall", TIMEOUT_S)
        await dialogue.write(self._output(RESPONSE_BYTES[0], payload=REQUEST_BYTES[0]))
        assert self._size(await dialogue.read()) == RESPONSE_BYTES[0]
        dialogue.cancel()
        assert (await dialogue.end()).code == code_pb2.CANCELLED

    async def timeout_on_sleeping_server(self) -> None:
        ended = OWN_FAULT
        for _ in range(TRIES):
            dialogue = await self._channel.dialogue(SERVICE + "FullDuplexCall", 0.001)
            await dialogue.write(self._output(payload=REQUEST_BYTES[0]))
            ended = await dialogue.end()
            if ended != OWN_FAULT:
                break
        assert ended.code == code_pb2.DEADLINE_EXCEEDED, ended

    async def rpc_soak(self) -> None:
        for _ in range(SOAK_CALLS):
            await self._large(self._channel, SOAK_BYTES, SOAK_BYTES)

    async def aging_soak(self) -> None:
        for _ in range(SOAK_CALLS):
            await self._large(self._channel, SOAK_BYTES, SOAK_BYTES)
            await asyncio.sleep(AGING_PAUSE_S)

    async def channel_soak(self) -> None:
        for _ in range(SOAK_CALLS):
            channel = self._connect()
            try:
                await self._large(channel, SOAK_BYTES, SOAK_BYTES)
            finally:
                await channel.close()

    async def _large(self, channel: Channel, request_bytes: int, response_bytes: int) -> None:
        request = self._messages.SimpleRequest(response_size=response_bytes, payload=self._payload(request_bytes))
        found = await channel.unary(SERVICE + "UnaryCall", request.SerializeToString(), TIMEOUT_S)
        assert len(self._messages.SimpleResponse.FromString(found).payload.body) == response_bytes

    async def _expect_status(self, text: str, *methods: str) -> None:
        status = self._messages.EchoStatus(code=code_pb2.UNKNOWN, message=text)
        for method in methods:
            kind = self._messages.SimpleRequest if method == "UnaryCall" else self._messages.StreamingOutputCallRequest
            ended = await self._one(method, kind(response_status=status).SerializeToString())
            assert (ended.code, ended.message) == (code_pb2.UNKNOWN, text)

    async def _one(self, method: str, message: bytes, metadata: Mapping[str, str | bytes] | None = None) -> Ended:
        """A call with one message, to its end."""
        path = method if method.startswith("/") else SERVICE + method
        return await self._channel.ask(path, message, TIMEOUT_S, metadata)

    def _simple(self, **flags: bool) -> bytes:
        values = {name: self._messages.BoolValue(value=value) for name, value in flags.items()}
        request = self._messages.SimpleRequest(
            response_size=LARGE_RESPONSE_BYTES, payload=self._payload(LARGE_REQUEST_BYTES), **values
        )
        found: bytes = request.SerializeToString()
        return found

    def _input(self, size: int, *, expect_compressed: bool) -> bytes:
        request = self._messages.StreamingInputCallRequest(
            payload=self._payload(size), expect_compressed=self._messages.BoolValue(value=expect_compressed)
        )
        found: bytes = request.SerializeToString()
        return found

    def _payload(self, size: int) -> Any:
        return self._messages.Payload(body=bytes(size))

    def _output(self, *sizes: int, payload: int = 0) -> bytes:
        parameters = [self._messages.ResponseParameters(size=size) for size in sizes]
        request = self._messages.StreamingOutputCallRequest(
            response_parameters=parameters, payload=self._payload(payload)
        )
        found: bytes = request.SerializeToString()
        return found

    def _size(self, message: bytes | None) -> int:
        assert message is not None, "the stream ended"
        return len(self._messages.StreamingOutputCallResponse.FromString(message).payload.body)


async def run(kind: str, messages: Path, target: str, authority: str, names: list[str]) -> None:
    """Run cases and print what became of each."""
    cases = Cases(load_messages(messages), partial(open_channel, kind, target, authority))
    try:
        for name in names:
            case: Callable[[], Awaitable[None]] = getattr(cases, name)
            error = ""
            try:
                await asyncio.wait_for(case(), 2 * TIMEOUT_S)
            except Exception as raised:  # noqa: BLE001 - whatever it is, it is what became of the case
                error = f"{type(raised).__name__}: {raised}"
            print(json.dumps({"case": name, "error": error}), flush=True)
    finally:
        await cases.close()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5:]))
