"""Doing a fault to a running mesh: signals to its children, commands to its Redis servers."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Final

import redis

from ssop_cli.drill.faults import FREEZE_S, HOLD_S, Act, Fault
from ssop_cli.drill.wire import Mode, Wire
from ssop_cli.failure import CommandError
from ssop_cli.places import Places
from ssop_cli.report import ChildReport, is_alive, read_report

_POLL_S: Final = 0.02
_REDIS_TIMEOUT_S: Final = 5.0
_PATIENCE_S: Final = 20.0
_SIGNALS: Final = {Act.KILL: signal.SIGKILL, Act.DRAIN: signal.SIGTERM}


def find_child(places: Places, name: str) -> ChildReport:
    """A child, as the supervisor reports it now. Raises CommandError where it has none of the name."""
    report = read_report(places.report)
    for child in report.children if report is not None else ():
        if child.name == name:
            return child
    raise CommandError(f"the mesh has no child '{name}', so nothing can be done to it", reason="NO_CHILD")


def is_ready(places: Places) -> bool:
    """Whether every child serves."""
    report = read_report(places.report)
    return report is not None and report.phase == "ready"


def inject(fault: Fault, places: Places, *, sleep: Callable[[float], object] = time.sleep) -> Callable[[], bool]:
    """Do a fault; returns when it is lifted, with a question for whether its child serves (again).

    Raises CommandError where it can't be done.
    """
    child = find_child(places, fault.child)
    if not is_alive(child):
        raise CommandError(f"{fault.child} does not run, so {fault.name} can't be injected", reason="NO_CHILD")
    if fault.act is Act.COMMAND:
        _tell_redis(child, fault.command)
    elif fault.act is Act.FREEZE:
        _freeze(child, sleep)
    else:
        os.kill(child.pid, _SIGNALS[fault.act])
    if not fault.ends_child:
        return lambda: True

    def is_back() -> bool:
        now = find_child(places, fault.child)
        return now.state == "ready" and now.pid not in {0, child.pid}

    return is_back


def hold(wire: Wire, mode: Mode) -> int:
    """Have a wire do harm for `HOLD_S`, and on until something came that it could harm; how many frames and calls."""
    before = wire.harmed
    wire.mode = mode
    try:
        time.sleep(HOLD_S)
        if mode is not Mode.DARK:
            wait_until(lambda: wire.harmed > before, _PATIENCE_S)
    finally:
        wire.mode = Mode.PASS
    return wire.harmed - before


def _freeze(child: ChildReport, sleep: Callable[[float], object]) -> None:
    os.kill(child.pid, signal.SIGSTOP)
    try:
        sleep(FREEZE_S)
    finally:
        # Whoever killed a process that did not answer has ended the freeze as well.
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGCONT)


def _tell_redis(child: ChildReport, command: tuple[str, ...]) -> None:
    path = child.address.removeprefix("unix:")
    try:
        with redis.Redis(unix_socket_path=path, socket_timeout=_REDIS_TIMEOUT_S) as connection:
            connection.execute_command(*command)
    except redis.RedisError as error:
        raise CommandError(f"{child.name} does not take {' '.join(command)}: {error}") from error


def wait_until(predicate: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until the predicate holds; False where it does not within the time."""
    deadline_s = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(_POLL_S)
    return True
