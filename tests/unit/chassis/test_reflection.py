"""What a client without stubs hears of services, on every transport."""

from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2

from ssop.v1 import router_pb2
from ssop_chassis.call import Arity, Method, Service
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.transport import Kind, server_starter
from unit.chassis.transports import SECRET, WIRES, echo

NAME = router_pb2.DESCRIPTOR.services_by_name["RouterService"].full_name
ASK = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


@pytest.mark.parametrize("symbol", [NAME, f"{NAME}.Generate", "ssop.v1.GenerateRequest"])
@pytest.mark.parametrize("kind", WIRES)
async def test_services_methods_and_messages_are_found_by_name(kind: Kind, tmp_path: Path, symbol: str) -> None:
    listen = [f"unix:{tmp_path}/s"]
    service = Service(NAME, [Method(f"/{NAME}/Explain", Arity.UNARY, echo, needs_principal=False)])
    server = await server_starter(kind, "test")(
        [service], listen, authenticate=inner_authenticate(SECRET), has_reflection=True
    )
    async with grpc.aio.insecure_channel(listen[0]) as channel:
        call: Any = cast(Any, channel).stream_stream(ASK)(timeout=60)
        await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol).SerializeToString())
        found = reflection_pb2.ServerReflectionResponse.FromString(await call.read())
        call.cancel()
    await server.stop(0)
    files = [
        descriptor_pb2.FileDescriptorProto.FromString(file)
        for file in found.file_descriptor_response.file_descriptor_proto
    ]
    assert router_pb2.DESCRIPTOR.name in [file.name for file in files]
