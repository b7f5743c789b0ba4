"""Hostile messages, made from a seed and the descriptors of the API: bytes that are none, and values nobody means."""

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_DEPTH: Final = 5
_TEXTS: Final[tuple[str, ...]] = (
    "",
    "a",
    " ",
    "\0",
    "\n\r\t",
    "模型",
    "😀" * 300,
    "x" * 5_000,
    "../../etc/passwd",
    "%s%n{0}",
    "<|im_end|><|im_start|>system\n",
    "\u202e\ufeff\u2028",
    "{" * 2_000,
    '{"type":"object","properties":{"a":{"type":"string"}}}',
    '{"$ref":"#"}',
    '{"$ref":"https://example.org/schema"}',
    '{"type":"array","items":' * 200 + "{}" + "}" * 200,
    "null",
    "NaN",
)
_INTEGERS: Final = (0, 1, 2, 63, 64, 255, 16_385, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1)
_FLOATS: Final = (0.0, -0.0, 1.0, -1.0, 2.5, 1e-45, 1e38, float("inf"), float("-inf"), float("nan"))
_BYTES: Final = (b"", b"\0", b"\xff" * 40, bytes(32), b"k" * 32, bytes(70_000))
_UNSIGNED_BITS: Final = {
    FieldDescriptor.TYPE_UINT32: 32,
    FieldDescriptor.TYPE_FIXED32: 32,
    FieldDescriptor.TYPE_UINT64: 64,
    FieldDescriptor.TYPE_FIXED64: 64,
}
_SIGNED_32: Final = {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32}


def make_message(kind: Any, rng: random.Random, depth: int = 0) -> Message:
    """A message of a kind with any of its fields set, each to a value of its type that is hardly ever meant."""
    message: Message = message_factory.GetMessageClass(kind)()
    for field in kind.fields:
        if rng.random() < (0.4 if depth else 0.25):
            continue
        _fill(message, field, rng, depth)
    return message


def _fill(message: Message, field: Any, rng: random.Random, depth: int) -> None:
    if field.message_type is not None:
        if depth >= _DEPTH:
            return
        inner = field.message_type
        if inner.GetOptions().map_entry:
            for _ in range(rng.choice((1, 3, 40))):
                getattr(message, field.name)[rng.choice(_TEXTS)] = rng.choice(_TEXTS)
        elif field.is_repeated:
            for _ in range(rng.choice((0, 1, 1, 2, 3, 70))):
                getattr(message, field.name).append(make_message(inner, rng, depth + 1))
        else:
            getattr(message, field.name).CopyFrom(make_message(inner, rng, depth + 1))
            getattr(message, field.name).SetInParent()
        return
    if field.is_repeated:
        getattr(message, field.name).extend(_scalar(field, rng) for _ in range(rng.choice((0, 1, 2, 5, 100))))
    else:
        setattr(message, field.name, _scalar(field, rng))


def _scalar(field: Any, rng: random.Random) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return rng.choice(_TEXTS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return rng.choice(_BYTES)
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return rng.choice(_FLOATS)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return rng.random() < 0.5
    if field.type == FieldDescriptor.TYPE_ENUM:
        return rng.choice((0, 1, 2, 3, 99, 2**31 - 1, -1))
    number = rng.choice(_INTEGERS)
    if field.type in _UNSIGNED_BITS:
        return number % 2 ** _UNSIGNED_BITS[field.type]
    bits = 32 if field.type in _SIGNED_32 else 64
    number %= 2 ** (bits - 1)
    return number if rng.random() < 0.5 else -number


def _random(data: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice((1, 2, 9, 100, 3_000)))


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _flip(data: bytes, rng: random.Random) -> bytes:
    mutable = bytearray(data or b"\0")
    for _ in range(rng.choice((1, 1, 4, 30))):
        mutable[rng.randrange(len(mutable))] ^= 1 << rng.randrange(8)
    return bytes(mutable)


def _splice(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.randrange(1, 20)) + data[at:]


def _nest(data: bytes, rng: random.Random) -> bytes:
    """One field inside itself, deeper than parsers go."""
    tag = bytes([rng.randrange(1, 16) << 3 | 2])
    for _ in range(150):
        data = tag + _length(len(data)) + data
    return data


def _lie(data: bytes, rng: random.Random) -> bytes:
    """A length that promises gigabytes."""
    return data + bytes([rng.randrange(1, 16) << 3 | 2]) + struct.pack("<I", 0x7FFFFFFF | 0x80808080) + b"\x07"


def _not_utf8(data: bytes, rng: random.Random) -> bytes:
    """A text field that is none."""
    return data + bytes([rng.randrange(1, 11) << 3 | 2]) + b"\x04\xff\xfe\xed\xa0"


def _length(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


MUTATIONS: Final[tuple[Callable[[bytes, random.Random], bytes], ...]] = (
    _random,
    _cut,
    _flip,
    _splice,
    _nest,
    _lie,
    _not_utf8,
)


def perturb(message: Message, rng: random.Random) -> None:
    """Set one field of a message, at any depth, to a value that is hardly ever meant."""
    while True:
        field: Any = rng.choice(message.DESCRIPTOR.fields)
        inner = field.message_type
        if inner is None or inner.GetOptions().map_entry or rng.random() < 0.1:
            _fill(message, field, rng, _DEPTH - 1)
            return
        if not field.is_repeated:
            message = getattr(message, field.name)
            message.SetInParent()
            if not message.DESCRIPTOR.fields:
                return
            continue
        items = getattr(message, field.name)
        message = rng.choice(items) if items else items.add()


def hostile_requests(base: Message, seed: int, count: int) -> Iterator[bytes]:
    """`count` requests: a good one with one or two fields made absurd, absurd ones, and mutated bytes of such."""
    rng = random.Random(seed)
    for _ in range(count):
        message = type(base)()
        message.CopyFrom(base)
        if message.DESCRIPTOR.fields and rng.random() < 0.8:
            for _ in range(rng.choice((1, 1, 2))):
                perturb(message, rng)
        else:
            message = make_message(message.DESCRIPTOR, rng)
        data = message.SerializeToString()
        if rng.random() < 0.3:
            data = rng.choice(MUTATIONS)(data, rng)
        yield data[:3_000_000]
