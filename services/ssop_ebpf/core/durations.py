"""Histograms in powers of two of nanoseconds, as the kernel keeps them, in the form of Prometheus."""

from collections.abc import Sequence
from typing import Final

SLOTS: Final = 40
"""Slot n counts durations below 2^(n+1) ns; the last one all that are longer, too."""
_FIRST: Final = 9
_LAST: Final = 35
"""Slots with a bucket of their own: 1 microsecond to 69 seconds."""


def cumulate(slots: Sequence[int]) -> list[tuple[str, float]]:
    """Bounds in seconds and counts up to each, `+Inf` last."""
    buckets = [(repr(2.0 ** (slot + 1) / 1e9), float(sum(slots[: slot + 1]))) for slot in range(_FIRST, _LAST)]
    return [*buckets, ("+Inf", float(sum(slots)))]
