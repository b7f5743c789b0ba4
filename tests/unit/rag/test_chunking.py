"""Cutting documents into passages."""

import time

import pytest

from ssop_rag.core.chunking import Limits, split

SMALL = Limits(max_chars=60, overlap_chars=20)


def test_short_text_is_one_passage() -> None:
    assert split("One sentence. Another one.") == ["One sentence. Another one."]


def test_blank_text_gives_no_passage() -> None:
    assert split(" \n\n\t ") == []


def test_title_stands_before_every_passage() -> None:
    passages = split("A first sentence is here. " * 8, "Manual", SMALL)
    assert len(passages) > 1
    assert all(passage.startswith("Manual\nA first") for passage in passages)


def test_long_title_is_cut_to_a_quarter() -> None:
    (passage,) = split("Body.", "t" * 500, SMALL)
    assert passage == "t" * 15 + "\nBody."


def test_no_passage_is_longer_than_the_limit() -> None:
    passages = split("word " * 100 + "。" + "字" * 300 + "x" * 200, "Title", SMALL)
    assert max(map(len, passages)) <= 60


def test_english_is_cut_between_sentences() -> None:
    passages = split(
        "Alpha beta gamma delta one. Epsilon zeta eta theta two. Iota kappa lambda mu three.", limits=Limits(64, 20)
    )
    assert passages[0] == "Alpha beta gamma delta one. Epsilon zeta eta theta two."


def test_a_decimal_point_ends_no_sentence() -> None:
    passages = split("The ratio is 3.14 exactly here. " * 4, limits=Limits(40, 0))
    assert passages == ["The ratio is 3.14 exactly here."] * 4


def test_chinese_is_cut_between_sentences() -> None:
    first, second = "北京是中国的首都，也是政治和文化的中心。", "上海是中国最大的城市，也是金融中心。"
    assert split(first + second, limits=Limits(24, 0)) == [first, second]


def test_chinese_end_keeps_its_closing_quote() -> None:
    assert split("他说：“今天天气很好，我们出去走走吧。”她点了点头，同意了这个建议。", limits=Limits(24, 0)) == [
        "他说：“今天天气很好，我们出去走走吧。”",
        "她点了点头，同意了这个建议。",
    ]


def test_a_paragraph_that_does_not_fit_begins_a_passage() -> None:
    first, second = "A paragraph of some forty characters, so.", "One that is a little too long."
    assert split(f"{first}\n\n{second}", limits=SMALL) == [first, second]


def test_a_heading_goes_with_what_follows_it() -> None:
    first = "Alpha beta gamma delta epsilon zeta eta theta chi."
    second = "Iota kappa lambda mu nu xi omicron pi rho sigma."
    assert split(f"{first}\n\nNext\n\n{second}", limits=SMALL) == [first, f"Next\n{second}"]


def test_short_paragraphs_share_a_passage() -> None:
    assert split("One.\n\nTwo.\n\nThree.", limits=SMALL) == ["One.\n\nTwo.\n\nThree."]


def test_neighbours_of_a_paragraph_overlap_by_whole_sentences() -> None:
    text = "First words go here. Tiny tail here. And then a longer sentence follows it."
    passages = split(text, limits=Limits(64, 20))
    assert passages == [
        "First words go here. Tiny tail here.",
        "Tiny tail here. And then a longer sentence follows it.",
    ]


def test_an_endless_sentence_is_cut_at_a_space() -> None:
    passages = split("abcdefgh " * 20, limits=Limits(60, 0))
    assert all(set(passage.split()) == {"abcdefgh"} for passage in passages)


@pytest.mark.parametrize("text", ["a" * 200_000, "." * 200_000, "e" + "\u0301" * 200_000, "a\n" * 100_000])
def test_text_without_borders_is_cut_in_bounded_time(text: str) -> None:
    started_s = time.process_time()
    passages = split(text)
    assert time.process_time() - started_s < 10
    assert max(map(len, passages)) <= 480
    assert sum(map(len, passages)) >= len(text.replace("\n", ""))


def test_a_long_text_is_cut_at_its_paragraphs() -> None:
    paragraph = "word " * 80
    passages = split((paragraph.strip() + "\n\n") * 100, limits=Limits(480, 0))
    assert passages == [paragraph.strip()] * 100


def test_limits_refuse_more_overlap_than_half() -> None:
    with pytest.raises(ValueError, match="half"):
        Limits(100, 51)
