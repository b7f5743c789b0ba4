"""The package from outside: what it exports, what it imports, that it can be shared and keeps nothing."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import ssop_codec
from helpers.codec_cases import decode
from ssop_codec import Decoder, Encoder, Limits, SchemaError, Violation, _encoder, compile_schema

FOREIGN = ("google", "grpc", "ssop", "asyncio", "logging", "ssop_codec._encoder_py", "ssop_codec._reader_py")


def test_all_names_exist() -> None:
    assert sorted(ssop_codec.__all__) == sorted(set(ssop_codec.__all__))
    assert all(hasattr(ssop_codec, name) for name in ssop_codec.__all__)


def test_encoder_is_the_compiled_one() -> None:
    assert not str(_encoder.__file__).endswith(".py")
    assert Encoder is _encoder.Encoder


def test_import_brings_nothing_foreign() -> None:
    code = f"import sys, ssop_codec; sys.exit(','.join(m for m in {FOREIGN!r} if m in sys.modules) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_threads_share_a_schema() -> None:
    schema = compile_schema({"type": "array", "items": {"type": "integer"}})
    text = ("[" + ",".join(map(str, range(500))) + "]").encode()
    results = []

    def work() -> None:
        encoder = Encoder(schema, stream_buffer_bytes=64)
        for byte in text:
            encoder.feed(bytes((byte,)))
        encoder.finish()
        results.append(decode(encoder.drain(True))[0].result)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [list(range(500))] * 4


keeps_freed_memory = pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer holds freed memory back"
)


def resident_bytes() -> int:
    """Memory of this process that is in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@keeps_freed_memory
def test_nothing_is_kept_per_document() -> None:
    schema = compile_schema({"type": "object", "properties": {"a": {"enum": ["x", "y"]}}})

    def rounds(count: int) -> None:
        for text in (b'{"a":"x","b":{"c":[1,2.5,null]}}', b'{"a":"z"}', b'{"a":'):
            for _ in range(count):
                encoder = Encoder(schema, track_spans=True)
                encoder.feed(text)
                encoder.finish()
                decoder = Decoder()
                for chunk in encoder.drain(True):
                    decoder.feed(chunk)

    rounds(300)
    before = resident_bytes()
    rounds(3000)
    assert resident_bytes() - before < 4 * 1024 * 1024


@keeps_freed_memory
def test_a_long_string_needs_no_memory_of_its_length() -> None:
    encoder = Encoder(compile_schema({"type": "string"}), stream_buffer_bytes=1024)
    piece = b"x" * 65536
    encoder.feed(b'"')
    encoder.drain()
    before = resident_bytes()
    for _ in range(200):
        encoder.feed(piece)
        encoder.drain()
    assert resident_bytes() - before < 2 * 1024 * 1024


def test_many_sealed_chunks_are_taken_in_order() -> None:
    encoder = Encoder(None, stream_buffer_bytes=64)
    encoder.feed(b"[" + b"1," * 20_000 + b"1]")
    encoder.finish()
    chunks = []
    while chunk := encoder.take():
        chunks.append(chunk)
    chunks.append(encoder.flush())
    assert decode(chunks)[0].result == [1] * 20_001


def test_errors_carry_their_parts() -> None:
    error = SchemaError("/a", "type", "names no JSON type")
    assert str(error) == "type at /a: names no JSON type"
    assert Violation("type", "/a", 3, "string") == Violation("type", "/a", 3, "string")


@pytest.mark.parametrize("value", [0, 2**31])
@pytest.mark.parametrize("name", Limits.__slots__)
def test_limits_have_a_range(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=name):
        Limits(**{name: value})


def test_depth_has_a_ceiling() -> None:
    with pytest.raises(ValueError, match="max_depth"):
        Limits(max_depth=513)
