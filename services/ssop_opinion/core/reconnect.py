"""How long to leave the X API alone after a break, as its documentation asks ("Consuming streaming data").

Breaks of the network: at once, then 250 ms longer each time, up to 16 s. Errors of HTTP: from 5 s, doubling up to
320 s.
Too many requests (429): from 1 minute, doubling, or until the limit is reset.
"""

from enum import StrEnum
from typing import Final

_LONGEST_RATE_S: Final = 900.0
"""Windows of the API's limits are 15 minutes long."""


class Break(StrEnum):
    """What ended a connection."""

    NETWORK = "network"
    HTTP = "http"
    RATE = "rate"


def pause_s(kind: Break, failures: int, reset_in_s: float | None = None) -> float:
    """Seconds to wait after so many breaks of a kind in a row, from 1. `reset_in_s`: when the limit is reset."""
    if kind is Break.NETWORK:
        return min(16.0, 0.25 * (failures - 1))
    if kind is Break.HTTP:
        return min(320.0, 5.0 * 2.0 ** min(failures - 1, 16))
    if reset_in_s is not None:
        return min(max(reset_in_s, 1.0), _LONGEST_RATE_S)
    return min(_LONGEST_RATE_S, 60.0 * 2.0 ** min(failures - 1, 16))


def backfill_minutes(gap_s: float, most: int) -> int:
    """Minutes to ask for again after `gap_s` seconds without the stream; 0: none, and `most` is the plan's."""
    return 0 if most == 0 else min(most, max(1, -(-int(gap_s) // 60)))
