"""Writes tests/vectors/frames.json: documents and the chunks that the codec makes of them.

`python tools/make_vectors.py [--check]`. Readers and writers in other languages are tested against the file;
SPEC.md says that it is normative.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ssop_codec import CODEC_VERSION, WIRE_VERSION, Decoder, Encoder, compile_schema, mesh_chunk, text_schema

PATH = Path(__file__).parent.parent / "tests" / "vectors" / "frames.json"
TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "v": {"type": "integer"},
                "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["v"],
        }
    },
    "$ref": "#/$defs/node",
}
SENTIMENT = {
    "type": "object",
    "properties": {
        "sentiment": {"enum": ["positive", "neutral", "negative"]},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "count": {"type": "integer"},
        "urgent": {"type": "boolean"},
        "note": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["sentiment", "score"],
    "additionalProperties": False,
}
NUMBERS = {"type": "object", "additionalProperties": {"type": "number"}}
# name, schema ("text" and None as the encoder has them), input, buffer, incomplete reason
CASES: tuple[tuple[str, Any, str, int, int], ...] = (
    (
        "every type",
        SENTIMENT,
        '{"sentiment":"neutral","score":0.5,"count":-3,"urgent":true,"note":null,"tags":["a","b"]}',
        0,
        0,
    ),
    ("smallest buffer", SENTIMENT, '{"sentiment": "positive", "score": 1, "note": "' + "好" * 40 + '"}', 64, 0),
    ("rule broken", SENTIMENT, '{"sentiment":"neutral","score":1.5}', 256, 0),
    ("required missing", SENTIMENT, '{"score":0.25}', 256, 0),
    ("no JSON", SENTIMENT, '{"sentiment":"neutral",}', 256, 0),
    ("cut", SENTIMENT, '{"sentiment":"neutral","score":0.2', 256, 1),
    (
        "numbers",
        NUMBERS,
        '{"a":1,"b":-0,"c":9007199254740993,"d":18446744073709551616,"e":1e400,"f":1e-400,"g":0.1}',
        0,
        0,
    ),
    (
        "integers",
        {"type": "array", "items": {"type": "integer"}},
        "[1.0,1e2,-9223372036854775808,9223372036854775808]",
        0,
        0,
    ),
    ("untyped", True, '{"k":[1,{"x":"\\ud83d\\ude00"},[],{}],"n":1.5}', 0, 0),
    ("raw JSON", None, '{"k":[1,{"x":null}],"k":2}', 0, 0),
    ("recursion", TREE, '{"v":1,"kids":[{"v":2,"kids":[{"v":3}]}]}', 0, 0),
    ("prefix items", {"type": "array", "prefixItems": [{"type": "string"}, {"type": "null"}]}, '["x",null,7]', 0, 0),
    ("annotations", {"type": "string", "format": "colour"}, '"red"', 0, 0),
    ("top level number", {"type": "integer"}, "42", 0, 0),
    ("plain text", "text", "Grüße, " * 12, 64, 0),
    ("plain text cut", "text", "Half a sent", 0, 1),
)


def vector(name: str, schema: Any, text: str, buffer: int, reason: int) -> dict[str, Any]:
    """One case with all that the codec makes of it."""
    compiled = None if schema is None else text_schema() if schema == "text" else compile_schema(schema)
    encoder = Encoder(compiled, stream_buffer_bytes=buffer)
    encoder.feed(text.encode())
    encoder.finish(incomplete_reason=reason, finish_reason=1, input_tokens=5, output_tokens=300)
    chunks = encoder.drain(True)
    decoder = Decoder()
    frames = []
    for chunk in chunks:
        for frame in decoder.feed(chunk):
            row: dict[str, Any] = {"seq": frame.seq, "kind": frame.kind, "node": frame.node, "path": frame.path}
            if frame.kind in {2, 3}:
                row["value"] = frame.value if isinstance(frame.value, (str, float, bool)) else json_of(frame.value)
                row["parts"] = frame.parts
            if frame.size is not None:
                row["size"] = frame.size
            frames.append(row)
    violation = decoder.violation
    return {
        "name": name,
        "schema": schema,
        "input": text,
        "stream_buffer_bytes": buffer,
        "incomplete_reason": reason,
        "chunks": [chunk.hex() for chunk in chunks],
        "frames": frames,
        "verdict": decoder.verdict,
        "violation": None
        if violation is None
        else {
            "rule": violation.rule,
            "pointer": violation.pointer,
            "offset_bytes": violation.offset_bytes,
            "expected": violation.expected,
        },
    }


def json_of(value: Any) -> Any:
    """Numbers that JSON readers round are written as text."""
    if value is None or (isinstance(value, int) and abs(value) < 2**53):
        return value
    return str(value)


def main() -> None:
    """Write the file, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail where the file is out of date")
    options = parser.parse_args()
    document = {
        "wire_version": WIRE_VERSION,
        "codec_version": CODEC_VERSION,
        "made_by": "tools/make_vectors.py",
        "vectors": [vector(*case) for case in CASES],
        "mesh_chunks": [
            {"kind": kind, "payload": "0801", "chunk": mesh_chunk(kind, b"\x08\x01").hex()} for kind in range(16, 21)
        ],
    }
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    if options.check:
        if PATH.read_text() != text:
            sys.exit(f"{PATH} is out of date: run tools/make_vectors.py")
        return
    PATH.write_text(text)


if __name__ == "__main__":
    main()
