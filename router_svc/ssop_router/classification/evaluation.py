"""Chooses what scores one text: the compiled evaluator for the graph that training writes, ONNX Runtime for any other.

The graph is known by its nodes, byte for byte; what it was trained to is in its constants.
"""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

try:
    from ssop_router.classification import _evaluator, _extract
except ImportError:
    _evaluator = _extract = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from ssop_router.classification._evaluator import Evaluator

Floats = NDArray[np.float32]
_FLOAT: Final = 1
_INT64: Final = 7
_HEADS: Final = 3
"""Gain, need and task type: the models of the dense features in the graph."""
_BLENDED: Final = 2
_RANKED: Final = 4


class UnknownGraphError(ValueError):
    """A graph that the evaluator does not know; the text says in a few words why."""


class _Places(NamedTuple):
    """Names of the constants of a graph, as `training/graph.py` counts them."""

    length: str
    low: str
    slope: str
    blend: str
    score_low: str
    score_slope: str
    gram_weights: str = ""
    gram_idf: str = ""


# SHA-256 over the nodes of the graphs without and with n-grams.
_KNOWN: Final = {
    "24d3d4231d6b0b7582ec835404eaf319ae793201cf5fec1b00e6d9eeb8dc69ed": _Places(
        "c17", "c19", "c20", "c23", "c26", "c27"
    ),
    "bda896bbc371705f301a1d09ee723db5ef20046b29b7f31ef74a89c1431db71d": _Places(
        "c20", "c22", "c23", "c26", "c29", "c30", "c16", "c17"
    ),
}


@dataclass(frozen=True, slots=True)
class Weights:
    """The constants of a graph; axes as in `_evaluator.pyx`, arrays contiguous. Without n-grams theirs are empty.

    `pairs` and `crossed` have one array for each head, over the features that it looks at in pairs.
    """

    mean: Floats
    scale: Floats
    clip: tuple[float, float]
    ideographs: int
    chinese_share: float
    length: int
    linear: Floats
    bias: Floats
    pairs: tuple[NDArray[np.int64], ...]
    crossed: tuple[Floats, ...]
    low: Floats
    slope: Floats
    blend: Floats
    score_low: Floats
    score_slope: Floats
    gram_weights: Floats
    gram_idf: Floats


def read_weights(content: bytes, width: int) -> Weights:
    """The constants of an ONNX file over `width` dense features. Raises UnknownGraphError."""
    graph = _read_model(content).graph
    nodes = hashlib.sha256(b"".join(b"%d:%s" % (len(node), node) for node in graph.node)).hexdigest()
    places = _KNOWN.get(nodes)
    if places is None:
        raise UnknownGraphError("its nodes are not those of this version's training")
    constants = _Constants({tensor.name: tensor for tensor in graph.initializer})
    floats, places_of = constants.floats, constants.places
    pairs = places_of("c10", width)
    count, none = len(pairs), np.zeros(0, np.float32)
    both = floats("c7", width, 2, _HEADS)
    plain, chinese = both[:, 0, :_BLENDED].T, both[:, 1, :_BLENDED].T
    bias = floats("c8", 2, _HEADS)[:, :_BLENDED]
    crossed = floats("c11", count, _HEADS, count).transpose(1, 0, 2)[:_BLENDED]
    # The graph has the pairs of all heads in each; what a head does not look at is zero there.
    seen = [np.flatnonzero(one.any(axis=0) | one.any(axis=1)) for one in crossed]
    low = floats(places.low, 2, _RANKED, -1)
    score_low = floats(places.score_low, 2, -1)
    gram_weights = floats(places.gram_weights, -1) if places.gram_weights else none
    return Weights(
        mean=floats("c0", width),
        scale=floats("c1", width),
        clip=(float(floats("c2", 1)[0]), float(floats("c3", 1)[0])),
        ideographs=int(places_of("c4", width)[0]),
        chinese_share=float(floats("c5", 1)[0]),
        length=int(places_of(places.length, width)[0]),
        linear=np.ascontiguousarray([plain, plain + chinese]),
        bias=np.ascontiguousarray([bias[0], bias[0] + bias[1]]),
        pairs=tuple(pairs[at] for at in seen),
        crossed=tuple(np.ascontiguousarray(one[np.ix_(at, at)]) for one, at in zip(crossed, seen, strict=True)),
        low=low,
        slope=floats(places.slope, *low.shape),
        blend=floats(places.blend, 2, _RANKED),
        score_low=score_low,
        score_slope=floats(places.score_slope, *score_low.shape),
        gram_weights=gram_weights,
        gram_idf=floats(places.gram_idf, *gram_weights.shape) if places.gram_idf else none,
    )


