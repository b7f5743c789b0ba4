"""Patterns against the regular expressions of the standard library, the slow twin and random text."""

import re
import warnings
from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.codec_cases import PATTERNS, RELAXED, encode, encode_slowly, run, split
from ssop_codec import Encoder, SchemaError, compile_schema
from ssop_codec._pattern import Pattern
from ssop_codec._pattern_py import SlowPattern
from ssop_codec.pattern import compile_pattern
from ssop_codec.pattern_nfa import build
from ssop_codec.pattern_syntax import parse
from ssop_codec.pattern_threads import DEAD, FIRST_STATE, complete

ATOMS = st.sampled_from(
    (
        "a",
        "b",
        "ab",
        ".",
        "[ab]",
        "[^a]",
        r"\w",
        r"\d",
        r"\s",
        "-",
        "[a-c_]",
        "é",
        r"\b",
        r"\B",
        "^",
        "$",
        "1",
        " ",
        "(?:)",
    )
)
QUANTIFIERS = st.sampled_from(("*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}", "*?", "{1,}?"))


def wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return (
        st.builds(lambda a, b: a + b, inner, inner)
        | st.builds(lambda a, b: f"(?:{a}|{b})", inner, inner)
        | st.builds(lambda a, q: f"(?:{a}){q}", inner, QUANTIFIERS)
    )


PLAIN = st.recursive(ATOMS, wider, max_leaves=8)
LOOKING = st.recursive(
    ATOMS,
    lambda inner: wider(inner) | st.builds("(?={})".format, inner) | st.builds("(?!{})".format, inner),
    max_leaves=6,
)
TEXTS = st.text("aab1- _é\n", max_size=10)


def of_python(text: str) -> re.Pattern[str]:
    """The same language in the syntax of `re`, whose empty text has no place without a word's edge."""
    text = text.replace(r"\B", r"(?!\b)").replace("$", r"\Z").replace(".", "[^\n\r\u2028\u2029]")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(text, re.ASCII)


def compiled(text: str) -> Pattern | str:
    """The pattern, or the keyword of its refusal."""
    try:
        return compile_pattern(text)
    except SchemaError as error:
        return error.keyword


@RELAXED
@given(PLAIN, st.lists(TEXTS, min_size=1, max_size=8))
def test_pattern_matches_as_the_standard_library_does(text: str, samples: list[str]) -> None:
    expected = [of_python(text).search(sample) is not None for sample in samples]
    pattern = compile_pattern(text)
    assert [pattern.search(sample) for sample in samples] == expected


@RELAXED
@given(LOOKING, st.lists(TEXTS, min_size=1, max_size=8))
def test_lookaheads_match_as_the_standard_library_does(text: str, samples: list[str]) -> None:
    expected = [of_python(text).search(sample) is not None for sample in samples]
    pattern = compiled(text)
    assert isinstance(pattern, str) or [pattern.search(sample) for sample in samples] == expected
    assert not isinstance(pattern, str) or pattern == "max_pattern_states"


@RELAXED
@given(PLAIN, TEXTS)
def test_pattern_matches_as_its_twin_does(text: str, sample: str) -> None:
    assert compile_pattern(text).search(sample) == SlowPattern(text).search(sample)


@RELAXED
@given(PLAIN, st.lists(TEXTS, min_size=1, max_size=30))
def test_matches_do_not_depend_on_the_states_that_are_kept(text: str, samples: list[str]) -> None:
    tiny = Pattern(text, build(parse(text, max_depth=64), max_states=10_000), None, 1)
    pattern = compile_pattern(text)
    assert [tiny.search(sample) for sample in samples] == [pattern.search(sample) for sample in samples]


@RELAXED
@given(st.text(r"ab01^$.*+?()[]{}|\-,:=!<>kuxpdDwWsSbBcP{}é ", max_size=30) | st.text(max_size=30))
def test_any_text_is_compiled_or_refused(text: str) -> None:
    pattern = compiled(text)
    assert isinstance(pattern, Pattern) or pattern in ("pattern", "max_pattern_states")


@pytest.mark.parametrize("text", ["$^", "a$^b", "x|$^", "(a|)$(^)", "($^)+", "($|b)^"])
def test_beginning_after_an_end_is_given_up_at_the_first_character(text: str) -> None:
    pattern = SlowPattern(text)
    whole = complete(pattern.nfa, max_states=10_000, max_work=0)
    after = whole.rows[whole.start - FIRST_STATE] if whole.start >= FIRST_STATE else [DEAD] * pattern.nfa.class_count
    assert pattern.accepts(pattern.start()) == (re.search(text, "") is not None)
    for number, start in enumerate(pattern.nfa.run_starts):
        state = pattern.step(pattern.start(), start)
        assert pattern.is_dead(state) == (after[pattern.nfa.run_classes[number]] == DEAD)


@RELAXED
@given(PLAIN.filter(lambda text: "\\b" not in text.lower()), TEXTS)
def test_text_is_given_up_exactly_where_no_continuation_matches(text: str, sample: str) -> None:
    pattern = SlowPattern(text)
    whole = complete(pattern.nfa, max_states=10_000, max_work=0)
    state, known = pattern.start(), whole.start
    for c in sample:
        state = pattern.step(state, ord(c))
        run_number = bisect_right(pattern.nfa.run_starts, ord(c)) - 1
        if known >= FIRST_STATE:
            known = whole.rows[known - FIRST_STATE][pattern.nfa.run_classes[run_number]]
        assert pattern.is_dead(state) == (known == DEAD)


STRING_TEXTS = st.lists(
    st.sampled_from(
        ("a", "b", "z", "-", "é", "ó", "€", "😀", "\\n", "\\u0061", "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\ud")
    )
    | st.sampled_from(("\\ude00", "\\", "\\u", "\\u1", "x", "Ā", "0", "\\uD83E")),
    max_size=8,
).map(lambda pieces: ('"' + "".join(pieces) + '"').encode())


@RELAXED
@given(st.sampled_from(list(PATTERNS)) | PLAIN, STRING_TEXTS, st.lists(st.integers(0, 60), max_size=4))
def test_pattern_is_judged_as_the_twin_does_at_any_cut(text: str, data: bytes, cuts: list[int]) -> None:
    schema = compile_schema({"type": "string", "pattern": text, "maxLength": 6})
    whole = encode(schema, data, stream_buffer_bytes=64)
    assert whole == encode_slowly(schema, data, stream_buffer_bytes=64)
    for pieces in (split(data, cuts), [data[i : i + 1] for i in range(len(data))]):
        assert run(Encoder, schema, pieces, stream_buffer_bytes=64) == whole
