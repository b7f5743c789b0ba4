"""The compiled judge of request ids and marks of questions, and its twin, say the same."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ssop_cache.core import _names, _names_py, names

UINT32 = st.integers(0, 2**32 - 1)
KEYS = st.binary(min_size=32, max_size=32)


def test_what_is_compiled_is_what_runs() -> None:
    run = names.is_request_id, names.mark_question, names.name_key
    assert run == (_names.is_request_id, _names.mark_question, _names.name_key)


@given(st.text(max_size=66) | st.from_regex(r"[A-Za-z0-9._:-]{1,66}", fullmatch=True))
@example("")
@example("a" * 64)
@example("a" * 65)
@example("r1\n")
@example("r\u00e9")
@example("r\u0664")
@example("r\x00")
def test_ids_are_judged_alike(text: str) -> None:
    assert _names.is_request_id(text) == _names_py.is_request_id(text)


@given(cache_key=KEYS | st.binary(max_size=9), tokens=UINT32)
def test_questions_are_marked_alike(cache_key: bytes, tokens: int) -> None:
    assert _names.mark_question(cache_key, tokens) == _names_py.mark_question(cache_key, tokens)


@given(prefix=st.text(max_size=9) | st.text("a:{}", max_size=90), cache_key=KEYS | st.binary(max_size=9))
def test_keys_are_named_alike(prefix: str, cache_key: bytes) -> None:
    assert _names.name_key(prefix, cache_key) == _names_py.name_key(prefix, cache_key)


@given(cache_key=KEYS, tokens=UINT32, other=UINT32)
def test_the_same_question_with_other_tokens_has_another_mark(cache_key: bytes, tokens: int, other: int) -> None:
    is_same = names.mark_question(cache_key, tokens) == names.mark_question(cache_key, other)
    assert is_same == (tokens == other)


@pytest.mark.parametrize("key", [b"", b"\1" * 32])
def test_another_question_has_another_mark(key: bytes) -> None:
    assert names.mark_question(key, 7) != names.mark_question(b"\2" * 32, 7)
