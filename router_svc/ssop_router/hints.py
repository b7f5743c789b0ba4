"""What routers tell each other about nodes: each sends what it took out, and takes what the others did as hints.

By way of the cache service, in the state instance. When that is gone each router judges alone.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from google.protobuf.message import DecodeError

from ssop.v1 import hints_pb2
from ssop_chassis.errors import MeshError
from ssop_chassis.logs import describe
from ssop_router.dependency import Dependency, InnerMetadata, Unavailable
from ssop_router.metrics import RouterMetrics
from ssop_router.rotation import Hint, Rotation

SHARE_METHOD: Final = "/ssop.v1.HintService/ShareHints"
MAX_HINTS: Final = 64
"""Most that the service takes of one router; a tier keeps half of its nodes, so more are out of large meshes only."""
_LEAST_S: Final = 0.1
_log = logging.getLogger(__name__)


class HintExchange:
    """Exchanges hints each `poll_ms`, and at once when a node goes or comes back. `router_id` is the process's own."""

    def __init__(
        self,
        rotation: Rotation,
        store: Dependency,
        *,
        router_id: str,
        poll_ms: int,
        timeout_ms: int,
        metadata: Callable[[], InnerMetadata],
        metrics: RouterMetrics,
    ) -> None:
        self._rotation = rotation
        self._store = store
        self._router_id = router_id
        self._poll_s = poll_ms / 1000
        self._timeout_s = timeout_ms / 1000
        self._metadata = metadata
        self._metrics = metrics

    async def run(self) -> None:
        """Exchange until cancelled."""
        while True:
            self._rotation.changed.clear()
            await self.exchange()
            # However many nodes go at once, it is not told for each of them.
            await asyncio.sleep(min(_LEAST_S, self._poll_s))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._rotation.changed.wait()

    async def exchange(self) -> None:
        """Exchange once; what fails leaves every router to itself."""
        own = sorted(self._rotation.hints(), key=lambda hint: hint.age_ms)[:MAX_HINTS]
        request = hints_pb2.ShareHintsRequest(
            router_id=self._router_id, hints=[hints_pb2.NodeHint(**hint._asdict()) for hint in own]
        )
        try:
            data = await self._store.unary(
                SHARE_METHOD, request.SerializeToString(), timeout_s=self._timeout_s, metadata=self._metadata()
            )
            response = hints_pb2.ShareHintsResponse.FromString(data)
        except (Unavailable, MeshError, DecodeError) as error:
            self._metrics.is_hinting.set(0)
            _log.debug("hints were not exchanged: %s", describe(error))
            return
        self._metrics.is_hinting.set(1)
        for hint in response.hints:
            is_taken = self._rotation.take_hint(Hint(hint.address, hint.rule, hint.age_ms))
            self._metrics.hints.labels("taken" if is_taken else "ignored").inc()
