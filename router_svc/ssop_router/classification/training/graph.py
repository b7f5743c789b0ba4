"""Writes a classifier as one ONNX graph of standard operators.

Inputs, for B texts: `dense` [B, F] and, where n-grams are used, `ids` [B, K] and `weights` [B, K], padded with weight
0. Four heads say one number a text: its length, the gain that is foreseen from a stronger model, whether its task type
needs one, and what its n-grams say about the weak model's failures; the last is 0 without n-grams. Each becomes its
rank among the training texts of its language; the ranks are blended, and the blend is ranked again, so that a score of
0.8 means: harder than 80 % of the training texts. `spread` is the weighted deviation of the heads. `heads` holds the
four ranks and the margin of a fifth head, which is not blended: the tier of the task type by its label, full above 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET: Final = 17
IR_VERSION: Final = 9
CLIP: Final = 4.0
"""Standardised features are held within this many deviations: an odd text must not outvote all else."""
CHINESE_SHARE: Final = 0.15
"""Share of Chinese characters from which a text is Chinese."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Head:
    """A model of F dense features, linear and in pairs; `linear_zh` and `bias_zh` come on top for Chinese texts.

    `linear` and `linear_zh` [F]; `crossed` [P, P] over the features `pairs`.
    """

    bias: float
    bias_zh: float
    linear: Floats
    linear_zh: Floats
    pairs: tuple[int, ...]
    crossed: Floats


@dataclass(frozen=True, slots=True)
class Grams:
    """A linear model of n-grams: weights and inverse document frequencies, [D] each."""

    weights: Floats
    idf: Floats


@dataclass(frozen=True, slots=True)
class Parameters:
    """What the graph holds. F dense features, Q knots; languages are en, zh; heads are length, gain, need, grams.

    `mean` and `scale` [F]; `knots` [2, 4, Q]; `blend` [2, 4], rows sum to 1; `score_knots` [2, Q]; `ideographs` is the
    index of the share of Chinese characters among the dense features.
    """

    mean: Floats
    scale: Floats
    gain: Head
    need: Head
    task: Head
    grams: Grams | None
    knots: Floats
    blend: Floats
    score_knots: Floats
    ideographs: int


class _Builder:
    """Collects nodes and constants; every method gives the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, values: Any, kind: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values, kind), name))
        return name

    def op(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = output or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"{kind}_{len(self.nodes)}", **attributes))
        return name

    def split(self, value: str, *sizes: int) -> tuple[str, str]:
        """Two parts, with so many columns."""
        names = (f"{value}_low", f"{value}_high")
        node = helper.make_node("Split", [value, self.axes(*sizes)], list(names), name=f"Split_{value}", axis=1)
        self.nodes.append(node)
        return names

    def axes(self, *axes: int) -> str:
        return self.constant(axes, np.int64)


def _rank(b: _Builder, values: str, knots: Floats, language: str, axis: int, *, output: str = "") -> str:
    """The share of a language's knots below each value, straight lines between them; their last axis holds them.

    `knots` [2, ..., Q]; `language` [B].
    """
    low, high = knots[..., :-1], knots[..., 1:]
    width = np.maximum(high - low, 1e-6)
    offset = b.op("Sub", values, b.op("Gather", b.constant(low), language))
    slopes = b.op("Gather", b.constant(1 / width), language)
    share = b.op("Clip", b.op("Mul", offset, slopes), b.constant(0.0), b.constant(1.0))
    return b.op("ReduceMean", share, output=output, axes=[axis], keepdims=0)


def _heads(b: _Builder, heads: Sequence[Head], dense: str, is_zh: str) -> str:
    """[B, H]: all heads at once, since a node costs more than its arithmetic does."""
    weights = np.stack([head.linear for head in heads] + [head.linear_zh for head in heads], axis=1)
    biases = [head.bias for head in heads] + [head.bias_zh for head in heads]
    both = b.op("Add", b.op("MatMul", dense, b.constant(weights)), b.constant(biases))
    plain, chinese = b.split(both, len(heads), len(heads))
    pairs = sorted({pair for head in heads for pair in head.pairs})
    crossed = np.zeros((len(pairs), len(heads), len(pairs)))
    for at, head in enumerate(heads):
        places = [pairs.index(pair) for pair in head.pairs]
        crossed[np.ix_(places, [at], places)] = head.crossed[:, None, :]
    paired = b.op("Gather", dense, b.constant(pairs, np.int64), axis=1)
    products = b.op("MatMul", paired, b.constant(crossed.reshape(len(pairs), -1)))
    products = b.op("Reshape", products, b.axes(-1, len(heads), len(pairs)))
    products = b.op("ReduceSum", b.op("Mul", products, b.op("Unsqueeze", paired, b.axes(1))), b.axes(2), keepdims=0)
    return b.op("Add", b.op("Add", plain, b.op("Mul", chinese, is_zh)), products)


def _grams(b: _Builder, grams: Grams) -> str:
    """The cosine of the text's weighted counts with the weights, times the length of those."""
    direct = b.op("Mul", "weights", b.op("Gather", b.constant(grams.weights * grams.idf), "ids"))
    scaled = b.op("Mul", "weights", b.op("Gather", b.constant(grams.idf), "ids"))
    sums = b.op("ReduceSum", direct, b.axes(1), keepdims=1)
    squares = b.op("ReduceSumSquare", scaled, axes=[1], keepdims=1)
    return b.op("Div", sums, b.op("Sqrt", b.op("Add", squares, b.constant(1e-9))))


