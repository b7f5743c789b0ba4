"""The buffer that `auto` stands for, as a node sees answers of a schema."""

import pytest

from helpers.as_written import run_both_ways
from ssop_codec import Encoder, compile_schema, survey
from ssop_inference.core.buffer import BufferEstimate, SplitCounter, join_chunks

way = run_both_ways("ssop_inference.core.buffer", "BufferEstimate", "SplitCounter", "join_chunks")

SCHEMA = compile_schema({"type": "array", "items": {"type": "string"}})


def count(texts: list[str], buffer_bytes: int = 1024) -> SplitCounter:
    encoder = Encoder(SCHEMA, stream_buffer_bytes=buffer_bytes)
    counter = SplitCounter()
    for index, text in enumerate(texts):
        encoder.feed((("," if index else "[") + f'"{text}"').encode())
        counter.take(survey(b"".join(encoder.drain())))
    encoder.feed(b"]")
    encoder.finish()
    counter.take(survey(b"".join(encoder.drain(flush=True))))
    return counter


@pytest.mark.parametrize(
    ("sizes", "joined"),
    [
        ([], []),
        ([9], [9]),
        ([3, 4], [7]),
        ([4, 4, 4], [8, 4]),
        ([4, 7, 1, 2], [4, 8, 2]),
        ([20, 1, 1], [20, 2]),
    ],
)
def test_chunks_are_joined_up_to_the_buffer(sizes: list[int], joined: list[int]) -> None:
    chunks = [bytes([number]) * size for number, size in enumerate(sizes)]
    found = join_chunks(chunks, 8)
    assert [len(chunk) for chunk in found] == joined
    assert b"".join(found) == b"".join(chunks)


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
