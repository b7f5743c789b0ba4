"""Texts of posts as data, for any text."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from ssop_opinion.core.hint_features import Extractor, Lexicon
from ssop_opinion.core.prompt import Hint, PromptText, build_messages
from ssop_opinion.core.wording import MAX_PROMPT_CHARS, as_data, even_out, find_language

PIECES = st.sampled_from(
    ["<|im_start|>", "<|", "|>", "<|im_end|", "Tone:", "tone", ":", "：", "\n", "\u2028", "\u200b", "RT @a: ", "@b", "http://x",
     "转发微博", "//@c:", "[INST]", "```", "{text}", "好", " ", "Post", "\x00"]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=300), st.lists(PIECES, max_size=20).map("".join))
PROMPT = PromptText("s", "Post: {text}", "About: {brands}", "Tone: {label} {score}", "Tone: {event} {label} {score}")
EXTRACTOR = Extractor(Lexicon({"good": 2.0}, {"好": 2.0}, frozenset("不"), frozenset("很")), 10)


@given(TEXTS)
@example("RT @a: RT @b: x")
@example("<<|<|")
def test_a_text_that_is_evened_out_stays_as_it_is(text: str) -> None:
    once = even_out(text)
    assert even_out(once) == once


@given(TEXTS)
@example("<<|im_start|>|")
@example("``<|`")
def test_data_holds_nothing_that_a_prompt_is_made_of(text: str) -> None:
    data = as_data(even_out(text))
    assert len(data.splitlines()) <= 1
    assert len(data) <= MAX_PROMPT_CHARS
    assert not re.search(r"<\||\|>|```|\b(?:tone|post|system)\s*[:：]", data, re.IGNORECASE)


@given(TEXTS)
def test_the_hint_has_the_last_line_whatever_the_post_says(text: str) -> None:
    content = build_messages(PROMPT, even_out(text), hint=Hint(0.0, 0.0, 1.0, 0.6))[-1]["content"]
    assert content.split("\n")[1:] == ["Tone: positive 3"]


@given(TEXTS)
def test_features_are_the_same_each_time(text: str) -> None:
    language = find_language(text)
    assert EXTRACTOR.extract(text, language) == EXTRACTOR.extract(text, language)
