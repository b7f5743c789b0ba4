"""The posts that rules have counted, by rule and group: when do enough of them make a crossing? Pure.

The answer is exact (a slow twin in the tests holds it) for posts that come at most SLACK_MS after later ones and while
no bound is reached; beyond MAX_ENTRIES, the groups that were touched longest ago are forgotten first.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ssop_opinion.core.rules import Facts, Rule

SLACK_MS: Final = 600_000
SPARE: Final = 64
"""Posts of a group beyond `count` that are kept, so that some may turn out not to fit."""
MAX_ENTRIES: Final = 200_000
_DAY_MS: Final = 86_400_000

_NONE: Final[Mapping[str, str]] = {}

Place = tuple[str, str]
"""Name of a rule, and a group."""


class Entry(NamedTuple):
    """A post in a group. `at_ms` is when it was received; `is_final` says that its verdict was given."""

    at_ms: int
    key: str
    fits: bool
    is_final: bool
    is_degraded: bool = False


class Windows:
    """The groups of one tenant's rules."""

    def __init__(self, rules: Iterable[Rule], max_entries: int = MAX_ENTRIES) -> None:
        self._rules = {rule.name: rule for rule in rules}
        self._max_entries = max_entries
        self._groups: OrderedDict[Place, list[Entry]] = OrderedDict()
        self._places: dict[str, dict[str, str]] = {}
        self._size = 0
        self._touched: set[Place] = set()
        self.forgotten = 0
        """Entries that bounds have cost so far."""

    @property
    def size(self) -> int:
        """Entries that are held."""
        return self._size

    def put(self, rule: Rule, facts: Facts, *, fits: bool) -> tuple[Place, ...]:
        """Count a post, in place of what was counted of it before. The places whose entries changed, its own last."""
        group = rule.group(facts)
        place = (rule.name, group)
        old = self._places.get(facts.key, _NONE).get(rule.name)
        is_kept = fits or (rule.kind == "sequence" and facts.is_valid and rule.is_scoped(facts))
        if old is None and not is_kept:
            return ()
        taken = self._take((rule.name, old), facts) if old is not None else ()
        if not is_kept:
            return taken
        entry = Entry(facts.received_ms, facts.key, fits, facts.is_final, facts.degraded_level > 0)
        entries = self._groups.setdefault(place, [])
        if not entries or entries[-1] < entry:
            entries.append(entry)
        else:
            insort(entries, entry)
        self._groups.move_to_end(place)
        self._size += 1
        self._places.setdefault(facts.key, {})[rule.name] = group
        # A group in which nothing fits need not outlive the process.
        if fits or any(one.fits for one in entries):
            self._touched.add(place)
        self._bound(rule, place)
        return (place,) if old in {None, group} else (*taken, place)

    def holds(self, place: Place, key: str) -> bool:
        """Whether a post is counted in a group."""
        return self._places.get(key, _NONE).get(place[0]) == place[1]

    def crossing(self, place: Place, key: str) -> Sequence[Entry]:
        """The entries of a crossing that the post is part of; empty where there is none."""
        rule = self._rules.get(place[0])
        if rule is None:
            return ()
        return _run_of(rule, self._entries(place), key)

    def stands(self, place: Place, since_ms: int, *, finals_only: bool) -> bool:
        """Whether posts received since then cross the rule, counting those alone whose verdict was given or all."""
        rule = self._rules.get(place[0])
        if rule is None:
            return False
        entries: Sequence[Entry] = self._entries(place)
        if finals_only or (entries and entries[0].at_ms < since_ms):
            entries = [one for one in entries if one.at_ms >= since_ms and (one.is_final or not finals_only)]
        return next(_runs(rule, entries), None) is not None

    def counts(self, place: Place, since_ms: int) -> tuple[int, int]:
        """Posts that fit, received since then, and how many of them are degraded."""
        found = [one for one in self._entries(place) if one.fits and one.at_ms >= since_ms]
        return len(found), sum(one.is_degraded for one in found)

    @property
    def is_changed(self) -> bool:
        """Whether `take_changes` has something."""
        return bool(self._touched)

    def take_changes(self) -> dict[Place, Sequence[Entry]]:
        """The groups that changed since the last call; an empty one is gone."""
        changes: dict[Place, Sequence[Entry]] = {place: tuple(self._entries(place)) for place in self._touched}
        self._touched.clear()
        return changes

    def touch(self, places: Iterable[Place]) -> None:
        """Say of groups that they have changed."""
        self._touched.update(places)

    def restore(self, place: Place, entries: Iterable[Entry]) -> None:
        """Take over a group as it was kept; one of a rule that is no more is left out."""
        if place[0] not in self._rules:
            return
        found = sorted(entries)
        self._groups[place] = found
        self._size += len(found)
        for entry in found:
            self._places.setdefault(entry.key, {})[place[0]] = place[1]

    def _entries(self, place: Place) -> list[Entry]:
        return self._groups.get(place, [])

    def _take(self, place: Place, facts: Facts) -> tuple[Place, ...]:
        entries = self._groups.get(place, [])
        # By time and key, as they are sorted; a later delivery of the post may say another time.
        index = bisect_left(entries, (facts.received_ms, facts.key))
        if index == len(entries) or entries[index].key != facts.key:
            found = next((at for at, one in enumerate(entries) if one.key == facts.key), None)
            if found is None:
                return ()
            index = found
        self._drop(place, index)
        return (place,)

    def _drop(self, place: Place, index: int) -> None:
        entries = self._groups[place]
        entry = entries.pop(index)
        self._size -= 1
        self._touched.add(place)
        held = self._places.get(entry.key, {})
        held.pop(place[0], None)
        if not held:
            self._places.pop(entry.key, None)
        if not entries:
            del self._groups[place]

    def _bound(self, rule: Rule, place: Place) -> None:
        span_ms = rule.within_s * 1_000 if rule.kind == "velocity" else _DAY_MS
        entries = self._groups.get(place, [])
        # By the group's newest post and not by the clock: what a queue held back for hours is judged like the rest.
        while entries and entries[0].at_ms < entries[-1].at_ms - span_ms - SLACK_MS:
            self._drop(place, 0)
        while len(entries) > rule.count + SPARE:
            self._drop(place, 0)
        while self._size > self._max_entries:
            oldest = next(iter(self._groups))
            self._drop(oldest, 0)
            self.forgotten += 1


