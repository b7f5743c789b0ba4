"""gRPC's test service as handlers, for every transport of the mesh, and as a program that serves it.

`python -m helpers.interop_service native|grpc MESSAGES [CERTIFICATE KEY AUTHORITY]` prints one JSON line with its
addresses and serves until its input ends. MESSAGES is the file of descriptors that
`tests/polyglot/interop/build_programs.sh` makes.
"""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.rpc import code_pb2

from helpers.interop_packing import Unpacked
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Arity, Call, Handler, Method, Service
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.settings import TlsSettings
from ssop_chassis.tls import NO_TLS, Tls, open_tls
from ssop_chassis.transport import Kind, Server, server_starter
from ssop_transport.served import NativeCall

ECHO_INITIAL: Final = "x-grpc-test-echo-initial"
ECHO_TRAILING: Final = "x-grpc-test-echo-trailing-bin"
AGE_S: Final = 0.1
"""Connections to the address `aging` are told after this time that the server drains, again and again."""


def load_messages(path: Path) -> Any:
    """The messages of the test service by name, made from their descriptors."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file:
        pool.Add(file)
    found = pool.FindFileByName("grpc/testing/interop.proto").message_types_by_name
    return SimpleNamespace(**{name: message_factory.GetMessageClass(kind) for name, kind in found.items()})


class EchoedStatus(MeshError):
    """A status that the client asked for, whatever its code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(ErrorReason.ERROR_REASON_INTERNAL, message)
        self._code = code

    @property
    def code(self) -> int:
        """See MeshError.code."""
        return self._code


class TestServer:
    """The handlers."""

    __test__ = False

    def __init__(self, messages: Any, unpacked: Unpacked) -> None:
        self._messages = messages
        self._unpacked = unpacked

    def service(self) -> Service:
        """All that has an answer; `UnimplementedCall` has none."""
        kinds: dict[str, tuple[Arity, Handler]] = {
            "EmptyCall": (Arity.UNARY, self.empty),
            "UnaryCall": (Arity.UNARY, self.unary),
            "StreamingOutputCall": (Arity.SERVER_STREAM, self.output),
            "StreamingInputCall": (Arity.BIDI, self.input),
            "FullDuplexCall": (Arity.BIDI, self.full_duplex),
            "HalfDuplexCall": (Arity.BIDI, self.half_duplex),
        }
        name = "grpc.testing.TestService"
        return Service(name, [Method(f"/{name}/{m}", a, run, needs_principal=False) for m, (a, run) in kinds.items()])

    async def empty(self, call: Call) -> None:
        """Take nothing, give nothing."""
        await call.write(self._messages.Empty.FromString(call.request).SerializeToString())

    async def unary(self, call: Call) -> None:
        """A payload, or a status."""
        await _echo_metadata(call)
        request = self._messages.SimpleRequest.FromString(call.request)
        self._check_packing(request, call.request)
        _end_as_asked(request)
        response = self._messages.SimpleResponse(payload=self._payload(request.response_size))
        asked = request.response_compressed.value if request.HasField("response_compressed") else None
        await _send(call, response.SerializeToString(), is_packed=asked)

    async def output(self, call: Call) -> None:
        """Payloads of the sizes that were asked for."""
        request = self._messages.StreamingOutputCallRequest.FromString(call.request)
        await self._write(call, request)
        _end_as_asked(request)

    async def input(self, call: Call) -> None:
        """How many bytes came in all."""
        size = 0
        while (message := await call.read()) is not None:
            request = self._messages.StreamingInputCallRequest.FromString(message)
            self._check_packing(request, message)
            size += len(request.payload.body)
        response = self._messages.StreamingInputCallResponse(aggregated_payload_size=size)
        await call.write(response.SerializeToString())

    async def full_duplex(self, call: Call) -> None:
        """To each message its payloads, at once."""
        await _echo_metadata(call)
        while (message := await call.read()) is not None:
            request = self._messages.StreamingOutputCallRequest.FromString(message)
            _end_as_asked(request)
            await self._write(call, request)

    async def half_duplex(self, call: Call) -> None:
        """To all messages their payloads, after the last of them."""
        requests = []
        while (message := await call.read()) is not None:
            requests.append(self._messages.StreamingOutputCallRequest.FromString(message))
        for request in requests:
            await self._write(call, request)

    async def _write(self, call: Call, request: Any) -> None:
        for parameters in request.response_parameters:
            if parameters.interval_us:
                await asyncio.sleep(parameters.interval_us / 1e6)
            response = self._messages.StreamingOutputCallResponse(payload=self._payload(parameters.size))
            asked = parameters.compressed.value if parameters.HasField("compressed") else None
            await _send(call, response.SerializeToString(), is_packed=asked)

    def _check_packing(self, request: Any, message: bytes) -> None:
        """Refuse a message that is compressed where it says that it is not, or the other way round."""
        if request.HasField("expect_compressed") and request.expect_compressed.value != (message in self._unpacked):
            raise EchoedStatus(code_pb2.INVALID_ARGUMENT, "the message came in another form than it says")

    def _payload(self, size: int) -> Any:
        return self._messages.Payload(body=bytes(size))


