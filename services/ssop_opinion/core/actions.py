"""What to do today: the actions that analyses suggest, one for each entity and event, ranked. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ssop_opinion.core.alerts import Alert
from ssop_opinion.core.record import Record
from ssop_opinion.core.rules import ENTITY, EVENT, fold
from ssop_opinion.core.summary import number

WEIGHTS: Final[Mapping[str, int]] = {"escalate": 3, "reply": 2, "watch": 1}
"""By action; others, as `ignore`, are none."""
MAX_EXAMPLES: Final = 3
MAX_GROUPS: Final = 20_000


@dataclass(slots=True)
class _Group:
    entity: str
    event_type: str
    posts: int = 0
    degraded_posts: int = 0
    weights: Counter[str] = field(default_factory=Counter)
    severity: int = 0
    score: float = 0.0
    regions: Counter[str] = field(default_factory=Counter)
    lines: Counter[str] = field(default_factory=Counter)
    examples: list[tuple[int, float, str, str]] = field(default_factory=list)

    def add(self, record: Record, action: str) -> None:
        fields, post = record.analysis.fields, record.post
        severity = int(number(fields, "severity") or 1)
        confidence = number(fields, "confidence")
        score = number(fields, "sentiment_score") or 0.0
        self.posts += 1
        self.weights[action] += 1
        self.severity = max(self.severity, severity)
        self.score += WEIGHTS[action] * severity * (0.5 if confidence is None else confidence)
        self.regions[post.region] += 1
        self.lines[post.product_line] += 1
        self.examples.append((-severity, score, record.key, str(fields.get("summary", ""))))
        self.examples.sort()
        del self.examples[MAX_EXAMPLES:]

    @property
    def action(self) -> str:
        # What most suggest; of two that are even the graver one.
        return max(self.weights, key=lambda name: (self.weights[name], WEIGHTS[name]))

    def to_json(self) -> dict[str, Any]:
        return {
            "action": self.action,
            "entity": self.entity,
            "event_type": self.event_type,
            "posts": self.posts,
            "degraded_posts_apart": self.degraded_posts,
            "severity_max": self.severity,
            "weight": round(self.score, 2),
            "suggested": {name: self.weights[name] for name in WEIGHTS if self.weights[name]},
            "regions": [name for name, _ in self.regions.most_common(3) if name],
            "product_lines": [name for name, _ in self.lines.most_common(3) if name],
            "summary": self.examples[0][3],
            "examples": [key for _, _, key, _ in self.examples],
        }


def propose(records: Iterable[Record], alerts: Iterable[Alert], most: int = 20) -> list[dict[str, Any]]:
    """The actions of records that are all there."""
    proposals = Proposals()
    for record in records:
        proposals.add(record)
    return proposals.ranked(alerts, most)


class Proposals:
    """Takes records one by one, in bounded memory. Degraded ones propose nothing; they are counted beside.

    The weight of an action is the sum over its posts of action (escalate 3, reply 2, watch 1) times severity times
    confidence (0.5 where the answer has none).
    """

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._degraded: Counter[str] = Counter()

    def add(self, record: Record) -> None:
        """Count a record."""
        analysis = record.analysis
        entity, event, action = (analysis.fields.get(name) for name in (ENTITY, EVENT, "suggested_action"))
        if analysis.verdict != "ok" or action not in WEIGHTS or not isinstance(entity, str):
            return
        key = f"{fold(entity)}\n{fold(str(event))}"
        if not analysis.is_fresh:
            if key in self._degraded or len(self._degraded) < MAX_GROUPS:
                self._degraded[key] += 1
            return
        if key in self._groups or len(self._groups) < MAX_GROUPS:
            self._groups.setdefault(key, _Group(entity, str(event or ""))).add(record, str(action))

    def ranked(self, alerts: Iterable[Alert], most: int = 20) -> list[dict[str, Any]]:
        """The most urgent first; `alert` says whether somebody was told of it."""
        told = {f"{fold(one.entity)}\n{fold(one.event_type)}": one for one in alerts if one.kind == "alert"}
        for key, group in self._groups.items():
            group.degraded_posts = self._degraded[key]
        ranked = sorted(self._groups.items(), key=lambda one: (-WEIGHTS[one[1].action], -one[1].score, one[0]))[:most]
        return [{**group.to_json(), "alert": _alert(told.get(key))} for key, group in ranked]


def _alert(alert: Alert | None) -> dict[str, Any] | None:
    if alert is None:
        return None
    return {
        "id": alert.id,
        "severity": alert.severity,
        "phase": alert.phase,
        "is_acknowledged": bool(alert.acknowledged_ms),
    }
