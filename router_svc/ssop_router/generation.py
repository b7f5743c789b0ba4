"""Generating at nodes: attempts, the commit point, failover, and forwarding of chunk bytes."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from google.protobuf.message import DecodeError

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.frame_pb2 import FrameKind, IncompleteReason, Verdict
from ssop.v1.inference_pb2 import InferenceServiceGenerateRequest
from ssop.v1.mesh_pb2 import ConstraintMode, NodeReason
from ssop_chassis.errors import MeshError
from ssop_codec import FrameError, scan_heads
from ssop_router.answers import Lease
from ssop_router.core.decision import DecisionSettings
from ssop_router.core.frames import FIRST_MESH_KIND, parse_frame, split_frames
from ssop_router.core.ladder import Situation, Target, interrupt, is_node_failure, name_exhaustion, next_target
from ssop_router.core.success import Outcome
from ssop_router.delivery import FIELD_KINDS, Delivery
from ssop_router.job import Job
from ssop_router.metrics import RouterMetrics
from ssop_router.nodes import Nodes
from ssop_router.outcomes import recording
from ssop_router.settings import RouterSettings
from ssop_router.validation import MAX_DEGRADED_LEVEL

R = ErrorReason
_GENERATE: Final = "/ssop.v1.InferenceService/Generate"
# What only the router says to a client.
_OWN_KINDS: Final = frozenset(
    {
        FrameKind.FRAME_KIND_DECISION,
        FrameKind.FRAME_KIND_STATUS,
        FrameKind.FRAME_KIND_ACCOUNTING,
        FrameKind.FRAME_KIND_RECEIPT,
    }
)
_MAX_HELD_BYTES: Final = 1_048_576
# A node that has sent its last END has this long to end its call.
_END_GRACE_S: Final = 1.0

Heads = list[tuple[int, int, int]]
"""Kind, sequence number and node of each frame of a chunk."""


class Generator:
    """Runs attempts at nodes until one has sent a field. `clock_ms` is that of the snapshots."""

    def __init__(
        self,
        *,
        nodes: Nodes,
        settings: RouterSettings,
        decision: DecisionSettings,
        metrics: RouterMetrics,
        clock_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self._nodes = nodes
        self._settings = settings
        self._decision = decision
        self._metrics = metrics
        self._clock_ms = clock_ms
        self._rng = rng

    async def generate(self, job: Job, delivery: Delivery, lease: Lease | None) -> None:
        """Deliver an answer, its END included; the job has the verdict.

        Raises NO_BACKEND, OVERLOADED, DEGRADED_REFUSED, GENERATION_INTERRUPTED, and what nodes say of the request
        itself.
        """
        failures: list[MeshError] = []
        while True:
            try:
                target = self._next(job)
            except MeshError as error:
                raise name_exhaustion(error, failures) from error
            job.target = target
            if target.degraded_level and lease is not None:
                # A follower's status could not say that its answer is degraded.
                lease.give_up("degraded")
                lease = None
            self._metrics.node_choices.labels(NodeReason.Name(target.node_reason)).inc()
            attempt = Attempt(job, delivery, lease)
            try:
                await self._try(job, target, attempt)
            except MeshError as error:
                if attempt.is_committed:
                    self._metrics.failed_attempts.labels(error.reason_name).inc()
                    job.is_interrupted = not attempt.is_client_gone
                    raise interrupt(error, job.last_seq) from error
                if not is_node_failure(error) or attempt.is_client_gone:
                    raise
                self._metrics.failed_attempts.labels(error.reason_name).inc()
                job.failed = (*job.failed, target.candidate.address)
                failures.append(error)
            else:
                return

    def _next(self, job: Job) -> Target:
        request = job.request
        level = request.max_degraded_level if request.HasField("max_degraded_level") else MAX_DEGRADED_LEVEL
        situation = Situation(job.features, job.decision, self._nodes.snapshot(), self._decision, level, job.failed)
        return next_target(situation, self._clock_ms(), self._rng)

    async def _try(self, job: Job, target: Target, attempt: "Attempt") -> None:
        request = InferenceServiceGenerateRequest(
            request_id=job.request_id, model=target.candidate.model, prompt=job.request.prompt, passages=job.passages
        )
        first_field_s = self._settings.first_field_timeout_ms / 1000
        job.stage = "first_field"
        try:
            with (
                self._nodes.occupy(target.candidate.address) as node,
                recording(job, attempt, partial(self._record, target.candidate.address)),
            ):
                async with asyncio.timeout(first_field_s) as attempt.timer:
                    await node.peer.stream(
                        _GENERATE,
                        request.SerializeToString(),
                        attempt.take,
                        timeout_s=max(0.001, job.remaining_s() - self._settings.hop_margin_ms / 1000),
                        metadata=job.inner_metadata,
                    )
        except TimeoutError as error:
            if not attempt.is_finished:
                raise MeshError(R.ERROR_REASON_BACKEND_FAILED, f"no first field within {first_field_s:g} s") from error
        except MeshError as error:
            if attempt.is_client_gone:
                raise
            if not attempt.is_finished:
                raise _blame(error, job) from error
        if not job.ending.has_ended:
            raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node ended its stream without an end frame")

    def _record(self, address: str, outcome: Outcome) -> None:
        self._metrics.attempt_outcomes.labels(outcome.value).inc()
        self._nodes.record(address, outcome)


def _blame(error: MeshError, job: Job) -> MeshError:
    """A node's deadline that passed before the request's own is the node's fault; so is a cancel that nobody asked."""
    if error.reason == R.ERROR_REASON_DEADLINE_EXCEEDED:
        return MeshError(error.reason, error.message, metadata={**error.metadata, "stage": job.stage})
    if error.reason == R.ERROR_REASON_CANCELLED:
        return MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node gave the generation up")
    return error


