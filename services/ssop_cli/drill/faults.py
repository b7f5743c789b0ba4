"""The faults of a drill, as data."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ssop_cli.failure import EXIT_USAGE, CommandError

FREEZE_S: Final = 3.0
"""How long a frozen process stays frozen."""


class Act(StrEnum):
    """What is done to a child of the supervisor."""

    KILL = "SIGKILL"
    FREEZE = "SIGSTOP"
    DRAIN = "SIGTERM"
    COMMAND = "command"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `bound_s` is the longest time from its injection to clean answers.

    `command` is what a Redis is told. `spares_in_flight` says that requests which run as it comes must all end well.
    """

    name: str
    child: str
    act: Act
    bound_s: float
    command: tuple[str, ...] = ()
    spares_in_flight: bool = False

    @property
    def how(self) -> str:
        """What is done, in words."""
        if self.act is Act.COMMAND:
            return f"{' '.join(self.command)} on {self.child}"
        if self.act is Act.FREEZE:
            return f"{self.act} to {self.child}, SIGCONT after {FREEZE_S:.0f} s"
        return f"{self.act} to {self.child}"

    @property
    def ends_child(self) -> bool:
        """The supervisor has to start the child again."""
        return self.act in {Act.KILL, Act.DRAIN}


FAULTS: Final[tuple[Fault, ...]] = (
    # A process that is gone is missed until the supervisor has started it again: back-off, imports, a model to load.
    Fault("kill-inference", "inference", Act.KILL, 30.0),
    Fault("kill-rag", "rag", Act.KILL, 15.0),
    Fault("kill-cache", "cache", Act.KILL, 15.0),
    Fault("kill-redis-cache", "redis-cache", Act.KILL, 15.0),
    Fault("kill-redis-state", "redis-state", Act.KILL, 15.0),
    Fault("kill-router", "router", Act.KILL, 30.0),
    # A frozen one is back when it is thawed; deadlines that ran out meanwhile leave some seconds of back-off.
    Fault("freeze-inference", "inference", Act.FREEZE, FREEZE_S + 10.0),
    Fault("freeze-rag", "rag", Act.FREEZE, FREEZE_S + 10.0),
    Fault("freeze-cache", "cache", Act.FREEZE, FREEZE_S + 10.0),
    Fault("freeze-redis-cache", "redis-cache", Act.FREEZE, FREEZE_S + 10.0),
    Fault("freeze-redis-state", "redis-state", Act.FREEZE, FREEZE_S + 10.0),
    Fault("flush-scripts", "redis-cache", Act.COMMAND, 5.0, ("SCRIPT", "FLUSH")),
    Fault("flush-cache", "redis-cache", Act.COMMAND, 5.0, ("FLUSHALL",)),
    Fault("drain-router", "router", Act.DRAIN, 30.0, spares_in_flight=True),
)

SKIPPED: Final[dict[str, str]] = {
    "disk-full": "a file system that can be filled without harm takes root to mount",
    "store-corrupted": "a store that lies is not told from a good one by any answer of this load, so nothing would be "
    "shown",
}
"""Faults that are part of the matrix and are not injected, and why."""


def choose_faults(names: Sequence[str]) -> tuple[Fault, ...]:
    """The faults of these names, in the order given; all of them for none. Raises CommandError."""
    if not names:
        return FAULTS
    by_name = {fault.name: fault for fault in FAULTS}
    for name in names:
        if name in SKIPPED:
            raise CommandError(f"{name} is not injected: {SKIPPED[name]}", exit_code=EXIT_USAGE)
        if name not in by_name:
            raise CommandError(
                f"there is no fault '{name}'", advice=f"there are: {', '.join(by_name)}", exit_code=EXIT_USAGE
            )
    return tuple(by_name[name] for name in dict.fromkeys(names))
