"""The slow twin of `_relay`, its oracle in tests. Product code never imports it."""

from collections.abc import Awaitable, Callable
from typing import Any

from ssop_codec import Course, FrameError
from ssop_codec._survey_py import Course as SlowCourse

Write = Callable[[bytes], Awaitable[None] | None]


class Sends:
    """See `_relay.Sends`."""

    def __init__(self, most_frames: int = 0) -> None:
        self._most_frames = most_frames
        self._noted_frames = 0
        self.frames = self.size_bytes = self.left_out = 0
        self.chunks: list[tuple[int, int, bytes]] = []

    def note(self, at_us: int, size_bytes: int, frames: int, heads: Any) -> None:
        """A chunk is about to be sent."""
        if self._noted_frames + frames <= self._most_frames:
            self._noted_frames += frames
            self.chunks.append((at_us, size_bytes, heads))
        else:
            self._noted_frames = self._most_frames
            self.left_out += 1

    def count(self, frames: int, size_bytes: int) -> None:
        """Document frames went out; less than none: so many of them did not in the end."""
        self.frames += frames
        self.size_bytes += size_bytes

    @property
    def is_noting(self) -> bool:
        """Whether chunks are noted."""
        return self._most_frames > 0


class Backlog:
    """See `_relay.Backlog`."""

    def __init__(self, quiet_bytes: int, most_bytes: int) -> None:
        self._quiet_bytes = quiet_bytes
        self._most_bytes = most_bytes
        self._waiting = b""
        self.total_bytes = 0
        self.is_urgent = self.is_closed = False

    @property
    def size_bytes(self) -> int:
        """What waits."""
        return len(self._waiting)

    @property
    def is_due(self) -> bool:
        """What waits should be taken."""
        return bool(self._waiting) and (self.is_urgent or self.size_bytes > self._quiet_bytes)

    @property
    def is_full(self) -> bool:
        """More came than may."""
        return self.total_bytes > self._most_bytes

    def add(self, chunk: bytes) -> None:
        """One more waits."""
        if not self.is_closed:
            self._waiting += chunk
            self.total_bytes += len(chunk)

    def take(self) -> bytes:
        """What waits."""
        whole, self._waiting = self._waiting, b""
        return whole

    def close(self) -> None:
        """Drop what waits, and what comes."""
        self.is_closed = True
        self._waiting = b""

    def may_take(self, chunk: bytes) -> bool:
        """Nothing is to be done about one more."""
        if self.is_closed:
            return True
        is_quiet = self.size_bytes + len(chunk) <= self._quiet_bytes
        return is_quiet and not self.is_urgent and self.total_bytes + len(chunk) <= self._most_bytes


class Way:
    """See `_relay.Way`."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self.is_shut = False
        self.dropped = 0

    def send(self, chunk: bytes, frames: int) -> Awaitable[None] | None:
        """Send a chunk."""
        if self.is_shut:
            self.dropped += frames
            return None
        return self._write(chunk)


class Relay:
    """See `_relay.Relay`."""

    def __init__(
        self,
        course: Course | SlowCourse,
        sends: Sends,
        way: Way | None,
        backlog: Backlog | None,
        *,
        clock: Callable[[], float],
        started_s: float,
        patience: Any,
    ) -> None:
        self._patience = patience
        self.stall_s: float | None = None
        self._course = course
        self._sends = sends
        self._way = way
        self._backlog = backlog
        self._clock = clock
        self._started_s = started_s
        self.is_passing = False

    def take(self, chunk: bytes) -> Awaitable[None] | None:
        """Chunk bytes from the node."""
        way, sends, backlog = self._way, self._sends, self._backlog
        if not self.is_passing or way is None or (backlog is not None and not backlog.may_take(chunk)):
            return self.look(chunk)
        try:
            found = self._course.follow(chunk)
        except FrameError:
            found = None
        if found is None:
            return self.look(chunk)
        if backlog is not None:
            backlog.add(chunk)
        if sends.is_noting:
            sends.note(int((self._clock() - self._started_s) * 1e6), len(chunk), found.frames, found.heads)
        pending = way.send(chunk, found.frames)
        sends.count(found.frames, len(chunk))
        if pending is not None:
            return self.hold(pending)
        self._patience.set(self.stall_s)
        return None

    def look(self, chunk: bytes) -> Awaitable[None] | None:
        """Take a chunk that is not passed on."""
        raise NotImplementedError

    def hold(self, pending: Awaitable[None]) -> Awaitable[None] | None:
        """A chunk was passed on and has to be waited for."""
        raise NotImplementedError
