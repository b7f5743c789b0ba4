"""Documents that are cut: every beginning that a node may be asked to go on from."""

import json
from collections.abc import Iterator
from typing import Any

from ssop.v1 import frame_pb2, inference_pb2
from ssop_codec import Encoder, compile_schema, text_schema

TREE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "note": {"type": "string"},
        "kids": {"type": "array", "items": {"$ref": "#"}},
        "weights": {"type": "object", "additionalProperties": {"type": "number"}},
        "owner": {"anyOf": [{"$ref": "#/$defs/Owner"}, {"type": "null"}]},
    },
    "required": ["id"],
    "additionalProperties": False,
    "$defs": {
        "Owner": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": ["integer", "null"]}},
            "required": ["name"],
            "additionalProperties": False,
        }
    },
}
"""Recursion, a map, a union with null, a long string."""
TREE_DOCUMENT: dict[str, Any] = {
    "id": 1,
    "note": 'quoted "é"\n' + "q" * 200,
    "kids": [{"id": 2, "kids": []}, {"id": 3, "note": "a", "kids": [{"id": 4, "weights": {}}], "owner": None}],
    "weights": {"a": 1.5, "b~/c": -2.5},
    "owner": {"name": "Ann", "age": None},
}


def cut(schema: Any, text: str, *, buffer_bytes: int = 96) -> Iterator[inference_pb2.ContinueFrom]:
    """Each beginning of a document that has a field, as a router asks for the rest of it."""
    encoder = Encoder(
        compile_schema(json.dumps(schema)) if schema is not None else text_schema(), stream_buffer_bytes=buffer_bytes
    )
    sent = b""
    for byte in text.encode():
        encoder.feed(bytes([byte]))
        if new := b"".join(encoder.drain(flush=True)):
            sent += new
            frames = frame_pb2.Chunk.FromString(sent).frames
            if frames[-1].kind != frame_pb2.FRAME_KIND_HEADER:
                yield inference_pb2.ContinueFrom(chunk=sent, next_seq=len(frames) + 1)
