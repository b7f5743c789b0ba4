"""The client of a session."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from helpers.scripted_mesh import SESSION, Mesh, ask
from ssop.v1.frame_pb2 import FrameKind
from ssop.v1.router_pb2 import (
    SessionBegin,
    SessionRequest,
    SessionResponse,
)
from ssop_chassis.errors import MeshError, from_status
from ssop_chassis.memory import MemoryStream


class Client:
    """The client of one session."""

    def __init__(self, stream: MemoryStream) -> None:
        self.stream = stream
        self.frames: dict[str, list[Any]] = {}
        self.finished: dict[str, MeshError | None] = {}

    async def send(self, request_id: str, **message: Any) -> None:
        await self.stream.write(SessionRequest(request_id=request_id, **message).SerializeToString())

    async def begin(self, request_id: str, text: str = "Hi", *, is_complete: bool = True, **options: Any) -> None:
        credit = options.pop("credit", 0)
        begin = SessionBegin(request=ask(text, **options), is_complete=is_complete, initial_credit_bytes=credit)
        await self.send(request_id, begin=begin)

    async def read(self) -> bool:
        """Take one response; False at the end of the session."""
        data = await self.stream.read()
        if data is None:
            return False
        response = SessionResponse.FromString(data)
        if response.WhichOneof("message") == "chunk":
            self.frames.setdefault(response.request_id, []).extend(response.chunk.frames)
        else:
            status = response.finished.status
            error = from_status(status.code, status.message, status.SerializeToString()) if status.code else None
            self.finished[response.request_id] = error
        return True

    async def until_finished(self, *request_ids: str) -> None:
        while not set(request_ids) <= set(self.finished):
            assert await self.read()

    def is_whole(self, request_id: str) -> bool:
        return bool(self.frames[request_id][-1].kind == FrameKind.FRAME_KIND_ACCOUNTING)


@asynccontextmanager
async def open_session(mesh: Mesh, *, policy: str = "lite", key: str | None = None) -> AsyncIterator[Client]:
    async with mesh.peer.open(
        SESSION, timeout_s=10, metadata=mesh.metadata(key, **{"x-router-policy": policy})
    ) as stream:
        yield Client(stream)
