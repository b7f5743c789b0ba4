"""The life of one supervised process, as a state machine: no I/O, no clock, no randomness.

Times are seconds on one monotonic clock. The shell feeds events and carries the actions out:

    WAITING -> STARTING -> READY
                 |  ^        |
                 v  |        v
               BACKOFF <-- (exit)         FAILED: gave up before it was ever ready
    any -> STOPPING -> STOPPED
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

EXIT_SETTINGS: Final = 78
"""EX_CONFIG of sysexits.h: what a service exits with when its settings can't be used."""


class State(StrEnum):
    """Where a child is in its life."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    BACKOFF = "backoff"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class Action(StrEnum):
    """What the shell does next."""

    NONE = "none"
    SPAWN = "spawn"
    TERMINATE = "terminate"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class Begin:
    """What the child depends on is ready."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The child answered that it serves."""


@dataclass(frozen=True, slots=True)
class Hung:
    """The child runs and has not answered for too long."""


@dataclass(frozen=True, slots=True)
class Exited:
    """The process ended; negative codes are signals."""

    code: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The mesh is being stopped."""


Event = Begin | Ready | Hung | Exited | Tick | Stop


@dataclass(frozen=True, slots=True)
class Policy:
    """Times of restarts, in seconds."""

    first_delay_s: float = 0.5
    max_delay_s: float = 30.0
    good_after_s: float = 60.0
    start_timeout_s: float = 90.0
    stop_grace_s: float = 15.0
    hung_after_s: float = 30.0
    first_start_attempts: int = 3


@dataclass(frozen=True, slots=True)
class Child:
    """A child. `since_s` is when it entered its state, `failures` those in a row, `restarts` all of them."""

    state: State = State.WAITING
    since_s: float = 0.0
    failures: int = 0
    restarts: int = 0
    retry_at_s: float = 0.0
    exit_code: int | None = None
    was_ready: bool = False

    @property
    def is_running(self) -> bool:
        """A process exists."""
        return self.state in {State.STARTING, State.READY, State.STOPPING}

    @property
    def is_over(self) -> bool:
        """Nothing more happens by itself."""
        return self.state in {State.STOPPED, State.FAILED}


def backoff_s(failures: int, policy: Policy, jitter: float) -> float:
    """Seconds to wait after so many failures in a row (from 1); `jitter` from 0 to 1 spreads them by a quarter."""
    # The exponent is bounded, because 2.0**1024 overflows.
    base = min(policy.max_delay_s, policy.first_delay_s * 2.0 ** min(failures - 1, 64))
    return min(policy.max_delay_s, base * (0.75 + 0.5 * jitter))


def step(  # noqa: PLR0911 - one return an event
    child: Child, event: Event, now_s: float, policy: Policy, jitter: float
) -> tuple[Child, Action]:
    """The child after an event, and what to do. Events that mean nothing in a state change nothing."""
    if isinstance(event, Exited):
        return _exited(child, event.code, now_s, policy, jitter), Action.NONE
    if isinstance(event, Stop):
        return _stop(child, now_s)
    if isinstance(event, Tick):
        return _tick(child, now_s, policy)
    if isinstance(event, Begin) and child.state is State.WAITING:
        return replace(child, state=State.STARTING, since_s=now_s), Action.SPAWN
    if isinstance(event, Ready) and child.state is State.STARTING:
        return replace(child, state=State.READY, since_s=now_s, was_ready=True), Action.NONE
    if isinstance(event, Hung) and child.state is State.READY:
        return child, Action.KILL
    return child, Action.NONE


def _exited(child: Child, code: int, now_s: float, policy: Policy, jitter: float) -> Child:
    if child.state is State.STOPPING:
        return replace(child, state=State.STOPPED, since_s=now_s, exit_code=code)
    if child.state not in {State.STARTING, State.READY}:
        return child
    is_good = child.state is State.READY and now_s - child.since_s >= policy.good_after_s
    failures = 1 if is_good else child.failures + 1
    is_hopeless = code == EXIT_SETTINGS or failures >= policy.first_start_attempts
    if not child.was_ready and is_hopeless:
        return replace(child, state=State.FAILED, since_s=now_s, failures=failures, exit_code=code)
    return replace(
        child,
        state=State.BACKOFF,
        since_s=now_s,
        failures=failures,
        retry_at_s=now_s + backoff_s(failures, policy, jitter),
        exit_code=code,
    )


def _stop(child: Child, now_s: float) -> tuple[Child, Action]:
    if child.state in {State.STARTING, State.READY}:
        return replace(child, state=State.STOPPING, since_s=now_s), Action.TERMINATE
    if child.state in {State.WAITING, State.BACKOFF}:
        return replace(child, state=State.STOPPED, since_s=now_s), Action.NONE
    return child, Action.NONE


def _tick(child: Child, now_s: float, policy: Policy) -> tuple[Child, Action]:
    if child.state is State.BACKOFF and now_s >= child.retry_at_s:
        restarted = replace(child, state=State.STARTING, since_s=now_s, restarts=child.restarts + 1)
        return restarted, Action.SPAWN
    limits = {State.STARTING: policy.start_timeout_s, State.STOPPING: policy.stop_grace_s}
    limit_s = limits.get(child.state)
    if limit_s is not None and now_s - child.since_s >= limit_s:
        return child, Action.KILL
    return child, Action.NONE
