"""A session: many requests on one stream, whose prompts may arrive in pieces, each with its own credit and deadline."""

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import status_pb2

from ssop.v1.content_pb2 import ContentPart, Role
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.router_pb2 import (
    GenerateRequest,
    SessionBegin,
    SessionFinished,
    SessionRequest,
    SessionResponse,
    SessionStatus,
)
from ssop_chassis.call import Call
from ssop_chassis.errors import MeshError, as_mesh_error, invalid_request
from ssop_chassis.identity import Principal
from ssop_chassis.logs import describe
from ssop_router.background import Background
from ssop_router.core.ladder import RETRY_AFTER_MS
from ssop_router.dependency import InnerMetadata, Unavailable
from ssop_router.job import Intake
from ssop_router.pipeline import Pipeline
from ssop_router.retrieval import Retrieval
from ssop_router.settings import RouterSettings
from ssop_router.validation import MAX_REQUEST_ID_CHARS, check_prompt_size, check_request_id

R = ErrorReason
_DEFAULT_CREDIT_BYTES: Final = 65_536
_FINISHED: Final = 1_024
# A word of a script with spaces, or one character of a script without.
_WORD: Final = re.compile(r"[぀-ヿ㐀-鿿가-힯]|[^\s぀-ヿ㐀-鿿가-힯]+")
_log = logging.getLogger(__name__)


class Entry:
    """One request of a session."""

    def __init__(self, request: GenerateRequest, credit_bytes: int) -> None:
        self.request = request
        self.prompt_bytes = request.prompt.ByteSize()
        self.task: asyncio.Task[None] | None = None
        self.prefetch: asyncio.Task[None] | None = None
        self.prefetch_timer: asyncio.TimerHandle | None = None
        self.has_prefetched = False
        self._pieces: list[str] = []
        self._words = 0
        self._credit_bytes = credit_bytes
        self._has_credit = asyncio.Event()

    def add(self, piece: str, max_prompt_bytes: int) -> int:
        """Append text to the last user message; the number of words in it so far. Raises MESSAGE_TOO_LARGE."""
        if not piece:
            return self._words
        self.prompt_bytes += len(piece.encode())
        check_prompt_size(self.prompt_bytes, max_prompt_bytes)
        self._pieces.append(piece)
        # A word that is cut by the border of two pieces counts twice, which only starts the prefetch a word early.
        self._words += len(_WORD.findall(piece))
        return self._words

    @property
    def has_text(self) -> bool:
        """Pieces have come."""
        return bool(self._pieces)

    @property
    def text(self) -> str:
        """The pieces so far, put together anew each time."""
        return "".join(self._pieces)

    def complete(self) -> GenerateRequest:
        """The request with its pieces in place. Raises REQUEST_INVALID where there is no user message for them."""
        if self._pieces:
            messages = self.request.prompt.messages
            if not messages or messages[-1].role != Role.ROLE_USER:
                raise invalid_request(("request.prompt.messages", "the last must be of the user where pieces follow"))
            parts = messages[-1].parts
            if parts and parts[-1].WhichOneof("part") == "text":
                parts[-1].text += self.text
            else:
                parts.append(ContentPart(text=self.text))
        return self.request

    def give(self, credit_bytes: int) -> None:
        """The client can take so many bytes more."""
        self._credit_bytes += credit_bytes
        self._has_credit.set()

    async def take(self, size_bytes: int) -> None:
        """Wait until the client can take so many bytes."""
        while self._credit_bytes < size_bytes:
            self._has_credit.clear()
            await self._has_credit.wait()
        self._credit_bytes -= size_bytes

    def stop_prefetch_timer(self) -> None:
        """The time-out of a prefetch no longer matters."""
        if self.prefetch_timer is not None:
            self.prefetch_timer.cancel()


