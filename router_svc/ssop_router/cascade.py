"""Running a cascade: lite answers behind a gate, and full takes over before anything of it has been sent."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from google.protobuf.message import DecodeError

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.frame_pb2 import Frame
from ssop.v1.mesh_pb2 import CascadeReason, DegradedReason, Tier, Usage
from ssop_chassis.errors import MeshError, forget_frames
from ssop_router.attempt import Attempt
from ssop_router.core.cascade import CascadeSettings, Evidence, Judgement, escalate, judge
from ssop_router.core.ladder import BACKUP_LEVEL, Target, is_node_failure, refuse_level
from ssop_router.delivery import Delivery
from ssop_router.generation import Generator
from ssop_router.job import Job
from ssop_router.lease import Lease, keep_lease
from ssop_router.outlet import finish
from ssop_router.settings import RouterSettings

R = ErrorReason
# No other node helps a request whose caller or time is gone.
_FINAL: Final = frozenset({R.ERROR_REASON_CANCELLED, R.ERROR_REASON_DEADLINE_EXCEEDED})
# A window never takes more than this share of what is left of a request's time, so that full has some.
_WINDOW_SHARE: Final = 0.5


class GatedAttempt(Attempt):
    """A lite node's stream, held back until it is judged; then kept, or left waiting as a reserve.

    `take` and `open` may run in different tasks. `first_field_s` is the time for a first field once the gate is open.
    """

    def __init__(
        self,
        job: Job,
        delivery: Delivery,
        lease: Lease | None,
        settings: CascadeSettings,
        *,
        held_bytes: int,
        first_field_s: float,
        on_judgement: Callable[[Judgement], None],
    ) -> None:
        super().__init__(job, delivery, lease, first_field_s=first_field_s)
        self.confidence_tokens = settings.text_tokens
        self._settings = settings
        self._most_held_bytes = held_bytes
        self._first_s = first_field_s
        self._on_judgement = on_judgement
        self._evidence = Evidence()
        self._usage: Usage | None = None
        self._opened = asyncio.Event()
        self._lock = asyncio.Lock()
        self.judgement: asyncio.Future[Judgement] = asyncio.get_running_loop().create_future()

    @property
    def usage(self) -> Usage | None:
        """What the node has said that it consumed."""
        return self.reading.ending.usage if self.reading.ending.has_ended else self._usage

    def take(self, chunk: bytes) -> Awaitable[None] | None:
        """See Attempt.take."""
        return self._take(chunk)

    async def _take(self, chunk: bytes) -> None:
        async with self._lock:
            if (pending := super().take(chunk)) is not None:
                await pending

    def close_window(self) -> None:
        """No more is waited for: judge by what there is."""
        self._judge(is_over=True)

    async def open(self) -> None:
        """The lite answer is the one to deliver: send what is held back, and go on. Raises what its outlet raises."""
        self._opened.set()
        async with self._lock:
            if self.is_committed:
                return
            if self.first_field_s is not None or self.reading.ending.has_ended:
                await finish(self._commit())
            elif self.patience.is_endless:
                self.patience.set(self._first_s)

    def _hear(self, body: bytes) -> None:
        try:
            message = Frame.FromString(body).confidence
        except DecodeError as error:
            raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node's confidence is malformed") from error
        self._evidence = self._evidence.take(message, self._settings)
        self._usage = message.usage

    def _weigh(self) -> Awaitable[None] | None:
        if self.first_field_s is not None:
            # The first field is there; how long it is held back is the window's business.
            self.patience.set(None)
        if self._opened.is_set():
            return super()._weigh()
        ending = self.reading.ending
        self._evidence = replace(self._evidence, verdict=ending.verdict, incomplete_reason=ending.incomplete_reason)
        self._judge(is_over=self.held_bytes > self._most_held_bytes)
        if not self.judgement.done():
            return None
        return super()._weigh() if self.judgement.result().is_kept else self._wait()

    def _judge(self, *, is_over: bool) -> None:
        if self.judgement.done():
            return
        found = judge(replace(self._evidence, is_over=is_over), self._settings)
        if found is not None:
            self._on_judgement(found)
            self.judgement.set_result(found)

    async def _wait(self) -> None:
        """Nothing more is read until the gate opens, so that no more than one chunk is held on top."""
        self.patience.set(None)
        await self._opened.wait()
        if (pending := super()._weigh()) is not None:
            await pending


class Cascade:
    """Runs the cascades of a router."""

    def __init__(self, generator: Generator, settings: RouterSettings) -> None:
        self._generator = generator
        self._settings = settings
        self._judging = settings.cascade()

    async def generate(self, job: Job, delivery: Delivery, lease: Lease | None) -> None:
        """As Generator.generate, for a request whose policy is a cascade."""
        reason = CascadeReason.CASCADE_REASON_ESCALATED_UNFIT
        if job.decision.tier == Tier.TIER_LITE:
            try:
                job.target = self._generator.find_target(job)
            except MeshError:
                reason = CascadeReason.CASCADE_REASON_ESCALATED_FAILED
            else:
                await self._run(job, delivery, keep_lease(lease, job.target), job.target)
                return
        job.cascade = Judgement(False, reason)
        job.decision = escalate(job.decision)
        await self._generator.generate(job, delivery, lease)

    async def _run(self, job: Job, delivery: Delivery, lease: Lease | None, target: Target) -> None:
        def settle(judgement: Judgement) -> None:
            job.cascade = judgement

        attempt = GatedAttempt(
            job,
            delivery,
            lease,
            self._judging,
            held_bytes=self._settings.cascade_held_bytes,
            first_field_s=self._settings.first_field_timeout_ms / 1000,
            on_judgement=settle,
        )
        task = asyncio.get_running_loop().create_task(self._generator.attempt(job, target, attempt))
        window_s = min(self._settings.cascade_window_ms / 1000, _WINDOW_SHARE * job.remaining_s())
        try:
            await _Run(self._generator, job, delivery, lease, target, attempt, task).finish(window_s)
        finally:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled() and isinstance(error := task.exception(), MeshError):
                # Whoever needed it has had it; of a fault its place is still to be logged.
                forget_frames(error)


@dataclass(frozen=True, slots=True)
class _Run:
    """One cascade whose lite attempt has begun in a task of its own."""

    generator: Generator
    job: Job
    delivery: Delivery
    lease: Lease | None
    target: Target
    attempt: GatedAttempt
    task: "asyncio.Task[None]"

    async def finish(self, window_s: float) -> None:
        """Deliver one of the two answers."""
        judgement = self.attempt.judgement
        waiting: set[asyncio.Future[Any]] = {judgement, self.task}
        await asyncio.wait(waiting, timeout=window_s, return_when=asyncio.FIRST_COMPLETED)
        if not judgement.done() and not self.task.done():
            self.attempt.close_window()
        if not judgement.done():
            await self._replace()
        elif judgement.result().is_kept:
            await self._keep(self.target)
        else:
            await self._outdo()

    async def _keep(self, target: Target) -> None:
        self.job.target = target
        try:
            await self.attempt.open()
            await self.task
        except MeshError as error:
            self.generator.note_failure(self.job, target, self.attempt, error)
            forget_frames(error)
            if self.delivery.is_open:
                await self.generator.generate(self.job, self.delivery, self.lease, cut_by=error)
            else:
                await self._take_over(CascadeReason.CASCADE_REASON_ESCALATED_FAILED)

    async def _replace(self) -> None:
        """Lite ended without a word that could be judged; full answers, and nothing of lite is left."""
        reason = CascadeReason.CASCADE_REASON_ESCALATED_FAILED
        try:
            await self.task
        except MeshError as error:
            if error.reason in _FINAL:
                raise
            if is_node_failure(error):
                self.generator.note_failure(self.job, self.target, self.attempt, error)
            else:
                reason = CascadeReason.CASCADE_REASON_ESCALATED_UNFIT
            forget_frames(error)
        await self._take_over(reason)

    async def _take_over(self, reason: CascadeReason.ValueType) -> None:
        self.job.cascade = Judgement(False, reason)
        self.job.decision = escalate(self.job.decision)
        await self.generator.generate(self.job, self.delivery, self.lease)

    async def _outdo(self) -> None:
        """Full answers; lite waits as a reserve until full has sent a field."""
        job = self.job

        def discard() -> None:
            job.discarded_usage = self.attempt.usage
            self.task.cancel()

        job.decision = escalate(job.decision)
        failed_before = len(job.failed)
        try:
            await self.generator.generate(job, self.delivery, self.lease, has_reserve=True, on_commit=discard)
        except MeshError as error:
            if self.delivery.is_open or error.reason in _FINAL or self.task.done():
                raise
            if job.max_degraded_level < BACKUP_LEVEL:
                raise refuse_level(BACKUP_LEVEL) from error
            has_failed = len(job.failed) > failed_before
        else:
            return
        if self.lease is not None:
            self.lease.give_up("degraded")
        reason = (
            DegradedReason.DEGRADED_REASON_NODES_FAILED
            if has_failed
            else DegradedReason.DEGRADED_REASON_NODES_UNAVAILABLE
        )
        await self._keep(self.target._replace(degraded_level=BACKUP_LEVEL, degraded_reason=reason))
