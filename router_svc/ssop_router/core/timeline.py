"""What happened to one request, in words, heads of frames and times: never a text of it. Pure, and bounded."""

from typing import Final, NamedTuple

MAX_FRAMES: Final = 256
MAX_FRAMES_DEBUG: Final = 8_192
_MAX_MARKS: Final = 64


class Mark(NamedTuple):
    """A moment, in microseconds since the request's arrival, and a word about it."""

    at_us: int
    name: str
    detail: str


class Sent(NamedTuple):
    """A chunk that was sent. `heads` is for `ssop_codec.read_heads`."""

    at_us: int
    size_bytes: int
    heads: bytes


class Timeline:
    """Marks and chunks of a request, up to `max_frames` frames; what comes later is counted. 0: nothing is kept."""

    __slots__ = ("_frames", "_marks", "_max_frames", "_sent", "is_on", "left_out")

    def __init__(self, max_frames: int = 0) -> None:
        self._max_frames = max_frames
        self.is_on = max_frames > 0
        """Whether anything is kept."""
        self._frames = 0
        self._marks: list[tuple[int, str, str]] = []
        self._sent: list[tuple[int, int, bytes]] = []
        self.left_out = 0
        """Chunks that are not in `sent`."""

    @property
    def marks(self) -> list[Mark]:
        """The moments that are kept."""
        return [Mark(*mark) for mark in self._marks]

    @property
    def sent(self) -> list[Sent]:
        """The chunks that are kept."""
        return [Sent(*chunk) for chunk in self._sent]

    def mark(self, at_us: int, name: str, detail: str = "") -> None:
        """Something happened. Of many marks the first are kept, and the last one."""
        if not self._max_frames:
            return
        if len(self._marks) >= _MAX_MARKS:
            self._marks.pop()
        self._marks.append((at_us, name, detail))

    def send(self, at_us: int, size_bytes: int, frames: int, heads: bytes) -> None:
        """A chunk with so many frames is sent."""
        if self._frames + frames > self._max_frames:
            self.left_out += 1
            # No hole: what is kept is the beginning.
            self._frames = self._max_frames
            return
        self._frames += frames
        self._sent.append((at_us, size_bytes, heads))
