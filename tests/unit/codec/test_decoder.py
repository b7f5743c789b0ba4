"""What the decoder rebuilds, counts and refuses."""

from decimal import Decimal
from typing import Any

import pytest

from helpers.codec_cases import decode, encode
from ssop.v1 import frame_pb2, mesh_pb2
from ssop_codec import (
    Decoder,
    Encoder,
    FrameError,
    FrameKind,
    RefStep,
    append_mesh_frame,
    compile_schema,
    encode_frame,
    encode_values,
    mesh_chunk,
    scan_heads,
)

MAP = compile_schema({"type": "object", "properties": {"a": {}, "b": {"type": "array"}}})


def chunks_of(text: bytes, **options: Any) -> list[bytes]:
    return encode(MAP, text, **options)[0]


def test_delta_holds_whole_top_level_properties_only() -> None:
    _, frames = decode(chunks_of(b'{"a":{"x":1,"y":[2]},"b":[3],"c":4}'))
    assert [frame.delta for frame in frames if frame.delta] == [{"a": {"x": 1, "y": [2]}}, {"b": [3]}, {"c": 4}]


def test_delta_of_a_long_string_is_the_joined_one() -> None:
    _, frames = decode(chunks_of(b'{"a":"' + b"x" * 200 + b'"}', stream_buffer_bytes=64))
    assert [frame.delta for frame in frames if frame.delta] == [{"a": "x" * 200}]


def test_result_grows_frame_by_frame() -> None:
    decoder = Decoder()
    encoder = Encoder(MAP)
    seen = []
    for byte in b'{"a":1,"b":[2,3]}':
        encoder.feed(bytes((byte,)))
        for chunk in encoder.drain(True):
            decoder.feed(chunk)
        seen.append(repr(decoder.result))
    assert list(dict.fromkeys(seen)) == ["None", "{'a': 1}", "{'a': 1, 'b': [2]}", "{'a': 1, 'b': [2, 3]}"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"9223372036854775808", 2**63),
        (b"1e400", Decimal("1e400")),
        (b"-9223372036854775808", -(2**63)),
        (b"0.5", 0.5),
        (b"-0.0", -0.0),
    ],
)
def test_numbers_come_back(text: bytes, value: Any) -> None:
    result = decode(encode(None, text)[0])[0].result
    assert (type(result), repr(result)) == (type(value), repr(value))


def test_last_of_equal_keys_wins_in_raw_json() -> None:
    text = b'{"a":{"x":1},"b":2,"a":{"y":3}}'
    assert decode(encode(None, text)[0])[0].result == {"a": {"y": 3}, "b": 2}


def test_pointer_is_escaped() -> None:
    _, frames = decode(encode(None, b'{"a/b~c":1}')[0])
    assert frames[1].path == "/a~1b~0c"


def test_mesh_frames_pass_through() -> None:
    payload = mesh_pb2.Decision(request_id="r1", tier=mesh_pb2.TIER_LITE).SerializeToString()
    (frame,) = Decoder().feed(mesh_chunk(FrameKind.DECISION, payload))
    assert (frame.kind, frame.seq, frame.mesh) == (FrameKind.DECISION, 0, payload)
    assert frame_pb2.Frame.FromString(frame.raw).decision.request_id == "r1"


@pytest.mark.parametrize("kind", range(16, 21))
def test_mesh_chunks_are_what_the_stubs_write(kind: int) -> None:
    message = frame_pb2.Chunk.FromString(mesh_chunk(kind, b""))
    assert message.frames[0].kind == kind
    assert message.frames[0].WhichOneof("content") is not None


def test_mesh_chunk_needs_a_mesh_kind() -> None:
    with pytest.raises(ValueError, match="mesh"):
        mesh_chunk(FrameKind.VALUE, b"")


def test_spliced_chunks_read_as_one() -> None:
    chunks = chunks_of(b'{"a":1,"b":[2,3]}', stream_buffer_bytes=64)
    decoder, _ = decode([b"".join(chunks)])
    assert decoder.result == {"a": 1, "b": [2, 3]}


def test_empty_chunk_means_nothing() -> None:
    assert Decoder().feed(b"") == []
    assert scan_heads(b"") == []


def test_repeated_frames_are_dropped_and_counted() -> None:
    chunks = chunks_of(b'{"a":1}')
    decoder, _ = decode([chunks[0], chunks[0], *chunks[1:]])
    assert decoder.result == {"a": 1}
    assert decoder.frames_received - decoder.frames_verified == 2


def test_lost_frames_are_counted() -> None:
    chunks = chunks_of(b'{"a":"' + b"x" * 100 + b'","b":[1]}', stream_buffer_bytes=64)
    decoder, _ = decode([*chunks[:2], *chunks[3:]])
    assert decoder.missing == len(scan_heads(chunks[2]))


def test_unknown_kind_is_counted_and_ignored() -> None:
    frame = b"\x08\x01\x10\x0f"
    decoder = Decoder()
    assert [f.kind for f in decoder.feed(b"\x0a\x04" + frame)] == [15]
    assert decoder.frames_received == 1