def _neighbours(rule: Rule, entries: Sequence[Entry]) -> Sequence[Entry]:
    """Those that make a crossing one beside the other: for a velocity only posts that fit."""
    return entries if rule.kind == "sequence" else [one for one in entries if one.fits]


def _runs(rule: Rule, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Each crossing: `count` neighbours close enough in time."""
    found = _neighbours(rule, entries)
    return _crossings(rule, found, 0, len(found))


def _run_of(rule: Rule, entries: Sequence[Entry], key: str) -> Sequence[Entry]:
    """The first crossing that a post is part of; empty where there is none."""
    found = _neighbours(rule, entries)
    # From the newest, which it is as a rule.
    at = next((at for at in range(len(found) - 1, -1, -1) if found[at].key == key), None)
    if at is None:
        return ()
    return next(_crossings(rule, found, max(0, at - rule.count + 1), min(len(found), at + rule.count), at), ())


def _crossings(
    rule: Rule, found: Sequence[Entry], begin: int, end: int, last_from: int = 0
) -> Iterator[Sequence[Entry]]:
    """The crossings between two places of the neighbours whose last one is at `last_from` or later."""
    count, within_ms = rule.count, rule.within_s * 1_000
    row = 0
    for at in range(begin, end):
        row = row + 1 if found[at].fits else 0
        first = at - count + 1
        is_run = row >= count and at >= last_from
        if is_run and (not within_ms or found[at].at_ms - found[first].at_ms <= within_ms):
            yield found[first : at + 1]
