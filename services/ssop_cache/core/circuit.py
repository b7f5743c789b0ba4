# cython: annotation_typing=False
"""The short circuit before a Redis: after failures, calls fail at once until a probe succeeds. Times in seconds.

`circuit.pxd` gives the types with which this very file is compiled.
"""

from typing import Final

OPEN_AFTER: Final = 2
"""Failures in a row that open the circuit. One slow call alone does not."""


class Circuit:
    """Closed at first. While it `is_open` calls must not be tried; `opened_s` is on the caller's clock."""

    __slots__ = ("failures", "is_open", "opened_s")

    def __init__(self) -> None:
        self.failures = 0
        self.is_open = False
        self.opened_s = 0.0

    def succeed(self) -> None:
        """A call went well. It does not close an open circuit: a probe does, after checking more than one reply."""
        self.failures = 0

    def fail(self, now_s: float, is_gone: bool) -> bool:
        """A call failed; True when this opened the circuit. A refused connection (`is_gone`) opens it alone."""
        self.failures += 1
        if self.is_open or (self.failures < OPEN_AFTER and not is_gone):
            return False
        self.is_open, self.opened_s = True, now_s
        return True

    def open_s(self, now_s: float) -> float:
        """How long it is open; 0 when it is not."""
        return now_s - self.opened_s if self.is_open else 0.0

    def close(self) -> None:
        """A probe went well."""
        self.failures = 0
        self.is_open = False
