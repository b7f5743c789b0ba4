"""Runs of plain bytes: found by blocks and without them, where one that is not plain stands anywhere."""

import pytest

from ssop_codec._strings import plain_bytes

ODD = b'"\\\x00\x01\x1f\x7f\x80\xc3\xff'


def plain_bytes_slowly(data: bytes) -> int:
    return next((at for at, c in enumerate(data) if not 0x20 <= c < 0x80 or c in b'"\\'), len(data))


@pytest.mark.parametrize("portably", [False, True])
@pytest.mark.parametrize("odd", list(ODD))
def test_the_first_byte_that_is_not_plain_ends_the_run(portably: bool, odd: int) -> None:
    for length in range(70):
        for at in range(length):
            data = bytearray(b"~ !#[]az0" * 8)[:length]
            data[at] = odd
            data[at + 1 :] = bytes(ODD[(at + n) % len(ODD)] for n in range(length - at - 1))
            assert plain_bytes(bytes(data), portably) == plain_bytes_slowly(bytes(data))


@pytest.mark.parametrize("portably", [False, True])
def test_all_bytes_are_told_apart(portably: bool) -> None:
    for c in range(256):
        for data in (bytes([c]), bytes([c]) * 8, bytes([c]) * 16, bytes([c]) * 17, b"a" * 15 + bytes([c]) * 9):
            assert plain_bytes(data, portably) == plain_bytes_slowly(data)


@pytest.mark.parametrize("portably", [False, True])
def test_nothing_behind_the_end_is_looked_at(portably: bool) -> None:
    text = b"a" * 80
    for length in range(40):
        assert plain_bytes(memoryview(text)[:length], portably) == length
