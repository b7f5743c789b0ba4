"""How long the codec takes, beside its peers in the same run: `python tests/bench/bench_codec.py [--out FILE]`.

Contenders take turns, round by round; the figures are medians over the rounds, the best in brackets. The documents
come from SSOP_SUITES. Peers that are not installed are named and left out (SSOP_PEERS).
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers import codec_peers
from ssop_codec import (
    CODEC_VERSION,
    HAS_PROBES,
    Decoder,
    Encoder,
    FrameKind,
    Schema,
    compile_schema,
    encode_frame,
    encode_values,
    scan_heads,
)

ROUNDS = 31
SAMPLE_NS = 2_000_000
"""A call is repeated until a sample takes this long."""
TOKEN_BYTES = 4

Call = Callable[[], object]
Times = dict[str, tuple[float, float]]
"""By name: median and best time of one call in ns."""

_WORDS = {"type": "string", "maxLength": 200}
ORDER: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "order_id": {"type": "string", "pattern": "^ORD-[0-9]{1,8}$"},
        "status": {"enum": ["pending", "paid", "shipped", "cancelled"]},
        "customer": {
            "type": "object",
            "properties": {
                "name": _WORDS,
                "email": {"type": "string", "maxLength": 100},
                "age": {"type": "integer", "minimum": 0, "maximum": 150},
            },
            "required": ["name", "email", "age"],
            "additionalProperties": False,
        },
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "integer", "minimum": 0},
                    "sku": {"type": "string", "pattern": "^SKU-[0-9]{5}$"},
                    "title": _WORDS,
                    "qty": {"type": "integer", "minimum": 1, "maximum": 1000},
                    "price": {"type": "number", "minimum": 0},
                    "in_stock": {"type": "boolean"},
                    "category": {"enum": ["tools", "food", "books", "toys", "clothes"]},
                    "tags": {"type": "array", "items": {"type": "string", "maxLength": 40}, "maxItems": 10},
                    "note": {"anyOf": [{"type": "string", "maxLength": 500}, {"type": "null"}]},
                },
                "required": ["id", "sku", "title", "qty", "price"],
                "additionalProperties": False,
            },
        },
        "total": {"type": "number", "minimum": 0},
        "summary": {"type": "string", "maxLength": 5000},
    },
    "required": ["order_id", "status", "customer", "items", "total"],
    "additionalProperties": False,
}
"""The schema of the typed documents: enumerations, bounds, lengths, patterns, a union with null."""


def compare(calls: Mapping[str, Call]) -> Times:
    """Times of the calls, which take turns."""
    repeats: dict[str, int] = {}
    for name, call in calls.items():
        repeat = 1
        while True:
            start = time.perf_counter_ns()
            for _ in range(repeat):
                call()
            if time.perf_counter_ns() - start > SAMPLE_NS or repeat > 10_000:
                break
            repeat *= 4
        repeats[name] = repeat
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter_ns()
            for _ in range(repeats[name]):
                call()
            samples[name].append((time.perf_counter_ns() - start) / repeats[name])
    return {name: (statistics.median(runs), min(runs)) for name, runs in samples.items()}


def stream(schema: Schema | None, pieces: list[bytes]) -> list[bytes]:
    """One document in pieces, from the making of its encoder to its end; nothing is flushed in between."""
    encoder = Encoder(schema, stream_buffer_bytes=4096)
    feed = encoder.feed
    for piece in pieces:
        feed(piece)
    encoder.finish()
    return encoder.drain(True)


def loop(pieces: list[bytes]) -> None:
    """What the loop over the pieces costs by itself."""
    call = len
    for piece in pieces:
        call(piece)


def pieces_of(data: bytes, size: int) -> list[bytes]:
    """Tokens of one size stand in for those of a model."""
    return [data[i : i + size] for i in range(0, len(data), size)]


def waits_ns(schema: Schema, data: bytes) -> list[int]:
    """For each token that ends a field: the time of the call that puts its frame into the buffer."""
    waits = []
    clock = time.perf_counter_ns
    for _ in range(20):
        encoder = Encoder(schema, stream_buffer_bytes=16_384)
        feed = encoder.feed
        frames = encoder.frames
        for token in pieces_of(data, TOKEN_BYTES):
            start = clock()
            feed(token)
            spent = clock() - start
            if encoder.frames > frames:
                waits.append(spent)
                frames = encoder.frames
    return sorted(waits)


def read_frames(chunks: list[bytes]) -> None:
    """Chunks to what a caller reads of each frame."""
    decoder = Decoder()
    for chunk in chunks:
        for frame in decoder.feed(chunk):
            _ = frame.seq, frame.node, frame.value


def feed_frames(chunks: list[bytes]) -> None:
    """Chunks to frames and the document."""
    decoder = Decoder()
    for chunk in chunks:
        decoder.feed(chunk)


def encode_each(items: list[codec_peers.Item]) -> list[bytes]:
    """A chunk for each value."""
    return [encode_frame(n, 2, value, node=node, path=path) for n, (node, path, value) in enumerate(items, 1)]


def documents(peers: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Reading: whole and in tokens, each document in ns per byte and per token."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        data = path.read_bytes()
        rules = ORDER if path.name.startswith("typed") else None
        schema = compile_schema(rules) if rules else None
        if len(stream(schema, [data])) == 0 or not _is_ok(schema, data):
            raise ValueError(f"{path.name} does not keep its schema")
        tokens = pieces_of(data, TOKEN_BYTES)
        bytes_alone = pieces_of(data, 1)
        every = 1 if len(tokens) < 1000 else 25
        others = codec_peers.stream_readers(peers, tokens, every)
        calls: dict[str, tuple[Call, float]] = {
            "feed, 4-byte tokens": (lambda s=schema, t=tokens: stream(s, t), len(tokens)),  # type: ignore[misc]
            "loop over tokens": (lambda t=tokens: loop(t), len(tokens)),  # type: ignore[misc]
            "feed, 1-byte tokens": (lambda s=schema, t=bytes_alone: stream(s, t), len(data)),  # type: ignore[misc]
            "whole": (lambda s=schema, d=data: stream(s, [d]), len(data)),  # type: ignore[misc]
            **{name: (call, count) for name, (call, count) in others.items()},
            **{name: (call, len(data)) for name, call in codec_peers.whole_readers(peers, data, rules).items()},
        }
        times = compare({name: call for name, (call, _) in calls.items()})
        row = {name: [t / calls[name][1] for t in times[name]] for name in calls}
        rows.append({"document": path.stem, "bytes": len(data), "tokens": len(tokens), "ns": row})
        print(f"{path.stem}: {len(data)} bytes, {len(tokens)} tokens")
        for name, (median, best) in row.items():
            unit = "byte" if name == "whole" or name in codec_peers.whole_readers(peers, data, rules) else "token"
            print(f"  {name:22} {median:10.2f} ({best:.2f}) ns/{unit}")
    return rows


def _is_ok(schema: Schema | None, data: bytes) -> bool:
    encoder = Encoder(schema)
    encoder.feed(data)
    encoder.finish()
    return encoder.verdict == 1


def frames(peers: dict[str, Any], data: bytes) -> dict[str, Any]:
    """Writing and reading the frames of a document, in ns per frame."""
    schema = compile_schema(ORDER)
    chunks = stream(schema, [data])
    count = sum(len(scan_heads(chunk)) for chunk in chunks)
    decoder = Decoder()
    items: list[codec_peers.Item] = [
        (frame.node, tuple(t for t in frame.tokens if isinstance(t, int)), frame.value)
        for chunk in chunks
        for frame in decoder.feed(chunk)
        if frame.kind == FrameKind.VALUE
    ]
    whole = encode_values(1, items)
    if codec_peers.upb_encode(items) != whole or codec_peers.upb_encode_each(items) != encode_each(items):
        raise ValueError("the frames differ from those of protobuf")
    calls: dict[str, tuple[Call, int]] = {
        "loop over values": (lambda: [None for _n, (_node, _path, _value) in enumerate(items, 1)], len(items)),
        "encode one": (lambda: encode_each(items), len(items)),
        "encode one, upb": (lambda: codec_peers.upb_encode_each(items), len(items)),
        "encode a batch": (lambda: encode_values(1, items), len(items)),
        "encode a batch, upb": (lambda: codec_peers.upb_encode(items), len(items)),
        "decode, document built": (lambda: feed_frames(chunks), count),
        "decode and read seq, node, value": (lambda: read_frames(chunks), count),
        "decode, upb": (lambda: [codec_peers.upb_decode(chunk) for chunk in chunks], count),
        "scan heads": (lambda: [scan_heads(chunk) for chunk in chunks], count),
    }
    if "msgspec" in peers:
        pack, unpack = peers["msgspec"].msgpack.encode, peers["msgspec"].msgpack.decode
        packed = pack(items)
        each = [pack((n, *item)) for n, item in enumerate(items, 1)]
        calls["encode one, msgspec.msgpack"] = lambda: [pack((n, *i)) for n, i in enumerate(items, 1)], len(items)
        calls["encode a batch, msgspec.msgpack"] = lambda: pack(items), len(items)
        calls["decode one, msgspec.msgpack"] = lambda: [unpack(frame) for frame in each], len(items)
        calls["decode a batch, msgspec.msgpack"] = lambda: unpack(packed), len(items)
    times = compare({name: call for name, (call, _) in calls.items()})
    row = {name: [t / calls[name][1] for t in times[name]] for name in calls}
    print(f"frames of typed_20k: {len(items)} values, {count} frames, {sum(map(len, chunks))} bytes")
    for name, (median, best) in row.items():
        print(f"  {name:34} {median:10.1f} ({best:.1f}) ns/frame")
    return row


def fixed_costs(peers: dict[str, Any], data: bytes) -> dict[str, Any]:
    """What a document costs whatever its size, in ns."""
    schema = compile_schema(ORDER)
    header = Encoder(schema, stream_buffer_bytes=4096).flush()
    encoder = Encoder(schema)
    calls: dict[str, Call] = {
        "Encoder()": lambda: Encoder(schema, stream_buffer_bytes=4096),
        "Encoder(), finish, drain": lambda: stream(schema, []),
        "Decoder()": Decoder,
        "Decoder() and a header": lambda: Decoder().feed(header),
        "feed of nothing": lambda: encoder.feed(b""),
        "compile the schema": lambda: compile_schema(ORDER),
    }
    if "llguidance" in peers:
        guide = peers["llguidance"]
        tokenizer, text = guide.LLTokenizer("byte"), json.dumps(ORDER)
        calls["compile the schema, llguidance"] = lambda: guide.LLMatcher(
            tokenizer, guide.LLMatcher.grammar_from_json_schema(text)
        )
    row: dict[str, Any] = {name: list(pair) for name, pair in compare(calls).items()}
    waits = waits_ns(schema, data)
    clock = compare({"clock": time.perf_counter_ns})["clock"][0]
    row["last byte to frame"] = [waits[len(waits) // 2] - clock, waits[len(waits) * 99 // 100] - clock]
    print("fixed costs")
    for name, (median, best) in row.items():
        words = f"p50 {median:.0f}, p99 {best:.0f}" if name.startswith("last") else f"{median:10.0f} ({best:.0f})"
        print(f"  {name:34} {words} ns")
    return row


def main() -> None:
    """Measure, print, write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    folder = Path(os.environ.get("SSOP_SUITES", "")) / "suites" / "bench_docs"
    if not folder.is_dir():
        print("not run: SSOP_SUITES does not name the folder of the test suites", file=sys.stderr)
        return
    about: dict[str, Any] = {
        "codec": CODEC_VERSION,
        "probes": HAS_PROBES,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "rounds": ROUNDS,
    }
    print("  ".join(f"{name}={value}" for name, value in about.items()))
    peers = codec_peers.load_peers()
    data = (folder / "typed_20k.json").read_bytes()
    report = {
        **about,
        "fixed": fixed_costs(peers, data),
        "frames": frames(peers, data),
        "documents": documents(peers, folder),
    }
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
