"""The life of a request: admission and look-up, retrieval, generation or replay, settlement.

`pipeline.pxd` gives the types with which this very file is compiled.
"""

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Any, Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.mesh_pb2 import CacheReason
from ssop_chassis.call import Carry
from ssop_chassis.deadline import Deadline
from ssop_chassis.errors import MeshError, as_mesh_error, forget_frames
from ssop_chassis.logs import request_id
from ssop_router.answers import NOT_ADMITTED, Admission, Answers
from ssop_router.background import Background
from ssop_router.canned import CannedDocuments
from ssop_router.cascade import Cascade
from ssop_router.citations import Citations
from ssop_router.core.ladder import RETRY_AFTER_MS, interrupt
from ssop_router.core.transcript import ContradictionError
from ssop_router.delivery import Delivery
from ssop_router.dependency import Unavailable
from ssop_router.entrance import FROM_CACHE, Entrance
from ssop_router.follower import Follower
from ssop_router.generation import Generator
from ssop_router.job import Intake, Job
from ssop_router.lease import Lease
from ssop_router.metrics import RouterMetrics
from ssop_router.outlet import DirectOutlet, Outlet, Queue, Write
from ssop_router.passages import Fetch, Passages
from ssop_router.preparation import Preparation
from ssop_router.profiles import Regimes
from ssop_router.receipts import Receipts
from ssop_router.reports import Reports
from ssop_router.resume import Recordings
from ssop_router.retrieval import Collections
from ssop_router.settings import RouterSettings
from ssop_router.settlement import charge, count, deadline_error, judge
from ssop_router.shadow import Shadows
from ssop_router.similar import Similar
from ssop_router.validation import MAX_RECEIPTS

R = ErrorReason
_ADMISSIONS: Final = 2
_HIT: Final = CacheReason.CACHE_REASON_HIT
_FOLLOWER: Final = CacheReason.CACHE_REASON_FOLLOWER


