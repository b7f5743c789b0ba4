"""Starts and drops the prefetches of a session's requests; a failure is said by the retrieval that follows."""

import logging
from collections.abc import Callable
from typing import Final

from ssop.v1.rag_pb2 import PrefetchOutcome
from ssop.v1.router_pb2 import GenerateRequest, RetrievalOptions
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import Principal
from ssop_router.background import Background
from ssop_router.dependency import InnerMetadata, Unavailable
from ssop_router.job import Prefetches
from ssop_router.retrieval import Retrieval

SCOPE = "rag"
_MOST_TOKENS: Final = 2**32 - 1
_log = logging.getLogger(__name__)


class Prefetching:
    """The prefetches of one caller. `sign` makes the metadata that carries it; `policy` is the session's."""

    def __init__(
        self,
        retrieval: Retrieval,
        background: Background,
        principal: Principal,
        sign: Callable[[], InnerMetadata],
        policy: str,
    ) -> None:
        self._retrieval = retrieval
        self._background = background
        self._principal = principal
        self._sign = sign
        self._policy = policy

    def is_wanted(self, request: GenerateRequest) -> bool:
        """Whether a request of the caller may retrieve."""
        policy = (request.policy or self._policy).lower()
        return SCOPE in self._principal.scopes and "no_rag" not in policy and "cache_only" not in policy

    def start(self, request_id: str, options: RetrievalOptions, prefix: str, prefetches: Prefetches) -> None:
        """Prefetch the passages of a prefix, and count it where it is started."""
        prefetches.calls += 1
        prefetches.in_flight += 1
        self._background.start(self._start(request_id, options, prefix, prefetches))

    def cancel(self, request_id: str) -> None:
        """Drop a prefetch that nobody will use."""
        self._background.start(self._cancel(request_id))

    async def _start(self, request_id: str, options: RetrievalOptions, prefix: str, prefetches: Prefetches) -> None:
        try:
            response = await self._retrieval.prefetch(self._principal.tenant, request_id, options, prefix, self._sign())
            if response.outcome == PrefetchOutcome.PREFETCH_OUTCOME_STARTED:
                prefetches.started += 1
                # The service says these: a sum that is no number of tokens is not to keep the answer from its end.
                prefetches.tokens = min(_MOST_TOKENS, prefetches.tokens + response.tokens)
        except (Unavailable, MeshError):
            _log.debug("a prefetch was not started")
        finally:
            prefetches.in_flight -= 1

    async def _cancel(self, request_id: str) -> None:
        try:
            await self._retrieval.cancel_prefetch(request_id, self._sign())
        except (Unavailable, MeshError):
            _log.debug("a prefetch was left to lapse")
