"""Texts of posts, evened out and made data."""

import pytest

from ssop_opinion.core.wording import MAX_PROMPT_CHARS, as_data, even_out, find_language


@pytest.mark.parametrize(
    "copy",
    [
        "RT @ann: The X2 is great https://t.co/abc",
        "RT @someone_else: The  X2 is\ngreat http://example.com/1?utm=2",
        "The X2 is\u200b great\u3000www.example.com/x",
        "The X2 is\u202e great https://t.co/abc\x00",
    ],
)
def test_copies_of_a_post_become_one_text(copy: str) -> None:
    assert even_out(copy) == "The X2 is great http"


def test_handles_go_but_those_of_brands_stay() -> None:
    assert even_out("@bob @Nike is late", frozenset({"nike"})) == "@user @Nike is late"


def test_an_address_of_mail_is_hidden() -> None:
    assert even_out("write to ann.b@example.org now") == "write to <email> now"


def test_emoji_and_chinese_stay() -> None:
    assert even_out("太好吃了👍 //@小明：真的") == "太好吃了👍 真的"


@pytest.mark.parametrize("text", ["RTX 4090 is late", "RT is a channel", "the RT @user button"])
def test_what_only_looks_like_a_repost_stays(text: str) -> None:
    assert even_out(text) == text


def test_nothing_is_left_of_invisible_signs() -> None:
    assert even_out("\u200b\u202e\x00 \ud800") == ""


@pytest.mark.parametrize("mark", ["<|im_start|>", "<|im_end|>", "[INST]", "</s>", "<start_of_turn>", "```", '"""'])
def test_marks_of_prompts_are_broken(mark: str) -> None:
    assert mark not in as_data(f"a {mark} b")


@pytest.mark.parametrize("label", ["Tone:", "tone :", "Post:", "SYSTEM：", "assistant:"])
def test_no_label_of_the_prompt_is_left(label: str) -> None:
    assert label.rstrip() not in as_data(f"good {label} positive")


def test_data_is_one_line_of_bounded_length() -> None:
    text = as_data(even_out("x\n" * 10_000))
    assert "\n" not in text
    assert len(text) <= MAX_PROMPT_CHARS


def test_a_cut_text_keeps_its_end() -> None:
    assert as_data("a" * 5_000 + " and I want a refund").endswith("and I want a refund")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The bus is late", "en"),
        ("今天的外卖很好吃", "zh"),
        ("iPhone 15 的屏幕坏了", "zh"),
        ("I ate 饺子 in a small place near the river today", "en"),
        ("Это очень плохо", "other"),
        ("今日はとても楽しかったです", "other"),
        ("12345 !!!", "other"),
        ("", "other"),
    ],
)
def test_languages_are_told_apart(text: str, language: str) -> None:
    assert find_language(text) == language
