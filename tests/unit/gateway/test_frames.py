"""Frames as JSON, and deliveries."""

import json

import pytest
from google.protobuf.json_format import Parse

from helpers.answers import PERSON, document_chunks
from ssop.v1 import mesh_pb2
from ssop.v1.frame_pb2 import Chunk, Frame
from ssop_gateway.core.faults import EdgeError
from ssop_gateway.core.frames import delivery_of, dump, ndjson_line, split_chunk, sse_event, to_json


def frames() -> list[Frame]:
    return [frame for chunk in document_chunks(PERSON) for frame in split_chunk(chunk)]


def test_a_conforming_parser_reads_the_same_frames() -> None:
    assert [Parse(dump(to_json(frame)), Frame()) for frame in frames()] == frames()


def test_names_enums_and_64_bit_integers_are_as_the_specification_says() -> None:
    value = next(to_json(frame) for frame in frames() if frame.HasField("int_value"))
    assert (value["kind"], value["int_value"]) == ("FRAME_KIND_VALUE", "36")
    assert isinstance(value["seq"], str)


@pytest.mark.parametrize("field", ["int_value", "bool_value", "null_value", "string_value", "object_size"])
def test_the_content_field_is_there_also_when_it_is_zero(field: str) -> None:
    frame = Frame(seq=1, **{field: 0 if field != "string_value" else ""})  # type: ignore[arg-type]
    assert field in to_json(frame)


def test_an_event_is_one_line_of_data_whatever_the_text() -> None:
    text = dump(to_json(Frame(string_value="a\nb\r\n\u2028\n\n: x")))
    assert sse_event("frame", text).decode().count("\n") == 3
    assert json.loads(ndjson_line(text)) == {"string_value": "a\nb\r\n\u2028\n\n: x"}


def test_what_is_no_chunk_is_an_error() -> None:
    with pytest.raises(EdgeError) as caught:
        list(split_chunk(b"\xff\xff\xff"))
    assert caught.value.status == 502


def test_frames_of_a_chunk_are_all_there() -> None:
    chunk = Chunk(frames=[Frame(seq=1), Frame(seq=2)]).SerializeToString()
    assert [frame.seq for frame in split_chunk(chunk)] == [1, 2]


def test_a_degraded_delivery_says_so_three_ways() -> None:
    status = mesh_pb2.DeliveryStatus(
        state=mesh_pb2.DELIVERY_STATE_DEGRADED,
        degraded_level=3,
        degraded_reason=mesh_pb2.DEGRADED_REASON_NODES_FAILED,
        fallback_used=True,
    )
    delivery = delivery_of(status)
    assert delivery.headers() == {"x-ssop-status": "DEGRADED", "x-ssop-degraded-level": "3"}
    assert delivery.flags()["status"] == "DEGRADED"
    assert delivery.flags()["degraded_reason"] == "NODES_FAILED"


def test_a_reason_of_a_newer_mesh_is_its_number() -> None:
    status = mesh_pb2.DeliveryStatus(degraded_level=1)
    status.ParseFromString(status.SerializeToString() + b"\x18\x63")
    assert delivery_of(status).reason == "99"
