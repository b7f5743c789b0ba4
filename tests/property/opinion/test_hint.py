"""The hint of any text is what its tables say, computed apart."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssop_opinion.core.hint_features import chinese_grams
from ssop_opinion.core.wording import even_out, find_language
from ssop_opinion.hint.model import open_hint, shipped_hint

ARTEFACT = Path(open_hint.__code__.co_filename).parent / "hint.onnx"
WORDS = (
    "不",
    "好吃",
    "难吃",
    "很",
    "房间",
    "送餐",
    "太慢",
    "，",
    "。",
    "龘",
    "good",
    "not ",
    "bad ",
    "the room ",
    "!",
    "😀",
    " ",
)
TEXTS = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=30).map("".join)).map(even_out)


@cache
def tables() -> dict[str, Any]:
    graph = onnx.load(ARTEFACT).graph
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}


@cache
def listed() -> set[str]:
    return {*shipped_hint().extractor.grams}


@given(TEXTS)
def test_the_hint_is_what_the_tables_say(text: str) -> None:
    hint, language = shipped_hint().judge(text), find_language(text)
    if language == "other" or hint is None:
        return
    features = shipped_hint().extractor.extract(text, language)
    sums = tables()["table"][list(features.ids)].astype(np.float64).sum(0)
    dense = np.array(features.dense, np.float64)
    outputs = sums[:4] / np.sqrt(max(sums[4], 1e-6)) + dense @ tables()[f"dense_{language}"]
    outputs += tables()[f"bias_{language}"]
    chances = np.exp(outputs[:3] - outputs[:3].max())
    assert (hint.negative, hint.neutral, hint.positive) == pytest.approx(tuple(chances / chances.sum()), abs=1e-4)
    assert hint.valence == pytest.approx(float(np.clip(outputs[3], -1, 1)), abs=1e-4)


@given(TEXTS)
def test_chinese_rows_are_those_of_the_listed_grams(text: str) -> None:
    extractor = shipped_hint().extractor
    nothing = extractor.span("zh").start
    grams = {*chinese_grams(text.lower())}
    seen = {extractor.grams[at - nothing - 1] for at in extractor.extract(text, "zh").ids if at > nothing}
    assert seen == grams & listed()
