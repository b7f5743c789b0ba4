"""Frames by service and unit, from counts by process. Totals never fall, though processes end and are forgotten."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple


class Event(IntEnum):
    """What happened to frames, as in ssop.bpf.c."""

    MADE = 0
    DECODED = 1
    SENT = 2
    RECEIVED = 3


class Origin(NamedTuple):
    """Who counted: a service, and its systemd unit where it has one."""

    service: str
    unit: str


class Count(NamedTuple):
    """Frames, and their bytes."""

    frames: int
    size_bytes: int


Place = tuple[int, int]
"""Process id, and event."""


class Ledger:
    """Takes what the kernel counted by process, and keeps what those that have ended leave."""

    def __init__(self) -> None:
        self._frames: Counter[tuple[Origin, int]] = Counter()
        self._bytes: Counter[tuple[Origin, int]] = Counter()
        self._live: dict[Place, tuple[Origin, Count]] = {}

    def update(self, counts: Mapping[Place, Count], origins: Mapping[int, Origin]) -> None:
        """What the kernel says now. `origins` has every process of `counts`."""
        self._live = {place: (origins[place[0]], count) for place, count in counts.items()}

    def settle(self, places: Iterable[Place]) -> None:
        """These processes have ended and the kernel forgets them; what they counted stays."""
        for place in places:
            origin, count = self._live.pop(place)
            self._frames[origin, place[1]] += count.frames
            self._bytes[origin, place[1]] += count.size_bytes

    def totals(self) -> Iterator[tuple[Origin, Event, Count]]:
        """Everything so far, ordered."""
        frames, sizes = Counter(self._frames), Counter(self._bytes)
        for (_, event), (origin, count) in self._live.items():
            frames[origin, event] += count.frames
            sizes[origin, event] += count.size_bytes
        for origin, event in sorted(frames):
            yield origin, Event(event), Count(frames[origin, event], sizes[origin, event])
