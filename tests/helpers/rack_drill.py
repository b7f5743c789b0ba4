"""What is done to the hosts of a rack while clients ask, and what must come of it."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from helpers.ledger import LedgerFault
from helpers.live_mesh import wait_until
from helpers.lossy_switch import ROUGH
from helpers.rack import ANSWER, CLIENT, Rack, RackClient, address_of

LIMIT_S: Final = 120.0
NODE_PORTS: Final = (7310, 7311, 7312)
TOLD: Final = frozenset({"GENERATION_INTERRUPTED"})
"""What a client may hear whose router died with fields of his answer sent."""
Outcomes = Sequence[Mapping[str, Any]]


def check_outcomes(outcomes: Outcomes, records: Mapping[str, int], *, told: Collection[str] = ()) -> None:
    """Raises LedgerFault unless each request that a router accepted was answered, well or flagged, and others refused.

    `records` are terminal records by request: each router has one at most, of a request that was repeated elsewhere.
    `told` are reasons that an accepted one may end with.
    """
    for outcome in outcomes:
        name, reason, answer = outcome["request_id"], outcome["reason"], outcome["answer"]
        if answer is not None and answer != ANSWER:
            raise LedgerFault(f"{name} got {answer}")
        if answer is None and not reason:
            raise LedgerFault(f"{name} got neither an answer nor a reason")
        if reason and name in records and reason not in told:
            raise LedgerFault(f"{name} was accepted and got {reason}")
    asked = {outcome["request_id"] for outcome in outcomes}
    for name in sorted(asked & set(records)):
        if records[name] > 2:
            raise LedgerFault(f"{name} has {records[name]} terminal records")


@dataclass
class Drill:
    """A rack under load. `seconds` is how long each step took."""

    rack: Rack
    client: RackClient
    seconds: dict[str, float] = field(default_factory=dict)
    outcomes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def mesh(self) -> dict[str, Any]:
        """How clients reach the routers themselves."""
        return {"targets": self.rack.routers, "ca": str(self.rack.client_ca), "name": "mesh.internal"}

    @property
    def fronts(self) -> dict[str, Any]:
        """How clients reach them through all fronts."""
        return self.front(*self.rack.fronts())

    def front(self, *hosts: str) -> dict[str, Any]:
        """How clients reach them through the fronts of hosts."""
        targets = [address_of(host, 443) for host in hosts]
        return {"targets": targets, "ca": str(self.rack.client_ca), "name": "localhost"}

    def nodes_in(self, *routers: str) -> dict[str, set[str]]:
        """By router, of all or of these, the nodes that it sends requests to; none where it can't be asked."""
        view = self.client.tell("view", **{**self.mesh, "targets": routers or self.rack.routers})
        return {
            router: {address for address, node in found.items() if node["is_in"]} if isinstance(found, dict) else set()
            for router, found in view.items()
        }

    def measure(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until something holds, and note how long that took."""
        begun_s = time.monotonic()
        wait_until(holds, LIMIT_S, what)
        self.seconds[what] = time.monotonic() - begun_s

    def converge(self, what: str, *hosts: str) -> None:
        """Wait until all routers have all nodes of these hosts, of all hosts unless some are named, and no others."""
        wanted = nodes_of(*(hosts or self.rack.hosts))
        self.measure(what, lambda: all(found == wanted for found in self.nodes_in().values()))

    def cut(self, before: str, after: str, *, until: Callable[[], bool]) -> None:
        """Nothing goes one way from a host to another until something holds; healed, routers converge."""
        way = f"{before} to {after}"
        self.rack.switch.set(replace(ROUGH, cuts=((before, after),)))
        self.measure(f"{way} cut", until)
        self.rack.switch.set(ROUGH)
        self.converge(f"{way} healed")

    def power_off(self, host: str) -> None:
        """A host is gone, and nothing says so."""
        others = [name for name in (*self.rack.hosts, CLIENT) if name != host]
        cuts = [(host, other) for other in others] + [(other, host) for other in others]
        self.rack.switch.set(replace(ROUGH, cuts=tuple(cuts)))
        self.rack.hosts[host].kill()

    def power_on(self, host: str) -> None:
        """It is there again, and starts its services."""
        self.rack.switch.set(ROUGH)
        self.rack.start(host)

    @contextmanager
    def load(self, at_once: int, through: Mapping[str, Any] | None = None, *, is_fresh: bool = False) -> Iterator[None]:
        """So many clients ask, one request after the other, until the block ends; each by a connection of its own where
        `is_fresh`.
        """
        self.client.tell("begin", at_once=at_once, is_fresh=is_fresh, **(through or self.mesh))
        yield
        self.outcomes = self.client.tell("end")

    def line(self) -> str:
        """The run, to be printed."""
        took = sorted(outcome["took_s"] for outcome in self.outcomes)
        ends = Counter(o["reason"] or (f"level {o['level']}" if o["level"] else "ok") for o in self.outcomes)
        steps = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in self.seconds.items())
        self.rack.switch.set(ROUGH)
        frames = dict(self.rack.switch.rough)
        return (
            f"{len(took)} requests: {dict(ends)}; median {took[len(took) // 2] * 1000:.0f} ms,"
            f" P95 {took[int(len(took) * 0.95)] * 1000:.0f} ms, worst {took[-1]:.1f} s; {steps}; frames {frames}"
        )


def nodes_of(*hosts: str) -> set[str]:
    """Addresses of the nodes of hosts."""
    return {address_of(host, port) for host in hosts for port in NODE_PORTS}


def lacks(drill: Drill, router: str, host: str) -> Callable[[], bool]:
    """Whether the router of one host sends nothing to the nodes of another."""
    return lambda: not drill.nodes_in()[address_of(router, 7300)] & nodes_of(host)
