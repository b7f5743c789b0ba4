"""Which nodes a router has: its settings and what sources say, merged. Pure.

A source that can't be read keeps what it said last. An address that a good reading lacks leaves: at once where nobody
is there any more or the source `is_final`, else when it has been lacking for `linger_ms` of good readings on end. So a
store that comes back empty, after an outage that was longer than the leases, costs no node that is well.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

STATIC: Final = "static"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node is, and how to meet it. `tiers` speak until its first status.

    `server_name` is what its certificate must carry where that is not the host of the address.
    """

    address: str
    tiers: frozenset[int] = frozenset()
    server_name: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """Who joins, and the addresses of those that leave. `refused` are too many."""

    joined: tuple[Place, ...] = ()
    left: tuple[str, ...] = ()
    refused: int = 0


@dataclass(slots=True)
class Source:
    """What a source said. `read_ms` is its last good reading, `good_since_ms` the first of those on end."""

    is_final: bool
    started_ms: int
    places: dict[str, Place] = field(default_factory=dict)
    lacking: dict[str, int] = field(default_factory=dict)
    """Addresses that good readings lack, and since when."""
    read_ms: int | None = None
    is_available: bool = False

    @property
    def listed(self) -> int:
        """Addresses of the last good reading."""
        return len(self.places) - len(self.lacking)

    def age_ms(self, now_ms: int) -> int:
        """Since the last good reading, or since the start."""
        return max(0, now_ms - (self.started_ms if self.read_ms is None else self.read_ms))


class Membership:
    """The members by address. Times are of a monotonic clock in milliseconds.

    `sources` has the names of sources, and whether each `is_final`: what it lacks is meant to be gone.
    """

    def __init__(
        self,
        static: Collection[Place],
        sources: Mapping[str, bool],
        *,
        linger_ms: int,
        max_nodes: int,
        now_ms: int,
    ) -> None:
        self._static = {place.address: place for place in static}
        self._linger_ms = linger_ms
        self._max_nodes = max_nodes
        self.sources = {name: Source(is_final, now_ms) for name, is_final in sources.items()}
        self.members: dict[str, Place] = dict(self._static)

    def take(self, name: str, places: Collection[Place], now_ms: int) -> None:
        """A good reading of a source."""
        source = self.sources[name]
        if not source.is_available:
            # What was lacking while nobody could say so does not count.
            source.lacking.clear()
        found = {place.address: place for place in places}
        for address in source.places.keys() - found.keys():
            source.lacking.setdefault(address, now_ms)
        for address in found:
            source.lacking.pop(address, None)
        source.places |= found
        source.read_ms = now_ms
        source.is_available = True

    def fail(self, name: str) -> None:
        """A reading has failed: the last one holds."""
        self.sources[name].is_available = False

    def settle(self, now_ms: int, is_alive: Callable[[str], bool]) -> Change:
        """Bring the members in line. `is_alive` says whether somebody at an address is there and takes requests."""
        for source in self.sources.values():
            if source.is_available:
                self._drop(source, now_ms, is_alive)
        wanted = dict(self._static)
        for source in self.sources.values():
            for address, place in source.places.items():
                wanted.setdefault(address, place)
        left = tuple(address for address in self.members if address not in wanted)
        for address in left:
            del self.members[address]
        joined, refused = [], 0
        for address, place in wanted.items():
            if address in self.members:
                continue
            if len(self.members) >= self._max_nodes and address not in self._static:
                refused += 1
                continue
            self.members[address] = place
            joined.append(place)
        return Change(tuple(joined), left, refused)

    def _drop(self, source: Source, now_ms: int, is_alive: Callable[[str], bool]) -> None:
        for address, since_ms in list(source.lacking.items()):
            if source.is_final or now_ms - since_ms >= self._linger_ms or not is_alive(address):
                del source.lacking[address]
                del source.places[address]

    def sources_of(self, address: str) -> list[str]:
        """The names of those that say a member."""
        own = [STATIC] if address in self._static else []
        return own + [name for name, source in self.sources.items() if address in source.places]

    def age_ms(self, address: str, now_ms: int) -> int:
        """Since a source said it last; 0 for the settings."""
        if address in self._static:
            return 0
        ages = [
            max(0, now_ms - source.lacking[address]) if address in source.lacking else source.age_ms(now_ms)
            for source in self.sources.values()
            if address in source.places
        ]
        return min(ages, default=0)
