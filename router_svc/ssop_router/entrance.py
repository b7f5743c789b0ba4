"""How a request gets in: what it may draw on, the key of its answer, and its admission, by the shared limits or not.

`entrance.pxd` gives the types with which this very file is compiled.
"""

from time import monotonic
from typing import Final

from ssop.v1.cache_pb2 import CacheOutcome
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.mesh_pb2 import CacheReason, RetrievalReason
from ssop_chassis.errors import MeshError
from ssop_router.answers import NOT_ADMITTED, Admission, Answers, make_key
from ssop_router.core.decision import is_cacheable
from ssop_router.dependency import Unavailable
from ssop_router.job import Job
from ssop_router.metrics import RouterMetrics
from ssop_router.retrieval import NO_COLLECTIONS, Collections, Retrieval

R = ErrorReason
_UNDECIDED: Final = RetrievalReason.RETRIEVAL_REASON_UNSPECIFIED
_HIT: Final = CacheReason.CACHE_REASON_HIT
_FOLLOWER: Final = CacheReason.CACHE_REASON_FOLLOWER
_MISS: Final = CacheReason.CACHE_REASON_MISS
FROM_CACHE: Final = (_HIT, _FOLLOWER)
_REASON_OF: Final = {CacheOutcome.CACHE_OUTCOME_HIT: _HIT, CacheOutcome.CACHE_OUTCOME_FOLLOW: _FOLLOWER}
"""Of outcomes with an answer that somebody else makes, or has made."""
_WORD_OF: Final = {reason: name.removeprefix("CACHE_REASON_").lower() for name, reason in CacheReason.items()}


class Entrance:
    """Lets jobs in, and says in each what it is served without."""

    def __init__(self, answers: Answers, retrieval: Retrieval, metrics: RouterMetrics) -> None:
        self._answers = answers
        self._retrieval = retrieval
        self._metrics = metrics

    def known_collections(self, job: Job) -> Collections | None:
        """As `find_collections`, where nobody has to be asked; else None."""
        if job.retrieval_reason != _UNDECIDED:
            return NO_COLLECTIONS
        named = job.request.retrieval.collections if job.features.names_collections else ()
        try:
            found = self._retrieval.known_collections(job.tenant, named)
        except Unavailable:
            self.do_without_passages(job)
            return NO_COLLECTIONS
        return None if found is None else _choose(job, found)

    async def find_collections(self, job: Job) -> Collections:
        """The collections that a job may draw on; none where the retrieval service does not answer."""
        try:
            found = await self._retrieval.find_collections(
                job.tenant,
                job.request.retrieval.collections,
                job.inner_metadata,
                self._retrieval.timeout_s(job.remaining_s()),
            )
        except Unavailable:
            self.do_without_passages(job)
            return NO_COLLECTIONS
        return _choose(job, found)

    def do_without_passages(self, job: Job) -> None:
        """The retrieval service does not answer."""
        job.retrieval_reason = RetrievalReason.RETRIEVAL_REASON_UNAVAILABLE
        self._do_without(job, "rag")

    def make_key(self, job: Job, collections: Collections) -> bytes:
        """The key of the answer; empty where none may be taken or kept."""
        if not is_cacheable(job.features) or job.unavailable:
            return b""
        return make_key(job, collections.names, collections.index_version)

    async def admit(self, job: Job, key: bytes) -> Admission:
        """Admit a job and look its answer up. Raises RATE_LIMITED, QUOTA_EXHAUSTED, CACHE_MISS, STORE_UNAVAILABLE."""
        started_s = monotonic()
        try:
            admission = await self._answers.admit(job, key)
        except Unavailable as error:
            return await self._admit_without(job, key, error)
        except MeshError:
            # Nothing was reserved, and the id may be that of a request which runs elsewhere.
            job.is_refused = True
            raise
        finally:
            job.admission_ms += int((monotonic() - started_s) * 1000 + 0.5) or 1
        job.is_admitted = True
        job.lease = admission.lease
        reason = _REASON_OF.get(admission.outcome)
        if reason is not None:
            job.cache_reason = reason
        elif key and self._answers.is_configured:
            job.cache_reason = _MISS
        job.mark("admitted", _WORD_OF[job.cache_reason])
        if reason is None and job.features.policy.is_cache_only:
            raise MeshError(R.ERROR_REASON_CACHE_MISS, "the policy allows the cache only, and it has no answer")
        return admission

    async def _admit_without(self, job: Job, key: bytes, error: Unavailable) -> Admission:
        """The cache service did not answer."""
        self._do_without(job, "cache")
        kept = await self._answers.find_kept(job, key, error)
        if kept is not None:
            self._admit_alone(job, is_generating=False)
            job.cache_reason = _HIT
            return Admission(CacheOutcome.CACHE_OUTCOME_HIT, kept)
        job.cache_reason = job.cache_reason or CacheReason.CACHE_REASON_UNAVAILABLE
        if job.features.policy.is_cache_only:
            raise MeshError(R.ERROR_REASON_STORE_UNAVAILABLE, "the cache does not answer") from error
        self._admit_alone(job)
        return NOT_ADMITTED

    def _admit_alone(self, job: Job, *, is_generating: bool = True) -> None:
        if job.is_admitted:
            return
        try:
            lacking = self._answers.admit_alone(job.tenant, is_generating=is_generating)
        except MeshError:
            job.is_refused = True
            raise
        job.is_admitted = True
        for name in lacking:
            self._do_without(job, name)

    def _do_without(self, job: Job, dependency: str) -> None:
        if dependency not in job.unavailable:
            job.unavailable.append(dependency)
            self._metrics.unavailable.labels(dependency).inc()


def _choose(job: Job, found: Collections) -> Collections:
    if found.names and job.features.user_text.strip():
        return found
    job.retrieval_reason = RetrievalReason.RETRIEVAL_REASON_NO_COLLECTION
    return NO_COLLECTIONS
