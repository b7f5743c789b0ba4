"""A session: many requests on one stream, whose prompts may arrive in pieces, each with its own credit and deadline."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import status_pb2

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.router_pb2 import (
    SessionBegin,
    SessionFinished,
    SessionRequest,
    SessionResponse,
    SessionStatus,
)
from ssop_chassis.call import Call, carry_apart
from ssop_chassis.deadline import Deadline
from ssop_chassis.errors import MeshError, as_mesh_error, invalid_request
from ssop_chassis.identity import Principal
from ssop_chassis.logs import describe
from ssop_router.background import Background
from ssop_router.core.ladder import RETRY_AFTER_MS
from ssop_router.dependency import InnerMetadata
from ssop_router.entry import Entry
from ssop_router.job import Intake, Job
from ssop_router.outlet import Write
from ssop_router.pipeline import Pipeline
from ssop_router.prefetching import SCOPE, Prefetching
from ssop_router.retrieval import Retrieval
from ssop_router.sessions import Sessions
from ssop_router.settings import RouterSettings
from ssop_router.settlement import deadline_error
from ssop_router.validation import MAX_REQUEST_ID_CHARS, check_prompt_size, check_request_id

R = ErrorReason
_DEFAULT_CREDIT_BYTES: Final = 65_536
_FINISHED: Final = 1_024
_log = logging.getLogger(__name__)


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
        sessions: Sessions,
    ) -> None:
        self._call = call
        self._principal = call.principal
        self._pipeline = pipeline
        self._prefetching = Prefetching(retrieval, background, call.principal, sign, policy)
        self._settings = settings
        self._renew = renew
        self._policy = policy
        self._record_receipts = record_receipts
        self._sessions = sessions
        self._entries: dict[str, Entry] = {}
        self._finished: OrderedDict[str, None] = OrderedDict()
        self._writing = asyncio.Lock()
        self._writes: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._reading: asyncio.Timeout | None = None
        self._heard_s = self._loop.time()
        self._is_idle = False
        # Requests that are over and wait for the client to read so. Its reading bounds how many there are.
        self._ending = 0

    async def serve(self) -> None:
        """Read until the client has sent its last message or the router drains, then let what runs finish.

        Raises REQUEST_INVALID for a malformed message, DEADLINE_EXCEEDED when nothing happened for too long.
        """
        self._sessions.add(self)
        try:
            while (message := await self._read()) is not None:
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
            self._sessions.discard(self)
            for request_id in list(self._entries):
                self._drop(request_id)
            for write in self._writes:
                write.cancel()

    def _cut(self) -> MeshError:
        """What becomes of a request whose prompt is not complete when the session ends."""
        if self._sessions.is_draining:
            text = "the router drains: begin the request again on a new session"
            return MeshError(R.ERROR_REASON_BACKEND_NOT_READY, text, retry_after_ms=RETRY_AFTER_MS)
        return MeshError(R.ERROR_REASON_CANCELLED, "the session ended before the request was complete")

    async def _read(self) -> bytes | None:
        """The next message; None at the end, and when the router drains."""
        if self._sessions.is_draining:
            return None
        try:
            async with asyncio.timeout(None) as self._reading:
                message = await self._call.read()
        except TimeoutError:
            if not self._is_idle:
                return None
            raise MeshError(
                R.ERROR_REASON_DEADLINE_EXCEEDED, "the session was idle", metadata={"stage": "session_idle"}
            ) from None
        finally:
            self._reading = None
        self._heard_s = self._loop.time()
        return message

    def interrupt(self) -> None:
        """See Member."""
        if self._reading is not None:
            self._reading.reschedule(self._loop.time())

    def look(self, now_s: float) -> None:
        """See Member. The idle time-out counts only while a message is waited for and no request runs."""
        if self._reading is None or any(entry.task is not None for entry in self._entries.values()):
            self._heard_s = now_s
        elif now_s - self._heard_s >= self._settings.session_idle_ms / 1000:
            self._is_idle = True
            self.interrupt()

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
        entry = Entry(
            begin.request,
            begin.initial_credit_bytes or _DEFAULT_CREDIT_BYTES,
            self._settings.prefetch_timing(),
            asyncio.get_running_loop().time() * 1000,
        )
        self._entries[request_id] = entry
        if begin.is_complete:
            self._start(request_id, entry)
        else:
            self._prefetch(request_id, entry)

    def _find_open(self, request_id: str) -> Entry:
        entry = self._entries.get(request_id)
        if entry is None:
            raise MeshError(R.ERROR_REASON_REQUEST_UNKNOWN, "the request is not open on this session")
        if entry.task is not None:
            raise MeshError(R.ERROR_REASON_REQUEST_INVALID, "the request is complete: nothing can be added to it")
        return entry

    def _add_piece(self, request_id: str, entry: Entry, piece: str) -> None:
        now_ms = asyncio.get_running_loop().time() * 1000
        entry.add(piece, self._settings.max_prompt_bytes, now_ms)
        self._prefetch(request_id, entry)

    def _prefetch(self, request_id: str, entry: Entry) -> None:
        """Start the prefetch that is due, and look again when the next one will be."""
        entry.stop_timer()
        if entry.task is not None or not self._prefetching.is_wanted(entry.request):
            return
        loop = asyncio.get_running_loop()
        prefix = entry.arrival.take_due(loop.time() * 1000)
        if prefix and self._may_retrieve():
            self._prefetching.start(request_id, entry.request.retrieval, prefix, entry.prefetches)
        if (due_ms := entry.arrival.due_ms) is not None:
            entry.timer = loop.call_at(due_ms / 1000, self._prefetch, request_id, entry)

    def _may_retrieve(self) -> bool:
        """The key is good and has the scope, now and not only when the session began."""
        try:
            return SCOPE in self._renew(self._principal).scopes
        except MeshError:
            return False

    def _start(self, request_id: str, entry: Entry) -> None:
        entry.stop_timer()
        request = entry.complete()
        # Its answer may come after the retrieval that would have used it.
        entry.is_prefetch_late = entry.prefetches.in_flight > 0
        timeout_ms = request.timeout_ms or self._settings.default_timeout_ms
        principal = self._renew(self._principal)
        job = self._pipeline.accept(
            Intake(request, principal, timeout_ms / 1000, self._policy, prefetches=entry.prefetches)
        )

        async def write_wrapped(chunk: bytes) -> None:
            # A chunk is a field of the response: its bytes are spliced in, never parsed.
            await self._write_in_turn(_wrap_chunk(request_id, chunk))

        def write(chunk: bytes) -> Awaitable[None]:
            return self._keep(entry.send(chunk, write_wrapped))

        async def run() -> None:
            error: MeshError | None = None
            try:
                await self._serve(job, entry, write)
            except MeshError as raised:
                error = entry.correct(raised)
            except Exception as raised:  # noqa: BLE001 - ends its request only, with a status, as a call's would
                _log.error("a request of a session failed", extra={"cause": describe(raised)})
                error = as_mesh_error(raised)
            finally:
                entry.end()
                if entry.prefetches.calls and (entry.is_prefetch_late or not job.prefetch_hits):
                    self._prefetching.cancel(request_id)
            if self._entries.get(request_id) is entry:
                del self._entries[request_id]
            self._ending += 1
            try:
                await self._finish(request_id, error)
            finally:
                self._ending -= 1

        def end(_: "asyncio.Task[None]") -> None:
            # One that is cancelled in the turn in which it begins runs nothing.
            if self._pipeline.discard(job) and entry.prefetches.calls:
                self._prefetching.cancel(request_id)

        entry.task = asyncio.get_running_loop().create_task(run())
        entry.task.add_done_callback(end)

    async def _serve(self, job: Job, entry: Entry, write: Write) -> None:
        """Serve a request until its client has had room for all of it. Raises what `Pipeline.serve` raises."""
        if not job.request.resume_window_ms:
            await self._pipeline.serve(job, write, carry_apart, entry)
            return
        try:
            # What is read from a recording ends with the client's call elsewhere; others end with their own deadline.
            with Deadline(job.remaining_s()):
                await self._pipeline.serve(job, write, carry_apart)
        except TimeoutError as error:
            late = deadline_error(job)
            # More is recorded than was sent.
            late.metadata = {key: value for key, value in late.metadata.items() if key != "last_seq"}
            raise late from error

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
        entry.stop_timer()
        if entry.task is not None:
            entry.task.cancel()
        elif entry.prefetches.calls:
            self._prefetching.cancel(request_id)

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
        await self._keep(self._loop.create_task(self._write_in_turn(message)))

    def _keep(self, write: "asyncio.Task[None]") -> Awaitable[None]:
        self._writes.add(write)
        write.add_done_callback(self._writes.discard)
        return asyncio.shield(write)

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
