"""The reflection service, answered by gRPC's own servicer."""

from collections.abc import Sequence
from typing import Final

from grpc_reflection.v1alpha import reflection, reflection_pb2

from ssop_chassis.call import Arity, Call, Method, Service
from ssop_chassis.reflection import MethodPool
from ssop_transport.served import too_many

MAX_REFLECTIONS: Final = 16
"""At once. A reflection needs no key and may last, so they must not fill what a server takes of calls."""


def reflecting(names: Sequence[str]) -> Service:
    """The service that tells of the services with these names."""
    servicer = reflection.ReflectionServicer([*names, reflection.SERVICE_NAME], MethodPool())
    running = 0

    async def info(call: Call) -> None:
        nonlocal running
        if running >= MAX_REFLECTIONS:
            raise too_many()
        running += 1
        try:
            await answer(call)
        finally:
            running -= 1

    async def answer(call: Call) -> None:
        while (message := await call.read()) is not None:
            request = reflection_pb2.ServerReflectionRequest.FromString(message)
            for response in servicer.ServerReflectionInfo(iter((request,)), None):
                await call.write(response.SerializeToString())

    path = f"/{reflection.SERVICE_NAME}/ServerReflectionInfo"
    return Service(reflection.SERVICE_NAME, [Method(path, Arity.BIDI, info, needs_principal=False)])
