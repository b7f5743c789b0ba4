"""The shipped schema and prompts, and those of tenants."""

import json

import pytest

from ssop_opinion.core.prompt import LABELS, Example, Hint, build_messages
from ssop_opinion.prompting import MAX_EXAMPLES, PromptError, post_schema, shipped_prompts, tailor

ANSWER = shipped_prompts()["en"].examples[0].answer
NEGATIVE = Hint(0.8, 0.1, 0.1, -0.6)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_shipped_example_conforms_to_the_schema(language: str) -> None:
    prompt = shipped_prompts()[language]  # type: ignore[index]
    assert [post_schema().check(example.answer) for example in prompt.examples] == [""] * len(prompt.examples)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_shipped_examples_show_every_label(language: str) -> None:
    examples = shipped_prompts()[language].examples  # type: ignore[index]
    assert {example.answer["sentiment_label"] for example in examples} == set(LABELS)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_an_example_quotes_stands_in_its_post(language: str) -> None:
    for example in shipped_prompts()[language].examples:  # type: ignore[index]
        assert example.answer["main_entity"] in example.text
        assert example.answer["evidence"] in example.text


def test_the_prompts_of_both_languages_begin_alike() -> None:
    english, chinese = (build_messages(shipped_prompts()[language], "x", hint=NEGATIVE) for language in ("en", "zh"))
    assert chinese[: len(english) - 1] == english[:-1]


def test_the_schema_has_the_entity_first() -> None:
    assert next(iter(post_schema().document["properties"])) == "main_entity"


def test_a_broken_answer_is_named() -> None:
    assert post_schema().check({**ANSWER, "severity": 9}) == "maximum at /severity"


def test_the_hint_stands_in_the_last_line_as_the_answer_writes_it() -> None:
    last = build_messages(shipped_prompts()["en"], "it broke", hint=NEGATIVE)[-1]["content"]
    assert last == 'Post: it broke\nTone: "sentiment_score": -3, "sentiment_label": "negative"'


def test_without_a_hint_no_example_has_one() -> None:
    assert not any("Tone:" in message["content"] for message in build_messages(shipped_prompts()["en"], "it broke"))


def test_hints_of_examples_agree_with_their_answers() -> None:
    messages = build_messages(shipped_prompts()["zh"], "坏了", hint=NEGATIVE)
    for asked, answered in zip(messages[1:-1:2], messages[2:-1:2], strict=True):
        answer = json.loads(answered["content"])
        assert asked["content"].endswith(f'"sentiment_label": "{answer["sentiment_label"]}"')


def test_brands_stand_between_post_and_tone() -> None:
    lines = build_messages(shipped_prompts()["en"], "it broke", brands=("Tessel (maker)",), hint=NEGATIVE)[-1][
        "content"
    ]
    assert lines.split("\n")[1] == "About: Tessel (maker)"


@pytest.mark.parametrize(
    ("hint", "label", "score"),
    [
        (NEGATIVE, "negative", -3),
        (Hint(0.5, 0.3, 0.2, 0.1), "negative", -1),
        (Hint(0.1, 0.2, 0.7, -0.2), "positive", 1),
        (Hint(0.1, 0.8, 0.1, 0.9), "neutral", 1),
        (Hint(0.0, 0.0, 1.0, 1.0), "positive", 5),
    ],
)
def test_the_score_of_a_hint_is_on_the_side_of_its_label(hint: Hint, label: str, score: int) -> None:
    assert (hint.label, hint.score) == (label, score)


def test_a_tenants_example_comes_after_the_shipped_ones() -> None:
    own = Example("our post", ANSWER)
    made = tailor("Mind the brand.", [("en", own)], has_shipped_examples=True)
    assert made["en"].examples == (*shipped_prompts()["en"].examples, own)
    assert made["en"].system.endswith("Mind the brand.")
    assert made["zh"].examples == shipped_prompts()["zh"].examples


def test_a_tenants_examples_can_stand_alone() -> None:
    made = tailor("", [("zh", Example("帖子", ANSWER))], has_shipped_examples=False)
    assert [len(prompt.examples) for prompt in made.values()] == [0, 1]


def test_an_example_that_breaks_the_schema_is_refused_without_its_text() -> None:
    with pytest.raises(PromptError, match=r"example 1 in 'en'.*enum at /sentiment_label") as caught:
        tailor("", [("en", Example("secret text", {**ANSWER, "sentiment_label": "meh"}))], has_shipped_examples=True)
    assert "secret" not in str(caught.value)


def test_too_many_examples_are_refused() -> None:
    with pytest.raises(PromptError, match="more than"):
        tailor("", [("en", Example("p", ANSWER))] * MAX_EXAMPLES, has_shipped_examples=True)