def build_graph(parameters: Parameters, metadata: dict[str, str]) -> bytes:
    """The ONNX file."""
    p, b = parameters, _Builder()
    centred = b.op("Mul", b.op("Sub", "dense", b.constant(p.mean)), b.constant(1 / p.scale))
    dense = b.op("Clip", centred, b.constant(-CLIP), b.constant(CLIP))
    share = b.op("Gather", "dense", b.constant([p.ideographs], np.int64), axis=1)
    is_chinese = b.op("Greater", share, b.constant(CHINESE_SHARE))
    is_zh = b.op("Cast", is_chinese, to=TensorProto.FLOAT)
    language = b.op("Squeeze", b.op("Cast", is_chinese, to=TensorProto.INT64), b.axes(1))
    values, task = b.split(_heads(b, (p.gain, p.need, p.task), dense, is_zh), 2, 1)
    grams = b.op("Mul", share, b.constant(0.0)) if p.grams is None else _grams(b, p.grams)
    length = b.op("Gather", "dense", b.constant([0], np.int64), axis=1)
    raw = b.op("Unsqueeze", b.op("Concat", length, values, grams, axis=1), b.axes(2))
    rank = _rank(b, raw, p.knots, language, 2)
    shares = b.op("Gather", b.constant(p.blend), language)
    blend = b.op("ReduceSum", b.op("Mul", rank, shares), b.axes(1), keepdims=1)
    deviation = b.op("Sub", rank, blend)
    variance = b.op("ReduceSum", b.op("Mul", b.op("Mul", deviation, deviation), shares), b.axes(1), keepdims=0)
    b.op("Sqrt", b.op("Relu", variance), output="spread")
    _rank(b, blend, p.score_knots, language, 1, output="score")
    b.op("Concat", rank, task, axis=1, output="heads")
    inputs = [helper.make_tensor_value_info("dense", TensorProto.FLOAT, ["texts", len(p.mean)])]
    if p.grams is not None:
        inputs += [
            helper.make_tensor_value_info("ids", TensorProto.INT32, ["texts", "grams"]),
            helper.make_tensor_value_info("weights", TensorProto.FLOAT, ["texts", "grams"]),
        ]
    graph = helper.make_graph(
        b.nodes,
        "ssop-complexity",
        inputs,
        [
            helper.make_tensor_value_info("score", TensorProto.FLOAT, ["texts"]),
            helper.make_tensor_value_info("spread", TensorProto.FLOAT, ["texts"]),
            helper.make_tensor_value_info("heads", TensorProto.FLOAT, ["texts", 5]),
        ],
        b.constants,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="ssop-mesh"
    )
    helper.set_model_props(model, dict(sorted(metadata.items())))
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content
