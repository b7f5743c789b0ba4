"""Frames of Python values are, byte for byte, those that protobuf writes."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from helpers.codec_cases import RELAXED
from ssop.v1 import frame_pb2
from ssop_codec import FrameKind, RefStep, encode_frame, encode_values, scan_heads

NUMBERS = st.integers(0, 2**32 - 1) | st.sampled_from([0, 1, 127, 128, 2**31])
KEYS = st.text(max_size=5) | st.integers(0, 700).map("k".__mul__)
PATHS = st.lists(NUMBERS | KEYS | NUMBERS.map(RefStep), max_size=6)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | KEYS
    | st.integers(0, 5_000).map("é".__mul__)
)


@RELAXED
@given(st.integers(0, 2**63), VALUES, PATHS, NUMBERS, NUMBERS, NUMBERS)
def test_frame_of_a_value_is_that_of_protobuf(
    seq: int, value: Any, path: Any, node: int, parts: int, document: int
) -> None:
    chunk = encode_frame(seq, FrameKind.VALUE, value, node=node, path=path, parts=parts, document=document)
    message = frame_pb2.Chunk.FromString(chunk)
    assert message.SerializeToString(deterministic=True) == chunk
    (frame,) = message.frames
    assert (frame.seq, frame.node, frame.parts, frame.document) == (seq, node, parts, document)
    assert [getattr(step, str(step.WhichOneof("step"))) for step in frame.path] == path


@RELAXED
@given(st.integers(1, 2**40), st.lists(st.tuples(NUMBERS, PATHS, VALUES), max_size=8))
def test_values_together_are_their_frames(first: int, values: Any) -> None:
    chunk = encode_values(first, values)
    frames = [encode_frame(first + n, FrameKind.VALUE, v, node=node, path=p) for n, (node, p, v) in enumerate(values)]
    assert chunk == b"".join(frames)
    assert [seq for _, seq, _ in scan_heads(chunk)] == list(range(first, first + len(values)))