async def _send(call: Any, message: bytes, *, is_packed: bool | None) -> None:
    """Write in gzip, or not, on a server that sends gzip; None: as the server does."""
    if isinstance(call, NativeCall):
        if is_packed is not None and call._is_packing:
            # Its encoding is said once, before the first message, and each message says whether it is in it.
            if not call._has_written:
                await call.send_initial_metadata({})
            call._is_packing = is_packed
            await call.write(message)
            call._is_packing = True
            return
    elif is_packed is False:
        call._context.disable_next_message_compression()
    await call.write(message)


async def _echo_metadata(call: Call) -> None:
    if ECHO_INITIAL in call.metadata:
        await call.send_initial_metadata({ECHO_INITIAL: call.metadata[ECHO_INITIAL]})
    if ECHO_TRAILING in call.metadata:
        call.set_trailing_metadata({ECHO_TRAILING: call.metadata[ECHO_TRAILING]})


def _end_as_asked(request: Any) -> None:
    if request.response_status.code:
        raise EchoedStatus(request.response_status.code, request.response_status.message)


async def _age(server: Any) -> None:
    """Say to every connection in turn that the server drains, in its two steps."""
    while True:
        known = list(server._connections)
        await asyncio.sleep(AGE_S)
        for connection in known:
            connection.announce_drain()
        while not all(connection.is_drain_heard for connection in known):
            await asyncio.sleep(AGE_S / 20)
        for connection in known:
            connection.drain()


async def serve(kind: Kind, messages: Path, tls: Tls) -> None:
    """Print addresses and serve until the input ends.

    They are `plain`, `tls` and `packed`, which sends gzip to who reads it; of the native transport also `aging`.
    """
    unpacked = Unpacked()
    unpacked.watch()
    services = [TestServer(load_messages(messages), unpacked).service()]

    async def start(name: str) -> Server:
        own = tls if name == "tls" else NO_TLS
        authenticate = inner_authenticate(bytes(32))
        choice = "gzip" if name == "packed" else "none"
        begin = server_starter(kind, "interop")
        return await begin(services, ["127.0.0.1:0"], authenticate=authenticate, tls=own, compression=choice)

    async with AsyncExitStack() as stack:
        addresses: dict[str, str] = {}
        names = ["plain", "packed", *(["tls"] if tls is not NO_TLS else []), *(["aging"] if kind == "native" else [])]
        for name in names:
            server = await start(name)
            stack.push_async_callback(server.stop, 0)
            addresses[name] = server.addresses[0]
            if name == "aging":
                aging = asyncio.ensure_future(_age(server))
                stack.callback(aging.cancel)
        print(json.dumps(addresses), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def _tls(files: list[str]) -> Tls:
    if not files:
        return NO_TLS
    certificate, key, authority = (Path(file) for file in files)
    settings = TlsSettings(certificate_file=certificate, key_file=key, ca_file=authority, mutual=[])
    return open_tls(settings, "interop")


if __name__ == "__main__":
    asyncio.run(serve(cast(Kind, sys.argv[1]), Path(sys.argv[2]), _tls(sys.argv[3:])))
