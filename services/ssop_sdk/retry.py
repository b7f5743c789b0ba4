"""When a call that failed may be made again, and how long to wait before it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import grpc

from ssop_sdk.errors import SsopError

RETRYABLE_REASONS: Final = frozenset(
    {
        "RATE_LIMITED",
        "OVERLOADED",
        "NO_BACKEND",
        "BACKEND_FAILED",
        "BACKEND_NOT_READY",
        "STORE_UNAVAILABLE",
    }
)


MAX_RETRIES: Final = 2


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off with full jitter.

    A call is repeated only while no frame of its answer has arrived, with the same request id, and only
    within its deadline. A session is never repeated.
    """

    max_retries: int = MAX_RETRIES
    """Repetitions after the first try, from 0."""
    base_delay_ms: int = 100
    """Upper bound of the first wait; it doubles with each further one."""
    max_delay_ms: int = 2_000
    """Upper bound of any wait that the mesh did not ask for."""


def is_retryable(error: SsopError) -> bool:
    """Whether the same call may succeed a moment later."""
    if error.from_mesh:
        return error.reason in RETRYABLE_REASONS
    return error.code is grpc.StatusCode.UNAVAILABLE


def wait_before_retry_s(
    policy: RetryPolicy,
    error: SsopError,
    *,
    attempt: int,
    remaining_s: float,
    random: Callable[[], float],
) -> float | None:
    """Seconds to wait before the next try, or None when there must be none.

    `attempt` counts the tries that failed, from 1; `random` gives numbers from 0 to 1, exclusive. A wait that the mesh
    asked for (RetryInfo) is honoured in full and jittered upwards only, by at most a tenth.
    """
    if attempt > policy.max_retries or not is_retryable(error):
        return None
    bound_ms = min(policy.max_delay_ms, policy.base_delay_ms * 2 ** (attempt - 1))
    wait_ms = bound_ms * random()
    if error.retry_after_ms is not None:
        wait_ms = max(wait_ms, error.retry_after_ms * (1 + random() / 10))
    wait_s = wait_ms / 1000
    return wait_s if wait_s < remaining_s else None
