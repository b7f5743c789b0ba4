"""When prefetches of a text that arrives in pieces are due."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssop_router.core.arrival import Arrival, Timing

TIMING = Timing(words=3, again_words=5, wait_ms=500, pause_ms=300, most=4)


def feed(arrival: Arrival, *pieces: tuple[float, str]) -> list[str]:
    """Give pieces at their times; the prefixes that were due."""
    due = []
    for now_ms, piece in pieces:
        arrival.add(piece, now_ms)
        due.append(arrival.take_due(now_ms))
    return [prefix for prefix in due if prefix]


def test_words_make_it_due_twice() -> None:
    pieces = [(n, f"w{n} ") for n in range(12)]
    assert feed(Arrival(TIMING, "", 0), *pieces) == ["w0 w1 w2", "w0 w1 w2 w3 w4"]


def test_long_piece_makes_it_due_once() -> None:
    assert feed(Arrival(TIMING, "", 0), (0, "one two three four five six seven")) == ["one two three four five"]


def test_again_can_be_off() -> None:
    arrival = Arrival(Timing(words=3, again_words=0), "", 0)
    assert feed(arrival, *[(n, f"w{n} ") for n in range(12)]) == ["w0 w1 w2"]


def test_slow_text_is_due_some_time_after_its_first_byte() -> None:
    arrival = Arrival(Timing(words=10, wait_ms=500, pause_ms=0), "", 0)
    assert feed(arrival, (100, "two "), (400, "words")) == []
    assert arrival.due_ms == 600
    assert arrival.take_due(599) == ""
    assert arrival.take_due(600) == "two words"
    assert arrival.due_ms is None


def test_white_space_is_no_first_byte() -> None:
    arrival = Arrival(TIMING, "", 0)
    assert feed(arrival, (0, "  "), (900, "\n")) == []
    assert arrival.due_ms is None


def test_pause_makes_the_whole_text_due() -> None:
    arrival = Arrival(TIMING, "", 0)
    assert feed(arrival, (0, "one two three four")) == ["one two three"]
    assert arrival.due_ms == 300
    assert arrival.take_due(300) == "one two three four"
    assert arrival.due_ms is None


def test_slow_writer_has_a_longer_pause() -> None:
    arrival = Arrival(Timing(words=10, wait_ms=10_000, pause_ms=300), "", 0)
    feed(arrival, (0, "one "), (400, "two "))
    assert arrival.due_ms == 400 + 600


def test_what_is_prefetched_already_is_not_due_again() -> None:
    arrival = Arrival(TIMING, "", 0)
    assert feed(arrival, (0, "one two three")) == ["one two three"]
    assert arrival.due_ms is None


def test_base_counts_and_is_no_piece() -> None:
    arrival = Arrival(TIMING, "one two ", 0)
    assert not arrival.has_pieces
    assert feed(arrival, (1, "three ")) == ["one two three"]
    assert arrival.pieces == "three "


@pytest.mark.parametrize("gap_ms", [1, 333, 5_000])
def test_there_are_never_more_than_the_most(gap_ms: int) -> None:
    arrival = Arrival(TIMING, "", 0)
    issued = []
    for n in range(60):
        arrival.add(f"w{n} ", n * gap_ms)
        issued.append(arrival.take_due(n * gap_ms))
        issued.append(arrival.take_due(n * gap_ms + gap_ms * 0.99))
    assert 0 < sum(map(bool, issued)) <= TIMING.most


@given(st.lists(st.tuples(st.text("ab 天", max_size=6), st.integers(0, 2_000)), max_size=20))
def test_each_prefix_is_a_longer_beginning_of_the_text(pieces: list[tuple[str, int]]) -> None:
    arrival = Arrival(TIMING, "", 0)
    now_ms, last = 0, ""
    for piece, gap_ms in pieces:
        now_ms += gap_ms
        for at_ms, text in ((now_ms - gap_ms // 2, ""), (now_ms, piece)):
            arrival.add(text, at_ms)
            prefix = arrival.take_due(at_ms)
            if prefix:
                assert arrival.text.startswith(prefix)
                assert prefix.startswith(last)
                assert len(prefix) > len(last)
                assert prefix.strip()
                last = prefix
            assert arrival.due_ms is None or not arrival.take_due(arrival.due_ms - 1)
    assert arrival.text == "".join(piece for piece, _ in pieces)
