"""Near questions that differ are told apart, every one of them; and what certainly asks the same is found."""

from collections import Counter

import pytest

from helpers.near_pairs import SAME, Pair, near_pairs
from ssop_cache.core.guards import (
    MAX_TEXT_CHARS,
    Facts,
    Guard,
    decode_facts,
    encode_facts,
    read_facts,
    tell_apart,
)

SECRET = b"secret"
NEAR = near_pairs()
FOUND = 16
"""Of the pairs that ask the same: those that are found. The others cost a generation each."""


def facts(text: str) -> Facts:
    read = read_facts(text, SECRET)
    assert read is not None
    return read


def is_same(pair: Pair) -> bool:
    return tell_apart(facts(pair.first), facts(pair.second)) is None


def upper_bound(trials: int) -> float:
    """The 95 % upper bound of a rate of which no case was seen (Clopper and Pearson, one-sided)."""
    return float(1 - 0.05 ** (1 / trials))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_near_pair_is_taken_for_the_same(language: str) -> None:
    pairs = [pair for pair in NEAR if pair.language == language]
    assert [pair for pair in pairs if is_same(pair)] == []
    assert upper_bound(len(pairs)) < 0.01


@pytest.mark.parametrize("kind", ["number", "negation", "polarity", "entity", "order", "trap"])
def test_every_kind_of_near_pair_is_told_apart(kind: str) -> None:
    pairs = [pair for pair in NEAR if pair.kind == kind]
    assert len(pairs) >= 40
    assert not any(is_same(pair) for pair in pairs)


@pytest.mark.parametrize("kind", ["number", "negation", "polarity", "order"])
def test_guard_names_what_differs(kind: str) -> None:
    guards = Counter(tell_apart(facts(pair.first), facts(pair.second)) for pair in NEAR if pair.kind == kind)
    assert set(guards) == {Guard(kind)}


def test_what_is_the_same_but_for_manners_and_notation_is_found() -> None:
    assert [is_same(pair) for pair in SAME] == [True] * FOUND + [False] * (len(SAME) - FOUND)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Compute (2+3)*4", "Compute 2+3*4"),
        ("请计算 (2+3)*4", "请计算 2+3*4"),
        ("What is a[1] of b?", "What is a 1 of b?"),
        ("What is 5!?", "What is 5?"),
        ("Is n! even?", "Is n even?"),
        ("Is a != b here?", "Is a = b here?"),
        ("What does !x mean in C?", "What does x mean in C?"),
        ("Is .5 enough?", "Is 5 enough?"),
        ("What does git add . do?", "What does git add do?"),
        ("What does cd .. do?", "What does cd . do?"),
        ("What does ? mean in C", "What does mean in C"),
        ("How do I use , in SQL", "How do I use in SQL"),
    ],
)
def test_notation_is_told_apart(first: str, second: str) -> None:
    assert tell_apart(facts(first), facts(second)) is not None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Is a 5 mW laser safe?", "Is a 5 MW laser safe?"),
        ("Is 10 mg of it safe?", "Is 10 Mg of it safe?"),
        ("How long do five MB take?", "How long do five Mb take?"),
        ("What is the value of G?", "What is the value of g?"),
        ("Is CO toxic?", "Is Co toxic?"),
    ],
)
def test_case_of_a_symbol_is_told_apart(first: str, second: str) -> None:
    assert tell_apart(facts(first), facts(second)) is not None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Translate 'the' to French", "Translate to French"),
        ('Delete the file "please"', "Delete the file"),
        ("谁写了《红楼梦》？", "谁写了红楼梦？"),
    ],
)
def test_what_is_quoted_is_told_apart(first: str, second: str) -> None:
    assert tell_apart(facts(first), facts(second)) is not None


def test_comma_beside_a_negation_is_told_apart() -> None:
    assert tell_apart(facts("He said: stop not, go"), facts("He said: stop, not go")) is not None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Say “hello” in French", 'say "hello" in French'),
        ("Is it open at 5 PM?", "is it open at 5 pm"),
        ("C'est loin ?", "C'est loin?"),
        ("Hello! How far is it?", "How far is it?"),
        ("What is an IP address?", "what is an ip address"),
    ],
)
def test_marks_and_case_that_say_nothing_are_not_told_apart(first: str, second: str) -> None:
    assert tell_apart(facts(first), facts(second)) is None


@pytest.mark.parametrize("text", ["", " ", "？！。", "the", "x" * (MAX_TEXT_CHARS + 1)])
def test_question_of_which_nothing_is_left_has_no_facts(text: str) -> None:
    assert read_facts(text, SECRET) is None


def test_facts_of_two_tenants_are_never_equal() -> None:
    first, second = read_facts("How far is it?", b"one"), read_facts("How far is it?", b"two")
    assert first is not None
    assert second is not None
    assert not set(first.orders) & set(second.orders)


def test_facts_hold_no_text() -> None:
    data = encode_facts(facts("secretword elsewhere"))
    assert len(data) == 48
    assert b"secretword" not in data


def test_facts_come_back() -> None:
    for text in ("How far is it?", "For laptops, what is the policy?"):
        assert decode_facts(encode_facts(facts(text))) == facts(text)


@pytest.mark.parametrize("size", [0, 8, 40, 47, 49, 64])
def test_garbage_is_no_facts(size: int) -> None:
    with pytest.raises(ValueError, match="facts"):
        decode_facts(bytes(size))
