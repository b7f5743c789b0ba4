"""The short circuit before a Redis: after failures, calls fail at once until a probe succeeds. Times in seconds."""

from dataclasses import dataclass
from typing import Final

OPEN_AFTER: Final = 2
"""Failures in a row that open the circuit. One slow call alone does not."""


@dataclass(slots=True)
class Circuit:
    """Closed at first; `opened_s` is on the caller's clock."""

    failures: int = 0
    opened_s: float | None = None

    @property
    def is_open(self) -> bool:
        """Calls must not be tried."""
        return self.opened_s is not None

    def succeed(self) -> None:
        """A call went well. It does not close an open circuit: a probe does, after checking more than one reply."""
        self.failures = 0

    def fail(self, now_s: float, *, is_gone: bool) -> bool:
        """A call failed; True when this opened the circuit. A refused connection (`is_gone`) opens it alone."""
        self.failures += 1
        if self.is_open or (self.failures < OPEN_AFTER and not is_gone):
            return False
        self.opened_s = now_s
        return True

    def open_s(self, now_s: float) -> float:
        """How long it is open; 0 when it is not."""
        return 0.0 if self.opened_s is None else now_s - self.opened_s

    def close(self) -> None:
        """A probe went well."""
        self.failures = 0
        self.opened_s = None
