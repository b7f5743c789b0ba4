"""A RouterService on grpc.aio whose answers a test writes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import Message

from ssop.v1 import rag_pb2
from ssop.v1 import router_pb2 as pb
from ssop_chassis.errors import MeshError

Script = Callable[[Any, Any], AsyncIterator[bytes]]


def as_script(chunks: Sequence[bytes]) -> Script:
    """A script that sends these chunks."""

    async def send(request: Any, context: Any) -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return send


async def abort(context: Any, error: MeshError) -> NoReturn:
    """End a call as the mesh does."""
    status = error.to_status()
    await context.abort(
        grpc.StatusCode[_code_name(error.code)],
        error.message,
        (("grpc-status-details-bin", status.SerializeToString()),),
    )
    raise AssertionError("abort returns")


def _code_name(number: int) -> str:
    return next(code.name for code in grpc.StatusCode if code.value[0] == number)


class ScriptedRouter:
    """Runs a script for each Generate and Resume; records what it was asked and how many ran at once."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.session_script: Callable[[Any, Any], AsyncIterator[pb.SessionResponse]] | None = None
        self.unary: dict[str, Message | MeshError] = {}
        self.requests: list[Any] = []
        self.metadata: list[dict[str, Any]] = []
        self.in_flight = 0
        self.max_in_flight = 0
        self.cancelled = 0
        self.server: grpc.aio.Server = grpc.aio.server()

    async def _generate(self, request: Any, context: Any) -> AsyncIterator[bytes]:
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            async for chunk in self.script(request, context):
                yield chunk
        except (asyncio.CancelledError, GeneratorExit):
            # A cancel that meets a write is raised in grpc.aio, and the generator is merely closed.
            self.cancelled += 1
            raise
        finally:
            self.in_flight -= 1

    async def _session(self, requests: Any, context: Any) -> AsyncIterator[pb.SessionResponse]:
        assert self.session_script is not None
        async for response in self.session_script(requests, context):
            yield response

    def _unary(self, method: str) -> Callable[[Any, Any], Any]:
        async def answer(request: Any, context: Any) -> Message:
            self.requests.append(request)
            response = self.unary[method]
            if isinstance(response, MeshError):
                await abort(context, response)
            return response

        return answer

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the service."""
        handlers: dict[str, Any] = {
            "Generate": grpc.unary_stream_rpc_method_handler(self._generate, pb.GenerateRequest.FromString, None),
            "Resume": grpc.unary_stream_rpc_method_handler(self._generate, pb.ResumeRequest.FromString, None),
            "Session": grpc.stream_stream_rpc_method_handler(
                self._session, pb.SessionRequest.FromString, pb.SessionResponse.SerializeToString
            ),
        }
        for method in ("CheckSchema", "ExplainDecision", "ListModels", "GetMeshStatus"):
            request = getattr(pb, f"{method}Request")
            response = getattr(pb, f"{method}Response")
            handlers[method] = grpc.unary_unary_rpc_method_handler(
                self._unary(method), request.FromString, response.SerializeToString
            )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("ssop.v1.RouterService", handlers),))
        embed = grpc.unary_unary_rpc_method_handler(
            self._unary("Embed"), rag_pb2.EmbedRequest.FromString, rag_pb2.EmbedResponse.SerializeToString
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("ssop.v1.RagService", {"Embed": embed}),))


@asynccontextmanager
async def serve(router: ScriptedRouter, address: str) -> AsyncIterator[str]:
    """Serve on an address such as `unix:/path` until the block is left."""
    router.add_to(router.server)
    router.server.add_insecure_port(address)
    await router.server.start()
    try:
        yield address
    finally:
        await router.server.stop(None)
