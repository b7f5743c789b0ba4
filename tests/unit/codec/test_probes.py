"""Probes for the kernel's tracers: that the modules hold them, and that streams have numbers."""

import hashlib
import subprocess
from importlib.util import find_spec

import pytest

from ssop_codec import HAS_PROBES, Decoder, Encoder, probes


def notes_of(module: str) -> list[str]:
    """The names of the probes in a module, once for each place."""
    spec = find_spec(module)
    assert spec is not None
    done = subprocess.run(["readelf", "-n", str(spec.origin)], capture_output=True, text=True, check=True)
    return [words[1] for words in map(str.split, done.stdout.splitlines()) if words[:1] == ["Name:"]]


@pytest.mark.needs("sdt")
@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("_frame_writer", {"frame_sent"}),
        ("_decoder", {"frame_received"}),
        ("_service_probes", {"chunk_sent", "chunk_received", "decision", "prefetch"}),
    ],
)
def test_modules_hold_the_notes_of_their_probes(module: str, names: set[str]) -> None:
    assert HAS_PROBES
    assert set(notes_of(f"ssop_codec.{module}")) == names


def test_probes_of_services_take_64_bits_and_no_more() -> None:
    probes.chunk_sent(2**64 - 1, 0, 2**64 - 1)
    with pytest.raises(OverflowError):
        probes.chunk_received(2**64, 0, 0)
    with pytest.raises(OverflowError):
        probes.decided(1, -1)


def test_requests_have_streams_of_their_own_that_are_the_same_everywhere() -> None:
    assert probes.stream_number("a") == probes.stream_number("a") != probes.stream_number("b")
    assert 0 < probes.stream_number("") < 2**64


@pytest.mark.parametrize("size", [0, 1, 7, 8, 38, 127, 128, 129, 500])
@pytest.mark.parametrize("text", ["a", "Zürich 你好"])
def test_number_of_a_stream_is_the_hash_that_is_named(size: int, text: str) -> None:
    request_id = (text * size)[:size]
    digest = hashlib.blake2b(request_id.encode(), digest_size=8).digest()
    assert probes.stream_number(request_id) == int.from_bytes(digest, "little")


def test_streams_without_a_number_get_one_of_their_own() -> None:
    assert len({Encoder(None).stream_id for _ in range(3)}) == 3
    assert len({Decoder().stream_id for _ in range(3)}) == 3
    assert Encoder(None, stream_id=2**64 - 1).stream_id == 2**64 - 1
    assert Decoder(stream_id=7).stream_id == 7


def test_stream_id_changes_no_frame() -> None:
    chunks = []
    for stream_id in (0, 5):
        encoder = Encoder(None, stream_id=stream_id)
        encoder.feed(b"[1,2]")
        encoder.finish()
        chunks.append(encoder.drain(True))
    assert chunks[0] == chunks[1]
