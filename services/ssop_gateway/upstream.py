"""Calls of the edge into the router. Errors are EdgeError; a cancelled task cancels its call."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health_pb2

from ssop_chassis.call import Metadata, Peer
from ssop_chassis.errors import MeshError
from ssop_codec import FrameError, FrameKind, scan_heads
from ssop_codec.probes import chunk_received, stream_number
from ssop_gateway.core.faults import EdgeError, of_mesh
from ssop_gateway.core.reading import Caller

GENERATE: Final = "/ssop.v1.RouterService/Generate"
RESUME: Final = "/ssop.v1.RouterService/Resume"
LIST_MODELS: Final = "/ssop.v1.RouterService/ListModels"
CHECK_SCHEMA: Final = "/ssop.v1.RouterService/CheckSchema"
EXPLAIN: Final = "/ssop.v1.RouterService/ExplainDecision"
EMBED: Final = "/ssop.v1.RagService/Embed"
MESH_STATUS: Final = "/ssop.v1.RouterService/GetMeshStatus"
_HEALTH: Final = "/grpc.health.v1.Health/Check"
_GRACE_S: Final = 1.0
M = TypeVar("M", bound=Message)


class Router:
    """The router, as the edge sees it. `clock` is in seconds, monotonic."""

    def __init__(self, peer: Peer, *, ready_timeout_ms: int, ready_cache_ms: int, clock: Callable[[], float]) -> None:
        self._peer = peer
        self._ready_timeout_s = ready_timeout_ms / 1000
        self._ready_cache_s = ready_cache_ms / 1000
        self._clock = clock
        self._ready = (float("-inf"), False)
        self._asking = asyncio.Lock()

    async def stream(
        self,
        method: str,
        request: Message,
        on_chunk: Callable[[bytes], Awaitable[None]],
        *,
        caller: Caller,
        timeout_s: float,
    ) -> Metadata:
        """Call a streaming method; returns the trailers.

        `on_chunk` is awaited before more is read, so a slow reader slows the model. The deadline holds meanwhile, too.
        """
        number = stream_number(getattr(request, "request_id", ""))

        def take(chunk: bytes) -> Awaitable[None]:
            _tell_tracers(number, chunk)
            return on_chunk(chunk)

        try:
            async with asyncio.timeout(timeout_s + _GRACE_S):
                return await self._peer.stream(
                    method, request.SerializeToString(), take, timeout_s=timeout_s, metadata=caller.metadata()
                )
        except MeshError as error:
            raise of_mesh(error) from error
        except TimeoutError:
            raise EdgeError("DEADLINE_EXCEEDED", "the deadline passed") from None

    async def unary(self, method: str, request: Message, kind: type[M], *, caller: Caller, timeout_s: float) -> M:
        """Call a unary method."""
        try:
            response = await self._peer.unary(
                method, request.SerializeToString(), timeout_s=timeout_s, metadata=caller.metadata()
            )
            return kind.FromString(response)
        except MeshError as error:
            raise of_mesh(error) from error
        except DecodeError:
            raise EdgeError("PROTOCOL_ERROR", "the router's answer is malformed") from None

    async def is_ready(self) -> bool:
        """Whether the router says that it serves; asked at most once in `ready_cache_ms`, by one at a time."""
        async with self._asking:
            asked_s, is_serving = self._ready
            if self._clock() - asked_s < self._ready_cache_s:
                return is_serving
            is_serving = await self._ask()
            self._ready = (self._clock(), is_serving)
            return is_serving

    async def _ask(self) -> bool:
        request = health_pb2.HealthCheckRequest().SerializeToString()
        try:
            answer = await self._peer.unary(_HEALTH, request, timeout_s=self._ready_timeout_s)
            status = health_pb2.HealthCheckResponse.FromString(answer).status
        except (MeshError, DecodeError):
            return False
        return bool(status == health_pb2.HealthCheckResponse.SERVING)


def _tell_tracers(stream: int, chunk: bytes) -> None:
    try:
        frames = sum(kind < FrameKind.DECISION for kind, _, _ in scan_heads(chunk))
    except FrameError:
        # Who reads the chunk says so.
        return
    chunk_received(stream, frames, len(chunk))
