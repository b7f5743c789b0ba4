# cython: annotation_typing=False
"""What happened to one request, in words, heads of frames and times: never a text of it. Pure, and bounded.

`timeline.pxd` gives the types with which this very file is compiled.
"""

from typing import Final, NamedTuple

from ssop_router.core._relay import Sends

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
    """Marks of a request that arrived at `started_s`, and the chunks that its `sends` note."""

    __slots__ = ("_marks", "_sends", "_started_s")

    def __init__(self, sends: Sends, started_s: float) -> None:
        self._sends = sends
        self._started_s = started_s
        self._marks: list[tuple[float, str, str]] = []

    @property
    def marks(self) -> list[Mark]:
        """The moments that are kept."""
        started_s = self._started_s
        return [Mark(int((at_s - started_s) * 1_000_000), name, detail) for at_s, name, detail in self._marks]

    @property
    def sent(self) -> list[Sent]:
        """The chunks that are kept."""
        return [Sent(*chunk) for chunk in self._sends.chunks]

    @property
    def left_out(self) -> int:
        """Chunks that are not in `sent`."""
        return self._sends.left_out

    def mark(self, at_s: float, name: str, detail: str = "") -> None:
        """Something happened. Of many marks the first are kept, and the last one."""
        if len(self._marks) >= _MAX_MARKS:
            self._marks.pop()
        self._marks.append((at_s, name, detail))
