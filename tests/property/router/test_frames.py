"""Splitting and packing chunk bytes loses nothing, and never reads beyond them."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from ssop.v1.frame_pb2 import Chunk, Frame
from ssop_codec import FrameError, scan_heads
from ssop_router.core.frames import pack_frames, parse_frame, split_frames

FRAMES = st.lists(
    st.builds(Frame, seq=st.integers(0, 2**40), kind=st.integers(1, 20), string_value=st.text(max_size=300)), max_size=8
)


@given(FRAMES)
def test_frames_joined_are_the_chunk(frames: list[Frame]) -> None:
    chunk = Chunk(frames=frames).SerializeToString()
    pieces = list(split_frames(chunk))
    assert b"".join(pieces) == chunk
    assert [parse_frame(piece) for piece in pieces] == frames


@given(FRAMES, st.integers(1, 500))
def test_packed_chunks_are_small_and_whole(frames: list[Frame], size: int) -> None:
    chunk = Chunk(frames=frames).SerializeToString()
    packed = list(pack_frames(split_frames(chunk), size))
    assert b"".join(packed) == chunk
    assert all(len(piece) <= size or len(scan_heads(piece)) == 1 for piece in packed)


@given(st.binary(max_size=64))
def test_garbage_is_a_value_error(data: bytes) -> None:
    try:
        pieces = list(split_frames(data))
    except ValueError:
        return
    assert b"".join(pieces) == data


@given(FRAMES, st.integers(0, 200))
def test_cut_chunk_is_refused_by_both_readers(frames: list[Frame], cut: int) -> None:
    chunk = Chunk(frames=frames).SerializeToString()[:cut]
    try:
        Chunk.FromString(chunk)
    except DecodeError:
        with pytest.raises(FrameError):
            scan_heads(chunk)
