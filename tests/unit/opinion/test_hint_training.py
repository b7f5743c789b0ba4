"""How the hint is made: written rows, fit, graph."""

from pathlib import Path

import numpy as np
import pytest

from ssop_opinion.core.hint_features import Extractor, Lexicon, chinese_grams
from ssop_opinion.core.wording import find_language
from ssop_opinion.hint.model import open_hint
from ssop_opinion.hint.training.fitting import (
    add_rows,
    balance,
    fit_labels,
    fit_neutral,
    fit_valence,
    macro_recall,
    make_matrix,
)
from ssop_opinion.hint.training.graph import merge, write_graph
from ssop_opinion.hint.training.rows import (
    NEGATIVE,
    NEUTRAL,
    POSITIVE,
    Row,
    bare,
    find_grams,
    neutral_posts,
    review_rows,
    written_rows,
)

BITS = 10
BUCKETS = 1 << BITS
LEXICON = Lexicon({"good": 2.0, "bad": -2.0}, {"好": 2.0, "差": -2.0}, frozenset("不"), frozenset("很"))
ENGLISH = [
    "it is good",
    "so good today",
    "good work",
    "it is bad",
    "so bad today",
    "bad work",
    "it opens",
    "at nine today",
] * 3
CHINESE = ["很好", "味道好", "好的", "很差", "味道差", "差的", "周一开会", "周二开会"] * 3
GRAMS = sorted({gram for text in CHINESE for gram in chinese_grams(text)})
LABELS = np.array([POSITIVE] * 3 + [NEGATIVE] * 3 + [NEUTRAL] * 2, np.int64)


def test_written_rows_are_the_same_each_time() -> None:
    assert list(written_rows()) == list(written_rows())


def test_written_rows_are_chinese_balanced_and_whole() -> None:
    rows = list(written_rows())
    labels = [row.label for row in rows]
    assert labels.count(NEGATIVE) == labels.count(POSITIVE)
    assert labels.count(NEUTRAL) > 1_000
    assert not any("{" in row.text for row in rows)
    assert all(find_language(row.text) == "zh" for row in rows)


def test_copies_are_found_by_letters_and_digits() -> None:
    assert bare("Good, VERY good!") == bare("good very GOOD")


def test_labels_of_a_source_weigh_the_same() -> None:
    sources, labels = np.array(["a"] * 4 + ["b"] * 2), np.array([0, 0, 0, 1, 0, 2], np.int64)
    weights = balance(sources, np.full(6, ""), labels, {})
    assert weights[:3].sum() == pytest.approx(weights[3])
    assert weights.sum() == pytest.approx(1)


def test_labels_of_a_group_weigh_the_same() -> None:
    sources, groups = np.array(["a"] * 6), np.array(["x"] * 4 + ["y"] * 2)
    weights = balance(sources, groups, np.array([0, 0, 0, 2, 0, 2], np.int64), {})
    assert weights[:3].sum() == pytest.approx(weights[3])
    assert weights[4] == pytest.approx(weights[5])


def test_a_share_multiplies_the_rows_of_a_source() -> None:
    sources, labels = np.array(["a", "a", "b", "b"]), np.array([0, 2, 0, 2], np.int64)
    weights = balance(sources, np.full(4, ""), labels, {"b": 3.0})
    assert weights[2] == pytest.approx(3 * weights[0])


def test_written_reviews_are_whole_and_of_two_labels() -> None:
    rows = list(review_rows())
    assert {row.label for row in rows} == {NEGATIVE, POSITIVE}
    assert all(row.kind and row.text and row.text[0] not in "+-[#" for row in rows)
    assert len({row.text for row in rows}) > 0.98 * len(rows)


def test_neutral_posts_are_not_those_of_the_test() -> None:
    taught = {bare(row.text) for row in neutral_posts()}
    held = (Path(__file__).parents[2] / "vectors" / "opinion_neutral_zh.txt").read_text(encoding="utf-8").splitlines()
    assert taught
    assert not taught & {bare(line) for line in held}


def test_a_new_neutral_output_leaves_the_others_as_they_were() -> None:
    extractor = Extractor(LEXICON, BITS, GRAMS)
    features = [extractor.extract(text, "zh") for text in CHINESE]
    matrix, weights = make_matrix(features, BUCKETS, len(GRAMS) + 1), np.full(len(LABELS) * 3, 1 / 24, np.float32)
    fitted = fit_labels(matrix, np.tile(LABELS, 3), weights, 1e-4)
    added = add_rows(matrix, [extractor.extract("味道周一开会", "zh")] * 8, BUCKETS)
    labels = np.concatenate([np.tile(LABELS, 3), np.full(8, NEUTRAL, np.int64)])
    made = fit_neutral(added, fitted, labels, np.full(32, 1 / 32, np.float32), 1e-4)
    before, after = fitted.apply(added), made.apply(added)
    assert np.array_equal(before[:, [0, 2]], after[:, [0, 2]])
    assert (after[24:].argmax(1) == NEUTRAL).all()


