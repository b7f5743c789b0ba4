"""Peers of the codec in its benchmark. They are no dependency: what is not installed is named and left out.

SSOP_PEERS may name a folder of packages (`pip install --target`) outside the project.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from ssop.v1 import frame_pb2

Call = Callable[[], object]

PACKAGES = ("orjson", "msgspec", "jiter", "ijson", "llguidance")
_CONTENT = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value", type(None): "null_value"}

Item = tuple[int, tuple[int | str, ...], Any]
"""Node, path and value of a frame."""


def load_peers() -> dict[str, Any]:
    """The peers by name, as far as they are installed."""
    folder = os.environ.get("SSOP_PEERS")
    if folder:
        sys.path.append(folder)
    peers: dict[str, Any] = {}
    for name in PACKAGES:
        try:
            peers[name] = import_module(name)
        except ImportError:
            print(f"not installed, left out: {name}")
    return peers


def whole_readers(peers: dict[str, Any], data: bytes, schema: dict[str, Any] | None) -> dict[str, Call]:
    """Reads a whole document once. Only msgspec and llguidance check it, where there is a schema."""
    calls: dict[str, Call] = {"json": lambda: json.loads(data)}
    if "orjson" in peers:
        calls["orjson"] = lambda: peers["orjson"].loads(data)
    if "jiter" in peers:
        calls["jiter"] = lambda: peers["jiter"].from_json(data)
    if "msgspec" in peers:
        decode = peers["msgspec"].json.Decoder().decode
        calls["msgspec"] = lambda: decode(data)
    if schema is not None and "llguidance" in peers:
        guide = peers["llguidance"]
        tokenizer = guide.LLTokenizer("byte")
        fresh = guide.LLMatcher(tokenizer, guide.LLMatcher.grammar_from_json_schema(json.dumps(schema)))
        tokens = list(data)

        def judge() -> None:
            matcher = fresh.deep_copy()
            if not matcher.consume_tokens(tokens):
                raise ValueError(matcher.get_error())

        calls["llguidance, checks"] = judge
    return calls


def stream_readers(peers: dict[str, Any], tokens: Sequence[bytes], every: int) -> dict[str, tuple[Call, int]]:
    """Reads a document as it grows, with the number of tokens that the call reads.

    ijson goes on where it was; jiter reads the whole prefix again, here after every `every`-th token.
    """
    calls: dict[str, tuple[Call, int]] = {}
    if "ijson" in peers:
        backend = import_module("ijson.backends.yajl2_c")

        def push() -> None:
            events = peers["ijson"].sendable_list()
            reader = backend.parse_coro(events)
            for token in tokens:
                reader.send(token)
                del events[:]

        calls["ijson"] = push, len(tokens)
    if "jiter" in peers:
        prefixes = [b"".join(tokens[: n + 1]) for n in range(0, len(tokens), every)]
        from_json = peers["jiter"].from_json

        def read_again() -> None:
            for prefix in prefixes:
                from_json(prefix, partial_mode="trailing-strings")

        calls["jiter, prefix again"] = read_again, len(prefixes)
    return calls


def upb_frame(seq: int, item: Item) -> frame_pb2.Frame:
    """The frame of a value as a message."""
    node, path, value = item
    steps = [frame_pb2.PathStep(index=step) if isinstance(step, int) else frame_pb2.PathStep(key=step) for step in path]
    frame = frame_pb2.Frame(seq=seq, kind=frame_pb2.FRAME_KIND_VALUE, node=node, path=steps)
    setattr(frame, _CONTENT[type(value)], 0 if value is None else value)
    return frame


def upb_encode_each(items: Sequence[Item]) -> list[bytes]:
    """A chunk for each value."""
    return [frame_pb2.Chunk(frames=[upb_frame(n, item)]).SerializeToString() for n, item in enumerate(items, 1)]


def upb_encode(items: Sequence[Item]) -> bytes:
    """One chunk."""
    return frame_pb2.Chunk(frames=[upb_frame(n, item) for n, item in enumerate(items, 1)]).SerializeToString()


def upb_decode(chunk: bytes) -> list[tuple[int, int, list[int | str], Any]]:
    """Number, node, path and value of each frame."""
    frames = []
    for frame in frame_pb2.Chunk.FromString(chunk).frames:
        path = [step.index if step.HasField("index") else step.key for step in frame.path]
        content = frame.WhichOneof("content")
        value = getattr(frame, content) if content and content != "null_value" else None
        frames.append((frame.seq, frame.node, path, value))
    return frames
