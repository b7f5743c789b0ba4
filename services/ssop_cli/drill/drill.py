"""`ssop drill`: a mesh under load, one fault after the other, and what clients saw of each."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ssop_cli.drill.faults import Act, Fault
from ssop_cli.drill.injection import find_child, hold, inject, is_ready, wait_until
from ssop_cli.drill.ledger import CLEAN_RUN, Kind, Tally, clean_since_s, tally, unfounded
from ssop_cli.drill.load import Load
from ssop_cli.drill.rig import Rig
from ssop_cli.drill.trials import TRIALS, Finding
from ssop_cli.drill.wire import Mode
from ssop_cli.failure import EXIT_NO_MESH, CommandError
from ssop_cli.mesh import find_access
from ssop_cli.places import Places
from ssop_sdk import SsopError

CALM_TIMEOUT_S: Final = 60.0
"""How long a mesh may take to be well before a fault, and after one that broke its bound."""


@dataclass(frozen=True, slots=True)
class Report:
    """A whole drill. `wrong` is what no single fault owns; `seconds` is how long the load ran."""

    tallies: list[Tally]
    wrong: list[str]
    seconds: float

    @property
    def is_good(self) -> bool:
        """Nothing was wrong, and every fault was over in time."""
        return not self.wrong and all(found.is_good for found in self.tallies)


def run_drill(
    places: Places, faults: Sequence[Fault], seed: int, *, seen: Callable[[Tally], None], rig: Rig | None = None
) -> Report:
    """Put a running mesh under load and inject the faults; `seen` takes each tally as it is made.

    `rig` is what the drill's own mesh has; without it no fault may need one.

    Raises CommandError where no mesh runs, a fault can't be done, or the mesh isn't well before the first one.
    """
    if not is_ready(places):
        raise CommandError(
            f"no mesh is ready on {places.state}", advice="start one with: ssop up", exit_code=EXIT_NO_MESH,
            reason="NO_MESH",
        )  # fmt: skip
    for fault in faults:
        find_child(places, fault.child)
    access = find_access(places, None, {})
    begun_s = time.monotonic()
    with Load(access, seed) as load:
        tallies = [_watch_calm(load, begun_s)]
        seen(tallies[0])
        # Spans touch, so that each outcome is in one of them.
        from_s = begun_s + tallies[0].seconds
        for fault in faults:
            tallies.append(_run_fault(fault, load, places, from_s, rig))
            from_s += tallies[-1].seconds
            seen(tallies[-1])
        load.stop()
        seconds = time.monotonic() - begun_s
    book = load.ledger
    wrong = [*book.faults, *unfounded(book.outcomes)]
    wrong += [f"{last.request_id}: {last.verdict.reason}" for last in book.window(from_s) if last.kind is Kind.WRONG]
    wrong += [f"request {name} never had an outcome" for name in book.open_requests()]
    return Report(tallies, wrong, seconds)


def _watch_calm(load: Load, begun_s: float) -> Tally:
    """The load before any fault, as a measure for the others."""
    if not wait_until(lambda: _is_clean(load, begun_s), CALM_TIMEOUT_S):
        raise CommandError(
            f"the mesh gave no {CLEAN_RUN} good answers in a row before any fault", reason="MESH_NOT_WELL"
        )
    ended_s = time.monotonic()
    outcomes = load.window(begun_s, ended_s)
    seconds = ended_s - begun_s
    return tally("none", "load alone", CALM_TIMEOUT_S, outcomes, seconds, injected_s=begun_s, lifted_s=begun_s)


def _do(fault: Fault, places: Places, rig: Rig | None) -> tuple[Callable[[], bool], Finding]:
    """Do a fault until it is lifted; a question for whether the child is back, and what was found."""
    if fault.needs_rig and rig is None:
        raise CommandError(f"{fault.name} can only be done to a mesh of the drill's own")
    if rig is None or not fault.needs_rig:
        return inject(fault, places), Finding()
    if fault.act is Act.TRIAL:
        try:
            return lambda: True, TRIALS[fault.name](rig)
        except SsopError as error:
            return lambda: True, Finding(failures=[f"its own requests failed: {error.reason}: {error}"])
    wire = rig.wires.get(fault.wire) or rig.wires[fault.child]
    harmed = hold(wire, fault.mode)
    found = Finding([f"{harmed} frames or calls harmed"] if fault.mode is not Mode.DARK else [])
    if not harmed and fault.mode is not Mode.DARK:
        found.failures.append("nothing came that could be harmed, so nothing is shown")
    return lambda: True, found


def _run_fault(fault: Fault, load: Load, places: Places, from_s: float, rig: Rig | None) -> Tally:
    if rig is not None and fault.needs_rig:
        rig.await_nodes()
    injected_s = time.monotonic()
    is_back, finding = _do(fault, places, rig)
    lifted_s = time.monotonic() if not fault.ends_child else injected_s
    back_s: float | None = None
    until_s = injected_s + fault.bound_s + CALM_TIMEOUT_S

    def is_over() -> bool:
        nonlocal back_s
        if fault.ends_child and back_s is None and is_back():
            back_s = time.monotonic() - injected_s
        # A clean run before the child is back says that nobody missed it; its return may still disturb.
        has_returned = not fault.ends_child or back_s is not None
        since_s = lifted_s if back_s is None else injected_s + back_s
        return has_returned and is_ready(places) and _is_clean(load, since_s)

    is_in_time = wait_until(is_over, max(CALM_TIMEOUT_S, until_s - time.monotonic()))
    ended_s = time.monotonic()
    book_faults = [f"request {name} is overdue and has no outcome" for name in load.overdue()]
    found = tally(
        fault.name,
        fault.how,
        fault.bound_s,
        load.window(from_s, ended_s),
        ended_s - from_s,
        injected_s=injected_s,
        lifted_s=lifted_s,
        back_s=back_s,
        spares_in_flight=fault.spares_in_flight,
        book_faults=book_faults,
    )
    found.notes.extend(finding.notes)
    found.failures.extend(finding.failures)
    found.wrong.extend(finding.wrong)
    if not is_in_time:
        found.failures.append(f"the mesh was not whole again after {ended_s - injected_s:.0f} s")
    return found


def _is_clean(load: Load, since_s: float) -> bool:
    return clean_since_s(load.window(since_s, time.monotonic()), since_s) is not None
