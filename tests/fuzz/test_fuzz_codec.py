"""Damages documents and chunks at random: `pytest tests/fuzz`, for SSOP_TEST_FUZZ_SECONDS (20), or
`python tests/fuzz/test_fuzz_codec.py [--seconds N] [--seed N]`.

Three things are held: the encoder makes what its twin makes, at any cut; the decoder and the head scan raise FrameError
and nothing else; what the decoder takes, protobuf takes too. A failure prints the seed and the bytes: they go to
`corpus.json`, which the tests of every day replay.
"""

import argparse
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import DecodeError

from ssop.v1 import frame_pb2
from ssop_codec import Decoder, Encoder, FrameError, FrameKind, Schema, compile_schema, scan_heads
from ssop_codec import _encoder_py as twin

VECTORS = Path(__file__).parents[1] / "vectors" / "frames.json"
CORPUS = Path(__file__).parent / "corpus.json"
READ_KINDS = frozenset(int(kind) for kind in FrameKind if kind < FrameKind.DECISION)
"""What mesh frames and kinds of later versions hold is handed on unread."""
TOKENS = (
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\u",
    b"\\ud83d",
    b"\xf0\x9f",
    b"1e",
    b"-",
    b"null",
    b" " * 9,
)


def damage(data: bytes, rng: random.Random) -> bytes:
    """A copy with one to four changes."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(out))
        kind = rng.randrange(5)
        if kind == 0:
            out[at : at + 1] = bytes((rng.randrange(256),))
        elif kind == 1:
            del out[at : at + rng.randint(1, 4)]
        elif kind == 2:
            out[at:at] = rng.choice(TOKENS)
        elif kind == 3:
            other = rng.randint(0, len(out))
            out[at:at] = out[min(at, other) : max(at, other)][:64]
        else:
            del out[at:]
    return bytes(out)


def run(make: Any, schema: Schema | None, pieces: list[bytes], buffer: int) -> Any:
    """All that an encoder shows of a document."""
    encoder = make(schema, stream_buffer_bytes=buffer)
    chunks = []
    for piece in pieces:
        encoder.feed(piece)
        chunks += encoder.drain()
    encoder.finish()
    return [*chunks, *encoder.drain(True)], encoder.verdict, encoder.violation


def check_document(schema: Schema | None, data: bytes, rng: random.Random) -> list[bytes]:
    """Encoder against twin, whole and in pieces; returns the chunks."""
    buffer = rng.choice((128, 256, 1024))
    whole = run(Encoder, schema, [data], buffer)
    assert whole == run(twin.Encoder, schema, [data], buffer), "encoder and twin differ"
    cuts = sorted(rng.randint(0, len(data)) for _ in range(rng.randint(1, 6)))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert whole == run(Encoder, schema, pieces, buffer), "a cut changes the frames"
    chunks: list[bytes] = whole[0]
    return chunks


def check_chunk(data: bytes) -> None:
    """Decoder and scan on bytes of a peer."""
    is_read = True
    try:
        for frame in Decoder().feed(data):
            assert isinstance(frame.path, str)
            repr(frame)
            is_read = is_read and frame.kind in READ_KINDS
    except FrameError:
        is_taken = False
    else:
        is_taken = True
    try:
        scan_heads(data)
    except FrameError:
        assert not is_taken, "the decoder takes what the scan refuses"
    if is_taken and is_read:
        try:
            frame_pb2.Chunk.FromString(data)
        except DecodeError as error:
            raise AssertionError("the decoder takes what protobuf refuses") from error


def fuzz(seconds: float, seed: int) -> int:
    """Run for a time; returns the number of rounds. Raises AssertionError with the seed and the bytes."""
    rng = random.Random(seed)
    corpus: list[tuple[Schema | None, bytes]] = [
        (None if v["schema"] is None else compile_schema(v["schema"]), v["input"].encode())
        for v in json.loads(VECTORS.read_text())["vectors"]
        if v["schema"] != "text"
    ]
    corpus += [
        (compile_schema(entry["schema"]), document.encode())
        for entry in json.loads(CORPUS.read_text())["entries"]
        for document in entry["documents"]
    ]
    until = time.monotonic() + seconds
    rounds = 0
    data = b""
    try:
        while time.monotonic() < until:
            schema, text = rng.choice(corpus)
            data = damage(text, rng)
            chunks = check_document(schema, data, rng)
            data = damage(b"".join(chunks), rng)
            check_chunk(data)
            rounds += 1
    except Exception as error:
        raise AssertionError(f"seed {seed}, round {rounds}: {data!r}") from error
    return rounds


@pytest.mark.timeout(0)
def test_codec_holds_under_damage() -> None:
    seconds = float(os.environ.get("SSOP_TEST_FUZZ_SECONDS", "20"))
    assert fuzz(seconds, random.randrange(2**32)) > 100


def main() -> None:
    """Run for a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = random.randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}: {fuzz(options.seconds, seed)} rounds")


if __name__ == "__main__":
    main()
