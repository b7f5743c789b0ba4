"""Answers that outlive their connection for a while, so that a client that lost it goes on where it was.

Only requests with `resume_window_ms` are recorded. One client reads at a time; a new one takes over from one whose
connection is not known to be dead yet.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable
from typing import Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.frame_pb2 import FrameKind
from ssop_chassis.errors import MeshError
from ssop_codec import mesh_chunk, scan_heads
from ssop_router.core.frames import FIRST_MESH_KIND, parse_frame, split_frames
from ssop_router.core.ladder import RETRY_AFTER_MS
from ssop_router.job import Job
from ssop_router.outlet import Write, finish
from ssop_router.receipts import Receipts
from ssop_router.settings import RouterSettings

R = ErrorReason
# A reader that is further behind than this holds the generation back.
_LAG_BYTES: Final = 65_536


class Recording:
    """The chunks of one answer: an outlet for its generation, a source for its clients."""

    def __init__(self, job: Job, store: "Recordings", limit_bytes: int) -> None:
        self.job = job
        self.task: asyncio.Task[None] | None = None
        self.error: MeshError | None = None
        self.is_ended = False
        self.size_bytes = 0
        self.timer: asyncio.TimerHandle | None = None
        self._store = store
        self._limit_bytes = limit_bytes
        self._chunks: deque[bytes] = deque()
        self._dropped = 0
        self._reader: object | None = None
        self._read = 0
        self._lag_bytes = 0
        self._has_more = asyncio.Event()
        self._has_room = asyncio.Event()

    @property
    def is_read(self) -> bool:
        """A client reads."""
        return self._reader is not None

    def put(self, chunk: bytes, frames: int) -> Awaitable[None] | None:  # noqa: ARG002 - counted where it is sent
        """See Outlet.put: keep a chunk. What is returned waits for a client that reads too slowly.

        Raises GENERATION_INTERRUPTED when nobody reads and the answer is larger than what may be kept.
        """
        while self._is_full(len(chunk)):
            if self._reader is None or self._read <= self._dropped:
                raise MeshError(
                    R.ERROR_REASON_GENERATION_INTERRUPTED,
                    "the answer is larger than what is kept for a reconnect",
                    metadata={"last_seq": str(self.job.last_seq)},
                )
            self._drop_first()
        self._chunks.append(chunk)
        self.size_bytes += len(chunk)
        self._store.size_bytes += len(chunk)
        self._lag_bytes += len(chunk)
        self._has_more.set()
        return self._wait_for_room() if self._is_lagging else None

    @property
    def _is_lagging(self) -> bool:
        return self._reader is not None and self._lag_bytes > _LAG_BYTES

    async def _wait_for_room(self) -> None:
        while self._is_lagging:
            self._has_room.clear()
            await self._has_room.wait()

    def end(self, error: MeshError | None) -> None:
        """Nothing more comes."""
        self.is_ended = True
        self.error = error
        self._has_more.set()

    def attach(self, reader: object, after_seq: int) -> None:
        """A client begins to read, and another one stops. Raises GENERATION_INTERRUPTED where chunks are gone."""
        # Each document of an answer that may call tools has numbers of its own.
        is_numbered = not self.job.request.prompt.tools
        if self._dropped and not (is_numbered and after_seq >= self._first_kept_seq() - 1):
            raise MeshError(
                R.ERROR_REASON_GENERATION_INTERRUPTED,
                "the frames after this one are no longer kept",
                metadata={"last_seq": str(after_seq)},
            )
        self._reader = reader
        self._read = self._dropped
        self._lag_bytes = self.size_bytes
        self._has_more.set()

    def detach(self, reader: object) -> bool:
        """A client stops reading; whether it was the one that read."""
        if self._reader is not reader:
            return False
        self._reader = None
        self._has_room.set()
        return True

    async def next(self, reader: object) -> bytes | None:
        """The next chunk for a reader; None at the end. Raises CANCELLED for a reader that was replaced."""
        while True:
            if self._reader is not reader:
                self._has_more.set()
                raise MeshError(R.ERROR_REASON_CANCELLED, "another connection goes on with this request")
            index = self._read - self._dropped
            if index < len(self._chunks):
                self._read += 1
                chunk = self._chunks[index]
                self._lag_bytes -= len(chunk)
                self._has_room.set()
                return chunk
            if self.is_ended:
                return None
            self._has_more.clear()
            await self._has_more.wait()

    def _is_full(self, more_bytes: int) -> bool:
        return self.size_bytes + more_bytes > self._limit_bytes or self._store.is_full(more_bytes)

    def _drop_first(self) -> None:
        chunk = self._chunks.popleft()
        self._dropped += 1
        self.size_bytes -= len(chunk)
        self._store.size_bytes -= len(chunk)

    def _first_kept_seq(self) -> int:
        for chunk in self._chunks:
            for kind, seq, _ in scan_heads(chunk):
                if kind < FIRST_MESH_KIND:
                    return seq
        return self.job.last_seq + 1


class Recordings:
    """All recordings of a process, bounded in number and bytes; oldest unread ones make room."""

    def __init__(self, settings: RouterSettings, receipts: Receipts) -> None:
        self.size_bytes = 0
        self._settings = settings
        self._receipts = receipts
        self._entries: OrderedDict[tuple[str, str], Recording] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def is_full(self, more_bytes: int) -> bool:
        """Whether so many bytes more are too many."""
        return self.size_bytes + more_bytes > self._settings.resume_max_bytes

    def open(self, job: Job) -> Recording:
        """A recording for a job that begins. Raises OVERLOADED."""
        self._forget((job.tenant, job.request_id))
        if len(self._entries) >= self._settings.resume_max_entries:
            idle = next((n for n, entry in self._entries.items() if entry.is_ended and not entry.is_read), None)
            if idle is None:
                raise MeshError(
                    R.ERROR_REASON_OVERLOADED,
                    "too many answers are kept for reconnects",
                    retry_after_ms=RETRY_AFTER_MS,
                )
            self._forget(idle)
        recording = Recording(job, self, self._settings.resume_entry_bytes)
        self._entries[(job.tenant, job.request_id)] = recording
        return recording

    def end(self, job: Job, error: MeshError | None) -> None:
        """The job has ended."""
        recording = self._entries.get((job.tenant, job.request_id))
        if recording is not None and recording.job is job:
            recording.end(error)

    def find(self, tenant: str, request_id: str) -> Recording:
        """The recording of a tenant's request. Raises REQUEST_UNKNOWN."""
        recording = self._entries.get((tenant, request_id))
        if recording is None:
            raise MeshError(
                R.ERROR_REASON_REQUEST_UNKNOWN, "nothing is known of this request, or its resume window is over"
            )
        return recording

    async def deliver(self, recording: Recording, write: Write, *, after_seq: int | None = None) -> None:
        """Send a recording, document frames after `after_seq` only; None is its first client, who gets all as it is.

        Raises what the generation ended with, and CANCELLED when another client takes over.
        """
        reader = object()
        if after_seq and recording.job.request.prompt.tools:
            # One number says too little of several documents.
            after_seq = 0
        recording.attach(reader, after_seq or 0)
        if recording.timer is not None:
            recording.timer.cancel()
        outlet = self._receipts.watch(write, recording.job.request_id)
        frames = 0
        is_whole = False
        try:
            while (chunk := await recording.next(reader)) is not None:
                piece, sent = _trim(chunk, after_seq, frames)
                if piece:
                    await finish(outlet.put(piece, sent))
                    frames += sent
            is_whole = recording.error is None
        finally:
            self._receipts.record_sent(recording.job.tenant, recording.job.request_id, frames, is_whole=is_whole)
            if recording.detach(reader):
                self._start_window(recording)
        if recording.error is not None:
            raise recording.error.with_traceback(None)

    def _start_window(self, recording: Recording) -> None:
        window_s = recording.job.request.resume_window_ms / 1000
        name = (recording.job.tenant, recording.job.request_id)
        recording.timer = asyncio.get_running_loop().call_later(window_s, self._expire, name, recording)

    def _expire(self, name: tuple[str, str], recording: Recording) -> None:
        if self._entries.get(name) is recording and not recording.is_read:
            self._forget(name)

    def _forget(self, name: tuple[str, str]) -> None:
        recording = self._entries.pop(name, None)
        if recording is None:
            return
        self.size_bytes -= recording.size_bytes
        if recording.timer is not None:
            recording.timer.cancel()
        if recording.task is not None:
            recording.task.cancel()
            # What it ends with holds what it wrote to: this recording.
            recording.task = None


def _trim(chunk: bytes, after_seq: int | None, frames: int) -> tuple[bytes, int]:
    """What a client still needs of a chunk, and its number of document frames. The accounting is made afresh."""
    heads = scan_heads(chunk)
    if after_seq is None:
        return chunk, sum(kind < FIRST_MESH_KIND for kind, _, _ in heads)
    kept: list[bytes] = []
    sent = 0
    for (kind, seq, _), frame in zip(heads, split_frames(chunk), strict=True):
        if kind < FIRST_MESH_KIND:
            if seq <= after_seq:
                continue
            sent += 1
            kept.append(frame)
        elif kind == FrameKind.FRAME_KIND_ACCOUNTING:
            accounting = parse_frame(frame).accounting
            accounting.frames_sent = frames + sent
            kept.append(mesh_chunk(kind, accounting.SerializeToString()))
        else:
            kept.append(frame)
    return b"".join(kept), sent
