# cython: annotation_typing=False
"""How an attempt at a node counts. What the caller did is never the node's fault.

`outcomes.pxd` gives the types with which this very file is compiled.
"""

import asyncio
from time import monotonic
from types import TracebackType
from typing import Final, Protocol

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.frame_pb2 import IncompleteReason, Verdict
from ssop_chassis.errors import MeshError
from ssop_router.core.success import Outcome, judge
from ssop_router.job import Ending, Job, Reading
from ssop_router.limits import Wait
from ssop_router.metrics import RouterMetrics
from ssop_router.nodes import Node, Nodes

# A caller that gives a node less than this for its first field learns nothing about the node.
_PATIENCE_S: Final = 1.0
# The deadline of a call to a node ends a little before that of its request.
_NEARLY_S: Final = 0.05
_BACKEND_FAILED: Final = IncompleteReason.INCOMPLETE_REASON_BACKEND_FAILED
_INVALID: Final = Verdict.VERDICT_INVALID
# Looking a member up in its enum costs as much as judging.
_SUCCESS: Final = Outcome.SUCCESS
_FULL: Final = frozenset({ErrorReason.ERROR_REASON_OVERLOADED, ErrorReason.ERROR_REASON_RATE_LIMITED})


class Progress(Protocol):
    """How far an attempt has come."""

    wait: Wait | None
    is_committed: bool
    first_field_s: float | None
    is_finished: bool
    is_client_gone: bool
    reading: Reading


class Observation:
    """An attempt's place on its node; records how it ended and after how many milliseconds, and ends its wait for a
    first field. Errors pass through.

    What counts is the time to the first field, whatever the length of the answer.
    """

    def __init__(self, nodes: Nodes, address: str, job: Job, progress: Progress, metrics: RouterMetrics) -> None:
        self._nodes = nodes
        self._address = address
        self._node: Node | None = None
        self._job = job
        self._progress = progress
        self._metrics = metrics
        self._started_s = 0.0

    def __enter__(self) -> Node:
        node = self._node = self._nodes.begin(self._address)
        self._started_s = monotonic()
        return node

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        progress = self._progress
        if (wait := progress.wait) is not None:
            if isinstance(error, MeshError) and error.reason in _FULL:
                wait.refuse()
            wait.drop()
        outcome = _read(progress.reading.ending) if error is None else self._blame(error)
        first_s = progress.first_field_s
        ended_s = monotonic() if first_s is None else first_s
        self._metrics.attempt_outcomes.labels(outcome).inc()
        if self._node is not None:
            self._nodes.finish(self._node, outcome, max(0.0, ended_s - self._started_s) * 1000)

    def _blame(self, error: BaseException) -> Outcome:
        progress = self._progress
        if isinstance(error, TimeoutError):
            return Outcome.SUCCESS if progress.is_finished else Outcome.FAILURE
        if isinstance(error, asyncio.CancelledError):
            return _late(progress, self._started_s) if self._job.remaining_s() < _NEARLY_S else Outcome.NEUTRAL
        return self._hear(error) if isinstance(error, MeshError) else Outcome.NEUTRAL

    def _hear(self, error: MeshError) -> Outcome:
        """What the node, or the way to it, said."""
        progress = self._progress
        if progress.is_finished:
            return _read(progress.reading.ending)
        if progress.is_client_gone:
            return Outcome.NEUTRAL
        if error.reason == ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED:
            return _late(progress, self._started_s)
        # Where a node was cancelled, nobody here did it: the node did.
        return Outcome.FAILURE if error.reason == ErrorReason.ERROR_REASON_CANCELLED else judge(error.reason)


def _read(ending: Ending) -> Outcome:
    if not ending.has_ended or ending.incomplete_reason == _BACKEND_FAILED:
        return Outcome.FAILURE
    # What a model writes against the schema says nothing about whether its node works.
    return Outcome.NEUTRAL if ending.verdict == _INVALID else _SUCCESS


def _late(progress: Progress, started_s: float) -> Outcome:
    """A deadline has passed: a hung node is one that had time and sent no field."""
    had_time = monotonic() - started_s >= _PATIENCE_S
    is_silent = progress.first_field_s is None and not progress.is_committed
    return Outcome.FAILURE if had_time and is_silent else Outcome.NEUTRAL