class Attempt:
    """One node's stream. Holds everything back until the first field, so that a failure before it is unseen."""

    def __init__(self, job: Job, delivery: Delivery, lease: Lease | None) -> None:
        self._job = job
        self._delivery = delivery
        self._lease = lease
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._has_tools = bool(job.request.prompt.tools)
        self.timer: asyncio.Timeout | None = None
        self.is_committed = False
        self.is_finished = False
        self.is_client_gone = False
        job.last_seq = 0
        job.constraint_mode = ConstraintMode.CONSTRAINT_MODE_UNSPECIFIED
        job.engine_limits = []

    def take(self, chunk: bytes) -> Awaitable[None] | None:
        """Chunk bytes from the node. Raises BACKEND_FAILED where they are none, or a frame is missing.

        What comes after the end is dropped: the accounting may have gone out already.
        """
        if self.is_finished:
            return None
        try:
            heads = scan_heads(chunk)
        except FrameError as error:
            raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node sent bytes that are no chunk") from error
        if not heads:
            return None
        kinds = {kind for kind, _, _ in heads}
        documents = self._follow_sequence(heads)
        has_end = FrameKind.FRAME_KIND_END in kinds
        if not self.is_committed:
            return self._hold(chunk, heads, has_field=not FIELD_KINDS.isdisjoint(kinds), has_end=has_end)
        if has_end:
            self._take_ends(chunk, heads)
        if not _OWN_KINDS.isdisjoint(kinds):
            chunk = _without_own(chunk, heads)
        self._keep(chunk, is_pure=documents == len(heads))
        return self._guard(self._delivery.forward(chunk, documents, is_last=self.is_finished))

    def _follow_sequence(self, heads: Heads) -> int:
        """The number of document frames. Raises BACKEND_FAILED where one is missing."""
        first = seq = self._job.last_seq
        for kind, number, _ in heads:
            if kind < FIRST_MESH_KIND:
                seq += 1
                if number != seq:
                    raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node left a frame out")
        self._job.last_seq = seq
        return seq - first

    def _hold(self, chunk: bytes, heads: Heads, *, has_field: bool, has_end: bool) -> Awaitable[None] | None:
        frames = zip(heads, split_frames(chunk), strict=True)
        for (kind, _, _), frame in frames:
            if kind == FrameKind.FRAME_KIND_STATUS:
                self._merge(frame)
            elif kind not in _OWN_KINDS:
                self._held.append(frame)
                self._held_bytes += len(frame)
        if has_end:
            self._take_ends(chunk, heads)
            if not has_field and self._job.ending.incomplete_reason == (
                IncompleteReason.INCOMPLETE_REASON_BACKEND_FAILED
            ):
                self._job.ending = type(self._job.ending)()
                raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node failed before the first field")
        if has_field or has_end:
            return self._commit()
        if self._held_bytes > _MAX_HELD_BYTES:
            raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node sent too much before the first field")
        return None

    async def _commit(self) -> None:
        self.is_committed = True
        self._job.stage = "generation"
        if self.timer is not None:
            self.timer.reschedule(None)
        first = b"".join(self._held)
        self._held.clear()
        self._keep(first, is_pure=False)
        self._delivery.mark_first_field()
        await self._guard(self._delivery.open(first, is_last=self.is_finished))

    async def _guard(self, writing: Awaitable[None]) -> None:
        try:
            await writing
        except MeshError as error:
            # Only the outlet raises here: the client is gone, and that is no fault of the node.
            self.is_client_gone = error.reason == R.ERROR_REASON_CANCELLED
            raise
        if self.is_finished and self.timer is not None:
            self.timer.reschedule(asyncio.get_running_loop().time() + _END_GRACE_S)

    def _keep(self, chunk: bytes, *, is_pure: bool) -> None:
        if self._lease is None:
            return
        if not is_pure:
            chunk = _documents_of(chunk)
        if chunk:
            self._lease.add(chunk)

    def _merge(self, frame: bytes) -> None:
        try:
            status = parse_frame(frame).status
        except (DecodeError, IndexError) as error:
            raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node's status is malformed") from error
        self._job.constraint_mode = status.constraint_mode
        self._job.engine_limits = list(status.engine_limits)

    def _take_ends(self, chunk: bytes, heads: Heads) -> None:
        try:
            self._delivery.take_ends(chunk, heads)
        except (DecodeError, ValueError) as error:
            raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node's end frame is malformed") from error
        if self._job.ending.verdict != Verdict.VERDICT_OK or not self._has_tools:
            # With tools, more documents may follow the first end.
            self.is_finished = True


def _documents_of(chunk: bytes) -> bytes:
    """Chunk bytes without any mesh frame."""
    frames = zip(scan_heads(chunk), split_frames(chunk), strict=True)
    return b"".join(frame for (kind, _, _), frame in frames if kind < FIRST_MESH_KIND)


def _without_own(chunk: bytes, heads: Heads) -> bytes:
    """Chunk bytes without the mesh frames that only the router may send to a client."""
    frames = zip(heads, split_frames(chunk), strict=True)
    return b"".join(frame for (kind, _, _), frame in frames if kind not in _OWN_KINDS)
