"""When profiles hold."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ssop_chassis.schedule import Profiles, ProfileSettings


def at(text: str) -> int:
    """Milliseconds since the epoch."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def profile(begin: str, until: str, **values: Any) -> ProfileSettings:
    return ProfileSettings.model_validate({"from": begin, "until": until, **values})


@pytest.mark.parametrize(
    ("begin", "until", "options", "moment", "expected"),
    [
        ("09:00", "17:00", {}, "2026-06-01T09:00:00+00:00", True),
        ("09:00", "17:00", {}, "2026-06-01T17:00:00+00:00", False),
        ("09:00", "17:00", {"time_zone": "Asia/Shanghai"}, "2026-06-01T01:00:00+00:00", True),
        ("22:00", "06:00", {}, "2026-06-01T23:00:00+00:00", True),
        ("22:00", "06:00", {}, "2026-06-01T05:59:00+00:00", True),
        ("22:00", "06:00", {}, "2026-06-01T06:00:00+00:00", False),
        ("22:00", "06:00", {"days": ["mon"]}, "2026-06-02T05:00:00+00:00", True),
        ("22:00", "06:00", {"days": ["mon"]}, "2026-06-01T05:00:00+00:00", False),
        ("09:00", "17:00", {"days": ["sat", "sun"]}, "2026-06-01T10:00:00+00:00", False),
        ("00:00", "00:00", {}, "2026-06-01T12:00:00+00:00", True),
        # In summer Berlin is two hours ahead of UTC, in winter one.
        ("18:00", "19:00", {"time_zone": "Europe/Berlin"}, "2026-07-01T16:30:00+00:00", True),
        ("18:00", "19:00", {"time_zone": "Europe/Berlin"}, "2026-12-01T16:30:00+00:00", False),
        ("2026-12-24T18:00:00+01:00", "2026-12-24T20:00:00+01:00", {}, "2026-12-24T17:00:00+00:00", True),
        ("2026-12-24T18:00:00+01:00", "2026-12-24T20:00:00+01:00", {}, "2026-12-24T19:00:00+00:00", False),
    ],
)
def test_profile_holds(begin: str, until: str, options: dict[str, Any], moment: str, expected: bool) -> None:
    assert profile(begin, until, **options).schedule().holds(at(moment)) is expected


@pytest.mark.parametrize(
    ("begin", "until", "options", "fault"),
    [
        ("9 o'clock", "17:00", {}, "neither"),
        ("09:00", "2026-12-24T18:00:00+01:00", {}, "both"),
        ("2026-12-24T18:00:00", "2026-12-24T20:00:00+01:00", {}, "offset"),
        ("2026-12-24T20:00:00+01:00", "2026-12-24T18:00:00+01:00", {}, "after"),
        ("09:00+01:00", "17:00", {}, "offset"),
        ("09:00", "17:00", {"time_zone": "Mars/Olympus"}, "time zone"),
        ("09:00", "17:00", {"time_zone": "../etc/passwd"}, "time zone"),
        ("09:00", "17:00", {"days": ["noday"]}, "mon"),
        ("09:00", "17:00", {"unknown": 1}, "unknown"),
    ],
)
def test_malformed_profile_says_what_is_wrong(begin: str, until: str, options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        profile(begin, until, **options)


def test_first_profile_that_holds_counts() -> None:
    early, late = profile("08:00", "12:00", name="a"), profile("10:00", "14:00", name="b")
    found = [Profiles([early, late]).find(at(f"2026-06-01T{hour}:00:00+00:00")) for hour in ("09", "11", "13", "15")]
    assert found == [early, early, late, None]


@given(st.integers(0, 23), st.integers(0, 23), st.integers(0, 366 * 24 * 60))
def test_time_of_day_and_its_complement_hold_by_turns(begin: int, until: int, minutes: int) -> None:
    now_ms = int((datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)).timestamp() * 1000)
    zone = "America/New_York"
    holds = [
        profile(f"{first:02}:00", f"{second:02}:00", time_zone=zone).schedule().holds(now_ms)
        for first, second in ((begin, until), (until, begin))
    ]
    assert holds == [True, True] if begin == until else sum(holds) == 1
