"""The weights as the compiled encoder wants them: packed once, when the embedder starts."""

import mmap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ssop_rag.e5_weights import BLOCK, Quantised, Sizes, Weights, WeightsError

try:
    from ssop_rag import _encoder
except ImportError:  # not built here: ONNX Runtime computes
    _encoder = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from ssop_rag._encoder import Encoder

_Number = TypeVar("_Number", bound=np.generic)
_LANES: Final = 16
_LINE_BYTES: Final = 64
_HEAD: Final = 32
_RUN_TOKENS: Final = 512
"""Most tokens of a run of several texts; one takes 15 KB of memory while it runs."""


@dataclass(frozen=True, slots=True)
class Norm:
    """Gain and shift of a layer's normalisation, (width) each."""

    gain: NDArray[np.float32]
    shift: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Packed:
    """Weights of products; layouts as in `ssop_product.h`."""

    packed: NDArray[np.uint8]
    scales: NDArray[np.float16]
    bias: NDArray[np.float32]
    depth: int


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of the encoder: products in the order in which they are taken, and what normalises their sums."""

    mixing: Packed
    merging: Packed
    widening: Packed
    narrowing: Packed
    attended: Norm
    done: Norm

    @property
    def products(self) -> tuple[Packed, Packed, Packed, Packed]:
        """Its weights, in their order."""
        return self.mixing, self.merging, self.widening, self.narrowing


def find_obstacle() -> str:
    """Why there is no compiled encoder here; "" where there is one."""
    if _encoder is None:
        return "its extension is not built"
    return "" if _encoder.is_supported() else "this processor lacks AVX-512 VNNI"


def pack(tensor: Quantised, bias: NDArray[np.float32]) -> Packed:
    """A quantised tensor of (rows, columns) as weights of `rows` results from `columns` numbers."""
    halves = np.asarray(tensor.halves)
    rows, blocks, _ = halves.shape
    # Of a block's bytes [16] low halves are weights 0 to 15 and high halves 16 to 31, four of which make a dot product.
    tiles = halves.reshape(rows // _LANES, _LANES, blocks, 4, 4).transpose(0, 2, 3, 1, 4)
    scales = np.asarray(tensor.scales).reshape(rows // _LANES, _LANES, blocks).transpose(0, 2, 1)
    return Packed(np.ascontiguousarray(tiles), np.ascontiguousarray(scales), bias, blocks * BLOCK)


class _Arena:
    """Memory of large pages, where the system has them: a text reads all weights, and would miss the table of pages."""

    def __init__(self, size: int) -> None:
        memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a kernel without them
                memory.madvise(mmap.MADV_HUGEPAGE)
        self._free = np.frombuffer(memory, dtype=np.uint8)

    def keep(self, array: NDArray[_Number]) -> NDArray[_Number]:
        """A copy of the array in this memory."""
        size = _aligned(array.nbytes)
        place, self._free = self._free[: array.nbytes], self._free[size:]
        kept = place.view(array.dtype).reshape(array.shape)
        kept[...] = array
        return kept


def _aligned(size: int) -> int:
    return -(-size // _LINE_BYTES) * _LINE_BYTES


def _gather(layers: Sequence[Layer]) -> list[Layer]:
    """The layers with what their products read in one place."""
    arrays = [array for layer in layers for one in layer.products for array in (one.packed, one.scales)]
    arena = _Arena(sum(_aligned(array.nbytes) for array in arrays))

    def keep(one: Packed) -> Packed:
        return replace(one, packed=arena.keep(one.packed), scales=arena.keep(one.scales))

    return [
        replace(
            layer,
            mixing=keep(layer.mixing),
            merging=keep(layer.merging),
            widening=keep(layer.widening),
            narrowing=keep(layer.narrowing),
        )
        for layer in layers
    ]


class EncoderRuntime:
    """Computes in this process on one core, whatever the number of texts. Raises WeightsError."""

    name: Final = "compiled"
    provider: Final = "cpu"

    def __init__(self, weights: Weights) -> None:
        self._encoder: Final = _make_encoder(weights)

    def vectors(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """(texts, width): the mean over the tokens of each text."""
        lengths = np.array([len(ids) for ids in texts], dtype=np.int32)
        parts = []
        for begin, end in _runs(lengths.tolist()):
            ids = np.fromiter(chain.from_iterable(texts[begin:end]), dtype=np.int32)
            parts.append(self._encoder.encode(ids, lengths[begin:end]))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _runs(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The texts of each run: so many that weights are read for many rows, and memory stays small. Never none."""
    begin = tokens = 0
    for number, length in enumerate(lengths):
        if number > begin and tokens + length > _RUN_TOKENS:
            yield begin, number
            begin, tokens = number, 0
        tokens += length
    yield begin, len(lengths)


def _make_encoder(weights: Weights) -> "Encoder":
    sizes = weights.sizes
    _check(sizes)
    return _encoder.Encoder(
        words=weights.blocks("emb.word", sizes.words, sizes.width),
        positions=weights.positions(),
        norm=_norm(weights, "emb.ln"),
        layers=_gather([_layer(weights, f"l{number}.") for number in range(sizes.layers)]),
        width=sizes.width,
        inner=sizes.inner,
        epsilon=weights.epsilon,
    )


def _check(sizes: Sizes) -> None:
    if sizes.heads * _HEAD != sizes.width:
        raise WeightsError(f"heads of {sizes.width / max(1, sizes.heads):g} numbers, where the encoder takes {_HEAD}")
    if sizes.inner % BLOCK:
        raise WeightsError(f"an inner layer of {sizes.inner} numbers, no multiple of {BLOCK}")


def _layer(weights: Weights, name: str) -> Layer:
    width, inner = weights.sizes.width, weights.sizes.inner
    three = [_linear(weights, f"{name}{part}", width, width) for part in "qkv"]
    mixing = Packed(
        np.concatenate([one.packed for one in three]),
        np.concatenate([one.scales for one in three]),
        np.concatenate([one.bias for one in three]),
        width,
    )
    return Layer(
        mixing,
        _linear(weights, f"{name}ao", width, width),
        _linear(weights, f"{name}fi", inner, width),
        _linear(weights, f"{name}fo", width, inner),
        _norm(weights, f"{name}aln"),
        _norm(weights, f"{name}oln"),
    )


def _linear(weights: Weights, name: str, rows: int, columns: int) -> Packed:
    return pack(weights.quantised(f"{name}.w", rows, columns), weights.floats(f"{name}.b", rows))


def _norm(weights: Weights, name: str) -> Norm:
    width = weights.sizes.width
    return Norm(weights.floats(f"{name}.w", width), weights.floats(f"{name}.b", width))
