# cython: annotation_typing=False
"""Stored answers for requests whose admission fails: what the host of the cache service still has.

`kept.pxd` gives the types with which this very file is compiled.
"""

import asyncio
from collections import deque
from typing import Final

from google.protobuf.message import DecodeError

from ssop.v1.cache_pb2 import CacheOutcome, LookupRequest, LookupResponse, StoredAnswer
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.deadline import running_loop
from ssop_chassis.errors import MeshError
from ssop_router.background import Background
from ssop_router.core.envelope import Admitted
from ssop_router.dependency import Dependency, Unavailable
from ssop_router.job import Job
from ssop_router.settings import RouterSettings

_LOOKUP: Final = "/ssop.v1.CacheService/Lookup"
_LATE: Final = 0.75
"""After this part of its time an admission is late."""
_LEAST_S: Final = 0.02
_SOON_S: Final = 0.001
_MOST_BESIDE: Final = 8
"""Look-ups beside admissions at a time: where more are late, the cache service has enough to do."""


class Kept:
    """Looks answers up without admission. Owned by the event loop."""

    def __init__(self, levels: Dependency, settings: RouterSettings, background: Background) -> None:
        self._levels = levels
        self._background = background
        self._late_s = _LATE * settings.admission_timeout_ms / 1000
        # A host whose Redis is silent says within an eighth of its bound what it has itself.
        self._timeout_s = max(_LEAST_S, settings.admission_timeout_ms / 2000)
        self._beside = 0
        # Admissions, each with the time at which it is late. All have equally long: the first is due first, and one
        # timer does for all.
        self._watches: deque[tuple[float, asyncio.Future[Admitted], Job, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, admission: "asyncio.Future[Admitted]", job: Job, key: bytes) -> None:
        """An admission has begun: an answer is looked for when it is late."""
        loop, watches = running_loop(), self._watches
        while watches and watches[0][1].done():
            watches.popleft()
        watches.append((loop.time() + self._late_s, admission, job, key))
        if self._timer is None:
            self._timer = loop.call_later(self._late_s, self._look)

    def _look(self) -> None:
        loop, watches = running_loop(), self._watches
        self._timer = None
        while watches:
            due_s, admission, job, key = watches[0]
            if not admission.done():
                left_s = due_s - loop.time()
                if left_s > _SOON_S:
                    self._timer = loop.call_later(left_s, self._look)
                    return
                self._begin(job, key)
            watches.popleft()

    async def find(self, job: Job, key: bytes, error: Unavailable) -> StoredAnswer | None:
        """The answer after an admission failed, where there is one.

        Nobody is asked anew who has just let a request wait for nothing.
        """
        if job.kept is not None:
            return await job.kept
        cause = error.__cause__
        has_waited = isinstance(cause, MeshError) and cause.reason != ErrorReason.ERROR_REASON_STORE_UNAVAILABLE
        return None if not key or has_waited else await self._ask(job, key)

    def _begin(self, job: Job, key: bytes) -> None:
        if key and job.kept is None and self._beside < _MOST_BESIDE:
            self._beside += 1
            job.kept = self._background.start(self._ask(job, key))
            job.kept.add_done_callback(self._end)

    def _end(self, _: "asyncio.Task[StoredAnswer | None]") -> None:
        self._beside -= 1

    async def _ask(self, job: Job, key: bytes) -> StoredAnswer | None:
        request = LookupRequest(cache_key=key, max_age_ms=job.request.cache.max_age_ms)
        try:
            message = await self._levels.unary(
                _LOOKUP,
                request.SerializeToString(),
                timeout_s=min(self._timeout_s, job.remaining_s()),
                metadata=job.inner_metadata,
            )
            response = LookupResponse.FromString(message)
        except (Unavailable, MeshError, DecodeError):
            # Admission says that the cache does not answer.
            return None
        return response.answer if response.outcome == CacheOutcome.CACHE_OUTCOME_HIT else None
