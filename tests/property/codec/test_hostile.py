"""Bytes of a hostile peer: only the documented error comes out, and both readers agree with protobuf."""

from contextlib import suppress
from typing import Any

from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from helpers.codec_cases import RELAXED, SCHEMAS, encode, fitting, texts_of
from ssop.v1 import frame_pb2
from ssop_codec import Decoder, FrameError, SchemaError, compile_schema, scan_heads


def read(chunks: list[bytes]) -> bool:
    """Whether a decoder takes the chunks; any error but FrameError escapes."""
    decoder = Decoder()
    try:
        for chunk in chunks:
            for frame in decoder.feed(chunk):
                assert isinstance(frame.path, str)
                repr(frame)
    except FrameError:
        return False
    return True


@RELAXED
@given(st.lists(st.binary(max_size=60), max_size=4))
def test_random_bytes_raise_only_frame_errors(chunks: list[bytes]) -> None:
    read(chunks)
    for chunk in chunks:
        with suppress(FrameError):
            scan_heads(chunk)


@RELAXED
@given(st.data(), SCHEMAS, st.integers(0, 2**20), st.integers(0, 255), st.integers(0, 3))
def test_damaged_chunks_raise_only_frame_errors(
    data: st.DataObject, schema: Any, at: int, byte: int, kind: int
) -> None:
    text = data.draw(texts_of(data.draw(fitting(schema))))
    try:
        whole = bytearray(b"".join(encode(compile_schema(schema), text, stream_buffer_bytes=128)[0]))
    except SchemaError:
        return
    at %= len(whole)
    if kind == 0:
        whole[at] = byte
    elif kind == 1:
        del whole[at:]
    elif kind == 2:
        del whole[at]
    else:
        whole.insert(at, byte)
    is_taken = read([bytes(whole)])
    try:
        scan_heads(bytes(whole))
    except FrameError:
        assert not is_taken
    if is_taken:
        try:
            frame_pb2.Chunk.FromString(bytes(whole))
        except DecodeError as error:  # pragma: no cover
            raise AssertionError("taken, although protobuf refuses it") from error
