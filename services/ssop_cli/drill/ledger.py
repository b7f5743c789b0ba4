"""What became of each request of a drill, and what that says: no I/O, no clock. Times are seconds on one clock."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

CLEAN_RUN: Final = 8
"""So many good answers without a break are a recovery; more than requests that can be in flight together."""
OVERDUE_S: Final = 5.0
"""How long after its deadline a request may still be without an outcome."""

MOODS: Final = ("good", "bad", "neutral")
SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "mood": {"enum": list(MOODS)},
        "is_urgent": {"type": "boolean"},
        "stars": {"type": "integer", "minimum": 1, "maximum": 5},
    },
    "required": ["mood", "is_urgent", "stars"],
    "additionalProperties": False,
}
"""What every request of a drill asks for; `broken_rule` knows it without any code of the mesh."""


class Kind(StrEnum):
    """How a request ended. WRONG is what no fault excuses."""

    OK = "ok"
    DEGRADED = "degraded"
    ERROR = "error"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a request ended. `reason` is that of the error, or what is wrong; `values` the answer of a good one."""

    kind: Kind
    reason: str = ""
    level: int = 0
    is_stored: bool = False
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The one end of a request."""

    request_id: str
    prompt: str
    started_s: float
    ended_s: float
    verdict: Verdict

    @property
    def kind(self) -> Kind:
        """How it ended."""
        return self.verdict.kind


def broken_rule(document: Any) -> str:
    """What about a document breaks `SCHEMA`; empty if nothing does."""
    if not isinstance(document, dict):
        return "no object"
    if set(document) != {"mood", "is_urgent", "stars"}:
        return f"it has the fields {sorted(document)}"
    stars = document["stars"]
    if document["mood"] not in MOODS:
        return "mood is not one of the schema's"
    if not isinstance(document["is_urgent"], bool):
        return "is_urgent is no boolean"
    if isinstance(stars, bool) or not isinstance(stars, int) or not 1 <= stars <= 5:
        return "stars is no integer from 1 to 5"
    return ""


def changed_field(seen: Sequence[tuple[str, Any]], document: Any) -> str:
    """The first field whose value differs between what was seen, in order, and the whole; empty if none does.

    `document` None is an answer that has no whole.
    """
    first: dict[str, Any] = {}
    whole: list[tuple[str, Any]] = list(document.items()) if isinstance(document, dict) else []
    for name, value in [*seen, *whole]:
        # 1 equals True, and is another value all the same.
        if name in first and (type(first[name]), first[name]) != (type(value), value):
            return name
        first.setdefault(name, value)
    return ""


def lie_of(seen: Sequence[tuple[str, Any]], document: Any) -> str:
    """What makes a whole answer a lie: a field that changed, or a broken rule of the schema; empty if nothing does."""
    if name := changed_field(seen, document):
        return f"field {name} changed its value"
    if rule := broken_rule(document):
        return f"the answer breaks its schema: {rule}"
    return ""


class Ledger:
    """Every request, from its begin to its one outcome."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self._deadline_s: dict[str, float] = {}
        self._ended: set[str] = set()
        self.faults: list[str] = []
        """What is wrong about the book itself: ids without an outcome, or with two."""

    def begin(self, request_id: str, deadline_s: float) -> None:
        """A request is about to be sent."""
        if request_id in self._deadline_s or request_id in self._ended:
            self.faults.append(f"request {request_id} was begun twice")
        self._deadline_s[request_id] = deadline_s

    def end(self, outcome: Outcome) -> None:
        """A request has an outcome."""
        if self._deadline_s.pop(outcome.request_id, None) is None:
            what = "a second outcome" if outcome.request_id in self._ended else "an outcome and was never begun"
            self.faults.append(f"request {outcome.request_id} has {what}")
            return
        self._ended.add(outcome.request_id)
        self.outcomes.append(outcome)

    def overdue(self, now_s: float) -> list[str]:
        """Requests that should have had an outcome by now."""
        return [name for name, deadline_s in self._deadline_s.items() if now_s > deadline_s + OVERDUE_S]

    def open_requests(self) -> list[str]:
        """Requests that have no outcome."""
        return list(self._deadline_s)

    def window(self, from_s: float, until_s: float = math.inf) -> list[Outcome]:
        """Outcomes of a span of time, in their order. Spans that touch share none."""
        found = [outcome for outcome in self.outcomes if from_s <= outcome.ended_s < until_s]
        return sorted(found, key=lambda outcome: outcome.ended_s)


