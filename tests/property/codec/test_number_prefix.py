"""A number prefix is given up exactly where no continuation conforms, as trying them all shows."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from helpers.codec_cases import RELAXED
from ssop_codec._numbers_py import _is_number_prefix
from ssop_codec.checks import broken_number_rule
from ssop_codec.number import Number, from_python
from ssop_codec.number_prefix import broken_by_prefix, first_break
from ssop_codec.rules import Rule

ALPHABET = b"-01235.e9"
MORE_BYTES = 5
BOUNDS: st.SearchStrategy[Number | None] = st.none() | st.sampled_from(
    (0, 1, -1, 5, 10, 12, 15, 20, 25, 99, 100, -5, -12, 0.5, 1.5, 0.25, -0.5, 2.5)
).map(from_python)
STEPS = st.none() | st.sampled_from((1, 2, 5, 0.5, 0.25, 1.5, 10, 25)).map(from_python)
MEMBERS = st.none() | st.lists(
    st.sampled_from((0, 1, 10, 12, 1.5, -2, 100, 0.25, 25)).map(from_python), min_size=1, max_size=3, unique=True
).map(tuple)


@st.composite
def number_rules(draw: st.DrawFn) -> Rule:
    types = draw(st.sampled_from((2, 6)))
    return Rule(
        types=types,
        declared_types=types,
        minimum=draw(BOUNDS),
        maximum=draw(BOUNDS),
        exclusive_minimum=draw(st.none() | BOUNDS),
        exclusive_maximum=draw(st.none() | BOUNDS),
        multiple_of=draw(STEPS),
        is_strict=draw(st.booleans()),
        enum_keyword="enum",
        enum_numbers=draw(MEMBERS),
    )


@st.composite
def prefixes(draw: st.DrawFn) -> bytes:
    text = b""
    for _ in range(draw(st.integers(1, 4))):
        fitting = [byte for byte in ALPHABET if _is_number_prefix(text + bytes((byte,)))]
        text += bytes((draw(st.sampled_from(fitting)),))
    return text


def continuations(text: bytes, more_bytes: int) -> Iterator[bytes]:
    if text[-1:].isdigit():
        yield text
    for byte in ALPHABET if more_bytes else b"":
        if _is_number_prefix(text + bytes((byte,))):
            yield from continuations(text + bytes((byte,)), more_bytes - 1)


@RELAXED
@given(number_rules(), prefixes())
def test_given_up_where_no_continuation_conforms(rule: Rule, text: bytes) -> None:
    conforms = any(not broken_number_rule(rule, longer) for longer in continuations(text, MORE_BYTES))
    assert conforms == (broken_by_prefix(rule, text) == "")


@RELAXED
@given(number_rules(), prefixes())
def test_first_break_is_the_first(rule: Rule, text: bytes) -> None:
    size, keyword = first_break(rule, text)
    if not size:
        assert not broken_by_prefix(rule, text)
        return
    assert broken_by_prefix(rule, text[:size]) == keyword != ""
    assert size == 1 or not broken_by_prefix(rule, text[: size - 1])
