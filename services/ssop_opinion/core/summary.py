"""What a set of records says together. Pure. Only fresh records (whole, valid, not degraded) are in figures of opinion;
degraded and failed ones are counted apart.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ssop_opinion.core.record import Record
from ssop_opinion.core.rules import ENTITY, EVENT, fold

LABELS: Final = ("negative", "neutral", "positive")
TOP: Final = 15
MAX_NAMES: Final = 10_000


@dataclass(slots=True)
class Tally:
    """Posts of one kind: how many, by label, and the mean of their scores."""

    posts: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    score_sum: float = 0.0
    scores: int = 0
    severity_max: int = 0

    def add(self, fields: Mapping[str, Any]) -> None:
        """Count a fresh record's fields."""
        self.posts += 1
        label, score, severity = (
            fields.get("sentiment_label"),
            number(fields, "sentiment_score"),
            number(fields, "severity"),
        )
        if label in LABELS:
            self.labels[str(label)] += 1
        if score is not None:
            self.score_sum += score
            self.scores += 1
        if severity is not None:
            self.severity_max = max(self.severity_max, int(severity))

    @property
    def mean(self) -> float | None:
        """The mean score, two digits; None without one."""
        return round(self.score_sum / self.scores, 2) if self.scores else None

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        counts = {label: self.labels[label] for label in LABELS}
        return {"posts": self.posts, **counts, "mean_score": self.mean, "severity_max": self.severity_max}


def number(fields: Mapping[str, Any], name: str) -> float | None:
    """A field that is a number."""
    found = fields.get(name)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def summarise(records: Iterable[Record], since_ms: int, until_ms: int, buckets: int) -> dict[str, Any]:
    """The summary of records that are all there."""
    summary = Summary(since_ms, until_ms, buckets)
    for record in records:
        summary.add(record)
    return summary.to_json()


class Summary:
    """Counts, a series of `buckets` equal spans from `since_ms` to `until_ms`, entities, event types and clusters.

    Takes records one by one, in bounded memory.
    """

    def __init__(self, since_ms: int, until_ms: int, buckets: int) -> None:
        self._since_ms = since_ms
        self._until_ms = until_ms
        self._step_ms = max(1, -(-(until_ms - since_ms) // buckets))
        self._series = [Tally() for _ in range(buckets)]
        self._apart = [0] * buckets
        self._whole = Tally()
        self._entities = Named()
        self._events = Named()
        self._clusters: dict[tuple[str, str], Cluster] = {}
        self._degraded: Counter[int] = Counter()
        self._failed: Counter[str] = Counter()

    def add(self, record: Record) -> None:
        """Count a record."""
        post, analysis = record.post, record.analysis
        at = (post.received_ms - self._since_ms) // self._step_ms
        is_in_series = 0 <= at < len(self._series)
        if not analysis.is_fresh:
            if is_in_series:
                self._apart[at] += 1
            if analysis.verdict == "ok":
                self._degraded[analysis.degraded_level] += 1
            else:
                self._failed[analysis.verdict] += 1
            return
        fields = analysis.fields
        self._whole.add(fields)
        if is_in_series:
            self._series[at].add(fields)
        self._entities.add(_text(fields, ENTITY), fields)
        self._events.add(_text(fields, EVENT), fields)
        place = (post.region, post.product_line)
        if len(self._clusters) < MAX_NAMES or place in self._clusters:
            self._clusters.setdefault(place, Cluster()).add(fields)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        degraded, failed = self._degraded, self._failed
        clusters = sorted(
            self._clusters.items(), key=lambda one: (-one[1].tally.labels["negative"], -one[1].tally.posts, one[0])
        )
        return {
            "since_ms": self._since_ms,
            "until_ms": self._until_ms,
            "posts": self._whole.posts + degraded.total() + failed.total(),
            "fresh": self._whole.to_json(),
            "degraded": {"posts": degraded.total(), "by_level": {str(one): n for one, n in sorted(degraded.items())}},
            "failed": {"posts": failed.total(), "by_verdict": dict(sorted(failed.items()))},
            "series": [
                {"at_ms": self._since_ms + index * self._step_ms, **tally.to_json(), "apart": self._apart[index]}
                for index, tally in enumerate(self._series)
            ],
            "entities": self._entities.top(),
            "events": self._events.top(),
            "clusters": [
                {"region": region, "product_line": line, **cluster.to_json()}
                for (region, line), cluster in clusters[: 2 * TOP]
            ],
        }


class Named:
    """Tallies by a name that is compared without case, and shown as it was first written."""

    def __init__(self) -> None:
        self._tallies: dict[str, tuple[str, Tally]] = {}

    def add(self, name: str, fields: Mapping[str, Any]) -> None:
        """Count a record of that name."""
        key = fold(name)
        if key not in self._tallies and len(self._tallies) >= MAX_NAMES:
            return
        self._tallies.setdefault(key, (name, Tally()))[1].add(fields)

    def top(self, most: int = TOP) -> list[dict[str, Any]]:
        """The names with most posts."""
        found = sorted(self._tallies.values(), key=lambda one: (-one[1].posts, one[0]))[:most]
        return [{"name": name, **tally.to_json()} for name, tally in found]


class Cluster:
    """Posts of one region and product line."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._entities: Counter[str] = Counter()
        self._events: Counter[str] = Counter()

    def add(self, fields: Mapping[str, Any]) -> None:
        """Count a record of the cluster."""
        self.tally.add(fields)
        self._entities[_text(fields, ENTITY)] += 1
        self._events[_text(fields, EVENT)] += 1

    def to_json(self) -> dict[str, Any]:
        """As a JSON object, with what most of the posts are about."""
        return {**self.tally.to_json(), "entity": _most(self._entities), "event_type": _most(self._events)}


def _most(names: Counter[str]) -> str:
    return min(names, key=lambda name: (-names[name], name), default="")


def _text(fields: Mapping[str, Any], name: str) -> str:
    found = fields.get(name)
    return found if isinstance(found, str) else ""
