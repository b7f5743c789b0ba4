"""What tenants may say about alerts: quiet hours, routes, and what is refused."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from ssop_opinion.core.alert_policy import AlertPolicy, QuietHours, Route


def at_ms(text: str, zone: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1_000)


def make_quiet(**changes: Any) -> QuietHours:
    return QuietHours.model_validate({"from": "22:00", "until": "07:00", "time_zone": "Asia/Shanghai", **changes})


@pytest.mark.parametrize(
    ("now", "end"),
    [
        ("2026-11-30T21:59", None),
        ("2026-11-30T22:00", "2026-12-01T07:00"),
        ("2026-12-01T03:00", "2026-12-01T07:00"),
        ("2026-12-01T06:59", "2026-12-01T07:00"),
        ("2026-12-01T07:00", None),
    ],
)
def test_quiet_hours_span_midnight_in_their_time_zone(now: str, end: str | None) -> None:
    now_ms = at_ms(now, "Asia/Shanghai")
    due_ms = make_quiet().end_ms("warning", now_ms)
    assert due_ms == (now_ms if end is None else at_ms(end, "Asia/Shanghai"))


def test_the_gravest_are_told_at_once() -> None:
    now_ms = at_ms("2026-12-01T03:00", "Asia/Shanghai")
    assert make_quiet().end_ms("critical", now_ms) == now_ms
    assert make_quiet(lets_through="warning").end_ms("warning", now_ms) == now_ms


def test_quiet_hours_follow_clocks_that_change() -> None:
    # In Berlin 02:00 to 03:00 does not exist on 2026-03-29: the night is an hour shorter.
    quiet = make_quiet(time_zone="Europe/Berlin")
    now_ms = at_ms("2026-03-28T23:00", "Europe/Berlin")
    assert quiet.end_ms("info", now_ms) - now_ms == 7 * 3_600_000


def test_quiet_hours_of_some_days() -> None:
    # 2026-11-30 is a Monday; those that begin on a Sunday last into it.
    quiet = make_quiet(days=[6])
    early, late = at_ms("2026-11-30T03:00", "Asia/Shanghai"), at_ms("2026-11-30T23:00", "Asia/Shanghai")
    assert quiet.end_ms("info", early) > early
    assert quiet.end_ms("info", late) == late


@pytest.mark.parametrize(
    "changes", [{"time_zone": "Mars/Base"}, {"time_zone": "../etc/passwd"}, {"until": "22:00"}, {"days": [7]}], ids=str
)
def test_quiet_hours_that_mean_nothing_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        make_quiet(**changes)


def test_a_route_takes_what_it_names() -> None:
    route = Route(channel="ops", least="warning", regions=("East",))
    assert route.takes("critical", ("east", ""), "opened", 0)
    assert not route.takes("info", ("east", ""), "opened", 0)
    assert not route.takes("critical", ("west", ""), "opened", 0)
    assert not route.takes("critical", ("east", ""), "confirmed", 0)


def test_a_summary_of_a_storm_is_told_to_every_region() -> None:
    assert Route(channel="ops", regions=("east",), product_lines=("phones",)).takes("critical", None, "storm", 0)


def test_a_route_of_escalations_takes_what_was_escalated() -> None:
    route = Route(channel="boss", is_escalation=True)
    assert not route.takes("critical", ("", ""), "opened", 0)
    assert route.takes("critical", ("", ""), "escalated", 1)
    assert route.takes("critical", ("", ""), "withdrawn", 1)


def test_two_rules_of_one_name_are_refused() -> None:
    rule = {"name": "r", "when": [{"field": "severity", "op": ">", "value": 3}]}
    with pytest.raises(ValidationError, match="two rules"):
        AlertPolicy.model_validate({"rules": [rule, rule]})
