"""Durations as people type them."""

import pytest

from ssop_cli.duration import parse_duration_ms
from ssop_cli.failure import CommandError


@pytest.mark.parametrize(
    ("text", "expected_ms"), [("", 0), ("0s", 0), ("10s", 10_000), ("30m", 1_800_000), ("2d", 172_800_000)]
)
def test_duration_in_milliseconds(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["10", "d", "-1d", "1.5h", "1w", "1 d", "٣d", "9999999999s"])
def test_what_is_no_duration_is_said_to_be_none(text: str) -> None:
    with pytest.raises(CommandError, match="no duration"):
        parse_duration_ms(text)


def test_zero_is_not_taken_where_it_would_mean_for_ever() -> None:
    with pytest.raises(CommandError, match="too short"):
        parse_duration_ms("0d", least_ms=1)
