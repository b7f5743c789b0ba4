"""How fast a channel may be written to: so many messages in a time, and waits that grow. Pure."""

from dataclasses import dataclass
from random import Random
from typing import Final

FIRST_WAIT_MS: Final = 1_000
MOST_WAIT_MS: Final = 300_000


@dataclass(slots=True)
class Bucket:
    """At most `count` messages in any `per_ms` that follow each other, by the times of the last ones.

    A bucket that fills steadily would let twice the count through within a minute: robots count windows.
    """

    count: int
    per_ms: int
    _sent_ms: tuple[int, ...] = ()

    def wait_ms(self, now_ms: int) -> int:
        """How long until a message may go; 0: now."""
        recent = tuple(at for at in self._sent_ms if at > now_ms - self.per_ms)
        self._sent_ms = recent
        return 0 if len(recent) < self.count else recent[-self.count] + self.per_ms - now_ms

    def free(self, now_ms: int) -> int:
        """Messages that may go at once."""
        return max(0, self.count - sum(at > now_ms - self.per_ms for at in self._sent_ms))

    def take(self, now_ms: int) -> None:
        """A message goes."""
        self._sent_ms = (*self._sent_ms, now_ms)[-self.count :]


def back_off_ms(tries: int, rng: Random) -> int:
    """The wait after so many tries that failed: doubling from FIRST_WAIT_MS, at most MOST_WAIT_MS, by up to a quarter
    less, so that several channels of one receiver do not come back together.
    """
    wait_ms = min(MOST_WAIT_MS, FIRST_WAIT_MS << min(max(tries, 1) - 1, 16))
    return round(wait_ms * rng.uniform(0.75, 1.0))
