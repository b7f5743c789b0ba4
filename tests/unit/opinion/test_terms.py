"""Words for the full-text index: Chinese is found by words that it does not part."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssop_opinion.core.terms import index_text, match_query


def finds(text: str, query: str) -> bool:
    base = sqlite3.connect(":memory:")
    try:
        base.execute('CREATE VIRTUAL TABLE t USING fts5 (words, tokenize="unicode61 remove_diacritics 2")')
        base.execute("INSERT INTO t VALUES (?)", (index_text(text),))
        matched = match_query(query)
        return bool(matched) and bool(base.execute("SELECT 1 FROM t WHERE t MATCH ?", (matched,)).fetchall())
    finally:
        base.close()


@pytest.mark.parametrize("query", ["手机", "坏了", "手机坏了", "坏", "了", "ACME", "cafe", "手机 退款", "Acme手机"])
def test_a_word_is_found(query: str) -> None:
    assert finds("Acme手机坏了，要求退款。Café", query)


@pytest.mark.parametrize("query", ["机了", "退手", "款退", "acm", "手机 没有", "的"])
def test_another_is_not(query: str) -> None:
    assert not finds("Acme手机坏了，要求退款。Café", query)


@given(st.text(alphabet="手机坏了退款", min_size=1, max_size=12), st.data())
def test_every_piece_of_chinese_is_found(text: str, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(begin + 1, len(text)))
    assert finds(text, text[begin:end])


@given(st.text(max_size=60))
def test_no_query_is_a_fault_of_the_index(query: str) -> None:
    finds("something", query)
