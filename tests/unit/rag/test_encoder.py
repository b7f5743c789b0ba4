"""The compiled encoder beside ONNX Runtime, on a small random model."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.tiny_e5 import TINY, write_weights
from ssop_rag import e5_encoder
from ssop_rag.core.ranking import unit_rows
from ssop_rag.e5_encoder import EncoderRuntime, find_obstacle
from ssop_rag.e5_session import OnnxRuntime
from ssop_rag.e5_weights import Sizes, Weights, WeightsError

pytestmark = pytest.mark.needs("vnni")
LENGTHS = [*range(1, 28), 31, 32, 33, 47, 48, 49, 64, 70]


def texts_of(lengths: list[int]) -> list[list[int]]:
    rng = np.random.default_rng(5)
    return [rng.integers(0, TINY.words, length).tolist() for length in lengths]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    return Weights(write_weights(tmp_path_factory.mktemp("e5") / "tiny.bin"))


@pytest.fixture(scope="module")
def encoder(weights: Weights) -> EncoderRuntime:
    return EncoderRuntime(weights)


def cosines(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
    found: NDArray[np.float32] = (unit_rows(first) * unit_rows(second)).sum(axis=1)
    return found


def test_it_is_built_where_the_processor_can_run_it() -> None:
    assert find_obstacle() == ""


@pytest.mark.parametrize(("precision", "least"), [("int8", 0.9999), ("float32", 0.9995)])
def test_vectors_are_those_of_onnx_runtime(
    weights: Weights, encoder: EncoderRuntime, precision: str, least: float
) -> None:
    texts = texts_of(LENGTHS)
    expected = OnnxRuntime(weights, "cpu", precision).vectors(texts)
    assert cosines(encoder.vectors(texts), expected).min() > least


@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(width=32, layers=1, heads=1, inner=32, words=5, tokens=9, types=1),
        Sizes(width=96, layers=3, heads=3, inner=160, words=40, tokens=70, types=2),
    ],
)
def test_other_sizes_are_read_too(tmp_path: Path, sizes: Sizes) -> None:
    weights = Weights(write_weights(tmp_path / "other.bin", sizes, seed=2))
    texts = [[n % sizes.words for n in range(length)] for length in (1, 4, 9)]
    expected = OnnxRuntime(weights, "cpu", "int8").vectors(texts)
    assert cosines(EncoderRuntime(weights).vectors(texts), expected).min() > 0.9999


def test_a_text_has_the_same_vector_whatever_is_beside_it(encoder: EncoderRuntime) -> None:
    texts = texts_of(LENGTHS)
    together = encoder.vectors(texts)
    assert all(np.array_equal(encoder.vectors([text])[0], row) for text, row in zip(texts, together, strict=True))


def test_threads_do_not_disturb_each_other(encoder: EncoderRuntime) -> None:
    texts = texts_of(LENGTHS)
    wanted = encoder.vectors(texts)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: encoder.vectors([texts[n % len(texts)]])[0], range(200)))
    assert all(np.array_equal(row, wanted[n % len(texts)]) for n, row in enumerate(found))


@pytest.mark.parametrize(
    ("texts", "fault"),
    [
        ([[1], []], "text 1 has 0 tokens"),
        ([[1] * 71], "text 0 has 71 tokens; 1 to 70"),
        ([[40]], "no word 40"),
        ([[-1]], "no word -1"),
    ],
)
def test_what_the_model_can_not_read_is_refused(encoder: EncoderRuntime, texts: list[list[int]], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        encoder.vectors(texts)


def test_lengths_that_are_not_those_of_the_tokens_are_refused(encoder: EncoderRuntime) -> None:
    with pytest.raises(ValueError, match="2 tokens for texts of 3"):
        encoder._encoder.encode(np.zeros(2, np.int32), np.array([3], np.int32))


@pytest.mark.parametrize("cut", ["emb.word", "emb.pos", "emb.ln.w", "l0.q.w", "l1.fo.w", "l1.fi.b", "l1.oln.b"])
def test_a_tensor_that_is_too_short_is_named(tmp_path: Path, cut: str) -> None:
    with pytest.raises(WeightsError, match=f"^{cut}"):
        EncoderRuntime(Weights(write_weights(tmp_path / "cut.bin", cut=cut)))


@pytest.mark.parametrize(
    ("sizes", "fault"),
    [
        (dataclasses.replace(TINY, heads=1), "heads of 64 numbers"),
        (dataclasses.replace(TINY, heads=0), "heads of 64 numbers"),
    ],
)
def test_a_model_of_another_kind_is_refused(tmp_path: Path, sizes: Sizes, fault: str) -> None:
    with pytest.raises(WeightsError, match=fault):
        EncoderRuntime(Weights(write_weights(tmp_path / "other.bin", sizes)))


def test_without_the_extension_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(e5_encoder, "_encoder", None)
    assert find_obstacle() == "its extension is not built"
