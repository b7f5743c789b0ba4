"""The shipped classifier, and artefacts that can't be used."""

import contextlib
import json
import math
import random
import threading
from pathlib import Path

import onnx
import pytest

from ssop_router.classification import extraction
from ssop_router.classification.artefact import MAX_BYTES
from ssop_router.classification.model import open_model
from ssop_router.classifier import SHIPPED, ArtefactError, OnnxComplexityModel, load_classifier
from ssop_router.core.complexity import Complexity, ComplexityModel

SAMPLES = json.loads((Path(__file__).parents[2] / "vectors" / "routing_samples.json").read_text(encoding="utf-8"))
TEXTS = [*SAMPLES["en"], *SAMPLES["zh"], *SAMPLES["odd"]]
MAX_ARTEFACT_BYTES = 1_000_000


@pytest.fixture(scope="module")
def classifier() -> OnnxComplexityModel:
    return load_classifier()


def changed(folder: Path, **metadata: str) -> Path:
    """The shipped artefact with other metadata."""
    model = onnx.load_model_from_string(SHIPPED.read_bytes())
    for entry in model.metadata_props:
        entry.value = metadata.get(entry.key.removeprefix("ssop."), entry.value)
    path = folder / "changed.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def features_with(**values: object) -> str:
    metadata = {entry.key: entry.value for entry in onnx.load_model_from_string(SHIPPED.read_bytes()).metadata_props}
    return json.dumps(json.loads(metadata["ssop.features"]) | values)


def test_the_feature_code_is_compiled() -> None:
    assert extraction.IS_COMPILED


def test_it_is_a_complexity_model(classifier: OnnxComplexityModel) -> None:
    port: ComplexityModel = classifier
    assert port.version.startswith("complexity-1-")


def test_the_artefact_is_small() -> None:
    assert SHIPPED.stat().st_size <= MAX_ARTEFACT_BYTES


def test_scores_are_the_golden_ones(classifier: OnnxComplexityModel) -> None:
    golden = json.loads((Path(__file__).parents[2] / "vectors" / "routing_scores.json").read_text(encoding="utf-8"))
    assert golden["version"] == classifier.version
    for text, wanted in zip(TEXTS, golden["scores"], strict=True):
        assert classifier.score(text).score == pytest.approx(wanted, abs=1e-4), text


@pytest.mark.parametrize("text", TEXTS)
def test_a_score_lies_between_0_and_1_or_says_why_there_is_none(classifier: OnnxComplexityModel, text: str) -> None:
    found = classifier.score(text)
    if found.score is None:
        assert found.abstention in {"empty", "language"}
    else:
        assert 0 <= found.score <= 1
        assert 0 <= found.spread <= 0.5
        assert not found.abstention


def test_a_batch_scores_as_its_texts_do(classifier: OnnxComplexityModel) -> None:
    for alone, together in zip(map(classifier.score, TEXTS), classifier.score_batch(TEXTS), strict=True):
        assert alone.abstention == together.abstention
        assert alone.score == pytest.approx(together.score, abs=1e-6)


def test_an_empty_batch_is_no_fault(classifier: OnnxComplexityModel) -> None:
    assert classifier.score_batch([]) == []


def test_a_batch_of_abstentions_is_no_fault(classifier: OnnxComplexityModel) -> None:
    assert classifier.score_batch(["", "???"]) == [Complexity(abstention="empty")] * 2


def test_the_slow_twin_scores_the_same(classifier: OnnxComplexityModel) -> None:
    slow = open_model(SHIPPED, ["cpu"], is_slow=True)
    assert not slow.is_compiled
    assert slow.slow_because
    for one, other in zip(slow.score_batch(TEXTS), classifier.score_batch(TEXTS), strict=True):
        assert one.abstention == other.abstention
        assert one.score == pytest.approx(other.score, abs=1e-5)


