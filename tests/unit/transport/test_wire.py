"""Headers and trailers of gRPC."""

import pytest
from google.rpc import code_pb2

from helpers.as_written import both_ways
from ssop_transport import wire


@pytest.fixture(autouse=True, params=both_ways("ssop_transport.wire"))
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "wire", request.param)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(b"1H", 3600), (b"2M", 120), (b"3S", 3), (b"250m", 0.25), (b"5u", 5e-6), (b"99999999n", 0.099999999)],
)
def test_timeout_has_the_unit_that_stands_there(value: bytes, seconds: float) -> None:
    assert wire.decode_timeout(value) == pytest.approx(seconds)


@pytest.mark.parametrize("value", [b"", b"5", b"m", b"123456789S", b"-1S", b"1.5S", b"1s", b"1S "])
def test_timeout_that_can_not_be_read_is_refused(value: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode_timeout(value)


@pytest.mark.parametrize("seconds", [0.0, 0.0001, 0.5, 30, 99_999, 99_999.999, 100_000.5, 1e12])
def test_timeout_is_never_shorter_than_it_was(seconds: float) -> None:
    sent = wire.decode_timeout(wire.encode_timeout(seconds))
    assert sent >= min(seconds, 99_999_999)
    assert sent <= seconds * 1.001 + 1


def test_values_of_one_key_are_joined() -> None:
    pairs = [(b"x-a", b"1"), (b"x-b-bin", b"AAE"), (b"x-a", b"2"), (b"x-b-bin", b"AAE=,Ag==")]
    assert wire.decode_metadata(pairs) == {"x-a": "1, 2", "x-b-bin": b"\0\1,\0\1,\2"}


def test_headers_of_the_protocol_are_no_metadata() -> None:
    pairs = [
        (b":path", b"/a/b"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"grpc-timeout", b"1S"),
    ]
    assert wire.decode_metadata([*pairs, (b"grpc-status-details-bin", b"AA")]) == {"grpc-status-details-bin": b"\0"}


@pytest.mark.parametrize("value", [b"*", b"A", b"AAA=A"])
def test_binary_value_that_is_no_base64_is_refused(value: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode_metadata([(b"x-bin", value)])


@pytest.mark.parametrize(
    "metadata",
    [
        {"X-A": "1"},
        {"x a": "1"},
        {"": "1"},
        {"grpc-x": "1"},
        {"x-a": "é"},
        {"x-a": "1\n2"},
        {"x-a": b"1"},
        {"x-bin": "1"},
    ],
)
def test_metadata_that_http2_can_not_carry_is_refused(metadata: dict[str, str | bytes]) -> None:
    with pytest.raises(wire.WireError):
        wire.encode_metadata(metadata)


def test_metadata_may_be_of_kinds_of_text_and_bytes() -> None:
    class Text(str):
        __slots__ = ()

    class Bytes(bytes):
        __slots__ = ()

    metadata: dict[str, str | bytes] = {Text("x-kind"): Text("a"), Text("x-kind-bin"): Bytes(b"\0")}
    assert wire.encode_metadata(metadata) == [(b"x-kind", b"a"), (b"x-kind-bin", b"AA")]


@pytest.mark.parametrize("text", ["", "plain", "50 % of 错误\n", "%41", "a\x7fb"])
def test_message_comes_back_as_it_was(text: str) -> None:
    sent = wire.encode_message(text)
    assert wire.decode_message(sent) == text
    assert all(0x20 <= byte <= 0x7E for byte in sent)


def test_statuses_of_resets_and_of_http() -> None:
    assert wire.status_of_reset(wire.CONNECTION_LOST) == code_pb2.UNAVAILABLE
    assert wire.status_of_reset(8) == code_pb2.CANCELLED
    assert wire.status_of_reset(1) == code_pb2.INTERNAL
    assert wire.status_of_http(b"503") == code_pb2.UNAVAILABLE
    assert wire.status_of_http(b"404") == code_pb2.UNIMPLEMENTED
    assert wire.status_of_http(b"418") == code_pb2.UNKNOWN
