"""Threads: streams do not disturb each other, and one stream has one user at a time."""

import gc
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from helpers.codec_cases import decode, split
from ssop_codec import CodecError, Decoder, Encoder, compile_schema

SCHEMA = compile_schema(
    {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "kind": {"enum": ["a", "b"]}, "note": {"type": "string"}},
        "additionalProperties": {"type": "array"},
    }
)

only_with_callbacks_inside = pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="the collector runs between bytecodes only, so nothing comes in"
)


def document(number: int) -> bytes:
    value = {"id": number, "kind": "ab"[number % 2], "note": "é" * (number % 97), f"k{number}": [number] * (number % 7)}
    return json.dumps(value, ensure_ascii=False).encode()


def stream(number: int) -> list[bytes]:
    encoder = Encoder(SCHEMA, stream_buffer_bytes=512)
    data = document(number)
    for piece in split(data, range(0, len(data), 3)):
        encoder.feed(piece)
    encoder.finish(output_tokens=number)
    return encoder.drain(True)


def test_threads_make_the_same_bytes() -> None:
    alone = [stream(number) for number in range(300)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(stream, range(300)))
            results = list(pool.map(lambda chunks: decode(chunks)[0].result, together))
    finally:
        sys.setswitchinterval(interval)
    assert together == alone
    assert results == [json.loads(document(number)) for number in range(300)]


def errors_inside(use: Callable[[], object], come_in: Callable[[], object]) -> list[str]:
    """What those get who come in while `use` runs: the collector lets them in."""
    errors: list[str] = []

    def enter(phase: str, info: object) -> None:
        try:
            come_in()
        except CodecError as error:
            errors.append(str(error))

    before = gc.get_threshold()
    gc.callbacks.append(enter)
    gc.set_threshold(1)
    try:
        use()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(enter)
    return errors


@only_with_callbacks_inside
@pytest.mark.parametrize("come_in", [lambda e: e.feed(b" "), lambda e: e.drain(True), Encoder.finish])
def test_second_user_of_an_encoder_gets_an_error(come_in: Callable[[Encoder], object]) -> None:
    encoder = Encoder(compile_schema({"type": "array", "items": {"type": "object"}}))
    text = b"[" + b",".join(b'{"k%d":1}' % n for n in range(500)) + b"]"
    assert "another thread" in errors_inside(lambda: encoder.feed(text), lambda: come_in(encoder))[0]


@only_with_callbacks_inside
def test_second_user_of_a_decoder_gets_an_error() -> None:
    encoder = Encoder(None)
    encoder.feed(b"[" + b"[1]," * 500 + b"[]]")
    encoder.finish()
    chunk = b"".join(encoder.drain(True))
    decoder = Decoder()
    assert "another thread" in errors_inside(lambda: decoder.feed(chunk), lambda: decoder.feed(b""))[0]
    assert decoder.result == [[1]] * 500 + [[]]
