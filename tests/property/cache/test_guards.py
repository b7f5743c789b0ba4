"""The guards on any text: nothing is the same as what was changed, everything is the same as itself."""

from hypothesis import given
from hypothesis import strategies as st

from helpers.near_pairs import SAME, near_pairs
from ssop_cache.core.guards import Guard, decode_facts, encode_facts, read_facts, tell_apart

SECRET = b"secret"
TEXTS = st.text(max_size=120) | st.sampled_from([pair.first for pair in (*near_pairs(), *SAME)])
WORDS = ["what", "is", "policy", "for", "laptops", "in", "paris", "today", "user", "delivers", "box", "near", "river"]
ENGLISH = st.lists(
    st.sampled_from(WORDS),
    min_size=2,
    max_size=8,
)
CHINESE = st.text(alphabet="退款政策是什么笔记本电脑在北京今天用户", min_size=3, max_size=12)


def guard(first: str, second: str) -> Guard | None:
    facts, others = read_facts(first, SECRET), read_facts(second, SECRET)
    assert facts is not None
    assert others is not None
    assert tell_apart(facts, others) == tell_apart(others, facts)
    return tell_apart(facts, others)


@given(TEXTS)
def test_text_asks_what_it_asks(text: str) -> None:
    facts = read_facts(text, SECRET)
    if facts is not None:
        assert tell_apart(facts, facts) is None
        assert decode_facts(encode_facts(facts)) == facts


@given(ENGLISH, st.data())
def test_one_more_not_is_never_the_same(tokens: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(tokens)))
    word = data.draw(st.sampled_from(["not", "never", "no", "without"]))
    changed = [*tokens[:at], word, *tokens[at:]]
    assert guard(" ".join(tokens), " ".join(changed)) is not None


@given(CHINESE, st.data())
def test_one_more_negation_is_never_the_same_in_chinese(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    assert guard(text, text[:at] + data.draw(st.sampled_from("不没未无")) + text[at:]) is Guard.NEGATION


@given(ENGLISH, st.integers(0, 10_000), st.integers(0, 10_000))
def test_another_number_is_never_the_same(tokens: list[str], first: int, second: int) -> None:
    text = " ".join([*tokens, "{}"])
    assert (guard(text.format(first), text.format(second)) is None) == (first == second)


@given(ENGLISH, st.data())
def test_another_word_is_never_the_same(tokens: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(tokens) - 1))
    changed = [*tokens[:at], data.draw(st.sampled_from(["berlin", "phones", "owner", "seller"])), *tokens[at + 1 :]]
    assert guard(" ".join(tokens), " ".join(changed)) is not None


@given(ENGLISH, st.data())
def test_two_words_that_change_places_are_never_the_same(tokens: list[str], data: st.DataObject) -> None:
    first, second = data.draw(st.integers(0, len(tokens) - 1)), data.draw(st.integers(0, len(tokens) - 1))
    changed = list(tokens)
    changed[first], changed[second] = changed[second], changed[first]
    # What begins with a question word is a question, whatever follows.
    assert (guard(" ".join(tokens), " ".join(changed)) is None) == (changed == tokens)


@given(ENGLISH, st.sampled_from(["Hi, {}", "please {}", "{}, thanks", "{}.", "{} !", "Hello! please {} , please"]))
def test_manners_change_nothing(tokens: list[str], frame: str) -> None:
    text = " ".join(tokens)
    assert guard(text, frame.format(text)) is None


@given(CHINESE, st.sampled_from(["请问{}", "你好，{}", "{}。谢谢", "麻烦问一下{}", "{} "]))
def test_manners_change_nothing_in_chinese(text: str, frame: str) -> None:
    assert guard(text, frame.format(text)) is None


@given(ENGLISH)
def test_capitals_and_width_change_nothing(tokens: list[str]) -> None:
    text = " ".join(tokens)
    wide = "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in text)
    assert guard(text, text.capitalize()) is None
    assert guard(text, wide) is None
