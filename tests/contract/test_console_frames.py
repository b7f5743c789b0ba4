"""The console's reader of frames, in JavaScript, against the codec's decoder."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from helpers.answers import document_chunks
from ssop_codec import Decoder, FrameKind
from ssop_gateway.core.frames import dump, split_chunk, to_json

ROOT = Path(__file__).resolve().parents[2]
MODULE = ROOT / "services" / "ssop_gateway" / "console" / "frames.js"
READER = ROOT / "tests" / "helpers" / "console_frames.mjs"
TREE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "children": {"type": "array", "items": {"$ref": "#"}},
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
        "any": {},
    },
    "additionalProperties": {"type": "object", "additionalProperties": {"type": ["number", "null", "boolean"]}},
}
VALUE: dict[str, Any] = {
    "name": "é" * 200,
    "children": [{"name": "a/b~c", "children": [{"name": "deep", "children": []}]}, {"pair": [7, "x"]}],
    "pair": [1, "two"],
    "any": {"x": [{"y": [1, [], {}]}, None, True]},
    "map": {"k": 1.5, "n": None, "b": False},
    "": {"": 0.5},
}


@pytest.mark.needs("node")
@pytest.mark.parametrize("schema", [TREE, {}], ids=["typed", "untyped"])
def test_paths_and_values_are_those_of_the_decoder(schema: dict[str, Any], tmp_path: Path) -> None:
    chunks = document_chunks(VALUE, schema=schema, buffer_bytes=128)
    lines = "\n".join(dump(to_json(frame)) for chunk in chunks for frame in split_chunk(chunk))
    # Node takes a file for a module by its name or by a package.json beside it; a browser by its type.
    module = tmp_path / "frames.mjs"
    module.write_bytes(MODULE.read_bytes())
    done = subprocess.run(
        ["node", str(READER), module.as_uri()], input=lines, capture_output=True, text=True, timeout=60, check=True
    )
    decoder = Decoder()
    expected: dict[str, str] = {}
    for frame in (frame for chunk in chunks for frame in decoder.feed(chunk)):
        if frame.kind in {FrameKind.VALUE, FrameKind.PART}:
            text = frame.value if isinstance(frame.value, str) else json.dumps(frame.value)
            expected[frame.path] = expected.get(frame.path, "") + text
    shown = dict(json.loads(done.stdout))
    assert {path: text for path, text in shown.items() if text not in {"{}", "[]"}} == expected
    assert decoder.result == VALUE
