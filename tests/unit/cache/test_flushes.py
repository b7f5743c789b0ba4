"""What a change of the mark in the cache instance says."""

import pytest

from ssop_cache.core.flushes import Epoch, parse_epoch, was_flushed

BEFORE = Epoch(b"run", b"mark")


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, BEFORE, False),
        (BEFORE, BEFORE, False),
        (BEFORE, Epoch(b"run", b"other"), True),
        # Started again, and a replica that took over with the mark.
        (BEFORE, Epoch(b"other", b"other"), False),
        (BEFORE, Epoch(b"other", b"mark"), False),
        # Where INFO is forbidden nobody can tell the two apart.
        (Epoch(b"", b"mark"), Epoch(b"", b"other"), True),
    ],
)
def test_same_run_without_its_mark_was_flushed(before: Epoch | None, now: Epoch, expected: bool) -> None:
    assert was_flushed(before, now) is expected


def test_reply_is_read() -> None:
    assert parse_epoch([b"run", b"mark", 0]) == BEFORE
    assert parse_epoch([b"run", b"mark", 1]).is_first
