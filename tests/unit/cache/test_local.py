"""The level on the host: what it keeps, what has to go, and what it takes no more."""

import pytest

from helpers.as_written import run_both_ways
from ssop_cache.core.local import (
    ENTRY_BYTES,
    LocalAnswer,
    LocalAnswers,
    LocalRecordError,
    Name,
    decode_local,
    decode_name,
    encode_local,
    encode_name,
)

NAMES = ("LocalAnswer", "LocalAnswers", "LocalRecordError", "decode_local", "encode_local")
way = run_both_ways("ssop_cache.core.local", *NAMES)

TAG, OTHER = "a" * 32, "b" * 32
NAME: Name = (TAG, b"\1" * 32)


def made(fence: int = 1, *, stored_ms: int = 0, expires_ms: int = 1_000, record: bytes = b"r") -> LocalAnswer:
    return LocalAnswer(fence, stored_ms, expires_ms, record)


def name(number: int, tag: str = TAG) -> Name:
    return tag, number.to_bytes(32, "big")


def test_answer_is_found_as_it_was_put() -> None:
    held = LocalAnswers(10_000)
    held.put(NAME, made())
    assert held.find(NAME, 999) == made()


def test_lapsed_answer_is_gone_to_the_millisecond() -> None:
    held = LocalAnswers(10_000)
    held.put(NAME, made(expires_ms=1_000))
    assert held.find(NAME, 1_000) is None
    assert (len(held), held.size_bytes) == (0, 0)


def test_older_than_asked_for_is_not_found_and_stays() -> None:
    held = LocalAnswers(10_000)
    held.put(NAME, made(stored_ms=0))
    assert held.find(NAME, 501, 500) is None
    assert held.find(NAME, 500, 500) is not None


def test_older_generation_does_not_replace_a_later_one() -> None:
    held = LocalAnswers(10_000)
    held.put(NAME, made(2))
    assert held.put(NAME, made(1)) is None
    assert held.find(NAME, 1) == made(2)


def test_longest_unused_goes_first_and_bytes_stay_within_the_bound() -> None:
    held = LocalAnswers(8 * (ENTRY_BYTES + 1))
    for number in range(8):
        held.put(name(number), made())
    held.find(name(0), 1)
    assert held.put(name(8), made()) == [name(1)]
    assert held.size_bytes <= held.max_bytes
    assert held.evictions == 1


def test_answer_that_would_push_out_most_others_is_not_kept() -> None:
    held = LocalAnswers(8_000)
    assert held.put(NAME, made(record=b"x" * 1_000)) is None


def test_flush_takes_one_tenant_only() -> None:
    held = LocalAnswers(10_000)
    held.put(NAME, made())
    held.put(name(1, OTHER), made())
    assert held.flush(TAG, 5) == [NAME]
    assert list(held) == [name(1, OTHER)]


def test_answer_read_before_a_flush_is_not_taken_after_it() -> None:
    held = LocalAnswers(10_000)
    held.flush(TAG, 5)
    assert held.put(NAME, made(5)) is None
    assert held.put(NAME, made(6)) == []


def test_late_flush_leaves_answers_made_since() -> None:
    held = LocalAnswers(10_000)
    held.put(NAME, made(6))
    assert held.flush(TAG, 5) == []
    assert held.find(NAME, 1) is not None


def test_drop_leaves_the_generation_that_replaced_it() -> None:
    held = LocalAnswers(10_000)
    held.put(NAME, made(3))
    assert not held.drop(NAME, 3)
    assert held.drop(NAME, 4)


def test_entry_on_disk_is_the_entry() -> None:
    assert decode_local(encode_local(made(7, stored_ms=3, record=b"abc"))) == made(7, stored_ms=3, record=b"abc")
    assert decode_name(encode_name(NAME)) == NAME


@pytest.mark.parametrize("at", [0, 5, 13, 21, 28, 40])
def test_changed_byte_is_noticed(at: int) -> None:
    data = bytearray(encode_local(made(record=b"r" * 20)))
    data[at] ^= 1
    with pytest.raises(LocalRecordError):
        decode_local(bytes(data))


def test_cut_entry_is_noticed() -> None:
    data = encode_local(made(record=b"r" * 20))
    for size in range(len(data)):
        with pytest.raises(LocalRecordError):
            decode_local(data[:size])
