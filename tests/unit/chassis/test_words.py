"""What a prefetch counts."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssop_chassis.words import TokenCounter, count_tokens, take_tokens

texts = st.text(st.sampled_from("ab ,\n天气アｱ한 𠀀"), max_size=40)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        (" \n\t", 0),
        ("How can I return it?", 5),
        ("请问今天天气", 6),
        ("用 GPT-4 怎么退货？", 7),
        ("天,气", 3),
        ("한국어", 3),
        ("𠀀𠀁", 2),
    ],
)
def test_words_and_single_characters_are_counted(text: str, tokens: int) -> None:
    assert count_tokens(text) == tokens


@pytest.mark.parametrize(
    ("text", "count", "taken"),
    [("one two three", 2, "one two"), ("one two", 5, "one two"), ("请问今天", 2, "请问"), ("one ", 0, ""), ("", 3, "")],
)
def test_prefix_ends_with_its_last_token(text: str, count: int, taken: str) -> None:
    assert take_tokens(text, count) == taken


def test_letters_one_by_one_are_no_words() -> None:
    counter = TokenCounter(100)
    assert [counter.add(letter) for letter in "a cat"] == [0, 1, 1, 1, 1]


def test_word_in_two_pieces_counts_once() -> None:
    counter = TokenCounter(100)
    assert [counter.add(piece) for piece in ("capit", "al ", "of")] == [1, 1, 2]


@given(texts, st.lists(st.integers(0, 40), max_size=6))
def test_pieces_count_as_the_whole_text_once_it_has_ended(text: str, cuts: list[int]) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    counter = TokenCounter(100)
    for begin, end in pairwise(places):
        assert counter.add(text[begin:end]) <= count_tokens(text[:end])
    assert counter.add(" ") == count_tokens(text)


@given(texts, st.integers(1, 12))
def test_prefix_has_its_tokens(text: str, count: int) -> None:
    taken = take_tokens(text, count)
    assert text.startswith(taken)
    assert count_tokens(taken) == min(count, count_tokens(text))


def test_count_stops_at_the_most() -> None:
    counter = TokenCounter(3)
    assert [counter.add(piece) for piece in ("one two ", "three four ", "five " * 1_000_000)] == [2, 3, 3]
