# cython: annotation_typing=False
"""One node's stream of one request: what is held back, the commit point, and forwarding of chunk bytes.

`attempt.pxd` gives the types with which this very file is compiled.
"""

from collections.abc import Awaitable, Callable
from functools import lru_cache
from time import monotonic
from typing import Final

from google.protobuf.message import DecodeError

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.frame_pb2 import Frame, FrameKind, IncompleteReason, Verdict
from ssop.v1.mesh_pb2 import ConstraintMode, Continuation
from ssop_chassis.deadline import Deadline
from ssop_chassis.errors import MeshError
from ssop_codec import FrameError, Survey, bodies, select, survey
from ssop_codec.probes import chunk_received, stream_number
from ssop_router.core._relay import Relay
from ssop_router.core.frames import (
    ALL_KINDS,
    DOCUMENT_KINDS,
    END_BIT,
    FIELD_BITS,
    FIRST_MESH_KIND,
    parse_frame,
    split_frames,
)
from ssop_router.core.ladder import Target
from ssop_router.core.transcript import drop_ends
from ssop_router.delivery import Delivery, count_frames, take_ends
from ssop_router.job import Ending, Job, Reading
from ssop_router.lease import Lease
from ssop_router.limits import Wait
from ssop_router.outlet import DirectOutlet, finish

R = ErrorReason
_STATUS: Final = FrameKind.FRAME_KIND_STATUS
_CONFIDENCE: Final = FrameKind.FRAME_KIND_CONFIDENCE
_HEADER_BIT: Final = 1 << FrameKind.FRAME_KIND_HEADER
_STATUS_BIT: Final = 1 << _STATUS
_CONFIDENCE_BIT: Final = 1 << _CONFIDENCE
# What only the router says to a client, or hears for itself.
_OWN_BITS: Final = (
    _STATUS_BIT
    | _CONFIDENCE_BIT
    | 1 << FrameKind.FRAME_KIND_DECISION
    | 1 << FrameKind.FRAME_KIND_ACCOUNTING
    | 1 << FrameKind.FRAME_KIND_RECEIPT
)
_PASSED_ON: Final = ALL_KINDS & ~_OWN_BITS
_OTHERS_BITS: Final = _PASSED_ON & ~DOCUMENT_KINDS
# Whoever reads the end of a node did not cancel it: a node that goes away did.
_NODE_FAULTS: Final = frozenset(
    {IncompleteReason.INCOMPLETE_REASON_BACKEND_FAILED, IncompleteReason.INCOMPLETE_REASON_CANCELLED}
)
_MAX_HELD_BYTES: Final = 1_048_576
_MOST_REMEMBERED_BYTES: Final = 1_024
# A node that has sent its last END has this long to end its call.
_END_GRACE_S: Final = 1.0


