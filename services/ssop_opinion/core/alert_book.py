"""The alerts of one tenant: posts in, notices out. Pure: time is passed in, and nothing is read or written.

State is bounded whatever comes: by `windows`, by `storm`, by MAX_OPEN and by MAX_JOINED.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ssop_opinion.core import alerts as life
from ssop_opinion.core.alert_policy import AlertPolicy, EventKind
from ssop_opinion.core.alerts import Alert, AlertError, Notice, make_id
from ssop_opinion.core.rules import ENTITY, EVENT, SEVERITIES, Facts, Rule, fold
from ssop_opinion.core.storm import StormControl
from ssop_opinion.core.windows import Entry, Place, Windows

MAX_OPEN: Final = 10_000
MAX_JOINED: Final = 50_000
_TOLD_FIELDS: Final = (
    "sentiment_score", "sentiment_label", "severity", "confidence", "suggested_action", "summary", "language",
)  # fmt: skip
_JUDGED_FIELDS: Final = ("sentiment_score", "sentiment_label", "severity")
"""A verdict that changes one of these corrects what was told."""
_MAX_TEXT: Final = 280
_GROWN: Final = frozenset({10, 100, 1_000, 10_000, 100_000})


@dataclass(frozen=True, slots=True)
class Changes:
    """What has changed since it was last asked for: alerts by id, and groups of posts (an empty one is gone)."""

    alerts: Mapping[str, Alert]
    groups: Mapping[Place, Sequence[Entry]]


class AlertBook:
    """Judges the posts of one tenant by its policy."""

    def __init__(self, tenant: str, policy: AlertPolicy) -> None:
        self.tenant = tenant
        self.policy = policy
        self.windows = Windows(policy.rules)
        # A post that crosses several rules opens its alert by the gravest.
        by_severity = sorted(policy.rules, key=lambda rule: -SEVERITIES.index(rule.severity))
        self._rules = [(rule, rule.needed) for rule in by_severity]
        self._storm = StormControl(policy)
        self._open: dict[str, Alert] = {}
        self._by_dedup: dict[str, str] = {}
        self._by_place: dict[Place, set[str]] = {}
        self._joined: OrderedDict[str, tuple[str, bool]] = OrderedDict()
        self._changed: dict[str, Alert] = {}

    @property
    def open_alerts(self) -> Iterable[Alert]:
        """Alerts that are neither withdrawn nor over."""
        return self._open.values()

    @property
    def is_changed(self) -> bool:
        """Whether there is something that must be kept."""
        return bool(self._changed) or self.windows.is_changed

    def judge(self, facts: Facts, now_ms: int, arrived: str = "") -> list[Notice]:
        """What follows from a post's fields so far, or from its record. The same facts again change nothing.

        `arrived` names the one field that is new since the last time: only rules that wait for it are asked.
        """
        notices: list[Notice] = []
        changed: dict[Place, None] = {}
        for rule, needed in self._rules:
            if arrived and arrived not in needed:
                continue
            fits = rule.fits(facts)
            if fits is None:
                continue
            places = self.windows.put(rule, facts, fits=fits)
            changed |= dict.fromkeys(places)
            if fits and (run := self.windows.crossing(places[-1], facts.key)):
                notices += self._cross(rule, places[-1], facts, run, now_ms)
        if not changed:
            return notices
        touched = {alert_id for place in changed for alert_id in self._by_place.get(place, ())}
        for alert_id in sorted(touched):
            notices += self._settle(self._open[alert_id], facts, now_ms)
        return notices

    def tick(self, now_ms: int) -> list[Notice]:
        """What time alone brings: escalations, alerts that are over, ends of storms."""
        notices: list[Notice] = []
        for summary in self._storm.ended(now_ms):
            current = self._open.get(summary.id)
            if current is not None and current.posts > 1:
                notices.append(self._tell(replace(current, revision=current.revision + 1), "storm", now_ms))
        for alert in list(self._open.values()):
            if now_ms - alert.last_ms > self.policy.expires_after_s * 1_000:
                notices.append(self._tell(life.move(alert, "expired"), "expired", now_ms))
                continue
            after_s = self.policy.escalate_after_s.get(alert.severity, 0)
            is_due = after_s and now_ms - max(alert.opened_ms, alert.escalated_ms) >= after_s * 1_000
            if is_due and not alert.acknowledged_ms and alert.escalations < self.policy.max_escalations:
                notices.append(self._tell(life.escalate(alert, now_ms), "escalated", now_ms))
        return notices

    def acknowledge(self, alert_id: str, by: str, now_ms: int) -> Alert:
        """Somebody has seen an alert. Raises AlertError for one that is not open."""
        alert = self._open.get(alert_id)
        if alert is None:
            raise AlertError("no open alert has this id")
        return self._keep(life.acknowledge(alert, by, now_ms))

    def take_changes(self) -> Changes:
        """What must be kept, once."""
        found = Changes(self._changed, self.windows.take_changes())
        self._changed = {}
        return found

    def take_back(self, changes: Changes) -> None:
        """What was taken could not be kept: it is taken again, as it is by then."""
        self._changed = {**changes.alerts, **self._changed}
        self.windows.touch(changes.groups)

    def restore(self, alerts: Iterable[Alert], groups: Iterable[tuple[Place, Iterable[Entry]]], now_ms: int) -> None:
        """Go on where a process ended: open alerts, and groups of posts."""
        for place, entries in groups:
            self.windows.restore(place, entries)
        for alert in sorted(alerts, key=lambda one: one.opened_ms):
            if alert.is_open:
                self._index(alert)
                for key in alert.keys:
                    self._joined[key] = (alert.id, True)
            if alert.kind == "storm" and alert.opened_ms + self.policy.storm_s * 1_000 > now_ms:
                self._storm.resume(alert)
            elif alert.kind == "alert":
                self._storm.recall(alert.severity, alert.opened_ms)

    def _cross(self, rule: Rule, place: Place, facts: Facts, run: Sequence[Entry], now_ms: int) -> list[Notice]:
        dedup = _dedup(facts)
        alert = self._find(dedup, now_ms) or self._find_group(rule, place, now_ms)
        if alert is None and (moved := self._opened_by(facts, rule, place)) is not None:
            return [self._correct(moved, facts, place, now_ms)]
        joined = self._joined.get(facts.key)
        if alert is None:
            storm = self._open.get(joined[0]) if joined is not None else None
            if storm is not None and storm.kind == "storm" and not life.is_graver(rule.severity, storm.severity):
                return []
            return self._open_alert(rule, place, facts, run, now_ms)
        notices: list[Notice] = []
        # An alert that a run of posts opened has them all by key, and only its opener has joined it.
        if (joined is None or joined[0] != alert.id) and facts.key not in alert.keys:
            is_degraded = facts.degraded_level > 0
            alert = life.join(
                alert, facts.key, place, received_ms=facts.received_ms, at_ms=now_ms, is_degraded=is_degraded
            )
            self._remember(facts, alert.id)
            self._keep(alert)
            if alert.posts in _GROWN:
                notices.append(self._tell(replace(alert, revision=alert.revision + 1), "grown", now_ms))
                alert = self._open[alert.id]
        elif place not in alert.places:
            alert = self._keep(replace(alert, places=(*alert.places, place)[: life.MAX_PLACES]))
        if life.is_graver(rule.severity, alert.severity):
            notices.append(self._tell(life.raise_severity(alert, rule.severity, rule.name), "raised", now_ms))
        return notices

    def _open_alert(self, rule: Rule, place: Place, facts: Facts, run: Sequence[Entry], now_ms: int) -> list[Notice]:
        alert = Alert(
            id=make_id(facts.tenant, rule.name, _dedup(facts), facts.key),
            tenant=facts.tenant,
            policy=self.policy.policy,
            rule=rule.name,
            severity=rule.severity,
            entity=facts.label(ENTITY),
            event_type=facts.label(EVENT),
            phase="confirmed" if all(one.is_final for one in run) else "provisional",
            opened_ms=now_ms,
            first_post_ms=run[0].at_ms,
            last_ms=now_ms,
            region=facts.label("region"),
            product_line=facts.label("product_line"),
            posts=len(run),
            degraded_posts=sum(one.is_degraded for one in run),
            keys=tuple(one.key for one in run)[-life.MAX_KEYS :],
            places=(place,),
            told=_told(facts),
            opener=facts.key,
        )
        if self._storm.admits(rule.severity, now_ms) and len(self._open) < MAX_OPEN:
            self._remember(facts, alert.id)
            return [self._tell(alert, "opened", now_ms)]
        # What was acknowledged of the summary, and its revision, live in the book.
        summary, is_new = self._storm.absorb(alert, _dedup(facts), now_ms)
        self._remember(facts, summary.id)
        return [self._tell(summary, "storm", now_ms)] if is_new else self._silently(summary)

    def _settle(self, alert: Alert, facts: Facts, now_ms: int) -> list[Notice]:
        alert = self._mark_degraded(alert, facts)
        since_ms = alert.first_post_ms
        is_standing = any(self.windows.stands(place, since_ms, finals_only=False) for place in alert.places)
        if not is_standing:
            if alert.phase != "provisional":
                return []
            return [self._tell(life.move(alert, "withdrawn"), "withdrawn", now_ms)]
        is_opener = facts.is_final and facts.key == alert.opener
        if is_opener and self._is_wrong(alert, facts):
            if not any(self.windows.holds(place, facts.key) for place in alert.places):
                # The alert rests on others, of whom nothing was told.
                return [self._tell(self._corrected(alert, {"told": {}}), "corrected", now_ms)] if alert.told else []
            changes = self._changes(facts, None, now_ms)
            # One that was corrected before says so, though it may keep a name whose successor another alert has.
            is_said = all(getattr(alert, name) == new for name, new in changes.items())
            return [] if is_said and alert.phase != "provisional" else [self._correct(alert, facts, None, now_ms)]
        if alert.phase == "provisional" and any(
            self.windows.stands(place, since_ms, finals_only=True) for place in alert.places
        ):
            changes = {"told": _told(facts)} if is_opener else {}
            return [self._tell(life.move(alert, "confirmed", **changes), "confirmed", now_ms)]
        return []

    def _is_wrong(self, alert: Alert, facts: Facts) -> bool:
        told = alert.told or {}
        if not facts.is_valid:
            return bool(told)
        if facts.degraded_level and not told.get("degraded"):
            return True
        is_renamed = fold(facts.label(ENTITY)) != fold(alert.entity) or fold(facts.label(EVENT)) != fold(
            alert.event_type
        )
        return is_renamed or any(name in told and told[name] != facts.values.get(name) for name in _JUDGED_FIELDS)

    def _correct(self, alert: Alert, facts: Facts, place: Place | None, now_ms: int) -> Notice:
        """What was told of the post that opened the alert was not so."""
        changes = self._changes(facts, place, now_ms)
        self._unindex(alert)
        return self._tell(self._corrected(alert, changes), "corrected", now_ms)

    def _changes(self, facts: Facts, place: Place | None, now_ms: int) -> dict[str, Any]:
        """What an alert says once it is corrected by the post that opened it."""
        changes: dict[str, Any] = {"told": _told(facts) if facts.is_valid else {}}
        if place is not None:
            changes |= {
                "entity": facts.label(ENTITY), "event_type": facts.label(EVENT), "places": (place,),
                "degraded_posts": int(facts.degraded_level > 0),
            }  # fmt: skip
        elif facts.is_valid and self._find(_dedup(facts), now_ms) is None:
            changes |= {"entity": facts.label(ENTITY), "event_type": facts.label(EVENT)}
        return changes

    def _corrected(self, alert: Alert, changes: Mapping[str, Any]) -> Alert:
        """The alert with changes. It stays provisional while final posts alone would not bear it out."""
        found = replace(alert, **changes)
        if any(self.windows.stands(place, found.first_post_ms, finals_only=True) for place in found.places):
            return life.move(found, "corrected")
        return replace(found, revision=found.revision + 1)

    def _opened_by(self, facts: Facts, rule: Rule, place: Place) -> Alert | None:
        """A provisional alert that this post opened in another group, and that rests on nothing else."""
        joined = self._joined.get(facts.key)
        alert = self._open.get(joined[0]) if joined is not None and facts.is_final else None
        if alert is None or alert.phase != "provisional" or alert.opener != facts.key or alert.rule != rule.name:
            return None
        others = [one for one in alert.places if one != place]
        is_standing = any(self.windows.stands(one, alert.first_post_ms, finals_only=False) for one in others)
        return None if is_standing else alert

    def _mark_degraded(self, alert: Alert, facts: Facts) -> Alert:
        joined = self._joined.get(facts.key)
        if not facts.degraded_level or joined is None or joined != (alert.id, False):
            return alert
        self._joined[facts.key] = (alert.id, True)
        return self._keep(replace(alert, degraded_posts=min(alert.posts, alert.degraded_posts + 1)))

    def _find(self, dedup: str, now_ms: int) -> Alert | None:
        alert = self._open.get(self._by_dedup.get(dedup, ""))
        is_joined = alert is not None and now_ms - alert.last_ms <= self.policy.dedup_s * 1_000
        return alert if is_joined else None

    def _find_group(self, rule: Rule, place: Place, now_ms: int) -> Alert | None:
        """An alert that the same group has made, of which posts name other events."""
        found = [self._open[alert_id] for alert_id in self._by_place.get(place, ())]
        recent = [one for one in found if now_ms - one.last_ms <= self.policy.dedup_s * 1_000]
        return min(recent, key=lambda one: (one.opened_ms, one.id)) if recent and rule.kind != "threshold" else None

    def _remember(self, facts: Facts, alert_id: str) -> None:
        self._joined[facts.key] = (alert_id, facts.degraded_level > 0)
        self._joined.move_to_end(facts.key)
        if len(self._joined) > MAX_JOINED:
            self._joined.popitem(last=False)

    def _silently(self, summary: Alert) -> list[Notice]:
        # The counts come from the storm; what people did is in the book.
        current = self._open.get(summary.id, summary)
        current = replace(current, last_ms=summary.last_ms, told=summary.told, more=summary.more)
        self._keep(replace(current, posts=summary.posts, degraded_posts=summary.degraded_posts))
        return []

    def _tell(self, alert: Alert, event: EventKind, now_ms: int) -> Notice:
        return Notice(self._keep(alert), event, now_ms)

    def _keep(self, alert: Alert) -> Alert:
        self._changed[alert.id] = alert
        if alert.is_open:
            self._index(alert)
        else:
            self._unindex(alert)
            self._open.pop(alert.id, None)
        return alert

    def _index(self, alert: Alert) -> None:
        self._open[alert.id] = alert
        if alert.kind == "storm":
            return
        self._by_dedup[f"{fold(alert.entity)}\n{fold(alert.event_type)}"] = alert.id
        for place in alert.places:
            self._by_place.setdefault(place, set()).add(alert.id)

    def _unindex(self, alert: Alert) -> None:
        current = self._open.get(alert.id, alert)
        dedup = f"{fold(current.entity)}\n{fold(current.event_type)}"
        if self._by_dedup.get(dedup) == alert.id:
            del self._by_dedup[dedup]
        for place in current.places:
            ids = self._by_place.get(place, set())
            ids.discard(alert.id)
            if not ids:
                self._by_place.pop(place, None)


def _dedup(facts: Facts) -> str:
    return f"{fold(facts.label(ENTITY))}\n{fold(facts.label(EVENT))}"


def _told(facts: Facts) -> dict[str, Any]:
    found: dict[str, Any] = {"degraded": facts.degraded_level}
    for name in _TOLD_FIELDS:
        value = facts.values.get(name)
        if isinstance(value, str):
            found[name] = value[:_MAX_TEXT]
        elif isinstance(value, int | float):
            found[name] = value
    return found
