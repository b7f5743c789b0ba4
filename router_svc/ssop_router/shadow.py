# cython: annotation_typing=False
"""Copies of requests to a model on trial, whose answers nobody sees: few, of the lowest priority, never billed.

`shadow.pxd` gives the types with which this very file is compiled.
"""

import logging
import random
import time
from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.frame_pb2 import Verdict
from ssop.v1.inference_pb2 import InferenceServiceGenerateRequest
from ssop_chassis.errors import MeshError
from ssop_codec import FrameError, survey
from ssop_codec.probes import chunk_received, stream_number
from ssop_router.background import Background
from ssop_router.core.canary import Canary, is_shadowed
from ssop_router.core.candidate import Candidate
from ssop_router.core.choice import choose_node
from ssop_router.core.frames import FIELD_BITS
from ssop_router.delivery import take_ends
from ssop_router.generation import GENERATE
from ssop_router.job import Ending, Job
from ssop_router.nodes import Nodes
from ssop_router.profiles import Regimes
from ssop_router.settings import RouterSettings
from ssop_router.trials import SHADOW, Trials, name_verdict

_MOST: Final = 4
"""Copies under way at a time; more are not made."""
# A node that has more than half of its slots in use has no room for what nobody waits for.
_MOST_LOAD: Final = 0.5
_log = logging.getLogger(__name__)


class Shadows:
    """Copies what the canary of a tier did not answer. `clock_ms` is that of the snapshots."""

    def __init__(
        self,
        trials: Trials,
        nodes: Nodes,
        *,
        settings: RouterSettings,
        regimes: Regimes,
        background: Background,
        clock_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self._trials = trials
        self._nodes = nodes
        self._settings = settings
        self._regimes = regimes
        self._background = background
        self._clock_ms = clock_ms
        self._rng = rng
        self._running = 0

    def follow(self, job: Job) -> None:
        """A node has answered a request: copy it to the canary of its tier, where the settings want that."""
        target = job.target
        canary = self._trials.find(target.tier) if target is not None else None
        if target is None or canary is None:
            return
        if target.degraded_level or target.candidate.is_canary or not job.ending.has_ended:
            return
        if not is_shadowed(canary, job.tenant, job.request_id):
            return
        candidate = self._find(job, canary) if self._running < _MOST else None
        if candidate is None:
            self._trials.record(canary, SHADOW, "shed", 0)
            return
        self._running += 1
        self._background.start(self._run(job, canary, candidate))

    def _find(self, job: Job, canary: Canary) -> Candidate | None:
        features = job.features._replace(canaries=frozenset({canary.model}))
        candidate, _ = choose_node(
            features,
            self._nodes.snapshot(),
            self._regimes.now().decision,
            canary.tier,
            now_ms=self._clock_ms(),
            rng=self._rng,
        )
        if candidate is None or not candidate.is_canary or candidate.load > _MOST_LOAD:
            return None
        return candidate

    async def _run(self, job: Job, canary: Canary, candidate: Candidate) -> None:
        request = InferenceServiceGenerateRequest(
            request_id=f"{job.request_id}.shadow"[:64],
            model=candidate.model,
            prompt=job.request.prompt,
            passages=job.passages,
        )
        answer = _Answer(request.request_id)
        timeout_s = self._settings.default_timeout_ms / 1000
        try:
            with self._nodes.occupy(candidate.address) as node:
                await node.peer.stream(
                    GENERATE,
                    request.SerializeToString(),
                    answer.take,
                    timeout_s=timeout_s,
                    metadata=job.inner_metadata,
                )
        except (MeshError, TimeoutError) as error:
            reason = error.reason_name if isinstance(error, MeshError) else "DEADLINE_EXCEEDED"
            _log.info("a shadow failed", extra={"request_id": job.request_id, "reason": reason})
        finally:
            self._running -= 1
        ending = answer.ending
        verdict = name_verdict(ending.verdict) if ending.verdict != Verdict.VERDICT_UNSPECIFIED else "failed"
        self._trials.record(canary, SHADOW, verdict, answer.first_field_ms)


class _Answer:
    """Reads when the first field came and how the document ended, and drops the rest."""

    def __init__(self, request_id: str) -> None:
        self._stream = stream_number(request_id)
        self._started_s = time.monotonic()
        self.first_field_ms = 0.0
        self.ending = Ending()

    def take(self, chunk: bytes) -> None:
        """A chunk. Raises BACKEND_FAILED where it is none."""
        try:
            found = survey(chunk)
            take_ends(self.ending, chunk)
        except (FrameError, DecodeError) as error:
            raise MeshError(ErrorReason.ERROR_REASON_BACKEND_FAILED, "the node sent bytes that are no chunk") from error
        chunk_received(self._stream, found.documents, len(chunk))
        if not self.first_field_ms and found.kinds & FIELD_BITS:
            self.first_field_ms = (time.monotonic() - self._started_s) * 1000
