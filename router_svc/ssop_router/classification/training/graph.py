"""Writes a classifier as one ONNX graph of standard operators.

Inputs, for B texts: `dense` [B, F] and, where n-grams are used, `ids` [B, K] and `weights` [B, K], padded with weight
0. Four heads say one number a text: its length, the gain that is foreseen from a stronger model, whether its task type
needs one, and what its n-grams say about the weak model's failures; the last is 0 without n-grams. Each becomes its
rank among the training texts of its language; the ranks are blended, and the blend is ranked again, so that a score of
0.8 means: harder than 80 % of the training texts. `spread` is the weighted deviation of the heads. `heads` holds the
four ranks and the margin of a fifth head, which is not blended: the tier of the task type by its label, full above 0.
"""

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

    def axes(self, *axes: int) -> str:
        return self.constant(axes, np.int64)


def _rank(b: _Builder, values: str, knots: Floats, axis: int) -> str:
    """The share of knots below each value, with straight lines between them; the last axis of `knots` is theirs."""
    low, high = knots[..., :-1], knots[..., 1:]
    width = np.maximum(high - low, 1e-6)
    offset = b.op("Sub", values, b.constant(low))
    share = b.op("Clip", b.op("Mul", offset, b.constant(1 / width)), b.constant(0.0), b.constant(1.0))
    return b.op("ReduceMean", share, axes=[axis], keepdims=0)


def _head(b: _Builder, head: Head, dense: str, is_zh: str) -> str:
    both = b.op("MatMul", dense, b.constant(np.stack([head.linear, head.linear_zh], axis=1)))
    both = b.op("Add", both, b.constant([head.bias, head.bias_zh]))
    plain = b.op("Gather", both, b.constant([0], np.int64), axis=1)
    chinese = b.op("Mul", b.op("Gather", both, b.constant([1], np.int64), axis=1), is_zh)
    paired = b.op("Gather", dense, b.constant(head.pairs, np.int64), axis=1)
    crossed = b.op("Mul", b.op("MatMul", paired, b.constant(head.crossed)), paired)
    crossed = b.op("ReduceSum", crossed, b.axes(1), keepdims=1)
    return b.op("Add", b.op("Add", plain, chinese), crossed)


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
    is_zh = b.op("Cast", b.op("Greater", share, b.constant(CHINESE_SHARE)), to=TensorProto.FLOAT)
    gain, need, task = (_head(b, head, dense, is_zh) for head in (p.gain, p.need, p.task))
    grams = b.op("Mul", gain, b.constant(0.0)) if p.grams is None else _grams(b, p.grams)
    length = b.op("Gather", "dense", b.constant([0], np.int64), axis=1)
    # ranks, by language
    raw = b.op("Unsqueeze", b.op("Concat", length, gain, need, grams, axis=1), b.axes(2))
    ranks = [_rank(b, raw, p.knots[language][None], 2) for language in (0, 1)]
    not_zh = b.op("Sub", b.constant(1.0), is_zh)

    def pick(english: str, zh: str) -> str:
        return b.op("Add", b.op("Mul", english, not_zh), b.op("Mul", zh, is_zh))

    rank = pick(*ranks)
    shares = pick(b.constant(p.blend[0][None]), b.constant(p.blend[1][None]))
    blend = b.op("ReduceSum", b.op("Mul", rank, shares), b.axes(1), keepdims=1)
    deviation = b.op("Sub", rank, blend)
    variance = b.op("ReduceSum", b.op("Mul", b.op("Mul", deviation, deviation), shares), b.axes(1), keepdims=0)
    b.op("Sqrt", b.op("Relu", variance), output="spread")
    scores = [b.op("Unsqueeze", _rank(b, blend, p.score_knots[at][None], 1), b.axes(1)) for at in (0, 1)]
    b.op("Squeeze", pick(*scores), b.axes(1), output="score")
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