def test_threads_share_a_classifier(classifier: OnnxComplexityModel) -> None:
    wanted = classifier.score_batch(TEXTS)
    found: list[list[Complexity]] = []
    threads = [threading.Thread(target=lambda: found.append([*map(classifier.score, TEXTS)])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for one in found:
        assert [c.score for c in one] == pytest.approx([c.score for c in wanted], abs=1e-6)


def test_harder_tasks_score_higher(classifier: OnnxComplexityModel) -> None:
    for easy, hard in (("Hello!", SAMPLES["en"][11]), ("你好", SAMPLES["zh"][9])):
        low, high = classifier.score(easy).score, classifier.score(hard).score
        assert low is not None
        assert high is not None
        assert low < high


@pytest.mark.parametrize(
    ("text", "name", "wanted"),
    [
        ("who led the band that Ann Lee of New York left", "log_names", math.log1p(2)),
        ("Ann led it", "log_names", 0),
        ("the man who led the band that left", "log_relatives", math.log1p(1)),
        ("it was the old man who led it", "log_relatives", math.log1p(1)),
        ("In what year", "question_place", 2 / 20),
        ("word " * 30 + "why", "question_place", 1),
        ("Ann's and the Lees' dog isn't", "log_possessives", math.log1p(2)),
        ("her older sister was the tallest", "log_degrees", math.log1p(3)),
        ("the end of the line", "log_of", math.log1p(1)),
        ("The end of the line", "log_the", math.log1p(2)),
        ("he was and had been", "past_share", 3 / 5),
    ],
)
def test_the_grammar_of_a_question_is_counted(
    classifier: OnnxComplexityModel, text: str, name: str, wanted: float
) -> None:
    dense = classifier.prepare([text])["dense"][0]
    assert dense[classifier.card.features["base"].index(name)] == pytest.approx(wanted)


def test_code_needs_the_full_tier_whatever_its_label_says(classifier: OnnxComplexityModel) -> None:
    heads = classifier.score_heads(["Write a python function to find the shared elements of two lists."])[0]
    assert heads[2] > 0.4
    assert heads[4] < 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"no onnx at all", "can't read it"),
        (SHIPPED.read_bytes()[: SHIPPED.stat().st_size // 2], "can't read it"),
        (SHIPPED.read_bytes() + b"\x0a\x08location", "another file"),
        (SHIPPED.read_bytes().replace(b"What is the capital", b"What is the \xa6\xa6pital"), "metadata are damaged"),
    ],
    ids=["empty", "text", "truncated", "external", "not UTF-8"],
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    with pytest.raises(ArtefactError, match=message) as caught:
        load_classifier(path)
    assert str(path) in str(caught.value)


def test_flipped_bytes_are_refused_or_do_no_harm(tmp_path: Path) -> None:
    content, generator = SHIPPED.read_bytes(), random.Random(0)
    path = tmp_path / "flipped.onnx"
    for _ in range(40):
        changed_content = bytearray(content)
        for _ in range(3):
            changed_content[generator.randrange(len(content))] = generator.randrange(256)
        path.write_bytes(changed_content)
        with contextlib.suppress(ArtefactError):
            found = load_classifier(path).score("hello there").score
            assert found is None or 0 <= found <= 1


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="No such file"):
        load_classifier(tmp_path / "none.onnx")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="directory"):
        load_classifier(tmp_path)


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.onnx"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(ArtefactError, match="larger than"):
        load_classifier(path)


def test_another_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="no classifier of this mesh"):
        load_classifier(changed(tmp_path, kind="something else"))


def test_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="format '9'"):
        load_classifier(changed(tmp_path, format="9"))


@pytest.mark.parametrize("features", ["", "[]", "{", "null"])
def test_damaged_metadata_are_refused(tmp_path: Path, features: str) -> None:
    with pytest.raises(ArtefactError, match="metadata are damaged"):
        load_classifier(changed(tmp_path, features=features))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"version": 1}, "version 1"),
        ({"base": []}, "not the ones"),
        ({"words": {"x": 99}}, "damaged"),
        ({"words": []}, "damaged"),
        ({"bits": -1}, "damaged"),
        ({"bits": 40}, "damaged"),
        ({"head_chars": 1 << 60}, "damaged"),
        ({"categories": []}, "damaged"),
        ({"categories": ["one"], "words": {}}, "are computed"),
        ({"bits": 8}, "no classifier of this mesh"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_other_features_are_refused(tmp_path: Path, values: dict[str, object], message: str) -> None:
    with pytest.raises(ArtefactError, match=message):
        load_classifier(changed(tmp_path, features=features_with(**values)))


def test_words_that_give_other_scores_are_found_by_the_probe(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="features or runtime differ"):
        load_classifier(changed(tmp_path, features=features_with(words={})))


@pytest.mark.parametrize("providers", [(), ("tpu",)])
def test_unknown_providers_are_refused(providers: tuple[str, ...]) -> None:
    with pytest.raises(ArtefactError, match="classifier providers"):
        load_classifier(providers=providers)


def test_cuda_that_is_missing_is_said_aloud(caplog: pytest.LogCaptureFixture) -> None:
    classifier = load_classifier(providers=("cuda", "cpu"))
    if classifier.provider.name == "cuda":
        pytest.skip("this machine has CUDA")
    assert "CUDA" in classifier.provider.missing
    assert "runs on the CPU" in caplog.text
