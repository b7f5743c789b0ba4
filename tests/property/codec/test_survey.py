"""A survey of chunk bytes is that of its slow twin, whatever they are, and what is selected is what was there."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ssop.v1.frame_pb2 import Chunk, Frame, FrameKind
from ssop_codec import (
    Course,
    FrameError,
    Survey,
    _survey_py,
    append_mesh_frame,
    bodies,
    mesh_chunk,
    read_heads,
    scan_heads,
    select,
    survey,
)

FRAMES = st.lists(
    st.builds(
        Frame,
        seq=st.integers(0, 3) | st.integers(0, 2**64 - 1),
        kind=st.integers(0, 25) | st.sampled_from([62, 63, 64, 2**31 - 1]),
        node=st.integers(0, 2**32 - 1),
        string_value=st.text(max_size=200),
    ),
    max_size=8,
)
CHUNKS = FRAMES.map(lambda frames: Chunk(frames=frames).SerializeToString())


def attempt(run: Callable[..., Any], *given_: Any) -> Any:
    try:
        return run(*given_)
    except FrameError:
        return FrameError


def plain(found: Survey | _survey_py.SlowSurvey) -> tuple[Any, ...]:
    heads = found.heads if isinstance(found.heads, list) else read_heads(found.heads)
    sums = (found.kinds, found.frames, found.documents, found.values, found.first_seq, found.last_seq)
    return (*sums, bool(found.is_clean), bool(found.is_plain), bool(found.is_row), heads)


def agree(chunk: bytes, kinds: int) -> None:
    quick, slow = attempt(survey, chunk), attempt(_survey_py.survey, chunk)
    assert (quick if quick is FrameError else plain(quick)) == (slow if slow is FrameError else plain(slow))
    assert attempt(select, chunk, kinds) == attempt(_survey_py.select, chunk, kinds)
    for kind in (0, 5, 17, 21):
        assert attempt(bodies, chunk, kind) == attempt(_survey_py.bodies, chunk, kind)


@given(CHUNKS, st.integers(0, 2**64 - 1))
def test_chunks(chunk: bytes, kinds: int) -> None:
    agree(chunk, kinds)


@given(CHUNKS, st.integers(0, 2**64 - 1), st.integers(0, 300), st.binary(max_size=3))
@example(b"\x0a\x02\x08", 0, 0, b"")
@example(b"\x12\x01a\x0a\x02\x10\x02", 4, 0, b"")
def test_damaged_chunks(chunk: bytes, kinds: int, cut: int, noise: bytes) -> None:
    agree(chunk[:cut] + noise + chunk[cut + 1 :], kinds)


@given(st.binary(max_size=64), st.integers(0, 2**64 - 1))
def test_garbage(chunk: bytes, kinds: int) -> None:
    agree(chunk, kinds)


@given(CHUNKS)
def test_heads_are_those_of_a_scan(chunk: bytes) -> None:
    assert read_heads(survey(chunk).heads) == scan_heads(chunk)


@given(CHUNKS)
def test_a_selection_and_its_complement_hold_every_frame(chunk: bytes) -> None:
    documents, others = select(chunk, 0xFFFF), select(chunk, ~0xFFFF & 2**64 - 1)
    assert sorted(scan_heads(documents) + scan_heads(others)) == sorted(scan_heads(chunk))
    assert len(documents) + len(others) == len(chunk)


@given(CHUNKS)
def test_bodies_are_the_frames_of_their_kind(chunk: bytes) -> None:
    frames = [frame for frame in Chunk.FromString(chunk).frames if frame.kind == 17]
    assert [Frame.FromString(body) for body in bodies(chunk, 17)] == frames


@pytest.mark.parametrize("count", [63, 64, 65, 200])
def test_no_head_of_many_is_missing(count: int) -> None:
    chunk = Chunk(
        frames=[Frame(seq=number + 1, kind=FrameKind.FRAME_KIND_VALUE, node=number) for number in range(count)]
    ).SerializeToString()
    found = survey(chunk)
    assert (found.is_plain, found.is_row, found.frames, found.last_seq) == (True, True, count, count)
    assert read_heads(found.heads) == [(2, number + 1, number) for number in range(count)]


Step = tuple[list[int], FrameKind.ValueType, bool] | bytes
NEXT_CHUNKS = st.tuples(st.lists(st.integers(-1, 2), max_size=4), st.sampled_from(FrameKind.values()), st.booleans())


@given(st.sampled_from([0, 30, 200]), st.lists(NEXT_CHUNKS | st.binary(max_size=8), max_size=12))
def test_a_course_is_that_of_its_slow_twin(limit_bytes: int, steps: list[Step]) -> None:
    quick, slow = Course(limit_bytes), _survey_py.Course(limit_bytes)
    for step in steps:
        if isinstance(step, bytes):
            assert (attempt(quick.follow, step) is FrameError) == (attempt(slow.follow, step) is FrameError)
        else:
            leaps, kind, is_added = step
            seqs = [max(0, slow.last_seq + place + leap) for place, leap in enumerate(leaps)]
            frames = [Frame(seq=seq, kind=kind, string_value="a") for seq in seqs]
            chunk = Chunk(frames=frames).SerializeToString()
            if is_added:
                quick.add(chunk, len(frames))
                slow.add(chunk, len(frames))
            else:
                found, known = quick.follow(chunk), slow.follow(chunk)
                assert (found and plain(found)) == (known and plain(known))
        assert (quick.last_seq, quick.is_kept, quick.chunk) == (slow.last_seq, slow.is_kept, slow.chunk)


def test_the_next_fields_are_followed_and_no_others() -> None:
    course = Course(1_000)
    first, second = (
        Chunk(frames=[Frame(seq=seq, kind=FrameKind.FRAME_KIND_VALUE)]).SerializeToString() for seq in (1, 2)
    )
    assert course.follow(second) is None
    assert (course.last_seq, course.chunk) == (0, b"")
    assert course.follow(first) is not None
    assert course.follow(first) is None
    assert course.follow(second) is not None
    assert (course.last_seq, course.chunk) == (2, first + second)


@given(st.sampled_from([16, 17, 18, 19, 20, 21]), st.integers(0, 300) | st.integers(16_370, 16_400))
def test_a_mesh_chunk_is_that_of_its_slow_twin(kind: int, size: int) -> None:
    payload = bytes(size)
    field = {16: 18, 17: 19, 18: 20, 19: 21, 20: 22, 21: 23}[kind]
    assert mesh_chunk(kind, payload) == append_mesh_frame(kind, field, payload)


@pytest.mark.parametrize("kind", [-1, 0, 5, 15, 22, 31, 32, 2**31 - 1])
def test_a_mesh_chunk_is_of_a_mesh_kind(kind: int) -> None:
    with pytest.raises(ValueError, match="is not the kind of a mesh frame"):
        mesh_chunk(kind, b"")
