"""Who goes on with a document that was begun: looked for until a node can, or until none will."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.deadline import running_loop
from ssop_chassis.errors import MeshError
from ssop_router.core.ladder import RETRY_AFTER_MS, Target
from ssop_router.nodes import Nodes

R = ErrorReason
# How often a document that waits for a node looks for one.
_LOOK_S: Final = 0.05
# By then a connection that broke with its process is known to be broken.
_NOTICE_S: Final = 1.0


class Succession:
    """The search of one request. `find` gives a target that is none of the addresses; it raises where there is none.

    A node that failed may be asked again when its process is another one; one that was full, after it has rested.
    """

    def __init__(
        self, nodes: Nodes, find: Callable[[tuple[str, ...]], Target], *, wait_s: float, max_attempts: int
    ) -> None:
        self._nodes = nodes
        self._find = find
        self._wait_s = wait_s
        self._max_attempts = max_attempts
        self._clock = running_loop().time
        self._processes: dict[str, int] = {}
        self._rests: dict[str, float] = {}
        self._cut_s: float | None = None

    def fail(self, address: str, process: int, error: MeshError, *, has_advanced: bool) -> None:
        """An attempt failed at a node that was this process as it began; `has_advanced`: not before it had sent
        something, so that the wait begins anew.
        """
        self._processes[address] = process
        if error.reason == R.ERROR_REASON_OVERLOADED:
            rest_ms = min(error.retry_after_ms or RETRY_AFTER_MS, RETRY_AFTER_MS)
            self._rests[address] = self._clock() + rest_ms / 1000
        if has_advanced:
            self._cut_s = None

    async def wait(self, failed: tuple[str, ...], failures: Sequence[MeshError]) -> Target:
        """Where the document goes on; `failed` are the nodes that failed for it, in order.

        Waits, unless what was begun is what nodes refuse. Raises what `find` raises.
        """
        if self._cut_s is None:
            self._cut_s = self._clock()
        # A request that kills whatever serves it ends with its attempts.
        is_final = len(failed) >= self._max_attempts or any(
            error.reason == R.ERROR_REASON_UNSUPPORTED for error in failures
        )
        while True:
            now_s = self._clock()
            gone = tuple(address for address in failed if is_final or self._is_same(address))
            resting = tuple(address for address, until_s in self._rests.items() if until_s > now_s)
            try:
                return self._find(gone + resting)
            except MeshError:
                waited_s = now_s - self._cut_s
                is_hopeless = waited_s >= _NOTICE_S and not resting and not self._may_come(gone)
                if is_final or is_hopeless or waited_s >= self._wait_s:
                    raise
            await asyncio.sleep(_LOOK_S)

    def _is_same(self, address: str) -> bool:
        now = self._nodes.process(address)
        return self._processes.get(address, now) == now

    def _may_come(self, gone: tuple[str, ...]) -> bool:
        """Whether a node is away, or has not been tried."""
        return any(not node.is_connected or node.address not in gone for node in self._nodes.snapshot().nodes)
