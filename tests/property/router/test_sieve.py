"""The compiled sieve and its twin catch the same texts."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ssop_router.core import _sieve, _sieve_py
from ssop_router.core.decision import find_rule
from ssop_router.core.request import Features
from ssop_router.core.rules import make_excerpt
from ssop_router.policy_settings import PolicySettings

# Few characters, so that needles meet and overlap.
TEXTS = st.text(st.sampled_from("ab\0é因"), max_size=12)
NEEDLES = st.lists(st.text(st.sampled_from("ab\0é因"), min_size=1, max_size=4), max_size=6)


@given(NEEDLES, TEXTS)
@example(["a\0"], "a")
@example(["a"], "a")
@example(["a", "ab", "abb"], "aabab")
@example([], "")
def test_kernel_and_twin_catch_the_same(needles: list[str], text: str) -> None:
    assert _sieve.Sieve(needles).catches(text) == _sieve_py.Sieve(needles).catches(text)


def test_an_empty_needle_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        _sieve.Sieve(["a", ""])


SETTINGS = PolicySettings().decision(None)
ALL_WORDS = [rule.words for rule in SETTINGS.rules if rule.words is not None]
PIECES = sorted({piece for words in ALL_WORDS for _, word in (*words.latin, *words.others) for piece in word.pieces})


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=6).map(" ".join))
@example("Why? Explain it step by step.")
@example("请一步一步地解释 st因ep by step")
@example("\ud800 step by step")
def test_a_rule_speaks_exactly_where_it_would_without_the_sieve(text: str) -> None:
    excerpt = make_excerpt(text)
    expected = next((rule for rule in SETTINGS.rules if rule.applies(excerpt, len(text), 0)), None)
    assert find_rule(Features(frozenset(), user_text=text), SETTINGS) is expected
