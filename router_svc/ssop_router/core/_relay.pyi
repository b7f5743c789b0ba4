from collections.abc import Awaitable, Callable
from typing import Any, final

from ssop_chassis.deadline import Deadline
from ssop_codec import Course

@final
class Sends:
    """What was sent of one answer. Of its first frames, up to `most_frames`, it is noted when and in which chunks."""

    def __init__(self, most_frames: int = 0) -> None: ...
    @property
    def frames(self) -> int:
        """Document frames that went out."""
    @property
    def size_bytes(self) -> int:
        """Bytes of the chunks that they were in."""
    @property
    def chunks(self) -> list[tuple[int, int, bytes]]:
        """Those that were noted: microseconds since the request's arrival, bytes, and heads for `read_heads`."""
    @property
    def left_out(self) -> int:
        """Chunks that were not noted, since there were too many frames."""
    @property
    def is_noting(self) -> bool:
        """Whether any is."""
    def note_up_to(self, most_frames: int) -> None:
        """Note so many frames."""
    def note(self, at_us: int, size_bytes: int, frames: int, heads: bytes) -> None:
        """A chunk is about to be sent."""
    def count(self, frames: int, size_bytes: int) -> None:
        """Document frames went out; less than none: so many of them did not in the end."""

@final
class Backlog:
    """Chunks that wait for one who comes for them: when they are urgent, or more than `quiet_bytes`. It should be
    closed when more than `most_bytes` came in all."""

    is_urgent: bool
    """Somebody waits for them."""
    def __init__(self, quiet_bytes: int, most_bytes: int) -> None: ...
    @property
    def size_bytes(self) -> int:
        """What waits."""
    @property
    def total_bytes(self) -> int:
        """What came in all."""
    @property
    def is_due(self) -> bool:
        """What waits should be taken."""
    @property
    def is_full(self) -> bool:
        """More came than may."""
    @property
    def is_closed(self) -> bool:
        """Nothing waits, and nothing more will."""
    def add(self, chunk: bytes) -> None:
        """One more waits, unless it is closed."""
    def take(self) -> bytes:
        """What waits, put together."""
    def close(self) -> None:
        """Drop what waits, and what comes."""

class Way:
    """Where chunks go: to `write`, until it is shut. `stream` is told to the kernel's tracers."""

    is_shut: bool
    @property
    def stream(self) -> int:
        """See `ssop_codec.probes.stream_number`."""
    @property
    def dropped(self) -> int:
        """Document frames that came once it was shut."""
    def __init__(self, write: Callable[[bytes], Awaitable[None] | None], stream: int, *more: Any) -> None: ...
    def send(self, chunk: bytes, frames: int) -> Awaitable[None] | None:
        """Send a chunk with so many document frames. What is returned is awaited before the next one."""

class Relay:
    """Takes the chunks of a node. While `is_passing`, those that hold the next fields and nothing else go to the way
    as they are, and are counted; all others, and those that a backlog wants somebody to come for, are looked at.
    """

    is_passing: bool
    patience: Deadline
    """Of whoever waits for the node; set to `stall_s` with each chunk that is passed on."""
    stall_s: float | None
    """How long the node may be silent between two chunks once it has given a field; None: as long as the request."""
    def connect(
        self,
        course: Course,
        sends: Sends,
        way: Way | None,
        backlog: Backlog | None,
        *,
        stream: int,
        clock: Callable[[], float],
        started_s: float,
        patience: Deadline,
    ) -> None:
        """What it passes on, and where: must come first. Without a way, all is looked at."""
    def take(self, chunk: bytes) -> Awaitable[None] | None:
        """Chunk bytes from the node. What is returned is awaited before the next ones. Raises what `look` raises."""
    def look(self, chunk: bytes) -> Awaitable[None] | None:
        """Take a chunk that is not passed on; nothing is known of it, nor written down."""
    def hold(self, pending: Awaitable[None]) -> Awaitable[None] | None:
        """A chunk was passed on and has to be waited for."""
