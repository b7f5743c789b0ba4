"""A relay does what its slow twin does: with any chunks, backlogs that fill, ways that are full or shut, and faults."""

import itertools
from collections.abc import Awaitable
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from ssop.v1.frame_pb2 import Chunk, Frame, FrameKind
from ssop_codec import Course, read_heads
from ssop_codec._survey_py import Course as SlowCourse
from ssop_router.core import _relay, _relay_py

PLAIN = [FrameKind.FRAME_KIND_VALUE, FrameKind.FRAME_KIND_PART, FrameKind.FRAME_KIND_CLOSE]
# Leaps of the sequence, kinds, and the length of a value.
FRAMES = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 0, 0, 1, -1]),
        st.sampled_from(PLAIN) | st.sampled_from(FrameKind.values()),
        st.integers(0, 40),
    ),
    max_size=4,
)
CHUNKS = st.tuples(FRAMES, st.booleans(), st.integers(0, 200))
ACTIONS = st.sampled_from(["urgent", "calm", "take", "close", "full", "free", "fail", "shut", "stop", "pass"])
STEPS = st.lists(CHUNKS | CHUNKS | CHUNKS | ACTIONS, max_size=30)


class _Patience:
    def __init__(self) -> None:
        self.told: list[float | None] = []

    def set(self, delay_s: float | None) -> None:
        self.told.append(delay_s)


class _Client:
    """A client's stream: takes chunks, may be full, or fail."""

    def __init__(self) -> None:
        self.state = "free"
        self.chunks: list[bytes] = []

    def write(self, chunk: bytes) -> Awaitable[None] | None:
        if self.state == "fail":
            raise ConnectionError("gone")
        self.chunks.append(chunk)
        return cast("Awaitable[None]", len(self.chunks)) if self.state == "full" else None


class _Side:
    """A relay with its surroundings, quick or slow. What is looked at is kept as an attempt keeps it."""

    def __init__(self, *, is_slow: bool, limit_bytes: int, quiet_bytes: int, most_frames: int, has_lease: bool) -> None:
        code: Any = _relay_py if is_slow else _relay
        self.log: list[Any] = []
        self.client, self.patience = _Client(), _Patience()
        self.sends = code.Sends(most_frames)
        self.backlog = code.Backlog(quiet_bytes, 4 * quiet_bytes) if has_lease else None
        self.way = code.Way(self.client.write, *(() if is_slow else (7,)))
        self.course: Any = SlowCourse(limit_bytes) if is_slow else Course(limit_bytes)
        clock = itertools.count(1)
        surroundings = {
            "clock": lambda: float(next(clock)),
            "started_s": 0.5,
            "patience": self.patience,
        }
        log = self.log

        class Relay(code.Relay):  # type: ignore[misc]
            def look(self, chunk: bytes) -> None:
                log.append(("look", chunk))

            def hold(self, pending: Any) -> Any:
                log.append(("hold", pending))
                return pending

        parts = (self.course, self.sends, self.way, self.backlog)
        if is_slow:
            self.relay = Relay(*parts, **surroundings)
        else:
            self.relay = Relay()
            self.relay.connect(*parts, stream=7, **surroundings)
        self.relay.stall_s = 30.0

    def take(self, chunk: bytes) -> Any:
        try:
            return self.relay.take(chunk)
        except ConnectionError as error:
            return str(error)

    def act(self, action: str) -> Any:
        backlog = self.backlog
        if action in {"full", "free", "fail"}:
            self.client.state = action
        elif action in {"stop", "pass"}:
            self.relay.is_passing = action == "pass"
        elif action == "shut":
            self.way.is_shut = True
        elif backlog is not None and action in {"urgent", "calm"}:
            backlog.is_urgent = action == "urgent"
        elif backlog is not None and action == "take":
            return backlog.take()
        elif backlog is not None:
            backlog.close()
        return None

    @property
    def state(self) -> tuple[Any, ...]:
        backlog, sends = self.backlog, self.sends
        waiting = backlog and (backlog.size_bytes, backlog.total_bytes, backlog.is_due, backlog.is_full)
        noted = [
            (at_us, size, heads if isinstance(heads, list) else read_heads(heads))
            for at_us, size, heads in sends.chunks
        ]
        counts = sends.frames, sends.size_bytes, sends.left_out, sends.is_noting, self.way.dropped
        course = self.course.last_seq, bool(self.course.is_kept), self.course.chunk
        return course, waiting, noted, counts, self.client.chunks, self.patience.told, self.log


@given(
    STEPS, st.sampled_from([0, 100, 10_000]), st.sampled_from([60, 10_000]), st.sampled_from([0, 5, 256]), st.booleans()
)
def test_a_relay_is_its_slow_twin(
    steps: list[Any], limit_bytes: int, quiet_bytes: int, most_frames: int, has_lease: bool
) -> None:
    quick, slow = (
        _Side(
            is_slow=is_slow,
            limit_bytes=limit_bytes,
            quiet_bytes=quiet_bytes,
            most_frames=most_frames,
            has_lease=has_lease,
        )
        for is_slow in (False, True)
    )
    for side in (quick, slow):
        side.relay.is_passing = True
    for step in steps:
        if isinstance(step, str):
            assert quick.act(step) == slow.act(step)
        else:
            described, is_cut, cut = step
            seq, frames = slow.course.last_seq, []
            for leap, kind, length in described:
                seq = max(0, seq + 1 + leap)
                frames.append(Frame(seq=seq, kind=kind, string_value="x" * length))
            chunk = Chunk(frames=frames).SerializeToString()
            if is_cut and described:
                chunk = chunk[: cut % len(chunk)]
            assert quick.take(chunk) == slow.take(chunk)
        assert quick.state == slow.state


@given(st.lists(st.integers(1, 5), min_size=1, max_size=10))
def test_what_is_passed_on_is_what_came(splits: list[int]) -> None:
    """However the fields are put into chunks, the client gets all of their bytes in order, and nobody looks."""
    side = _Side(is_slow=False, limit_bytes=10_000, quiet_bytes=10_000, most_frames=256, has_lease=True)
    side.relay.is_passing = True
    seqs = itertools.count(1)
    chunks = [
        Chunk(frames=[Frame(seq=next(seqs), kind=PLAIN[0], string_value="a") for _ in range(size)]).SerializeToString()
        for size in splits
    ]
    for chunk in chunks:
        assert side.take(chunk) is None
    assert side.client.chunks == chunks
    assert side.course.chunk == b"".join(chunks)
    assert side.backlog is not None
    assert side.backlog.take() == b"".join(chunks)
    assert side.sends.frames == sum(splits)
    assert side.log == []
