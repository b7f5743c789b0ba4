"""The requests of a load, and how their answers are judged."""

import pytest

from helpers.load_requests import FRAMES, FrameCount, Requests, find_flaw, write_recording
from helpers.whole_answers import whole_answer
from ssop.v1.frame_pb2 import VERDICT_INVALID, Chunk
from ssop.v1.mesh_pb2 import CacheReason


def test_no_two_requests_ask_the_same() -> None:
    here, there = Requests(1), Requests(2)
    texts = {made.build(number).prompt.messages[0].parts[0].text for made in (here, there) for number in range(100)}
    assert len(texts) == 200


def test_request_is_what_its_bytes_say() -> None:
    made = Requests(7)
    assert made.build(3).SerializeToString() == made.encode(3)


def test_recording_is_of_twelve_tokens() -> None:
    assert write_recording(2.0).count("[2.0, ") == 12


def test_whole_answer_has_no_fault_and_no_flaw() -> None:
    messages = whole_answer()
    count = FrameCount()
    for message in messages:
        count.add(message)
    assert (count.fault(FRAMES), find_flaw(messages)) == ("", "")


def test_answer_without_its_end_is_a_fault() -> None:
    count = FrameCount()
    for message in whole_answer()[:-1]:
        count.add(message)
    assert count.fault(FRAMES)


def test_what_is_no_chunk_is_a_fault() -> None:
    count = FrameCount()
    for message in [*whole_answer(), b"\xff\xff\xff"]:
        count.add(message)
    assert count.fault(FRAMES)


def _change(**changes: object) -> list[bytes]:
    chunk = Chunk.FromString(b"".join(whole_answer()))
    for frame in chunk.frames:
        if frame.HasField("status") and "degraded_level" in changes:
            frame.status.degraded_level = 2
        if frame.HasField("status") and "unavailable" in changes:
            frame.status.unavailable.append("cache")
        if frame.HasField("decision") and "cache_reason" in changes:
            frame.decision.cache_reason = CacheReason.CACHE_REASON_HIT
        if frame.HasField("end") and "verdict" in changes:
            frame.end.verdict = VERDICT_INVALID
    return [chunk.SerializeToString()]


@pytest.mark.parametrize(
    ("change", "flaw"),
    [
        ("degraded_level", "degraded or stored"),
        ("unavailable", "without cache"),
        ("cache_reason", "CACHE_REASON_HIT"),
        ("verdict", "verdict"),
    ],
)
def test_answer_that_did_not_take_the_whole_path_is_a_flaw(change: str, flaw: str) -> None:
    assert find_flaw(_change(**{change: True})) == flaw
