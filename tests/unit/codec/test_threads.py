"""Threads: streams do not disturb each other, and one stream has one user at a time."""

import functools
import gc
import json
import re
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from helpers.codec_cases import decode, split
from ssop_codec import CodecError, Decoder, Encoder, Schema, compile_schema

IN_USE = "the encoder is in use by another thread"

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


# -- feeds without the interpreter's lock ------------------------------------------------------------------------------

RECORDS = compile_schema(
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "kind": {"enum": ["a", "b"]}, "note": {"type": "string"}},
            "additionalProperties": False,
        },
    }
)
RECORD = b'{"id": 12345, "kind": "a", "note": "\xe6\xbc\xa2\\n words"}'

only_with_the_lock = pytest.mark.skipif(
    not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="there is no lock to let go"
)


def records(size_bytes: int) -> bytes:
    return b"[" + b",".join([RECORD] * (size_bytes // len(RECORD))) + b"]"


def uses_meanwhile(
    make: Callable[[], Encoder], data: bytes, use: Callable[[Encoder], object], tries: int
) -> list[object]:
    """What another thread got by calling `use` again and again while an encoder was fed, in at most so many tries.

    The interval keeps threads from being switched but where the lock is let go; a try is in vain where the kernel does
    not run the other thread in time.
    """
    got: list[object] = []
    fed: list[Encoder] = []
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            got.extend(map(use, fed))
            time.sleep(0)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(30)
    try:
        worker = threading.Thread(target=work)
        worker.start()
        for _ in range(tries):
            encoder = make()
            fed.append(encoder)
            encoder.feed(data)
            fed.clear()
            if got:
                break
    finally:
        is_over.set()
        sys.setswitchinterval(interval)
    worker.join()
    return got


def make_encoder() -> Encoder:
    return Encoder(RECORDS)


@only_with_the_lock
def test_others_go_on_during_a_long_feed() -> None:
    assert uses_meanwhile(make_encoder, records(10_000_000), lambda encoder: None, tries=100)


@only_with_the_lock
def test_another_stream_is_read_during_a_long_feed() -> None:
    other = records(100_000)

    def read(_: object = None) -> list[bytes]:
        encoder = Encoder(RECORDS)
        encoder.feed(other)
        encoder.finish()
        return encoder.drain(True)

    alone = read()
    together = uses_meanwhile(make_encoder, records(10_000_000), read, tries=100)
    assert together
    assert all(chunks == alone for chunks in together)


@only_with_the_lock
def test_short_feeds_keep_the_lock() -> None:
    assert uses_meanwhile(make_encoder, records(30_000), lambda encoder: None, tries=1000) == []


@only_with_the_lock
@pytest.mark.parametrize(
    "use", [lambda e: e.feed(b" "), Encoder.take, Encoder.flush, Encoder.drain, Encoder.take_spans, Encoder.finish]
)
def test_a_stream_that_is_read_without_the_lock_has_one_user(use: Callable[[Encoder], object]) -> None:
    def come_in(encoder: Encoder) -> str:
        try:
            use(encoder)
        except CodecError as error:
            return str(error)
        return "was let in"

    assert set(uses_meanwhile(make_encoder, records(10_000_000), come_in, tries=100)) == {IN_USE}


def test_long_feeds_make_the_same_bytes() -> None:
    data = records(3_000_000)
    whole, cut = Encoder(RECORDS), Encoder(RECORDS)
    whole.feed(data)
    for piece in split(data, range(0, len(data), 1000)):
        cut.feed(piece)
    assert whole.drain(True) == cut.drain(True)


def test_a_long_feed_that_tokens_stop_often_makes_the_same_bytes() -> None:
    schema = compile_schema({"type": "array", "items": {"type": "object", "additionalProperties": {"type": "integer"}}})
    data = b"[" + b",".join(b'{"a": 1, "key %d": 2}' % n for n in range(100_000)) + b"]"
    whole, cut = Encoder(schema), Encoder(schema)
    whole.feed(data)
    for piece in split(data, range(0, len(data), 1000)):
        cut.feed(piece)
    assert whole.drain(True) == cut.drain(True)
    assert whole.is_done


def test_threads_grow_one_pattern_together() -> None:
    words = ["".join("ab"[number >> bit & 1] for bit in range(12)) for number in range(4096)]
    wanted = [re.search("^(a|b)*a(a|b){8}$", word) is not None for word in words]

    def judge(schema: Schema, word: str) -> bool:
        encoder = Encoder(schema)
        encoder.feed(f'"{word}"'.encode())
        encoder.finish()
        return encoder.verdict == 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(5):
            schema = compile_schema({"type": "string", "pattern": f"^(a|b)*a(a|b){{8}}$|^never{number}$"})
            with ThreadPoolExecutor(8) as pool:
                assert list(pool.map(functools.partial(judge, schema), words)) == wanted
    finally:
        sys.setswitchinterval(interval)
