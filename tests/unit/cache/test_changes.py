"""Following the log of changes: what is applied, and when everything must be forgotten."""

import pytest

from ssop_cache.core.changes import Change, Cursor, decode_cursor, encode_cursor, follow
from ssop_cache.core.scripts import Reply

EPOCH = b"e" * 16
TAG = b"a" * 32


def reply(last: int, *numbers: int, epoch: bytes = EPOCH) -> Reply:
    entries: Reply = []
    for number in numbers:
        entries += [number, TAG, b"", b"9"]
    return [1, epoch, last, *entries]


def test_changes_are_applied_in_order() -> None:
    news = follow(Cursor(EPOCH, 4, 1), reply(6, 5, 6), now_ms=50)
    assert news.changes == (Change(TAG.decode(), b"", 9),) * 2
    assert (news.cursor, news.has_gap, news.is_end) == (Cursor(EPOCH, 6, 50), False, True)


def test_reader_that_has_not_come_to_the_end_is_not_up_to_date() -> None:
    news = follow(Cursor(EPOCH, 4, 1), reply(9, 5, 6), now_ms=50)
    assert (news.is_end, news.cursor) == (False, Cursor(EPOCH, 6, 1))


def test_reader_that_holds_nothing_begins_where_the_log_is() -> None:
    news = follow(Cursor(), reply(9, 8, 9), now_ms=50)
    assert (news.cursor, news.changes, news.has_gap) == (Cursor(EPOCH, 9, 50), (), False)


def test_first_change_of_a_log_that_was_empty_is_no_gap() -> None:
    news = follow(Cursor(b"", 0, 20), reply(1, 1), now_ms=50)
    assert not news.has_gap
    assert len(news.changes) == 1


@pytest.mark.parametrize(
    ("cursor", "answer"),
    [
        (Cursor(EPOCH, 4, 1), reply(9, 7, 8, 9)),
        (Cursor(EPOCH, 4, 1), reply(9)),
        (Cursor(EPOCH, 9, 1), reply(4)),
        (Cursor(EPOCH, 4, 1), reply(5, 5, epoch=b"f" * 16)),
        (Cursor(EPOCH, 4, 1), reply(0, epoch=b"")),
        (Cursor(b"", 0, 1), reply(3, 2, 3)),
    ],
    ids=["trimmed", "trimmed to nothing", "log went back", "another log", "log is gone", "first change trimmed"],
)
def test_missed_changes_are_a_gap(cursor: Cursor, answer: Reply) -> None:
    news = follow(cursor, answer, now_ms=50)
    assert news.has_gap
    assert (news.cursor.last, news.is_end) == (answer[2], True)


def test_cursor_comes_back_from_disk() -> None:
    for cursor in (Cursor(), Cursor(EPOCH, 7, 8)):
        assert decode_cursor(encode_cursor(cursor)) == cursor


def test_garbage_is_no_cursor() -> None:
    with pytest.raises(ValueError, match="cursor"):
        decode_cursor(b"x")
