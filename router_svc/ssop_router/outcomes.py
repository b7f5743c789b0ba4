"""How an attempt at a node counts. What the caller did is never the node's fault."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.frame_pb2 import IncompleteReason, Verdict
from ssop_chassis.errors import MeshError
from ssop_router.core.success import Outcome, judge
from ssop_router.job import Ending, Job, Reading

# A caller that gives a node less than this for its first field learns nothing about the node.
_PATIENCE_S: Final = 1.0
# The deadline of a call to a node ends a little before that of its request.
_NEARLY_S: Final = 0.05


class Progress(Protocol):
    """How far an attempt has come."""

    is_committed: bool
    first_field_s: float | None
    is_finished: bool
    is_client_gone: bool
    reading: Reading


@contextmanager
def recording(job: Job, progress: Progress, record: Callable[[Outcome, float], None]) -> Iterator[None]:
    """Run an attempt, and record how it ended and after how many milliseconds; errors pass through.

    What counts is the time to the first field, whatever the length of the answer.
    """
    started_s = time.monotonic()
    outcome = Outcome.NEUTRAL
    try:
        yield
        outcome = _read(progress.reading.ending)
    except TimeoutError:
        outcome = Outcome.SUCCESS if progress.is_finished else Outcome.FAILURE
        raise
    except asyncio.CancelledError:
        if job.remaining_s() < _NEARLY_S:
            outcome = _late(progress, started_s)
        raise
    except MeshError as error:
        if progress.is_finished:
            outcome = _read(progress.reading.ending)
        elif progress.is_client_gone:
            outcome = Outcome.NEUTRAL
        elif error.reason == ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED:
            outcome = _late(progress, started_s)
        elif error.reason == ErrorReason.ERROR_REASON_CANCELLED:
            # Nobody here cancelled it: the node did.
            outcome = Outcome.FAILURE
        else:
            outcome = judge(error.reason)
        raise
    finally:
        ended_s = time.monotonic() if progress.first_field_s is None else progress.first_field_s
        record(outcome, max(0.0, ended_s - started_s) * 1000)


def _read(ending: Ending) -> Outcome:
    if not ending.has_ended or ending.incomplete_reason == IncompleteReason.INCOMPLETE_REASON_BACKEND_FAILED:
        return Outcome.FAILURE
    # What a model writes against the schema says nothing about whether its node works.
    return Outcome.NEUTRAL if ending.verdict == Verdict.VERDICT_INVALID else Outcome.SUCCESS


def _late(progress: Progress, started_s: float) -> Outcome:
    """A deadline has passed: a hung node is one that had time and sent no field."""
    had_time = time.monotonic() - started_s >= _PATIENCE_S
    return Outcome.FAILURE if had_time and not progress.is_committed else Outcome.NEUTRAL