def test_added_rows_weigh_as_those_that_were_there() -> None:
    features = [Extractor(LEXICON, BITS, GRAMS).extract(text, "zh") for text in CHINESE]
    matrix = make_matrix(features, BUCKETS, len(GRAMS) + 1)
    added = add_rows(matrix, features, BUCKETS)
    assert np.allclose(added.grams[: len(CHINESE)].toarray(), added.grams[len(CHINESE) :].toarray(), atol=1e-6)


def test_macro_recall_is_the_mean_over_labels() -> None:
    labels, guesses = np.array([0, 0, 0, 0, 1, 2], np.int64), np.array([0, 0, 0, 0, 0, 2], np.int64)
    assert macro_recall(labels, guesses) == pytest.approx(2 / 3)


def test_the_graph_says_what_was_fitted(tmp_path: Path) -> None:
    extractor = Extractor(LEXICON, BITS, GRAMS)
    labels = np.tile(LABELS, 3)
    weights = np.full(len(labels), 1 / len(labels), np.float32)
    parts, outputs = [], []
    for texts, language in ((ENGLISH, "en"), (CHINESE, "zh")):
        span = extractor.span(language)  # type: ignore[arg-type]
        features = [extractor.extract(text, language) for text in texts]  # type: ignore[arg-type]
        matrix = make_matrix(features, span.start, len(span))
        judged = fit_labels(matrix, labels, weights, 1e-4)
        valued = fit_valence(matrix, (labels - 1).astype(np.float32), weights, 1e-4)
        assert (judged.apply(matrix).argmax(1) == labels).all()
        outputs.append((judged.apply(matrix), valued.apply(matrix)[:, 0]))
        parts.append(merge(matrix, judged, valued, len(span)))
    path = tmp_path / "made.onnx"
    made = write_graph(*parts, bits=BITS, lexicon=LEXICON, grams=GRAMS, version="t", notes={}, probe=[("good", 0.0)])
    path.write_bytes(made)
    model = open_hint(path, is_checked=False)
    for texts, (wanted, valence) in zip((ENGLISH, CHINESE), outputs, strict=True):
        for row, text in enumerate(texts[:8]):
            hint = model.judge(text)
            assert hint is not None
            chances = np.exp(wanted[row]) / np.exp(wanted[row]).sum()
            assert (hint.negative, hint.neutral, hint.positive) == pytest.approx(tuple(chances), abs=5e-3)
            assert hint.valence == pytest.approx(float(np.clip(valence[row], -1, 1)), abs=5e-3)


def test_the_same_parts_give_the_same_bytes() -> None:
    table, dense, bias = (np.zeros(shape, np.float32) for shape in ((BUCKETS, 5), (8, 4), (4,)))
    part = {"table": table, "dense": dense, "bias": bias}
    grams = [f"g{number}" for number in range(BUCKETS - 1)]
    twice = [write_graph(part, part, bits=BITS, lexicon=LEXICON, grams=grams, version="t", notes={}) for _ in range(2)]
    assert twice[0] == twice[1]


def test_a_table_without_a_row_for_each_gram_is_refused() -> None:
    part = {"table": np.zeros((3, 5), np.float32)}
    with pytest.raises(ValueError, match="3 rows for 1 n-grams"):
        write_graph(part, part, bits=BITS, lexicon=LEXICON, grams=["好"], version="t", notes={})


def test_grams_that_few_rows_have_are_not_listed() -> None:
    rows = [Row(text, NEGATIVE, -0.6, "zh", "review") for text in ("差劲", "差评", "贵")]
    assert find_grams(rows, [], 2, 2) == ["$", "^", "^差", "差"]


def test_joined_rows_do_not_count_for_the_list() -> None:
    rows = [Row("差", NEGATIVE, -0.6, "zh", source) for source in ("review", "review-joined")]
    assert find_grams(rows, [], 2, 2) == []


def test_grams_of_posts_count_by_themselves() -> None:
    assert find_grams([], ["好", "好"], 3, 2) == ["$", "^", "^好", "^好$", "好", "好$"]
