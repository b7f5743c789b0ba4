"""An alert's life: what it rests on, what became of it, and who has seen it. Pure.

    provisional -> confirmed | corrected | withdrawn | expired
    confirmed   -> corrected | expired
    corrected   -> corrected | expired

`provisional` rests on fields whose verdict was not given. Acknowledging and escalating are apart from that.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from ssop_opinion.core.alert_policy import EventKind
from ssop_opinion.core.rules import SEVERITIES, Severity
from ssop_opinion.core.windows import Place

Phase = Literal["provisional", "confirmed", "corrected", "withdrawn", "expired"]
_NEXT: Final[Mapping[Phase, frozenset[Phase]]] = {
    "provisional": frozenset({"confirmed", "corrected", "withdrawn", "expired"}),
    "confirmed": frozenset({"corrected", "expired"}),
    "corrected": frozenset({"corrected", "expired"}),
    "withdrawn": frozenset(),
    "expired": frozenset(),
}
MAX_KEYS: Final = 5
MAX_PLACES: Final = 16


class AlertError(ValueError):
    """A step that an alert can't take, such as acknowledging one that was withdrawn."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert. Times are Unix milliseconds; 0 is never.

    `first_post_ms` is when the first post that it rests on was received; `places` are rules and groups that it rests
    on; `keys` name some of its posts, the newest last. `told` is what a message says of the post that opened it, and
    holds values of fields alone. An alert of kind `storm` stands for `more` that were not opened.
    """

    id: str
    tenant: str
    policy: str
    rule: str
    severity: Severity
    entity: str
    event_type: str
    phase: Phase
    opened_ms: int
    first_post_ms: int
    last_ms: int
    region: str = ""
    product_line: str = ""
    kind: Literal["alert", "storm"] = "alert"
    posts: int = 1
    degraded_posts: int = 0
    more: int = 0
    keys: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    told: Mapping[str, Any] | None = None
    acknowledged_ms: int = 0
    acknowledged_by: str = ""
    escalations: int = 0
    escalated_ms: int = 0
    revision: int = 0
    opener: str = ""
    """Key of the post that `told` is about."""

    @property
    def is_open(self) -> bool:
        """Neither withdrawn nor over."""
        return self.phase not in {"withdrawn", "expired"}


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to tell of an alert, as it was then. The id is the same when the same posts are judged again."""

    alert: Alert
    event: EventKind
    at_ms: int

    @property
    def id(self) -> str:
        """What receivers tell repetitions by."""
        return f"{self.alert.id}-{self.alert.revision}-{self.event}"


def make_id(*parts: str) -> str:
    """An id of 20 hex digits that depends on the parts alone."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:20]


def move(alert: Alert, phase: Phase, **changes: Any) -> Alert:
    """The alert in its next phase. Raises AlertError where that does not follow."""
    if phase not in _NEXT[alert.phase]:
        raise AlertError(f"an alert that is {alert.phase} can't become {phase}")
    return replace(alert, phase=phase, revision=alert.revision + 1, **changes)


def join(alert: Alert, key: str, place: Place, *, received_ms: int, at_ms: int, is_degraded: bool) -> Alert:
    """The alert with one more post, which may have been received before those that it rests on."""
    places = alert.places if place in alert.places else (*alert.places, place)[:MAX_PLACES]
    return replace(
        alert,
        posts=alert.posts + 1,
        degraded_posts=alert.degraded_posts + is_degraded,
        keys=(*(one for one in alert.keys if one != key), key)[-MAX_KEYS:],
        places=places,
        first_post_ms=min(alert.first_post_ms, received_ms),
        last_ms=max(alert.last_ms, at_ms),
    )


def raise_severity(alert: Alert, severity: Severity, rule: str) -> Alert:
    """The alert with a graver rule."""
    return replace(alert, severity=severity, rule=rule, revision=alert.revision + 1)


def is_graver(one: Severity, other: Severity) -> bool:
    """Whether the first severity is above the second."""
    return SEVERITIES.index(one) > SEVERITIES.index(other)


def acknowledge(alert: Alert, by: str, now_ms: int) -> Alert:
    """The alert, seen by somebody; the first to see it counts. Raises AlertError for one that is not open."""
    if alert.acknowledged_ms:
        return alert
    if not alert.is_open:
        raise AlertError(f"an alert that is {alert.phase} can't be acknowledged")
    return replace(alert, acknowledged_ms=now_ms, acknowledged_by=by[:64])


def escalate(alert: Alert, now_ms: int) -> Alert:
    """The alert, told once more because nobody acknowledged it."""
    return replace(alert, escalations=alert.escalations + 1, escalated_ms=now_ms, revision=alert.revision + 1)
