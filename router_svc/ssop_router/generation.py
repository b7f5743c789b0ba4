"""Generating at nodes: attempts one after the other, until one has brought the answer to its end.

`generation.pxd` gives the types with which this very file is compiled.
"""

import random
from collections.abc import Callable
from typing import Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.inference_pb2 import ContinueFrom, InferenceServiceGenerateRequest
from ssop_chassis.errors import MeshError, forget_frames
from ssop_router.attempt import Attempt, ContinuedAttempt
from ssop_router.core.ladder import (
    Situation,
    Target,
    deepen,
    explain_end,
    interrupt,
    is_node_failure,
    name_exhaustion,
    next_target,
)
from ssop_router.core.messages import write_request
from ssop_router.core.tuples import make
from ssop_router.delivery import Delivery
from ssop_router.job import Ending, Job
from ssop_router.lease import Lease, keep_lease
from ssop_router.limits import Limits
from ssop_router.metrics import RouterMetrics
from ssop_router.nodes import Nodes
from ssop_router.outcomes import Observation
from ssop_router.profiles import Regimes
from ssop_router.settings import RouterSettings
from ssop_router.similar import Similar
from ssop_router.succession import Succession

R = ErrorReason
GENERATE: Final = "/ssop.v1.InferenceService/Generate"


class Generator:
    """Runs attempts at nodes. Before the first field a failure is unseen; after it another node goes on.

    `clock_ms` is that of the snapshots.
    """

    def __init__(
        self,
        *,
        nodes: Nodes,
        settings: RouterSettings,
        regimes: Regimes,
        metrics: RouterMetrics,
        limits: Limits,
        similar: Similar,
        clock_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self._nodes = nodes
        self._regimes = regimes
        self._metrics = metrics
        self._limits = limits
        self._similar = similar
        self._clock_ms = clock_ms
        self._rng = rng
        self._first_field_s = settings.first_field_timeout_ms / 1000
        self._stall_timeout_ms = settings.stall_timeout_ms
        self._continue_wait_s = settings.continue_wait_ms / 1000
        self._margin_s = settings.hop_margin_ms / 1000

    async def generate(
        self,
        job: Job,
        delivery: Delivery,
        lease: Lease | None,
        *,
        has_reserve: bool = False,
        on_commit: Callable[[], None] | None = None,
        cut_by: MeshError | None = None,
    ) -> None:
        """Deliver an answer, its END included; the job has the verdict. Goes on with what the delivery has sent.

        `has_reserve`: the caller holds an answer of the lite tier back. `on_commit` is called before the first field.
        `cut_by`: what cut the answer that the delivery has begun.
        Where no node of the tier is left, a similar answer goes before the lite tier's.
        Raises NO_BACKEND, OVERLOADED, DEGRADED_REFUSED, GENERATION_INTERRUPTED, and what nodes say of the request
        itself.
        """
        failures: list[MeshError] = [cut_by] if cut_by is not None else []
        succession: Succession | None = None
        while True:
            if delivery.is_open:
                await delivery.catch_up()
                succession = succession or self._begin_succession(job)
                target = deepen(job.target, await self._find_successor(job, failures, succession))
                lease = keep_lease(lease, target)
                attempt: Attempt = ContinuedAttempt(
                    job, delivery, lease, target, failures[-1].reason_name, first_field_s=self._first_field_s
                )
            else:
                try:
                    target = self.find_target(job, has_reserve=has_reserve)
                except MeshError as error:
                    if not has_reserve and await self._similar.serve_degraded(job, delivery, lease, error):
                        return
                    if (exhaustion := name_exhaustion(error, failures)) is error:
                        # Its own cause would be a circle.
                        raise
                    raise exhaustion from error
                if target.degraded_level and await self._similar.serve_degraded(job, delivery, lease):
                    return
                job.target = target
                lease = keep_lease(lease, target)
                attempt = Attempt(job, delivery, lease, first_field_s=self._first_field_s, on_commit=on_commit)
            address = target.candidate.address
            process = self._nodes.process(address)
            try:
                await self.attempt(job, target, attempt)
            except MeshError as error:
                self.note_failure(job, target, attempt, error)
                forget_frames(error)
                failures.append(error)
                succession = succession or self._begin_succession(job)
                succession.fail(address, process, error, has_advanced=attempt.is_committed)
            else:
                return

    def _begin_succession(self, job: Job) -> Succession:
        return Succession(
            self._nodes,
            lambda failed: self.find_target(job, failed=failed),
            wait_s=self._continue_wait_s,
            max_attempts=self._regimes.now().decision.max_attempts,
        )

    async def _find_successor(self, job: Job, failures: list[MeshError], succession: Succession) -> Target:
        """Where an answer that has begun goes on. Raises GENERATION_INTERRUPTED."""
        job.stage = "continuation"
        # Whatever ends the wait, the caller is not the one who cut the answer.
        job.is_interrupted = True
        try:
            target = await succession.wait(job.failed, failures)
        except MeshError as error:
            raise self._interrupt(job, explain_end(failures, error)) from error
        job.is_interrupted = False
        return target

    def find_target(self, job: Job, *, has_reserve: bool = False, failed: tuple[str, ...] | None = None) -> Target:
        """Where the next attempt goes; `failed` are the nodes that it must not go to, those of the job where None.

        Raises NO_BACKEND and DEGRADED_REFUSED.
        """
        situation = make(
            Situation,
            (
                job.features,
                job.decision,
                self._nodes.snapshot(),
                self._regimes.now().decision,
                job.max_degraded_level,
                job.failed if failed is None else failed,
                has_reserve,
            ),
        )
        return next_target(situation, self._clock_ms(), self._rng)

    def note_failure(self, job: Job, target: Target, attempt: Attempt, error: MeshError) -> None:
        """An attempt failed. Raises what the caller is to hear, unless another node may try."""
        job.mark("attempt_failed", error.reason_name)
        has_sent = attempt.is_committed or attempt.is_continued
        if attempt.is_client_gone:
            if not has_sent:
                raise error
            raise interrupt(error, job.last_seq) from error
        is_final = not is_node_failure(error) or (has_sent and not job.can_continue)
        if is_final and not has_sent:
            raise error
        self._metrics.failed_attempts.labels(error.reason_name).inc()
        if is_final:
            raise self._interrupt(job, error) from error
        # Who has begun can wait for a node that is merely full.
        if not (has_sent and error.reason == R.ERROR_REASON_OVERLOADED):
            job.failed = (*job.failed, target.candidate.address)

    def _interrupt(self, job: Job, error: MeshError) -> MeshError:
        self._metrics.continuations.labels("impossible").inc()
        job.is_interrupted = True
        # Of several documents one may have ended.
        job.reading.ending = Ending()
        return interrupt(error, job.last_seq)

    async def attempt(self, job: Job, target: Target, attempt: Attempt) -> None:
        """Run an attempt at its node to the end. Raises what the node says, and BACKEND_FAILED for what it breaks."""
        self._metrics.node_choices_of[target.node_reason].inc()
        candidate = target.candidate
        request = _make_request(job, target, attempt)
        if stall_ms := self._stall_timeout_ms:
            # What a node holds back because it was asked to is no silence of its own.
            attempt.stall_s = (stall_ms + job.parts.linger_ms) / 1000
        job.stage = "continuation" if attempt.is_continued else "first_field"
        job.mark("attempt", candidate.node or candidate.address)
        try:
            with (
                Observation(self._nodes, candidate.address, job, attempt, self._metrics) as node,
                attempt.patience,
            ):
                attempt.wait = self._limits.waiting()
                await node.peer.stream(
                    GENERATE,
                    request,
                    attempt.take,
                    timeout_s=max(0.001, job.remaining_s() - self._margin_s),
                    metadata=job.inner_metadata,
                )
        except TimeoutError as error:
            if not attempt.is_finished:
                what = (
                    f"nothing for {attempt.stall_s:g} s"
                    if attempt.is_committed
                    else f"no first field within {self._first_field_s:g} s"
                )
                raise MeshError(R.ERROR_REASON_BACKEND_FAILED, what) from error
        except MeshError as error:
            if attempt.is_client_gone:
                raise
            if not attempt.is_finished:
                if (blamed := _blame(error, job)) is error:
                    raise
                raise blamed from error
        if not attempt.is_whole:
            raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node ended its stream without an end frame")


def _make_request(job: Job, target: Target, attempt: Attempt) -> bytes:
    """The bytes of an InferenceServiceGenerateRequest."""
    request = write_request(job.request_id, target.candidate.model, job.parts.wire)
    if not (job.passages or attempt.confidence_tokens or attempt.is_continued):
        return request
    more = InferenceServiceGenerateRequest(passages=job.passages, confidence_tokens=attempt.confidence_tokens)
    if attempt.is_continued:
        beginning = ContinueFrom(chunk=job.transcript.chunk, next_seq=job.transcript.last_seq + 1)
        more.continue_from.CopyFrom(beginning)
    # Bytes of two messages put together are those of one that holds what both hold.
    return request + more.SerializeToString()


def _blame(error: MeshError, job: Job) -> MeshError:
    """A node's deadline that passed before the request's own is the node's fault; so is a cancel that nobody asked."""
    if error.reason == R.ERROR_REASON_DEADLINE_EXCEEDED:
        return MeshError(error.reason, error.message, metadata={**error.metadata, "stage": job.stage})
    if error.reason == R.ERROR_REASON_CANCELLED:
        return MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node gave the generation up")
    return error
