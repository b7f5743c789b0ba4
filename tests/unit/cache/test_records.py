"""Records of stored answers, and which answers are whole."""

import pytest

from helpers.cache_service import answer, pieces
from ssop.v1.frame_pb2 import (
    FRAME_KIND_END,
    FRAME_KIND_STATUS,
    FRAME_KIND_VALUE,
    VERDICT_INVALID,
    VERDICT_OK,
    Chunk,
    Verdict,
)
from ssop_cache.core.records import AnswerRecord, RecordError, decode_record, encode_record
from ssop_cache.core.whole import is_whole

RECORD = AnswerRecord("acme", 1, "0.1.0", "small", b"chunk")


@pytest.mark.parametrize("length", range(len(encode_record(RECORD))))
def test_cut_record_is_refused(length: int) -> None:
    with pytest.raises(RecordError):
        decode_record(encode_record(RECORD)[:length])


def test_record_with_bytes_behind_it_is_refused() -> None:
    with pytest.raises(RecordError):
        decode_record(encode_record(RECORD) + b"x")


def test_record_of_another_format_is_refused() -> None:
    with pytest.raises(RecordError):
        decode_record(b"SSA2" + encode_record(RECORD)[4:])


def test_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(RecordError):
        encode_record(RECORD._replace(model="m" * 65_536))


def test_answer_in_one_chunk_is_whole() -> None:
    assert is_whole(answer())


def test_answer_in_pieces_is_whole_when_they_are_joined() -> None:
    assert is_whole(b"".join(pieces("a", "b", "c")))


def test_answer_with_a_piece_twice_is_not_whole() -> None:
    one, two = pieces("a", "b")
    assert not is_whole(one + one + two)


def test_answer_with_a_piece_missing_is_not_whole() -> None:
    one, _, three = pieces("a", "b", "c")
    assert not is_whole(one + three)


def test_answer_that_does_not_begin_with_its_first_frame_is_not_whole() -> None:
    _, two = pieces("a", "b")
    assert not is_whole(two)


def test_answer_that_goes_on_after_its_end_is_not_whole() -> None:
    more = Chunk()
    more.frames.add(seq=3, kind=FRAME_KIND_VALUE, string_value="more")
    assert not is_whole(answer() + more.SerializeToString())


def test_answer_of_several_documents_is_whole_when_each_is() -> None:
    assert is_whole(two_documents(VERDICT_OK))
    assert not is_whole(two_documents(VERDICT_INVALID))


def two_documents(first: Verdict.ValueType) -> bytes:
    chunk = Chunk()
    for seq, verdict in ((1, first), (2, VERDICT_OK)):
        chunk.frames.add(seq=seq, kind=FRAME_KIND_END).end.verdict = verdict
    return chunk.SerializeToString()


@pytest.mark.parametrize("kind", [FRAME_KIND_END + 1, 200])
def test_answer_with_a_frame_of_another_version_is_not_fit(kind: int) -> None:
    chunk = Chunk()
    frame = chunk.frames.add(seq=1)
    chunk.frames.add(seq=2, kind=FRAME_KIND_END).end.verdict = VERDICT_OK
    whole = chunk.SerializeToString()
    assert is_whole(whole)
    frame.MergeFromString(b"\x10" + bytes([kind & 0x7F | 0x80 * (kind > 127)]) + b"\x01" * (kind > 127))
    assert not is_whole(chunk.SerializeToString())


@pytest.mark.parametrize("tail", [b"\n", b"\n\x05\x08\x02", b"\n\x02\x08\xff"])
def test_answer_with_a_frame_that_is_cut_is_not_whole(tail: bytes) -> None:
    assert not is_whole(answer() + tail)


@pytest.mark.parametrize(
    ("good", "bad"), [(b"B\x03yes", b"\x46\x03yes"), (b"B\x03yes", b"B\x04yes"), (b"B\x03yes", b"B\x03y\xffs")]
)
def test_answer_with_a_field_that_nobody_can_read_is_not_whole(good: bytes, bad: bytes) -> None:
    assert good in answer("yes")
    assert not is_whole(answer("yes").replace(good, bad))


def test_nothing_is_not_whole() -> None:
    assert not is_whole(b"")


def test_answer_that_was_judged_invalid_is_not_fit() -> None:
    assert not is_whole(answer(verdict=VERDICT_INVALID))


def test_answer_with_a_mesh_frame_is_not_fit() -> None:
    mesh = Chunk()
    mesh.frames.add(kind=FRAME_KIND_STATUS)
    assert not is_whole(mesh.SerializeToString() + answer())
