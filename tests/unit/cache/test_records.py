"""Records of stored answers, and which answers are whole."""

import pytest

from helpers.cache_service import answer, pieces
from ssop.v1.frame_pb2 import FRAME_KIND_STATUS, VERDICT_INVALID, Chunk
from ssop_cache.core.records import AnswerRecord, RecordError, decode_record, encode_record, is_whole

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


def test_answer_that_was_judged_invalid_is_not_fit() -> None:
    assert not is_whole(answer(verdict=VERDICT_INVALID))


def test_answer_with_a_mesh_frame_is_not_fit() -> None:
    mesh = Chunk()
    mesh.frames.add(kind=FRAME_KIND_STATUS)
    assert not is_whole(mesh.SerializeToString() + answer())