def make_evaluator(content: bytes, extractor: Any, *, words: int, foreign: int, foreign_share: float) -> "Evaluator":
    """An evaluator for an ONNX file. `words` and `foreign` are the places of what abstentions read.

    Raises UnknownGraphError where the file holds another graph, or no evaluator is built.
    """
    if _evaluator is None or not isinstance(extractor, _extract.Extractor):
        raise UnknownGraphError("the evaluator or the features are not compiled")
    weights = read_weights(content, extractor.width)
    try:
        return _evaluator.Evaluator(extractor, weights, words=words, foreign=foreign, foreign_share=foreign_share)
    except ValueError as error:
        raise UnknownGraphError(str(error)) from error


class _Constants:
    """The tensors of a graph by name. What is not as asked for raises UnknownGraphError."""

    def __init__(self, tensors: dict[str, Any]) -> None:
        self._tensors = tensors

    def floats(self, name: str, *shape: int) -> Floats:
        """The numbers of a tensor in a shape; -1 stands for any length but 0."""
        values: Floats = self._read(name, _FLOAT, np.dtype("<f4"))
        try:
            shaped = values.reshape(shape)
        except ValueError:
            shaped = values[:0]
        if not shaped.size or not np.isfinite(shaped).all():
            raise UnknownGraphError(f"its constant {name} is damaged")
        return shaped.astype(np.float32)

    def places(self, name: str, width: int) -> NDArray[np.int64]:
        """Places among the dense features."""
        values: NDArray[np.int64] = self._read(name, _INT64, np.dtype("<i8"))
        if not 0 < values.size <= width or values.min() < 0 or values.max() >= width:
            raise UnknownGraphError(f"its constant {name} is damaged")
        return values.astype(np.int64)

    def _read(self, name: str, kind: int, dtype: Any) -> Any:
        tensor = self._tensors.get(name)
        if tensor is None or tensor.data_type != kind or len(tensor.raw_data) % dtype.itemsize:
            raise UnknownGraphError(f"its constant {name} is damaged")
        return np.frombuffer(tensor.raw_data, dtype)


def _read_model(content: bytes) -> Any:
    """The parts of an ONNX file that are read here, by their numbers in onnx.proto3; a node stays the bytes it is.

    Raises UnknownGraphError.
    """
    file = descriptor_pb2.FileDescriptorProto(name="ssop_onnx_subset.proto", package="ssop_onnx", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    parts: dict[str, list[tuple[str, int, Any, Any, str]]] = {
        "Tensor": [
            ("dims", 1, many, field.TYPE_INT64, ""),
            ("data_type", 2, one, field.TYPE_INT32, ""),
            ("name", 8, one, field.TYPE_STRING, ""),
            ("raw_data", 9, one, field.TYPE_BYTES, ""),
        ],
        "Graph": [
            ("node", 1, many, field.TYPE_BYTES, ""),
            ("initializer", 5, many, field.TYPE_MESSAGE, ".ssop_onnx.Tensor"),
        ],
        "Model": [("graph", 7, one, field.TYPE_MESSAGE, ".ssop_onnx.Graph")],
    }
    for name, fields in parts.items():
        message = file.message_type.add(name=name)
        for field_name, number, label, kind, type_name in fields:
            message.field.add(name=field_name, number=number, label=label, type=kind, type_name=type_name or None)
    # A pool of its own: whoever imports onnx as well has its names in the default one.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    model = message_factory.GetMessageClass(pool.FindMessageTypeByName("ssop_onnx.Model"))
    try:
        return model.FromString(content)
    except DecodeError as error:
        # ONNX Runtime asks for less: a name may be any bytes.
        raise UnknownGraphError("it can't be read") from error