def clean_since_s(outcomes: Sequence[Outcome], lifted_s: float, count: int = CLEAN_RUN) -> float | None:
    """When the first run of `count` good answers began that ended after `lifted_s`; None if there is none yet.

    The run begins with the end of its first answer. Anything but a good answer of level 0 breaks it.
    """
    run: list[Outcome] = []
    for outcome in outcomes:
        if outcome.ended_s < lifted_s:
            continue
        run = [*run, outcome] if outcome.kind is Kind.OK else []
        if len(run) == count:
            return run[0].ended_s
    return None


def unfounded(outcomes: Sequence[Outcome]) -> list[str]:
    """Requests whose answer came from the store, and that nobody was ever given for the prompt.

    Judged over a whole drill. A prompt with a broken request is left out: its answer may have been stored without
    having arrived.
    """
    given: defaultdict[str, set[tuple[Any, ...]]] = defaultdict(set)
    broken = {outcome.prompt for outcome in outcomes if outcome.kind in {Kind.ERROR, Kind.WRONG}}
    for outcome in outcomes:
        if outcome.kind is Kind.OK and not outcome.verdict.is_stored:
            given[outcome.prompt].add(outcome.verdict.values)
    return [
        f"request {outcome.request_id} got a stored answer that nobody was given"
        for outcome in outcomes
        if outcome.verdict.is_stored
        and outcome.prompt not in broken
        and outcome.verdict.values not in given[outcome.prompt]
    ]


@dataclass(frozen=True, slots=True)
class Tally:
    """What clients saw of one fault. `recovered_s` and `back_s` count from the injection; None is never.

    `recovered_s` is when the first clean run began; `back_s` when the child served again, None too where it never went.
    `seconds` is the span of the outcomes.
    """

    name: str
    how: str
    bound_s: float
    seconds: float
    requests: int
    ok: int
    degraded: dict[str, int]
    errors: dict[str, int]
    errors_in_flight: int
    worst_ok_s: float | None
    recovered_s: float | None
    back_s: float | None
    wrong: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What else was seen, for people."""

    @property
    def is_good(self) -> bool:
        """No answer was wrong, and the fault was over in time."""
        return not self.wrong and not self.failures


def tally(
    name: str,
    how: str,
    bound_s: float,
    outcomes: Sequence[Outcome],
    seconds: float,
    *,
    injected_s: float,
    lifted_s: float,
    back_s: float | None = None,
    spares_in_flight: bool = False,
    book_faults: Sequence[str] = (),
) -> Tally:
    """Judge the outcomes of one fault, of a span of so many seconds."""
    good = [outcome for outcome in outcomes if outcome.kind is Kind.OK]
    errors = [outcome for outcome in outcomes if outcome.kind is Kind.ERROR]
    in_flight = sum(outcome.started_s < injected_s for outcome in errors)
    clean_s = clean_since_s(outcomes, lifted_s)
    recovered_s = None if clean_s is None else max(0.0, clean_s - injected_s)
    failures = []
    if recovered_s is None:
        failures.append(f"no {CLEAN_RUN} good answers in a row came")
    elif recovered_s > bound_s:
        failures.append(f"it took {recovered_s:.1f} s to recover, and the bound is {bound_s:.0f} s")
    if spares_in_flight and in_flight:
        failures.append(f"{in_flight} requests that were in flight failed")
    return Tally(
        name=name,
        how=how,
        bound_s=bound_s,
        seconds=seconds,
        requests=len(outcomes),
        ok=len(good),
        degraded=dict(Counter(str(o.verdict.level) for o in outcomes if o.kind is Kind.DEGRADED)),
        errors=dict(Counter(outcome.verdict.reason for outcome in errors)),
        errors_in_flight=in_flight,
        worst_ok_s=max((outcome.ended_s - outcome.started_s for outcome in good), default=None),
        recovered_s=recovered_s,
        back_s=back_s,
        wrong=[*(f"{o.request_id}: {o.verdict.reason}" for o in outcomes if o.kind is Kind.WRONG), *book_faults],
        failures=failures,
    )
