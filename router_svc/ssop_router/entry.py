"""One request of a session while its prompt arrives: text, credit, and the prefetches that were begun for it."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from ssop.v1.content_pb2 import ContentPart, Role
from ssop.v1.router_pb2 import GenerateRequest
from ssop_chassis.errors import MeshError, invalid_request
from ssop_codec import scan_heads, survey
from ssop_router.core.arrival import Arrival, Timing
from ssop_router.core.frames import FIRST_MESH_KIND
from ssop_router.features import last_user_text
from ssop_router.job import Prefetches
from ssop_router.validation import check_prompt_size


class Entry:
    """A request. `now_ms` is monotonic."""

    def __init__(self, request: GenerateRequest, credit_bytes: int, timing: Timing, now_ms: float) -> None:
        self.request = request
        self.prompt_bytes = request.prompt.ByteSize()
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.prefetches = Prefetches()
        self.is_prefetch_late = False
        self.arrival = Arrival(timing, _base(request), now_ms)
        self._credit_bytes = credit_bytes
        self._has_credit = asyncio.Event()
        self._is_over = False
        self._sending: asyncio.Task[None] | None = None
        self._waiting: deque[bytes] = deque()

    def add(self, piece: str, max_prompt_bytes: int, now_ms: float) -> None:
        """Append text to the last user message. Raises MESSAGE_TOO_LARGE."""
        if not piece:
            return
        self.prompt_bytes += len(piece.encode())
        check_prompt_size(self.prompt_bytes, max_prompt_bytes)
        self.arrival.add(piece, now_ms)

    def complete(self) -> GenerateRequest:
        """The request with its pieces in place. Raises REQUEST_INVALID where there is no user message for them."""
        if self.arrival.has_pieces:
            messages = self.request.prompt.messages
            if not messages or messages[-1].role != Role.ROLE_USER:
                raise invalid_request(("request.prompt.messages", "the last must be of the user where pieces follow"))
            parts = messages[-1].parts
            if parts and parts[-1].WhichOneof("part") == "text":
                parts[-1].text += self.arrival.pieces
            else:
                parts.append(ContentPart(text=self.arrival.pieces))
        return self.request

    def give(self, credit_bytes: int) -> None:
        """The client can take so many bytes more."""
        self._credit_bytes += credit_bytes
        self._has_credit.set()

    def send(self, chunk: bytes, write: Callable[[bytes], Awaitable[None]]) -> "asyncio.Task[None]":
        """Write a chunk after those before it, once the client can take its bytes; never, where it is over by then."""
        self._waiting.append(chunk)
        self._sending = asyncio.get_running_loop().create_task(self._send_after(self._sending, chunk, write))
        return self._sending

    async def finish_sending(self) -> None:
        """See Queue.finish_sending."""
        if self._sending is not None:
            await asyncio.shield(self._sending)

    def end(self) -> int:
        """See Queue.end: the request is over."""
        self._is_over = True
        self._has_credit.set()
        return sum(survey(chunk).documents for chunk in self._waiting)

    def correct(self, error: MeshError) -> MeshError:
        """The error that ended it, with the `last_seq` of what the client had room for."""
        heads = (head for chunk in self._waiting for head in scan_heads(chunk))
        first_seq = next((seq for kind, seq, _ in heads if kind < FIRST_MESH_KIND), None)
        if first_seq is None or int(error.metadata.get("last_seq", 0)) < first_seq:
            return error
        return MeshError(error.reason, error.message, metadata={**error.metadata, "last_seq": str(first_seq - 1)})

    async def _send_after(
        self, before: "asyncio.Task[None] | None", chunk: bytes, write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        if before is not None and not before.done():
            await asyncio.wait({before})
        while self._credit_bytes < len(chunk) and not self._is_over:
            self._has_credit.clear()
            await self._has_credit.wait()
        if not self._is_over:
            self._waiting.popleft()
            self._credit_bytes -= len(chunk)
            await write(chunk)

    def stop_timer(self) -> None:
        """No prefetch is to be started by time any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def _base(request: GenerateRequest) -> str:
    """What the last user message holds before the pieces, as the query of a retrieval will have it."""
    messages = request.prompt.messages
    if not messages or messages[-1].role != Role.ROLE_USER:
        return ""
    text = last_user_text(request.prompt)
    has_text_last = messages[-1].parts and messages[-1].parts[-1].WhichOneof("part") == "text"
    return text if has_text_last or not text else text + "\n"
