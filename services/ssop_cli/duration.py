"""Durations as people type them."""

import re
from typing import Final

from ssop_cli.failure import EXIT_USAGE, CommandError

_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration_ms(text: str, *, least_ms: int = 0) -> int:
    """Milliseconds of a duration such as `90d`, `12h`, `30m`, `10s`; 0 of an empty one.

    Raises CommandError, for less than `least_ms` too.
    """
    if not text:
        return 0
    if not (match := re.fullmatch(r"([0-9]{1,9})([smhd])", text)):
        raise CommandError(f"'{text}' is no duration", advice="write it as 90d, 12h, 30m or 10s", exit_code=EXIT_USAGE)
    duration_ms = int(match[1]) * _UNITS_MS[match[2]]
    if duration_ms < least_ms:
        raise CommandError(f"'{text}' is too short", exit_code=EXIT_USAGE)
    return duration_ms
