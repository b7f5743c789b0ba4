"""The vectors are what the code makes, and a reader gets out of them what they say."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.codec_cases import encode_slowly
from ssop_codec import Encoder, compile_schema, mesh_chunk, scan_heads, text_schema

ROOT = Path(__file__).parents[3]
DOCUMENT = json.loads((ROOT / "tests" / "vectors" / "frames.json").read_text())


def test_file_is_up_to_date() -> None:
    tool = ROOT / "tools" / "make_vectors.py"
    done = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("vector", DOCUMENT["vectors"], ids=lambda vector: str(vector["name"]))
def test_encoder_makes_the_chunks(vector: dict[str, Any]) -> None:
    schema = vector["schema"]
    compiled = None if schema is None else text_schema() if schema == "text" else compile_schema(schema)
    encoder = Encoder(compiled, stream_buffer_bytes=vector["stream_buffer_bytes"])
    for byte in vector["input"].encode():
        encoder.feed(bytes((byte,)))
    encoder.finish(incomplete_reason=vector["incomplete_reason"], finish_reason=1, input_tokens=5, output_tokens=300)
    assert [chunk.hex() for chunk in encoder.drain(True)] == vector["chunks"]


@pytest.mark.parametrize("vector", DOCUMENT["vectors"], ids=lambda vector: str(vector["name"]))
def test_heads_are_those_of_the_frames(vector: dict[str, Any]) -> None:
    heads = [head for chunk in vector["chunks"] for head in scan_heads(bytes.fromhex(chunk))]
    assert heads == [(frame["kind"], frame["seq"], frame["node"]) for frame in vector["frames"]]


def test_twin_judges_alike() -> None:
    for vector in DOCUMENT["vectors"]:
        if vector["schema"] in ("text", None) or vector["incomplete_reason"]:
            continue
        options = {"stream_buffer_bytes": vector["stream_buffer_bytes"]}
        made = encode_slowly(compile_schema(vector["schema"]), vector["input"].encode(), **options)
        assert made[1] == vector["verdict"]


@pytest.mark.parametrize("entry", DOCUMENT["mesh_chunks"], ids=lambda entry: str(entry["kind"]))
def test_mesh_chunks(entry: dict[str, Any]) -> None:
    chunk = mesh_chunk(entry["kind"], bytes.fromhex(entry["payload"]))
    assert chunk.hex() == entry["chunk"]
    assert scan_heads(chunk) == [(entry["kind"], 0, 0)]
