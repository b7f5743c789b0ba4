"""How many alerts a tenant gets, however many are due: beyond a number in a time, one summary counts them. Pure."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ssop_opinion.core.alert_policy import AlertPolicy
from ssop_opinion.core.alerts import Alert, make_id
from ssop_opinion.core.rules import Severity

MAX_NAMES: Final = 1_000
"""Entities whose share of a storm is counted; the rest is one number."""
_MAX_SEEN: Final = 10_000
_SHOWN: Final = 5


@dataclass(slots=True)
class _Storm:
    alert: Alert
    seen: set[str] = field(default_factory=set)
    names: Counter[str] = field(default_factory=Counter)


class StormControl:
    """Counts new alerts by severity, so that a flood of small ones hides no grave one."""

    def __init__(self, policy: AlertPolicy) -> None:
        self._policy = policy
        self._opened: dict[Severity, deque[int]] = {}
        self._storms: dict[Severity, _Storm] = {}

    def admits(self, severity: Severity, now_ms: int) -> bool:
        """Whether one more alert may be opened now; counts it if so."""
        opened = self._opened.setdefault(severity, deque(maxlen=self._policy.storm_alerts))
        while opened and opened[0] <= now_ms - self._policy.storm_s * 1_000:
            opened.popleft()
        if len(opened) >= self._policy.storm_alerts or severity in self._storms:
            return False
        opened.append(now_ms)
        return True

    def recall(self, severity: Severity, opened_ms: int) -> None:
        """Count an alert that was opened before a restart."""
        self._opened.setdefault(severity, deque(maxlen=self._policy.storm_alerts)).append(opened_ms)

    def absorb(self, alert: Alert, dedup: str, now_ms: int) -> tuple[Alert, bool]:
        """The summary that stands for an alert which isn't opened, and whether the summary is new."""
        storm = self._storms.get(alert.severity)
        is_new = storm is None
        if storm is None:
            summary = replace(
                alert, id=make_id(alert.tenant, "storm", alert.severity, alert.opener), kind="storm", entity="",
                event_type="", region="", product_line="", phase="confirmed", opened_ms=now_ms, posts=0,
                degraded_posts=0, keys=(), places=(), told=None, opener="",
            )  # fmt: skip
            storm = self._storms[alert.severity] = _Storm(summary)
        is_other = dedup not in storm.seen
        if len(storm.seen) < _MAX_SEEN:
            storm.seen.add(dedup)
        if alert.entity in storm.names or len(storm.names) < MAX_NAMES:
            storm.names[alert.entity] += 1
        storm.alert = replace(
            storm.alert,
            posts=storm.alert.posts + 1,
            degraded_posts=storm.alert.degraded_posts + (alert.degraded_posts > 0),
            more=storm.alert.more + is_other,
            last_ms=now_ms,
            told={"entities": _most(storm.names)},
        )
        return storm.alert, is_new

    def resume(self, alert: Alert) -> None:
        """Go on with a summary that had not ended before a restart."""
        self._storms[alert.severity] = _Storm(alert)

    def ended(self, now_ms: int) -> list[Alert]:
        """The summaries whose time is over; each is named once."""
        over = [
            severity for severity, storm in self._storms.items()
            if now_ms >= storm.alert.opened_ms + self._policy.storm_s * 1_000
        ]  # fmt: skip
        return [self._storms.pop(severity).alert for severity in over]


def _most(names: Counter[str]) -> Mapping[str, int]:
    return dict(names.most_common(_SHOWN))