class Attempt(Relay):
    """One node's stream. Holds everything back until the first field, so that a failure before it is unseen.

    An end that says that the node failed after fields is kept from the caller, for another node may go on.

    `on_commit` is called once, just before the first field leaves.
    """

    def __init__(
        self,
        job: Job,
        delivery: Delivery,
        lease: Lease | None,
        *,
        first_field_s: float,
        on_commit: Callable[[], None] | None = None,
    ) -> None:
        self.is_continued = False
        """The node goes on with what another one has begun."""
        self.confidence_tokens = 0
        """What the node is asked for; see `InferenceServiceGenerateRequest`."""
        # What is passed here has no type of C; the fields that it is kept in have.
        self._job = job
        self._delivery = delivery
        self._lease = lease
        self._transcript = self._job.transcript
        self._on_commit = on_commit
        self._held: list[bytes] = []
        self._held_kinds = 0
        self._held_frames = 0
        self._has_tools = bool(self._job.parts.tools)
        self._last_seqs: dict[int, int] = {}
        self._open_documents: set[int] = set()
        self.held_bytes = 0
        self.first_field_s: float | None = None
        """When the first field came, whether or not it has left, by the monotonic clock."""
        self.wait: Wait | None = None
        """Ends with the first field."""
        self.is_committed = False
        self.is_finished = False
        self.is_client_gone = False
        self.reading = self._job.reading = Reading()
        outlet = self._delivery.outlet
        self._outlet = outlet if isinstance(outlet, DirectOutlet) else None
        self._stream = stream_number(self._job.request_id) if self._outlet is None else self._outlet.stream
        self.connect(
            self._transcript,
            self._job.sends,
            self._outlet,
            self._lease.backlog if self._lease is not None else None,
            stream=self._stream,
            clock=monotonic,
            started_s=self._job.started_s,
            patience=Deadline(first_field_s),
        )

    def look(self, chunk: bytes) -> Awaitable[None] | None:
        """See Relay.look. Raises BACKEND_FAILED where it is no chunk, or a frame is missing.

        What comes after the end is dropped: the accounting may have gone out already.
        """
        if self.is_finished:
            return None
        if self.is_passing:
            # What was passed on without a look is in the transcript alone.
            self.reading.last_seq = self._transcript.last_seq
        try:
            found = survey(chunk)
            return self._take_apart(chunk, found) if found.frames else None
        except FrameError as error:
            raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node sent bytes that are no chunk") from error

    def hold(self, pending: Awaitable[None]) -> Awaitable[None] | None:
        """See Relay.hold."""
        return self._wait_for(pending if self._outlet is None else self._outlet.wait(pending))

    @property
    def is_whole(self) -> bool:
        """The answer has ended, and each of its documents."""
        return self.reading.ending.has_ended and not self._open_documents

    def _take_apart(self, chunk: bytes, found: Survey) -> Awaitable[None] | None:
        if not found.is_clean:
            chunk = select(chunk, ALL_KINDS)
        chunk_received(self._stream, found.documents, len(chunk))
        documents = self._follow_documents(chunk) if self._has_tools else self._follow_sequence(found)
        kinds = found.kinds
        if not self.is_committed:
            if kinds & FIELD_BITS and self.first_field_s is None:
                self.first_field_s = monotonic()
                if self.wait is not None:
                    self.wait.end()
            self._held_frames += documents
            self._hold(chunk, kinds)
            return self._weigh()
        if kinds & END_BIT:
            self._take_ends(chunk)
            if self._is_cut():
                return self._cut(select(chunk, _PASSED_ON))
        if kinds & _OWN_BITS:
            chunk = select(chunk, _PASSED_ON)
            if not chunk:
                return self._guard(None)
        self._keep(chunk, kinds, documents)
        return self._guard(self._delivery.forward(chunk, documents, is_last=self.is_finished))

    def _follow_sequence(self, found: Survey) -> int:
        """The number of document frames. Raises BACKEND_FAILED where one is missing."""
        documents = found.documents
        if documents:
            is_next = found.is_row and found.first_seq == self.reading.last_seq + 1
            if not is_next or (self.is_continued and found.kinds & _HEADER_BIT):
                raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node left a frame out")
            self.reading.last_seq += documents
        return documents

    def _follow_documents(self, chunk: bytes) -> int:
        """The same where there may be several documents, each with numbers of its own."""
        count = 0
        for piece in split_frames(chunk):
            try:
                frame = parse_frame(piece)
            except (DecodeError, IndexError) as error:
                raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node sent bytes that are no frame") from error
            if frame.kind < FIRST_MESH_KIND:
                count += 1
                seq = self._last_seqs[frame.document] = self._last_seqs.get(frame.document, 0) + 1
                if frame.seq != seq:
                    raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node left a frame out")
                is_end = frame.kind == FrameKind.FRAME_KIND_END
                if is_end:
                    self._open_documents.discard(frame.document)
                else:
                    self._open_documents.add(frame.document)
        self.reading.last_seq = self._last_seqs.get(0, 0)
        return count

    def _hold(self, chunk: bytes, kinds: int) -> None:
        self._held_kinds |= kinds
        if kinds & _STATUS_BIT:
            for body in bodies(chunk, _STATUS):
                self._merge(body)
        if kinds & _CONFIDENCE_BIT:
            for body in bodies(chunk, _CONFIDENCE):
                self._hear(body)
        held = select(chunk, _PASSED_ON) if kinds & _OWN_BITS else chunk
        if held:
            self._held.append(held)
            self.held_bytes += len(held)
        if kinds & END_BIT:
            self._take_ends(chunk)
            if not kinds & FIELD_BITS and self.reading.ending.incomplete_reason in _NODE_FAULTS:
                self.reading.ending = Ending()
                raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node failed before the first field")
        if self.held_bytes > _MAX_HELD_BYTES:
            raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node sent too much before the first field")

    def _is_cut(self) -> bool:
        """The node says that it failed, and another one may go on."""
        return self.reading.ending.incomplete_reason in _NODE_FAULTS and self._job.can_continue

    async def _cut(self, chunk: bytes) -> None:
        """Send what came before the end of a node that failed."""
        self.reading.ending = Ending()
        self.reading.last_seq -= 1
        self.is_finished = False
        if chunk := drop_ends(chunk):
            frames = count_frames(chunk)
            self._keep(chunk, ALL_KINDS, frames)
            await finish(self._guard(self._delivery.forward(chunk, frames)))
        raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node failed after fields")

    def _weigh(self) -> Awaitable[None] | None:
        """Go on holding back, or commit."""
        has_field = self.first_field_s is not None
        return self._commit() if has_field or self.is_finished or self.reading.ending.has_ended else None

    def _hear(self, body: bytes) -> None:
        """What is in a CONFIDENCE frame."""

    def _commit(self) -> Awaitable[None] | None:
        self.is_committed = True
        self._job.reading = self.reading
        self._job.stage = "generation"
        if self._on_commit is not None:
            self._on_commit()
        first, frames = b"".join(self._held), self._held_frames
        self._held.clear()
        is_cut = self._is_cut()
        if is_cut:
            first = drop_ends(first)
            frames = count_frames(first)
            self.is_finished = False
        self._keep(first, self._held_kinds, frames)
        self.is_passing = not self._has_tools and not self.is_finished
        pending = self._guard(self._open(first, frames))
        return self._cut_after(pending) if is_cut else pending

    async def _cut_after(self, pending: Awaitable[None] | None) -> None:
        await finish(pending)
        await self._cut(b"")

    def _open(self, first: bytes, frames: int) -> Awaitable[None] | None:
        """Send the first frames, so many of them of the document."""
        self._delivery.mark_first_field()
        return self._delivery.open(first, frames, is_last=self.is_finished)

    def _guard(self, writing: Awaitable[None] | None) -> Awaitable[None] | None:
        """Wait for what has to be waited for, and give the node time from then on."""
        if writing is not None:
            return self._wait_for(writing)
        self.patience.set(_END_GRACE_S if self.is_finished else self.stall_s)
        return None

    async def _wait_for(self, writing: Awaitable[None]) -> None:
        # While its caller does not read, a node can't be blamed for its silence.
        self.patience.set(None)
        try:
            await writing
        except MeshError as error:
            # Only the outlet raises here: the client is gone, and that is no fault of the node.
            self.is_client_gone = error.reason == R.ERROR_REASON_CANCELLED
            raise
        self.patience.set(_END_GRACE_S if self.is_finished else self.stall_s)

    def _keep(self, chunk: bytes, kinds: int, frames: int) -> None:
        """Keep the document frames of a chunk that holds no more than these kinds, and none for the router alone."""
        if kinds & _OTHERS_BITS:
            chunk = select(chunk, DOCUMENT_KINDS)
        if chunk:
            self._transcript.add(chunk, frames)
            if self._lease is not None:
                self._lease.add(chunk)

    def _merge(self, body: bytes) -> None:
        try:
            read = _read_status(body) if len(body) <= _MOST_REMEMBERED_BYTES else _read_status.__wrapped__(body)
        except DecodeError as error:
            raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node's status is malformed") from error
        self.reading.constraint_mode, self.reading.engine_limits = read

    def _take_ends(self, chunk: bytes) -> None:
        try:
            take_ends(self.reading.ending, chunk)
        except (DecodeError, FrameError) as error:
            raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node's end frame is malformed") from error
        if not self._has_tools or self.reading.ending.verdict != Verdict.VERDICT_OK:
            # With tools, more documents may follow the first end.
            self.is_finished = True
            self.is_passing = False


@lru_cache(256)
def _read_status(body: bytes) -> tuple[ConstraintMode.ValueType, tuple[str, ...]]:
    """What a node's STATUS frame says; it says the same of all requests with a schema. Raises DecodeError."""
    status = Frame.FromString(body).status
    return status.constraint_mode, tuple(status.engine_limits)


class ContinuedAttempt(Attempt):
    """A node that goes on with a document whose beginning has been sent; unseen until it has a frame of its own."""

    def __init__(
        self, job: Job, delivery: Delivery, lease: Lease | None, target: Target, cause: str, *, first_field_s: float
    ) -> None:
        super().__init__(job, delivery, lease, first_field_s=first_field_s)
        self.is_continued = True
        self._target = target
        self._cause = cause
        self.reading.last_seq = job.transcript.last_seq

    def _open(self, first: bytes, frames: int) -> Awaitable[None] | None:
        job, target = self._job, self._target
        job.target = target
        job.continuations.append(
            Continuation(
                first_seq=job.transcript.last_seq - frames + 1,
                node=target.candidate.node,
                model=target.candidate.model,
                tier=target.tier,
                cause=self._cause,
            )
        )
        return self._delivery.go_on(first, is_last=self.is_finished)