def test_unknown_fields_are_skipped() -> None:
    chunk = chunks_of(b'{"a":1}')[0]
    assert len(Decoder().feed(b"\x12\x01x" + chunk + b"\x9a\x06\x00")) == 2


@pytest.mark.parametrize(
    "chunk",
    [
        b"\x0a",
        b"\x0a\x05\x08",
        b"\x0a\x02\x08\x80",
        b"\x08\x01",
        b"\x0b",
        b"\x00\x00",
        b"\x0a\x0c\x08" + b"\xff" * 10 + b"\x01",
        b"\x0a\x04\x08\x01\x10\x02",
        b"\x0a\x04\x10\x01\x42\x00",
        b"\x0a\x06\x08\x01\x10\x02\x42\x00",
    ],
)
def test_malformed_chunk_is_a_frame_error(chunk: bytes) -> None:
    decoder = Decoder()
    with pytest.raises(FrameError):
        decoder.feed(chunk)
    with pytest.raises(FrameError):
        decoder.feed(b"")


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([encode_frame(2, FrameKind.VALUE, 1, node=9)], "table"),
        ([encode_frame(2, FrameKind.VALUE, 1, node=1, path=[RefStep(1)])], "reference"),
        ([encode_frame(2, FrameKind.VALUE, 1, node=2, path=[5])], "leaves out"),
        (
            [
                encode_frame(2, FrameKind.VALUE, 1, node=2, path=["k"]),
                encode_frame(3, FrameKind.VALUE, 1, node=2, path=[0]),
            ],
            "index",
        ),
        ([encode_frame(2, FrameKind.CLOSE, 3)], "size"),
        ([encode_frame(2, FrameKind.VALUE, "x", node=1, parts=2)], "parts"),
    ],
)
def test_contradiction_is_a_frame_error(frames: list[bytes], reason: str) -> None:
    header = Encoder(MAP).flush()
    decoder = Decoder()
    decoder.feed(header)
    with pytest.raises(FrameError, match=reason):
        decoder.feed(b"".join(frames))


@pytest.mark.parametrize("value", ["", "é", 0, -1, 2**63 - 1, -(2**63), 2**70, 0.5, -0.0, True, False, None, b"1e999"])
def test_encode_frame_is_what_the_stubs_write(value: Any) -> None:
    path: list[int | str | RefStep] = [3, "k", RefStep(2)]
    chunk = encode_frame(300, FrameKind.VALUE, value, node=5, path=path, parts=1, document=2)
    message = frame_pb2.Chunk.FromString(chunk)
    assert message.SerializeToString(deterministic=True) == chunk
    frame = message.frames[0]
    assert [step.WhichOneof("step") for step in frame.path] == ["index", "key", "ref_node"]
    assert (frame.seq, frame.node, frame.parts, frame.document) == (300, 5, 1, 2)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 500, 20_000])
def test_encode_frame_writes_lengths_as_the_stubs_do(size: int) -> None:
    chunk = encode_frame(1, FrameKind.PART, "x" * size, path=["k" * size])
    assert frame_pb2.Chunk.FromString(chunk).SerializeToString(deterministic=True) == chunk


def test_encode_values_is_the_frames_put_together() -> None:
    values: list[tuple[int, tuple[int | str, ...], Any]] = [
        (n, (n, "k" * n), value) for n, value in enumerate(["x" * 300, 7, 2**70, 0.5, None, True])
    ]
    frames = [
        encode_frame(300 + n, FrameKind.VALUE, value, node=node, path=path, document=2)
        for n, (node, path, value) in enumerate(values)
    ]
    assert encode_values(300, values, document=2) == b"".join(frames)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"seq": -1}, OverflowError),
        ({"node": 2**32}, OverflowError),
        ({"path": [-1]}, OverflowError),
        ({"path": [None]}, TypeError),
        ({"value": object()}, TypeError),
        ({"kind": FrameKind.CLOSE, "value": "x"}, TypeError),
        ({"value": "\ud800"}, UnicodeEncodeError),
    ],
)
def test_encode_frame_refuses_what_no_frame_holds(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        encode_frame(**{"seq": 1, "kind": FrameKind.VALUE, "value": 1} | options)


def test_path_under_another_address_is_the_same_place() -> None:
    table = Encoder(MAP).flush()
    frames = [
        encode_frame(2, FrameKind.VALUE, 1, node=1, path=["x"]),
        encode_frame(3, FrameKind.VALUE, 2, path=["a", "y"]),
        encode_frame(4, FrameKind.CLOSE, 2, node=1),
    ]
    decoder, _ = decode([table, *frames])
    assert decoder.result == {"a": {"x": 1, "y": 2}}


def test_header_is_made_anew_and_equal() -> None:
    decoder, frames = decode(chunks_of(b'{"a":1}'))
    assert frames[0].header is not None
    assert frames[0].header == decoder.header
    assert [node.key for node in frames[0].header.nodes] == ["", "a", "b"]


def test_append_mesh_frame_takes_any_content_field() -> None:
    assert append_mesh_frame(19, 21, b"ab") == mesh_chunk(19, b"ab")


def test_frames_are_read_only() -> None:
    (frame,) = Decoder().feed(mesh_chunk(16, b""))
    with pytest.raises(AttributeError):
        frame.kind = 3
