"""The faults of a drill, as data."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ssop_cli.drill.wire import SLOW_S, Mode
from ssop_cli.failure import EXIT_USAGE, CommandError

FREEZE_S: Final = 3.0
"""How long a frozen process stays frozen."""
HOLD_S: Final = 6.0
"""How long a wire does harm."""


class Act(StrEnum):
    """What is done to a child of the supervisor, or to the wire that leads to it."""

    KILL = "SIGKILL"
    FREEZE = "SIGSTOP"
    DRAIN = "SIGTERM"
    COMMAND = "command"
    WIRE = "wire"
    TRIAL = "trial"
    """Something with steps and checks of its own; see `trials`."""


_WIRE_WORDS: Final = {
    Mode.SLOW: f"all bytes {SLOW_S:.1f} s late",
    Mode.FAIL: "every call reset at once",
    Mode.GARBLE: "every message overwritten",
    Mode.CUT: "every answer reset after some of it",
    Mode.STALL: "every answer stops after some of it",
    Mode.DARK: "nothing passes",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `bound_s` is the longest time from its injection to clean answers.

    `command` is what a Redis is told, `mode` what is done on a wire to the child: the one called `wire`, where there is
    one, else that of the child's name. `spares_in_flight` says that
    requests which run as it comes must all end well. `told` is what a trial does, in words.
    """

    name: str
    child: str
    act: Act
    bound_s: float
    command: tuple[str, ...] = ()
    spares_in_flight: bool = False
    mode: Mode = Mode.PASS
    wire: str = ""
    told: str = ""

    @property
    def how(self) -> str:
        """What is done, in words."""
        if self.act is Act.TRIAL:
            return self.told
        if self.act is Act.WIRE:
            return f"between router and {self.child} {_WIRE_WORDS[self.mode]}, for {HOLD_S:.0f} s"
        if self.act is Act.COMMAND:
            return f"{' '.join(self.command)} on {self.child}"
        if self.act is Act.FREEZE:
            return f"{self.act} to {self.child}, SIGCONT after {FREEZE_S:.0f} s"
        return f"{self.act} to {self.child}"

    @property
    def ends_child(self) -> bool:
        """The supervisor has to start the child again."""
        return self.act in {Act.KILL, Act.DRAIN}

    @property
    def needs_rig(self) -> bool:
        """Only the drill's own mesh can be harmed so."""
        return self.act in {Act.WIRE, Act.TRIAL}


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
    # A wire does harm for HOLD_S; what it did is over some seconds later. The two nodes take turns, so that one fault
    # does not only meet what the last one has left.
    Fault("slow-node", "inference", Act.WIRE, HOLD_S + 10.0, mode=Mode.SLOW),
    Fault("fails-fast", "inference", Act.WIRE, HOLD_S + 10.0, mode=Mode.FAIL, wire="inference-2"),
    Fault("bad-frames", "inference", Act.WIRE, HOLD_S + 10.0, mode=Mode.GARBLE),
    Fault("cut-stream", "inference", Act.WIRE, HOLD_S + 10.0, mode=Mode.CUT, wire="inference-2"),
    Fault("stalled-stream", "inference", Act.WIRE, HOLD_S + 20.0, mode=Mode.STALL),
    Fault("cut-link-inference", "inference", Act.WIRE, HOLD_S + 10.0, mode=Mode.DARK, wire="inference-2"),
    Fault("cut-link-cache", "cache", Act.WIRE, HOLD_S + 10.0, mode=Mode.DARK),
    Fault("cut-link-rag", "rag", Act.WIRE, HOLD_S + 10.0, mode=Mode.DARK),
    # Both restart a service twice, or wait for it to find out.
    Fault("classifier-missing", "router", Act.TRIAL, 60.0, told="its file is gone as the router starts again"),
    Fault("schema-changed", "router", Act.TRIAL, 30.0, told="requests of two schemas by turns on one session"),
    Fault("disk-full", "rag", Act.TRIAL, 60.0, told="not a byte more can be written where documents and keys lie"),
    Fault("store-corrupted", "rag", Act.TRIAL, 90.0, told="bytes flipped in every file of the documents, while down"),
)


def choose_faults(names: Sequence[str], *, has_rig: bool = True) -> tuple[Fault, ...]:
    """The faults of these names, in the order given; for none all that can be done, which some only can with a rig.

    Raises CommandError.
    """
    by_name = {fault.name: fault for fault in FAULTS if has_rig or not fault.needs_rig}
    if not names:
        return tuple(by_name.values())
    for name in names:
        if name in left_out(has_rig=has_rig):
            raise CommandError(f"{name} can only be done to a mesh of the drill's own", exit_code=EXIT_USAGE)
        if name not in by_name:
            raise CommandError(
                f"there is no fault '{name}'", advice=f"there are: {', '.join(by_name)}", exit_code=EXIT_USAGE
            )
    return tuple(by_name[name] for name in dict.fromkeys(names))


def left_out(*, has_rig: bool) -> list[str]:
    """Faults of the matrix that can't be done to the mesh."""
    return [] if has_rig else [fault.name for fault in FAULTS if fault.needs_rig]