class Pipeline:
    """Runs requests, at most `max_in_flight` at a time, each in one task."""

    def __init__(
        self,
        *,
        preparation: Preparation,
        answers: Answers,
        entrance: Entrance,
        passages: Passages,
        generator: Generator,
        canned: CannedDocuments,
        cascade: Cascade,
        similar: Similar,
        citations: Citations,
        recordings: Recordings,
        receipts: Receipts,
        reports: Reports,
        shadows: Shadows,
        regimes: Regimes,
        settings: RouterSettings,
        background: Background,
        metrics: RouterMetrics,
    ) -> None:
        self._preparation = preparation
        self._answers = answers
        self._entrance = entrance
        self._passages = passages
        self._generator = generator
        self._canned = canned
        self._cascade = cascade
        self._similar = similar
        self._citations = citations
        self._recordings = recordings
        self._receipts = receipts
        self._reports = reports
        self._shadows = shadows
        self._regimes = regimes
        self._settings = settings
        self._background = background
        self._metrics = metrics
        self._running: dict[tuple[str, str], Job] = {}

    @property
    def in_flight(self) -> int:
        """Requests that run."""
        return len(self._running)

    def accept(self, intake: Intake) -> Job:
        """Take a request on; `serve` or `discard` must follow. Raises what Generate promises, up to the decision."""
        receipts = intake.request.receipts
        if receipts and len(receipts) <= MAX_RECEIPTS:
            self._receipts.record(intake.principal.tenant, receipts)
        if len(self._running) >= self._regimes.now().max_in_flight:
            raise MeshError(
                R.ERROR_REASON_OVERLOADED, "the router serves as much as it can", retry_after_ms=RETRY_AFTER_MS
            )
        job = self._preparation.prepare(intake)
        name = (job.tenant, job.request_id)
        if name in self._running:
            raise MeshError(
                R.ERROR_REASON_REQUEST_DUPLICATE, "a request with this id is running", metadata={"request_id": name[1]}
            )
        self._preparation.remember(job)
        self._running[name] = job
        self._reports.begin(job)
        self._metrics.in_flight.inc()
        return job

    def serve(self, job: Job, write: Write, carry: Carry, queue: Queue | None = None) -> Awaitable[None]:
        """Deliver an accepted job. Cancelled: everything below ends, unless a follower or a resume window remains.

        `carry` runs what may outlive the caller. `queue` is where the chunks wait for the client's room, where a cut
        wait says less; nobody has been answered before it is empty.
        """
        if job.request.resume_window_ms:
            try:
                recording = self._recordings.open(job)
            except MeshError as error:
                self._end_unserved(job, error.reason_name)
                raise
            recording.task = self._background.start(self._live(job, recording))
            return self._recordings.deliver(recording, write)
        outlet = self._receipts.watch(write, job.request_id)

        def outlives(task: "asyncio.Task[Any]") -> bool:
            if not job.has_followers:
                # A task that is cancelled before its first step runs nothing of its work.
                self.discard(job)
                return False
            outlet.detach()
            self._background.keep(task)
            return True

        return carry(self._live(job, outlet, queue), outlives)

    def discard(self, job: Job) -> bool:
        """The caller of an accepted job went: it is over, unless something of it has run already. Whether it was so."""
        if job.is_begun:
            return False
        self._end_unserved(job, "CANCELLED")
        return True

    def _end_unserved(self, job: Job, outcome: str) -> None:
        job.is_begun = True
        self._release(job)
        self._reports.end(job, outcome)

    async def _live(self, job: Job, outlet: Outlet, queue: Queue | None = None) -> None:
        job.is_begun = True
        request_id.set(job.request_id)
        delivery = Delivery(job, outlet, self._metrics)
        outcome = "OK"
        failure: MeshError | None = None
        try:
            with Deadline(job.remaining_s()):
                await self._run(job, delivery)
                if queue is not None and isinstance(outlet, DirectOutlet) and not outlet.is_shut:
                    await queue.finish_sending()
        except asyncio.CancelledError:
            outcome = "CANCELLED"
            failure = MeshError(R.ERROR_REASON_CANCELLED, "the caller went away")
            raise
        except Exception as error:
            failure = deadline_error(job) if isinstance(error, TimeoutError) else as_mesh_error(error)
            outcome = failure.reason_name
            if failure is error:
                raise
            raise failure from error
        finally:
            delivery.abandon()
            if queue is not None:
                job.sends.count(-queue.end(), 0)
            if isinstance(outlet, DirectOutlet):
                job.sends.count(-outlet.dropped, 0)
            self._release(job)
            self._reports.end(job, outcome)
            if isinstance(outlet, DirectOutlet):
                is_whole = failure is None and not outlet.is_shut
                self._receipts.record_sent(job.tenant, job.request_id, job.sends.frames, is_whole=is_whole)
            else:
                self._recordings.end(job, failure)
            # Raised, it holds this frame.
            failure = None

    async def _run(self, job: Job, delivery: Delivery) -> None:
        entrance = self._entrance
        collections = entrance.known_collections(job)
        if collections is None:
            collections = await entrance.find_collections(job)
        key = entrance.make_key(job, collections)
        job.question = self._similar.describe(job, key, collections)
        admission = NOT_ADMITTED
        is_generated = False
        fetch = self._passages.begin(job, collections) if collections.names else None
        try:
            admission = await entrance.admit(job, key)
            if fetch is not None and job.cache_reason in FROM_CACHE:
                fetch.drop()
            if job.cache_reason == _HIT:
                await self._recall(job, key, collections)
                await delivery.replay(admission.answer)
            else:
                is_followed, cut_by = False, None
                if job.cache_reason == _FOLLOWER:
                    is_followed, admission, cut_by = await self._follow(job, delivery, key, collections)
                if job.question is not None and not is_followed and cut_by is None:
                    is_followed = await self._similar.serve_hit(job, delivery, admission.lease)
                if not is_followed:
                    is_generated = job.is_billed = True
                    await self._generate(job, delivery, key, fetch, admission.lease, cut_by=cut_by)
            await delivery.close()
        finally:
            if is_generated:
                self._shadows.follow(job)
            if fetch is not None:
                fetch.close()
            job.lease = None
            stored = self._conclude(job, admission.lease, is_generated)
        if stored is not None:
            # Whoever asks the same next finds the answer stored.
            await stored
        judge(job)

    async def _recall(self, job: Job, key: bytes, collections: Collections) -> None:
        """Name the passages of an answer that was made before, or elsewhere: its fields may cite them."""
        try:
            await self._citations.recall(job, key, collections)
        except Unavailable:
            self._entrance.do_without_passages(job)

    async def _follow(
        self, job: Job, delivery: Delivery, key: bytes, collections: Collections
    ) -> tuple[bool, Admission, MeshError | None]:
        """Follow another request's generation; False, and a new admission, when its leader failed.

        With fields already sent the rest is to be generated, for the reason that comes third.
        """
        admission = NOT_ADMITTED
        cut_by: MeshError | None = None
        for _ in range(_ADMISSIONS):
            job.stage = "follow"
            follower = Follower(delivery, job.transcript, partial(self._recall, job, key, collections))
            if await self._follow_leader(job, delivery, key, follower):
                return True, admission, cut_by
            if delivery.is_open:
                cut_by = MeshError(R.ERROR_REASON_LEASE_LOST, "the generation that was followed failed")
                if not job.can_continue:
                    raise interrupt(cut_by, job.last_seq)
            admission = await self._entrance.admit(job, key)
            if job.cache_reason == _HIT:
                if not delivery.is_open:
                    await self._recall(job, key, collections)
                    await delivery.replay(admission.answer)
                    return True, admission, cut_by
                try:
                    # Another follower has gone on with it, to the end.
                    await follower.take(admission.answer.chunk)
                except ContradictionError:
                    break
                return True, admission, cut_by
            if job.cache_reason != _FOLLOWER:
                return False, admission, cut_by
        job.cache_reason = CacheReason.CACHE_REASON_MISS
        return False, NOT_ADMITTED, cut_by

    async def _follow_leader(self, job: Job, delivery: Delivery, key: bytes, follower: Follower) -> bool:
        """Follow one leader; whether the answer has ended."""
        try:
            await self._answers.follow(job, key, follower.take)
        except (MeshError, Unavailable) as error:
            reason = error.reason if isinstance(error, MeshError) else None
            if not job.reading.ending.has_ended:
                if reason == R.ERROR_REASON_DEADLINE_EXCEEDED:
                    raise deadline_error(job) from error
                if reason == R.ERROR_REASON_CANCELLED:
                    raise
            forget_frames(error)
        # The stream may have ended while the client was waited for.
        await delivery.catch_up()
        return job.reading.ending.has_ended

    async def _generate(
        self,
        job: Job,
        delivery: Delivery,
        key: bytes,
        fetch: Fetch | None,
        lease: Lease | None,
        *,
        cut_by: MeshError | None,
    ) -> None:
        if fetch is not None:
            await self._collect(job, key, fetch, lease, cut_by)
        try:
            if cut_by is not None:
                if lease is not None:
                    # Others that lost the same leader follow from the first frame, and check what they have.
                    lease.add(job.transcript.chunk)
                await self._generator.generate(job, delivery, lease, cut_by=cut_by)
            elif job.features.policy.is_cascade:
                await self._cascade.generate(job, delivery, lease)
            else:
                await self._generator.generate(job, delivery, lease)
        except MeshError as error:
            canned = None if delivery.is_open else self._canned.find(job, error)
            if canned is None:
                raise
            if lease is not None:
                lease.give_up("degraded")
            job.take_canned()
            await delivery.serve_canned(canned)

    async def _collect(self, job: Job, key: bytes, fetch: Fetch, lease: Lease | None, cut_by: MeshError | None) -> None:
        """Put the passages into the job. Raises GENERATION_INTERRUPTED where they are not those of what was sent."""
        try:
            spoiled_by = await fetch.collect()
        except Unavailable as error:
            forget_frames(error)
            self._entrance.do_without_passages(job)
            spoiled_by = "rag_unavailable"
        if lease is not None and spoiled_by:
            lease.give_up(spoiled_by)
        if cut_by is not None and spoiled_by:
            # The fields that were sent draw on other passages than the rest would, and may cite them.
            job.is_interrupted = True
            self._metrics.continuations.labels("impossible").inc()
            raise interrupt(cut_by, job.last_seq)
        if job.passages and not spoiled_by:
            self._citations.remember(job, key)

    def _conclude(self, job: Job, lease: Lease | None, is_generated: bool) -> Awaitable[object] | None:
        """Store or give up the answer, and settle: begun at once, and done even where the request is cancelled.

        What is returned is over when the answer is stored or given up.
        """
        is_complete = is_generated and job.reading.ending.is_storable and not job.degraded_level
        model = job.target.candidate.model if job.target is not None else ""
        if lease is not None and job.question is not None:
            # Off everybody's way: who asks the same next is not made to wait for an embedder.
            lease.on_stored = lambda: self._background.start(self._similar.remember(job))
        commit = None
        if self._answers.is_configured and not job.is_refused:
            commit = lease.end_with_settlement(is_complete=is_complete, model=model) if lease is not None else None
            self._answers.settle(job, charge(job, is_generated), count(job, is_generated), commit)
        if lease is None or commit is not None:
            return commit
        return asyncio.shield(self._background.start(lease.close(is_complete=is_complete, model=model)))

    def _release(self, job: Job) -> None:
        del self._running[(job.tenant, job.request_id)]
        self._metrics.in_flight.dec()
