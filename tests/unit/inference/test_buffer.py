"""The buffer that `auto` stands for, as a node sees answers of a schema."""

import pytest

from ssop_codec import Encoder, compile_schema
from ssop_inference.core.buffer import BufferEstimate, SplitCounter

SCHEMA = compile_schema({"type": "array", "items": {"type": "string"}})


def count(texts: list[str], buffer_bytes: int = 1024) -> SplitCounter:
    encoder = Encoder(SCHEMA, stream_buffer_bytes=buffer_bytes)
    counter = SplitCounter()
    for index, text in enumerate(texts):
        encoder.feed((("," if index else "[") + f'"{text}"').encode())
        counter.take(encoder.drain())
    encoder.feed(b"]")
    encoder.finish()
    counter.take(encoder.drain(flush=True))
    return counter


def test_values_in_parts_are_counted_once() -> None:
    counter = count(["x" * 5000, "y", "z" * 3000])
    assert (counter.values, counter.split_values) == (3, 2)


def test_buffer_doubles_when_more_than_one_in_a_hundred_is_split() -> None:
    estimate = BufferEstimate(1024)
    estimate.observe(count(["x"] * 196 + ["x" * 2000] * 4))
    assert estimate.buffer_bytes == 2048


@pytest.mark.parametrize(("plain", "split"), [(199, 1), (150, 4)], ids=["too rare", "too few values"])
def test_buffer_stays(plain: int, split: int) -> None:
    estimate = BufferEstimate(1024)
    estimate.observe(count(["x"] * plain + ["x" * 2000] * split))
    assert estimate.buffer_bytes == 1024


def test_buffer_ends_at_the_largest_chunk() -> None:
    estimate = BufferEstimate(1024)
    for _ in range(10):
        estimate.observe(count(["x" * 2000] * 200))
    assert estimate.buffer_bytes == 16_384


def test_grown_buffer_holds_what_was_split() -> None:
    estimate = BufferEstimate(1024)
    estimate.observe(count(["x" * 2000] * 200))
    grown = count(["x" * 2000] * 200, estimate.buffer_bytes)
    assert grown.split_values == 0
