"""Frames of HTTP/2 as a wire cuts and harms them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssop_cli.drill.http2 import CANCEL, PREFACE, Cutter, Garbler, Kind, WireFrame, rst_stream, window_update


def frame(kind: int, stream: int, payload: bytes, flags: int = 0) -> bytes:
    """A frame (RFC 9113, 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def cut(data: bytes, *, has_preface: bool = False) -> list[WireFrame]:
    return list(Cutter(has_preface=has_preface).feed(data))


def message(body: bytes) -> bytes:
    """A message of gRPC: not compressed, its length, its bytes."""
    return b"\0" + len(body).to_bytes(4, "big") + body


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99), st.binary(max_size=40)), max_size=8), st.data())
def test_frames_are_the_same_however_the_bytes_come(frames: list[tuple[int, int, bytes]], data: st.DataObject) -> None:
    wire = PREFACE + b"".join(frame(*one) for one in frames)
    cutter, position = Cutter(has_preface=True), 0
    found: list[WireFrame] = []
    while position < len(wire):
        size = data.draw(st.integers(1, len(wire) - position))
        found += cutter.feed(wire[position : position + size])
        position += size
    assert b"".join(one.data for one in found) == wire
    assert [(one.kind, one.stream) for one in found[1:]] == [(kind, stream) for kind, stream, _ in frames]


def test_reserved_bit_of_a_stream_is_no_part_of_its_number() -> None:
    data = bytearray(frame(Kind.DATA, 3, b""))
    data[5] |= 0x80
    assert cut(bytes(data))[0].stream == 3


def test_frame_of_many_megabytes_is_refused() -> None:
    with pytest.raises(ValueError, match="16777215 bytes"):
        cut(b"\xff\xff\xff" + bytes(6))


def test_header_block_may_go_on_in_a_second_frame() -> None:
    first, second = cut(frame(Kind.HEADERS, 1, b"x") + frame(Kind.CONTINUATION, 1, b"y", 0x4))
    assert (first.ends_headers, second.ends_headers) == (False, True)


@pytest.mark.parametrize(
    ("kind", "flags", "ends"), [(0, 0, False), (0, 1, True), (1, 1, True), (3, 0, True), (8, 1, False)]
)
def test_end_of_a_stream_is_seen(kind: int, flags: int, ends: bool) -> None:
    assert cut(frame(kind, 1, bytes(4), flags))[0].ends_stream is ends


def garbled(*payloads: bytes) -> bytes:
    garbler = Garbler()
    frames = [cut(frame(Kind.DATA, 1, payload))[0] for payload in payloads]
    return b"".join(garbler.garble(one)[9:] for one in frames)


def test_message_is_overwritten_and_its_length_stays() -> None:
    assert garbled(message(b"abc")) == b"\0\0\0\0\x03\xff\xff\xff"


def test_message_in_several_frames_is_overwritten_whole() -> None:
    whole = message(b"abcdef") + message(b"gh")
    assert garbled(whole[:7], whole[7:]) == garbled(whole)
    assert garbled(whole).count(b"\xff") == 8


def test_streams_are_garbled_apart() -> None:
    garbler = Garbler()
    begin = cut(frame(Kind.DATA, 1, message(b"abcd")[:7]))[0]
    other = cut(frame(Kind.DATA, 3, message(b"xy")))[0]
    rest = cut(frame(Kind.DATA, 1, message(b"abcd")[7:]))[0]
    assert [garbler.garble(one)[9:].count(b"\xff") for one in (begin, other, rest)] == [2, 2, 2]


def test_frames_that_are_made_can_be_cut() -> None:
    reset, update = cut(rst_stream(5, CANCEL) + window_update(77))
    assert (reset.kind, reset.stream, reset.data[-1]) == (Kind.RST_STREAM, 5, CANCEL)
    assert (update.kind, update.stream, update.data[-1]) == (Kind.WINDOW_UPDATE, 0, 77)
