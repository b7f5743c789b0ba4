"""The compiled sieve and its twin catch the same texts."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ssop_router.core import _sieve, _sieve_py

# Few characters, so that needles meet and overlap.
TEXTS = st.text(st.sampled_from("ab\0\x7f "), max_size=12)
NEEDLES = st.lists(st.text(st.sampled_from("ab\0\x7f "), min_size=1, max_size=4), max_size=6)


@given(NEEDLES, TEXTS)
@example(["a\0"], "a")
@example(["a"], "a")
@example(["a", "ab", "abb"], "aabab")
@example([], "")
def test_kernel_and_twin_catch_the_same(needles: list[str], text: str) -> None:
    assert _sieve.Sieve(needles).catches(text) == _sieve_py.Sieve(needles).catches(text)


@pytest.mark.parametrize("needle", ["", "é", "因为"])
def test_needles_are_of_ascii_and_not_empty(needle: str) -> None:
    with pytest.raises(ValueError, match="ASCII"):
        _sieve.Sieve(["a", needle])