class Session:
    """Serves one session call."""

    def __init__(
        self,
        call: Call,
        pipeline: Pipeline,
        retrieval: Retrieval,
        settings: RouterSettings,
        background: Background,
        *,
        sign: Callable[[], InnerMetadata],
        renew: Callable[[Principal], Principal],
        policy: str,
        record_receipts: Callable[[str, SessionRequest], None],
        draining: asyncio.Event,
    ) -> None:
        self._call = call
        self._principal = call.principal
        self._pipeline = pipeline
        self._retrieval = retrieval
        self._settings = settings
        self._background = background
        self._sign = sign
        self._renew = renew
        self._policy = policy
        self._record_receipts = record_receipts
        self._draining = draining
        self._entries: dict[str, Entry] = {}
        self._finished: OrderedDict[str, None] = OrderedDict()
        self._writing = asyncio.Lock()
        self._writes: set[asyncio.Task[None]] = set()
        # Requests that are over and wait for the client to read so. Its reading bounds how many there are.
        self._ending = 0

    async def serve(self) -> None:
        """Read until the client has sent its last message or the router drains, then let what runs finish.

        Raises REQUEST_INVALID for a malformed message, DEADLINE_EXCEEDED when nothing happened for too long.
        """
        drained: asyncio.Future[Any] = asyncio.ensure_future(self._draining.wait())
        try:
            while (message := await self._read(drained)) is not None:
                request = SessionRequest.FromString(message)
                try:
                    check_request_id(request.request_id)
                except MeshError as error:
                    # Repeated only as far as an id goes: it may be as long as a message, and it opens nothing.
                    await self._answer(request.request_id[:MAX_REQUEST_ID_CHARS], error)
                    continue
                try:
                    await self._take(request)
                except MeshError as error:
                    self._drop(request.request_id)
                    await self._finish(request.request_id, error)
            for request_id in [name for name, entry in self._entries.items() if entry.task is None]:
                self._drop(request_id)
                await self._finish(request_id, self._cut())
            while tasks := [entry.task for entry in self._entries.values() if entry.task is not None]:
                await asyncio.wait(tasks)
        finally:
            drained.cancel()
            for request_id in list(self._entries):
                self._drop(request_id)
            for write in self._writes:
                write.cancel()

    def _cut(self) -> MeshError:
        """What becomes of a request whose prompt is not complete when the session ends."""
        if self._draining.is_set():
            text = "the router drains: begin the request again on a new session"
            return MeshError(R.ERROR_REASON_BACKEND_NOT_READY, text, retry_after_ms=RETRY_AFTER_MS)
        return MeshError(R.ERROR_REASON_CANCELLED, "the session ended before the request was complete")

    async def _read(self, drained: "asyncio.Future[Any]") -> bytes | None:
        """The next message; the idle time-out counts only while no request runs."""
        idle_s = self._settings.session_idle_ms / 1000
        reading: asyncio.Future[Any] = asyncio.ensure_future(self._call.read())
        try:
            while True:
                done, _ = await asyncio.wait({reading, drained}, timeout=idle_s, return_when=asyncio.FIRST_COMPLETED)
                if reading in done:
                    message: bytes | None = reading.result()
                    return message
                if drained in done:
                    return None
                if not any(entry.task is not None for entry in self._entries.values()):
                    raise MeshError(
                        R.ERROR_REASON_DEADLINE_EXCEEDED, "the session was idle", metadata={"stage": "session_idle"}
                    )
        finally:
            reading.cancel()

    async def _take(self, message: SessionRequest) -> None:
        kind = message.WhichOneof("message")
        if kind == "begin":
            self._begin(message.request_id, message.begin)
        elif kind == "receipt":
            self._record_receipts(self._principal.tenant, message)
        elif kind == "cancel":
            await self._cancel(message.request_id)
        elif kind == "credit":
            # Credit for a request that has just finished crosses its end on the wire, and means nothing.
            if (entry := self._entries.get(message.request_id)) is not None:
                entry.give(message.credit.bytes)
        elif kind in ("piece", "commit"):
            if message.request_id in self._finished:
                # Sent before the client knew that the request is over.
                return
            entry = self._find_open(message.request_id)
            if kind == "piece":
                self._add_piece(message.request_id, entry, message.piece)
            else:
                self._start(message.request_id, entry)
        else:
            raise invalid_request(("message", "must be set"))

    def _begin(self, request_id: str, begin: SessionBegin) -> None:
        if request_id in self._entries:
            # The two can't be told apart by id, so the error ends the one that is open.
            raise MeshError(
                R.ERROR_REASON_REQUEST_DUPLICATE,
                "a request with this id is open on the session",
                metadata={"request_id": request_id},
            )
        if len(self._entries) + self._ending >= self._settings.session_max_requests:
            raise MeshError(
                R.ERROR_REASON_OVERLOADED, "the session has too many requests", retry_after_ms=RETRY_AFTER_MS
            )
        check_prompt_size(begin.request.prompt.ByteSize(), self._settings.max_prompt_bytes)
        begin.request.request_id = request_id
        self._finished.pop(request_id, None)
        entry = Entry(begin.request, begin.initial_credit_bytes or _DEFAULT_CREDIT_BYTES)
        self._entries[request_id] = entry
        if begin.is_complete:
            self._start(request_id, entry)

    def _find_open(self, request_id: str) -> Entry:
        entry = self._entries.get(request_id)
        if entry is None:
            raise MeshError(R.ERROR_REASON_REQUEST_UNKNOWN, "the request is not open on this session")
        if entry.task is not None:
            raise MeshError(R.ERROR_REASON_REQUEST_INVALID, "the request is complete: nothing can be added to it")
        return entry

    def _add_piece(self, request_id: str, entry: Entry, piece: str) -> None:
        is_first = not entry.has_text
        words = entry.add(piece, self._settings.max_prompt_bytes)
        if entry.has_prefetched or "rag" not in self._principal.scopes:
            return
        if words >= self._settings.prefetch_words:
            self._prefetch(request_id, entry)
        elif is_first and entry.has_text:
            wait_s = self._settings.prefetch_wait_ms / 1000
            loop = asyncio.get_running_loop()
            entry.prefetch_timer = loop.call_later(wait_s, self._prefetch, request_id, entry)

    def _prefetch(self, request_id: str, entry: Entry) -> None:
        entry.stop_prefetch_timer()
        policy = (entry.request.policy or self._policy).lower()
        if entry.has_prefetched or "no_rag" in policy or "cache_only" in policy:
            return
        entry.has_prefetched = True
        words = _WORD.finditer(entry.text)
        ends = [match.end() for match, _ in zip(words, range(self._settings.prefetch_words), strict=False)]
        prefix = entry.text[: ends[-1]] if ends else ""
        if prefix:
            entry.prefetch = self._background.start(self._run_prefetch(request_id, entry, prefix))

    async def _run_prefetch(self, request_id: str, entry: Entry, prefix: str) -> None:
        try:
            await self._retrieval.prefetch(
                self._principal.tenant, request_id, entry.request.retrieval, prefix, self._sign()
            )
        except (Unavailable, MeshError):
            # The retrieval that follows says and counts it; a prefetch is only ahead of it.
            _log.debug("a prefetch was not started")

    def _start(self, request_id: str, entry: Entry) -> None:
        entry.stop_prefetch_timer()
        request = entry.complete()
        timeout_ms = request.timeout_ms or self._settings.default_timeout_ms
        principal = self._renew(self._principal)
        job = self._pipeline.accept(
            Intake(request, principal, timeout_ms / 1000, self._policy, has_prefetched=entry.has_prefetched)
        )

        async def write(chunk: bytes) -> None:
            await entry.take(len(chunk))
            # A chunk is a field of the response: its bytes are spliced in, never parsed.
            await self._write(_wrap_chunk(request_id, chunk))

        async def run() -> None:
            error: MeshError | None = None
            try:
                await self._pipeline.serve(job, write)
            except MeshError as raised:
                error = raised
            except Exception as raised:  # noqa: BLE001 - ends its request only, with a status, as a call's would
                _log.error("a request of a session failed", extra={"cause": describe(raised)})
                error = as_mesh_error(raised)
            finally:
                if entry.has_prefetched and not job.prefetch_hits:
                    self._background.start(self._cancel_prefetch(request_id))
            if self._entries.get(request_id) is entry:
                del self._entries[request_id]
            self._ending += 1
            try:
                await self._finish(request_id, error)
            finally:
                self._ending -= 1

        entry.task = asyncio.get_running_loop().create_task(run())

    async def _cancel(self, request_id: str) -> None:
        if request_id not in self._entries:
            return
        entry = self._entries[request_id]
        self._drop(request_id)
        if entry.task is not None:
            await asyncio.wait({entry.task})
        await self._finish(request_id, MeshError(R.ERROR_REASON_CANCELLED, "the caller cancelled"))

    def _drop(self, request_id: str) -> None:
        """Stop whatever goes on for a request."""
        entry = self._entries.pop(request_id, None)
        if entry is None:
            return
        entry.stop_prefetch_timer()
        if entry.task is not None:
            entry.task.cancel()
        elif entry.has_prefetched:
            self._background.start(self._cancel_prefetch(request_id))

    async def _cancel_prefetch(self, request_id: str) -> None:
        try:
            await self._retrieval.cancel_prefetch(request_id, self._sign())
        except (Unavailable, MeshError):
            _log.debug("a prefetch was left to lapse")

    async def _finish(self, request_id: str, error: MeshError | None) -> None:
        self._finished[request_id] = None
        if len(self._finished) > _FINISHED:
            self._finished.popitem(last=False)
        await self._answer(request_id, error)

    async def _answer(self, request_id: str, error: MeshError | None) -> None:
        status = error.to_status() if error is not None else status_pb2.Status()
        finished = SessionFinished(
            status=SessionStatus(
                code=status.code, message=status.message, details=[_copy(detail) for detail in status.details]
            )
        )
        await self._write(SessionResponse(request_id=request_id, finished=finished).SerializeToString())

    async def _write(self, message: bytes) -> None:
        """Send a message. A request that is cancelled meanwhile leaves it to be sent whole, before the next one."""
        task = asyncio.get_running_loop().create_task(self._write_in_turn(message))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        await asyncio.shield(task)

    async def _write_in_turn(self, message: bytes) -> None:
        async with self._writing:
            await self._call.write(message)


def _copy(detail: AnyMessage) -> AnyMessage:
    return AnyMessage(type_url=detail.type_url, value=detail.value)


def _wrap_chunk(request_id: str, chunk: bytes) -> bytes:
    """A SessionResponse (request_id = 1, chunk = 2) around chunk bytes."""
    name = request_id.encode()
    return b"\x0a" + _length(len(name)) + name + b"\x12" + _length(len(chunk)) + chunk


def _length(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
