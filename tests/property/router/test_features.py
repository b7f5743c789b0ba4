"""The feature code and its slow twin agree on every text."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ssop_router.classification import _extract, _extract_py
from ssop_router.classification._extract_py import ROLES
from ssop_router.classification.lexicon import CATEGORIES, word_categories

WORDS = word_categories()
# Small windows, so that short texts meet their edges.
SHAPES = [(16, 1400, 600), (0, 1400, 600), (4, 8, 4), (10, 0, 3), (10, 3, 0), (1, 0, 0)]
FAST = [_extract.Extractor(WORDS, len(CATEGORIES), *shape) for shape in SHAPES]
SLOW = [_extract_py.Extractor(WORDS, len(CATEGORIES), *shape) for shape in SHAPES]

anything = st.text(st.characters(exclude_categories=()))
written = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *WORDS,
                *ROLES,
                "John",
                "A.",
                "Bob's",
                "cars'",
                "est",
                "older",
                "finest",
                "(B)",
                "\n",
                "\nA. ",
                "3.14",
                "\\frac",
                "__",
                "e.g.",
                "don't",
                "。",
                "，",
            ]
        ),
        st.text(st.sampled_from("aZ 9.?！，()\\$_\n\t'\u3000因为所以\ud800😀"), max_size=6),
    )
).map(" ".join)
chinese = st.lists(st.sampled_from([word for word in WORDS if not word.isascii()])).map("".join)


@given(st.one_of(anything, written, chinese))
@example("")
@example("\x00")
@example("\ud800\udfff")
@example("İstanbul ŞSΣ ς ﬁ K")
@example("ＷＩＤＥ　ｔｅｘｔ，１２３．５")
@example("x" * 2001)
@example("Who IS it, Bob? " * 200)
@example("1 " * 900)
@example("é" * 5000)
@example("😀" * 5000)
@example("3.5.6. .5 5.")
@example("   ")
@example("\U00020000\U000323af\U000323b0")
def test_twins_agree(text: str) -> None:
    for fast, slow in zip(FAST, SLOW, strict=True):
        for found, wanted in zip(fast.extract(text), slow.extract(text), strict=True):
            assert found.dtype == wanted.dtype
            assert np.array_equal(found, wanted)


@given(st.one_of(anything, written))
def test_features_are_finite(text: str) -> None:
    ids, weights, dense = FAST[0].extract(text)
    assert np.isfinite(dense).all()
    assert (weights >= 1).all()
    assert len(np.unique(ids)) == len(ids)
    assert not len(ids) or (ids.min() >= 0 and ids.max() < 1 << 16)


@given(anything)
def test_reading_twice_gives_the_same(text: str) -> None:
    for one, other in zip(FAST[0].extract(text), FAST[0].extract(text), strict=True):
        assert np.array_equal(one, other)


def test_a_huge_text_costs_no_more_than_its_window() -> None:
    ids, _, dense = FAST[0].extract("word " * 1_000_000)
    assert len(ids) < 100
    assert dense[0] == np.float32(np.log1p(5_000_000))


@pytest.mark.parametrize("kind", [_extract.Extractor, _extract_py.Extractor])
@pytest.mark.parametrize(
    "arguments",
    [({}, 0, 8, 1, 1), ({}, 65, 8, 1, 1), ({"a": 1}, 1, 8, 1, 1), ({"a": -1}, 1, 8, 1, 1), ({}, 1, 25, 1, 1),
     ({}, 1, -1, 1, 1), ({}, 1, 8, -1, 1), ({}, 1, 8, 1, 1 << 21)],
)  # fmt: skip
def test_unusable_shapes_are_refused(kind: type[_extract_py.Extractor], arguments: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=r"categor|range"):
        kind(*arguments)  # type: ignore[arg-type]


def test_only_texts_are_read() -> None:
    with pytest.raises(TypeError):
        FAST[0].extract(None)  # type: ignore[arg-type]
