import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from ssop.v1.mesh_pb2 import Tier, TierReason
from ssop_router.core.rules import compile_words, make_excerpt
from ssop_router.policy_settings import RuleSettings
from ssop_router.settings import RouterSettings

RULES = RouterSettings(keys_file=Path("k"), nodes=[{"address": "n"}]).decision().rules


def first(text: str, documents: int = 0) -> tuple[int, int] | None:
    return next(
        ((rule.tier, rule.reason) for rule in RULES if rule.applies(make_excerpt(text), len(text), documents)),
        None,
    )


@pytest.mark.parametrize(
    "text",
    ["Translate: good morning", "Please summarize this mail.", "把这句话翻译成英文", "提取文中的人名"],
)
def test_short_clear_instruction_prefers_lite(text: str) -> None:
    assert first(text) == (Tier.TIER_LITE, TierReason.TIER_REASON_SHORT_INSTRUCTION)


def test_instruction_of_200_characters_is_not_short() -> None:
    assert first("Translate " + "x" * 189) is not None
    assert first("Translate " + "x" * 190) is None


@pytest.mark.parametrize(
    "text",
    [
        "Compare these two offers",
        "Summarize it, then explain why it failed",
        "First find the cause and then propose a fix",
        "请一步一步推导这个公式",
        "先列出原因，再给出建议",
        "比较这两种方案的优缺点",
        "Because the valve was shut, pressure rose; therefore what happens to the tank?",
        "Although the test passed, but the users complain. Which is right?",
        "因为下雨了，所以比赛会怎样？",
        "虽然他通过了考试，但是没有被录取，说明了什么？",
    ],
)
def test_wording_of_several_steps_prefers_full(text: str) -> None:
    assert first(text) == (Tier.TIER_FULL, TierReason.TIER_REASON_MULTI_HOP)


def test_several_documents_prefer_full() -> None:
    assert first("Translate", documents=2) == (Tier.TIER_FULL, TierReason.TIER_REASON_MANY_DOCUMENTS)


def test_latin_words_match_whole_words_only() -> None:
    assert first("an incomparable listing of improvements") is None


def test_gap_is_bounded() -> None:
    words = compile_words(["first ... then"])
    assert words.is_in(make_excerpt("First this, then that"))
    assert not words.is_in(make_excerpt("first " + "x " * 60 + "then"))


@pytest.mark.parametrize("text", ["compare this: " + "x " * 3000, "x " * 3000 + "now compare"])
def test_both_ends_of_a_long_text_are_read(text: str) -> None:
    assert first(text) == (Tier.TIER_FULL, TierReason.TIER_REASON_MULTI_HOP)


def test_cost_does_not_grow_with_the_prompt() -> None:
    assert first("x " * 3000 + " compare " + "x " * 3000) is None
    assert len(make_excerpt("x" * 1_000_000).text) < 1_100


def test_latin_letters_that_only_stand_together_without_the_chinese_between_are_no_word() -> None:
    assert not compile_words(["compare"]).is_in(make_excerpt("com比较pare"))


@pytest.mark.parametrize("text", ["Überprüfe das", "ÜBERPRÜFE DAS", "bitte überprüfe es"])
def test_words_of_other_scripts_have_no_case(text: str) -> None:
    assert compile_words(["überprüfe"]).is_in(make_excerpt(text))


@pytest.mark.parametrize("word", ["", "...", " ... ", "a...b...c...d"])
def test_word_that_finds_everything_or_costs_too_much_is_refused(word: str) -> None:
    with pytest.raises(ValidationError):
        RuleSettings(tier="lite", words=[word])


@pytest.mark.parametrize("text", ["请compare这两个方案", "COMPARE", "to compare", "compare."])
def test_border_of_a_word_next_to_chinese(text: str) -> None:
    assert compile_words(["compare"]).is_in(make_excerpt(text))


@pytest.mark.parametrize("text", ["compared", "_compare", "compare2", "écompare", "comp are"])
def test_part_of_a_longer_word_is_none(text: str) -> None:
    assert not compile_words(["compare"]).is_in(make_excerpt(text))


def test_later_pieces_are_tried_again() -> None:
    words = compile_words(["first ... then"])
    assert words.is_in(make_excerpt("first x first athena then"))
    assert not words.is_in(make_excerpt("first the athens"))


def test_two_gaps() -> None:
    words = compile_words(["a ... b ... c"])
    assert words.is_in(make_excerpt("a 1 b b 2 c"))
    assert not words.is_in(make_excerpt("a c b"))


@pytest.mark.parametrize(
    "text",
    ["because " * 200 + "athens therefores", "first " * 300 + "athens", "虽然" * 900, "if " * 400 + "authenticate"],
)
def test_text_made_to_be_slow_is_not(text: str) -> None:
    excerpt = make_excerpt(text)

    def measure_s() -> float:
        started_s = time.thread_time()
        for rule in RULES:
            rule.applies(excerpt, len(text), 0)
        return time.thread_time() - started_s

    # A regular expression with the same gaps takes some milliseconds here on a busy machine, each time.
    assert min(measure_s() for _ in range(5)) < 0.002
