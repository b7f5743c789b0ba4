"""Writes the hint as one ONNX file, with all that its features need in the metadata."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from ssop_opinion.core.hint_features import DENSE, VERSION, Lexicon
from ssop_opinion.hint.model import KIND
from ssop_opinion.hint.training.fitting import Matrix, Weights

OUTPUTS = 4
_OPSET = 17


def merge(matrix: Matrix, labels: Weights, valence: Weights, buckets: int) -> dict[str, NDArray[Any]]:
    """One language's part: a row a bucket with four outputs, already times its weight, and the square of that."""
    table = np.zeros((buckets, OUTPUTS + 1), np.float32)
    idf = matrix.idf[matrix.kept][:, None]
    table[matrix.kept, :OUTPUTS] = np.hstack([labels.grams, valence.grams]) * idf
    table[matrix.kept, OUTPUTS] = idf[:, 0] ** 2
    return {
        "table": table,
        "dense": np.hstack([labels.dense, valence.dense]),
        "bias": np.concatenate([labels.bias, valence.bias]),
    }


def write_graph(
    english: Mapping[str, NDArray[Any]],
    chinese: Mapping[str, NDArray[Any]],
    *,
    bits: int,
    lexicon: Lexicon,
    grams: Sequence[str],
    version: str,
    notes: Mapping[str, str],
    probe: Sequence[tuple[str, float]] = (),
) -> bytes:
    """The artefact's bytes; the same parts give the same bytes.

    Raises ValueError where the Chinese table has not a row for each of `grams` and one more.
    """
    if len(chinese["table"]) != len(grams) + 1:
        raise ValueError(f"{len(chinese['table'])} rows for {len(grams)} n-grams")
    weights = {
        "table": np.concatenate([english["table"], chinese["table"]]).astype(np.float16),
        "dense_en": english["dense"],
        "dense_zh": chinese["dense"],
        "bias_en": english["bias"],
        "bias_zh": chinese["bias"],
        "one": np.array(1, np.float32),
        "floor": np.array(1e-6, np.float32),
        "low": np.array(-1, np.float32),
        "first": np.array([0], np.int64),
        "outputs": np.array([OUTPUTS], np.int64),
        "classes": np.array([OUTPUTS - 1], np.int64),
        "last": np.array([OUTPUTS + 1], np.int64),
    }
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "ids"], ["rows16"], axis=0),
        node("Cast", ["rows16"], ["rows"], to=TensorProto.FLOAT),
        node("ReduceSum", ["rows", "first"], ["sums"], keepdims=0),
        node("Slice", ["sums", "first", "outputs"], ["raw"]),
        node("Slice", ["sums", "outputs", "last"], ["square"]),
        node("Max", ["square", "floor"], ["square_up"]),
        node("Sqrt", ["square_up"], ["norm"]),
        node("Div", ["raw", "norm"], ["grams"]),
        node("Sub", ["one", "is_chinese"], ["is_english"]),
        node("MatMul", ["dense", "dense_en"], ["mul_en"]),
        node("Add", ["mul_en", "bias_en"], ["add_en"]),
        node("Mul", ["add_en", "is_english"], ["own_en"]),
        node("MatMul", ["dense", "dense_zh"], ["mul_zh"]),
        node("Add", ["mul_zh", "bias_zh"], ["add_zh"]),
        node("Mul", ["add_zh", "is_chinese"], ["own_zh"]),
        node("Add", ["own_en", "own_zh"], ["own"]),
        node("Add", ["grams", "own"], ["all"]),
        node("Slice", ["all", "first", "classes"], ["logits"]),
        node("Softmax", ["logits"], ["probabilities"], axis=0),
        node("Slice", ["all", "classes", "outputs"], ["free"]),
        node("Clip", ["free", "low", "one"], ["valence"]),
    ]
    graph = helper.make_graph(
        nodes,
        "hint",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT32, ["grams"]),
            helper.make_tensor_value_info("dense", TensorProto.FLOAT, [DENSE]),
            helper.make_tensor_value_info("is_chinese", TensorProto.FLOAT, [1]),
        ],
        [
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [3]),
            helper.make_tensor_value_info("valence", TensorProto.FLOAT, [1]),
        ],
        [
            numpy_helper.from_array(np.ascontiguousarray(value) if value.ndim else value, name)
            for name, value in weights.items()
        ],
    )
    model = helper.make_model(graph, producer_name="ssop-mesh", opset_imports=[helper.make_opsetid("", _OPSET)])
    model.ir_version = 8
    features = {
        "version": VERSION,
        "bits": bits,
        "grams": " ".join(grams),
        "english": dict(sorted(lexicon.english.items())),
        "chinese": dict(sorted(lexicon.chinese.items())),
        "negations": sorted(lexicon.negations),
        "boosters": sorted(lexicon.boosters),
    }
    for name, value in {
        "kind": KIND,
        "version": version,
        "features": json.dumps(features, ensure_ascii=False),
        "probe": json.dumps(list(probe), ensure_ascii=False),
        **notes,
    }.items():
        onnx.helper.set_model_props(model, {**{p.key: p.value for p in model.metadata_props}, f"ssop.{name}": value})
    onnx.checker.check_model(model)
    return model.SerializeToString(deterministic=True)
