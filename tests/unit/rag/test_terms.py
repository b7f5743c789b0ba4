"""From text to terms."""

import pytest

from ssop_rag.core.terms import extract_terms, split_terms


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Reset the X200's battery!", ["reset", "the", "x200", "s", "battery"]),
        ("北京天气", ["北京", "京天", "天气"]),
        ("我用iPhone拍照", ["我用", "iphone", "拍照"]),
        ("猫 dog", ["猫", "dog"]),
        ("ＡＢＣ１２", ["abc12"]),
        ("STRASSE straße", ["strasse", "strasse"]),
        ("snake_case", ["snake", "case"]),
        ("Привет мир", ["привет", "мир"]),
        ("カタカナ", ["カタ", "タカ", "カナ"]),
        ("", []),
        ("!?。\u200b", []),
    ],
)
def test_text_gives_words_and_pairs(text: str, terms: list[str]) -> None:
    assert split_terms(text) == terms


def test_terms_are_distinct_ascending_and_counted() -> None:
    terms = extract_terms("b a b")
    assert (len(terms.ids), sorted(terms.ids.tolist()), sorted(terms.counts.tolist())) == (
        2,
        terms.ids.tolist(),
        [1, 2],
    )


def test_a_term_has_the_same_id_in_every_process() -> None:
    assert extract_terms("battery").ids.tolist() == [8448700003517489590]


def test_counts_stop_at_the_most_that_a_record_holds() -> None:
    assert extract_terms("a " * 70_000).counts.tolist() == [65_535]


def test_a_lone_surrogate_is_no_fault() -> None:
    assert len(extract_terms("a \ud800").ids) == 1
