# cython: annotation_typing=False
"""Tokens per second while at least one slot generates, as a moving average."""

from typing import Final

_SMOOTHING: Final = 0.2
_MIN_SAMPLE_S: Final = 0.5


class ThroughputMeter:
    """Times are in seconds on any steady clock."""

    def __init__(self) -> None:
        self._running = 0
        self._since_s = 0.0
        self._busy_s = 0.0
        self._tokens = 0
        self.tokens_per_s = 0.0
        """0 until something was generated."""

    def start(self, now_s: float) -> None:
        """A generation begins."""
        self._settle(now_s)
        self._running += 1

    def stop(self, now_s: float) -> None:
        """A generation ended."""
        self._settle(now_s)
        self._running -= 1

    def add(self, tokens: int, now_s: float) -> None:
        """Tokens were generated."""
        self._tokens += tokens
        self._settle(now_s)

    def _settle(self, now_s: float) -> None:
        if self._running:
            self._busy_s += now_s - self._since_s
        self._since_s = now_s
        if self._busy_s >= _MIN_SAMPLE_S and self._tokens:
            rate = self._tokens / self._busy_s
            self.tokens_per_s += (_SMOOTHING if self.tokens_per_s else 1.0) * (rate - self.tokens_per_s)
            self._busy_s, self._tokens = 0.0, 0
