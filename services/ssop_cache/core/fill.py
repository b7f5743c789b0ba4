"""How full the state is. It never evicts: once it is full, nothing that must be written is admitted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

FILLING_SHARE: Final = 0.75
"""From here on somebody should act: it refuses when all is used."""
_CALM_SHARE: Final = 0.65


@dataclass(frozen=True, slots=True)
class Fill:
    """What an instance uses and may use, in bytes. `max_bytes` 0: it has no bound of its own."""

    used_bytes: int = 0
    max_bytes: int = 0

    @property
    def share(self) -> float:
        """What is used of the bound, from 0; 0 where there is none. It may be above 1."""
        return self.used_bytes / self.max_bytes if self.max_bytes else 0.0

    @property
    def is_filling(self) -> bool:
        """It will be full before long."""
        return self.share >= FILLING_SHARE

    @property
    def is_calm(self) -> bool:
        """It is well below the share from which it is told, so that a new rise is to be told again."""
        return self.share < _CALM_SHARE


def parse_fill(memory: Mapping[str, str]) -> Fill:
    """The section `memory` of INFO. Raises KeyError and ValueError where it says nothing of use."""
    return Fill(int(memory["used_memory"]), int(memory["maxmemory"]))
