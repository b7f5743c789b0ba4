"""When a prefetch of a text that arrives in pieces is due, and of how much of it. Time is passed in, in milliseconds.

A prefetch is due with the first `words` tokens, and once more with the first `again_words`. Text that comes slowly has
one with what is there `wait_ms` after the first byte. One with the whole text is due when the writer seems to have
stopped: nothing for `pause_ms`, and for 1.5 times the longest gap so far. A longer prefix replaces a shorter one.
"""

from dataclasses import dataclass

from ssop_chassis.words import TokenCounter, take_tokens

_GAPS = 1.5


@dataclass(frozen=True, slots=True)
class Timing:
    """When prefetches are due. `again_words` and `pause_ms` 0: never. At most `most` for one text."""

    words: int = 10
    again_words: int = 15
    wait_ms: int = 500
    pause_ms: int = 300
    most: int = 4


class Arrival:
    """The text of one request on its way. `base` is what was there before the first piece."""

    def __init__(self, timing: Timing, base: str, now_ms: float) -> None:
        self._timing = timing
        self._pieces: list[str] = []
        self._counter = TokenCounter(max(timing.words, timing.again_words))
        self._chars = 0
        self._issued = 0
        self._issued_chars = 0
        self._passed_words = 0
        self._first_ms: float | None = None
        self._last_ms = now_ms
        self._longest_gap_ms = 0.0
        self._base_chars = len(base)
        if base:
            self._append(base, now_ms)

    @property
    def has_pieces(self) -> bool:
        """Something has come after the base."""
        return self._chars > self._base_chars

    @property
    def text(self) -> str:
        """All of it so far, put together anew each time."""
        return "".join(self._pieces)

    @property
    def pieces(self) -> str:
        """What has come after the base."""
        return self.text[self._base_chars :]

    def add(self, piece: str, now_ms: float) -> None:
        """Take a piece."""
        if piece:
            if self._first_ms is not None:
                self._longest_gap_ms = max(self._longest_gap_ms, now_ms - self._last_ms)
            self._append(piece, now_ms)

    def _append(self, text: str, now_ms: float) -> None:
        self._pieces.append(text)
        self._chars += len(text)
        self._counter.add(text)
        self._last_ms = now_ms
        if self._first_ms is None and text.strip():
            self._first_ms = now_ms

    def take_due(self, now_ms: float) -> str:
        """The prefix that is to be prefetched now; empty for none. It counts as issued."""
        if self._issued >= self._timing.most:
            return ""
        if words := self._words_due():
            self._passed_words = words
            prefix = take_tokens(self.text, words)
            if len(prefix) > self._issued_chars:
                return self._issue(prefix)
        due_ms = self.due_ms
        return self._issue(self.text) if due_ms is not None and now_ms >= due_ms else ""

    @property
    def due_ms(self) -> float | None:
        """When time alone makes a prefetch due; None for never, as long as nothing comes."""
        if self._first_ms is None or self._issued >= self._timing.most or self._issued_chars == self._chars:
            return None
        due_ms = []
        if not self._issued:
            due_ms.append(self._first_ms + self._timing.wait_ms)
        if self._timing.pause_ms:
            due_ms.append(self._last_ms + max(self._timing.pause_ms, _GAPS * self._longest_gap_ms))
        return min(due_ms, default=None)

    def _words_due(self) -> int:
        for words in (self._timing.again_words, self._timing.words):
            if 0 < words <= self._counter.tokens:
                return words if words > self._passed_words else 0
        return 0

    def _issue(self, prefix: str) -> str:
        self._issued += 1
        self._issued_chars = len(prefix)
        return prefix
