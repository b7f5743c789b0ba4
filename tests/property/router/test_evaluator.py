"""The compiled evaluator says what ONNX Runtime says, for the shipped graph and for any that training could write."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ssop_codec.wire import bytes_field, uint_field
from ssop_router.classification import _evaluator, _extract
from ssop_router.classification.evaluation import UnknownGraphError, make_evaluator, read_weights
from ssop_router.classification.extraction import specify_features
from ssop_router.classification.lexicon import CATEGORIES, word_categories
from ssop_router.classification.model import MAX_FOREIGN_SHARE, open_model
from ssop_router.classification.training.graph import Grams, Head, Parameters, build_graph
from ssop_router.classifier import SHIPPED, OnnxComplexityModel, load_classifier
from ssop_router.core.complexity import Complexity

TOLERANCE = 1e-5
WORDS = word_categories()
BITS = 6
WIDTH = len(specify_features(WORDS, list(CATEGORIES), 0, 0, 0)["base"]) + len(CATEGORIES)
SAMPLES = json.loads((Path(__file__).parents[2] / "vectors" / "routing_samples.json").read_text(encoding="utf-8"))
SAMPLE_TEXTS = [*SAMPLES["en"], *SAMPLES["zh"], *SAMPLES["odd"]]
KNOWN_WORDS = sorted({*WORDS, *(word for text in SAMPLE_TEXTS for word in text.split())})

texts = st.one_of(
    st.text(st.characters(exclude_categories=())),
    st.lists(st.sampled_from(KNOWN_WORDS), max_size=80).map(" ".join),
    st.lists(st.sampled_from(KNOWN_WORDS), max_size=40).map("".join),
)


def by_runtime(path: Path) -> OnnxComplexityModel:
    """The model as ONNX Runtime scores it."""
    return open_model(path, ["cpu"], is_slow=True)


FAST, RUNTIME = load_classifier(), by_runtime(SHIPPED)


def agree(one: Complexity, other: Complexity) -> None:
    assert one.abstention == other.abstention
    assert one.score == pytest.approx(other.score, abs=TOLERANCE)
    assert one.spread == pytest.approx(other.spread, abs=TOLERANCE)


def test_the_shipped_graph_is_one_that_it_knows() -> None:
    assert FAST.slow_because == ""
    assert RUNTIME.slow_because


@given(texts)
@example("")
@example("x" * 5000)
@example("\ud800 word")
@example("слово word word word")
def test_a_text_is_scored_as_by_the_runtime(text: str) -> None:
    agree(FAST.score(text), RUNTIME.score(text))


def write(folder: Path, seed: int, *, has_grams: bool) -> Path:
    """An artefact with random parameters, such as training could come to."""
    rng = np.random.default_rng(seed)
    pairs = tuple(int(at) for at in rng.choice(WIDTH, rng.integers(1, 12), replace=False))

    def head() -> Head:
        crossed = rng.normal(0, 0.02, (len(pairs), len(pairs)))
        linear, linear_zh = rng.normal(0, 0.1, (2, WIDTH))
        return Head(rng.normal(), rng.normal(), linear, linear_zh, pairs, crossed)

    knots = int(rng.integers(2, 40))
    features = specify_features(WORDS, list(CATEGORIES), BITS if has_grams else 0, 1400, 600)
    parameters = Parameters(
        mean=rng.normal(0.3, 0.3, WIDTH),
        scale=rng.uniform(0.3, 3, WIDTH),
        gain=head(),
        need=head(),
        task=head(),
        grams=Grams(rng.normal(0, 1, 1 << BITS), rng.uniform(0.5, 5, 1 << BITS)) if has_grams else None,
        knots=np.sort(rng.normal(0, 3, (2, 4, knots)), axis=2),
        blend=rng.dirichlet(np.ones(4), 2),
        score_knots=np.sort(rng.uniform(0, 1, (2, knots)), axis=1),
        ideographs=features["base"].index("ideograph_share"),
    )
    metadata = {"ssop.kind": "ssop-complexity", "ssop.format": "1", "ssop.version": f"random-{seed}"}
    metadata |= {"ssop.features": json.dumps(features), "ssop.probe": json.dumps([["?", 0.5]])}
    path = folder / "random.onnx"
    path.write_bytes(build_graph(parameters, metadata))
    model = by_runtime_unprobed(path)
    metadata["ssop.probe"] = json.dumps([["What is it?", model.score("What is it?").score]])
    path.write_bytes(build_graph(parameters, metadata))
    return path


def by_runtime_unprobed(path: Path) -> OnnxComplexityModel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ssop_router.classification.model.PROBE_TOLERANCE", 2.0)
        return by_runtime(path)


@pytest.mark.parametrize("has_grams", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_whatever_training_writes_is_known_and_scored_as_by_the_runtime(
    tmp_path: Path, seed: int, has_grams: bool
) -> None:
    path = write(tmp_path, seed, has_grams=has_grams)
    fast, runtime = load_classifier(path), by_runtime(path)
    assert fast.slow_because == ""
    for text in [*SAMPLE_TEXTS, "word " * 800]:
        agree(fast.score(text), runtime.score(text))


def test_a_graph_with_another_node_is_left_to_the_runtime_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = onnx.load_model_from_string(SHIPPED.read_bytes())
    next(node for node in model.graph.node if node.op_type == "Relu").op_type = "Abs"
    path = tmp_path / "other.onnx"
    path.write_bytes(model.SerializeToString())
    found = load_classifier(path)
    assert "nodes" in found.slow_because
    assert "nodes" in caplog.text
    agree(found.score("What is the capital of France?"), RUNTIME.score("What is the capital of France?"))


def test_a_constant_that_the_evaluator_does_not_read_is_found_by_the_probe(tmp_path: Path) -> None:
    model = onnx.load_model_from_string(SHIPPED.read_bytes())
    top = next(one for one in model.graph.initializer if one.name == "c29")
    top.CopyFrom(onnx.numpy_helper.from_array(np.asarray([0.5], np.float32), "c29"))
    path = tmp_path / "other.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ssop_router.classification.model.PROBE_TOLERANCE", 2.0)
        found = load_classifier(path)
        scores = {text: found.score(text).score for text, _ in found.card.probe}
    assert "otherwise" in found.slow_because
    assert max(score for score in scores.values() if score is not None) <= 0.5


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("c4", np.asarray([WIDTH], np.int64)),
        ("c4", np.asarray([-1], np.int64)),
        ("c10", np.asarray([1 << 40] * 50, np.int64)),
        ("c10", np.zeros(0, np.int64)),
        ("c7", np.zeros((WIDTH, 3), np.float32)),
        ("c0", np.full(WIDTH, np.nan, np.float32)),
        ("c19", np.zeros((2, 4, 0), np.float32)),
        ("c20", np.zeros((2, 4, 3), np.float32)),
        ("c19", np.zeros((2, 4, 64), np.float64)),
    ],
)
def test_constants_that_would_be_read_outside_are_refused(name: str, values: np.ndarray) -> None:
    model = onnx.load_model_from_string(SHIPPED.read_bytes())
    place = next(one for one in model.graph.initializer if one.name == name)
    place.CopyFrom(onnx.numpy_helper.from_array(values, name))
    with pytest.raises(UnknownGraphError, match="damaged"):
        read_weights(model.SerializeToString(), WIDTH)


def test_a_file_that_only_the_runtime_reads_is_run_by_it(tmp_path: Path) -> None:
    # Its name is no UTF-8, which ONNX Runtime does not ask for.
    tensor = uint_field(1, 1) + uint_field(2, 1) + bytes_field(8, b"\xff") + bytes_field(9, bytes(4))
    path = tmp_path / "model.onnx"
    path.write_bytes(SHIPPED.read_bytes() + bytes_field(7, bytes_field(5, tensor)))
    model = open_model(path, ["cpu"])
    assert model.slow_because
    agree(model.score("Why is the sky blue?"), RUNTIME.score("Why is the sky blue?"))


def test_buckets_of_another_number_than_the_weights_are_refused(tmp_path: Path) -> None:
    content = write(tmp_path, 1, has_grams=True).read_bytes()
    for bits in (BITS + 1, 0):
        extractor = _extract.Extractor(WORDS, len(CATEGORIES), bits, 1400, 600)
        with pytest.raises(UnknownGraphError, match="buckets"):
            make_evaluator(content, extractor, words=1, foreign=26, foreign_share=MAX_FOREIGN_SHARE)


def test_only_texts_are_scored() -> None:
    weights = read_weights(SHIPPED.read_bytes(), WIDTH)
    extractor = _extract.Extractor(WORDS, len(CATEGORIES), 0, 1400, 600)
    evaluator = _evaluator.Evaluator(extractor, weights, words=1, foreign=26, foreign_share=MAX_FOREIGN_SHARE)
    with pytest.raises(TypeError):
        evaluator.score(None)  # type: ignore[arg-type]
