"""Questions whose answers are stored, and which of them is nearest. Pure.

A record holds a vector and the facts of a question, and names its answer; neither the question nor the answer is in it.
"""

import struct
import sys
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import mul
from typing import Final

from ssop_cache.core.guards import Facts, Guard, decode_facts, encode_facts, tell_apart
from ssop_cache.core.keys import TenantKeys
from ssop_cache.core.scripts import ScriptCall

MAX_COMPARED: Final = 256
"""Questions of one scope that are looked at."""
MAX_REFUSED: Final = 32
"""Of those that a guard tells apart: how many are compared, to count the near ones."""
MAX_DIM: Final = 4_096
_MAGIC: Final = b"SSN1"
_HEAD: Final = struct.Struct(">4sQ32sHHH")
_FLOAT_BYTES: Final = 4
_LENGTH_SLACK: Final = 0.01


class NeighbourError(ValueError):
    """A record or a vector that can't be used."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A question. `embedder` is the tag of what made `vector`: float32, little-endian, of length 1."""

    cache_key: bytes
    expires_ms: int
    embedder: str
    facts: Facts
    vector: bytes


@dataclass(frozen=True, slots=True)
class Near:
    """A question that asks the same, with the cosine of the vectors."""

    cache_key: bytes
    similarity: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Those that ask the same, nearest first, and how many near ones each guard told apart, of those looked at."""

    same: tuple[Near, ...] = ()
    refusals: "Counter[Guard]" = field(default_factory=Counter)


def check_vector(data: bytes) -> None:
    """Raises NeighbourError unless the bytes are a vector: float32, little-endian, of length 1."""
    if not data or len(data) % _FLOAT_BYTES or len(data) > MAX_DIM * _FLOAT_BYTES:
        raise NeighbourError("not a vector")
    # Not a number compares as false.
    if not abs(cosine(data, data) - 1) < _LENGTH_SLACK:
        raise NeighbourError("the vector does not have the length 1")


def cosine(first: bytes, second: bytes) -> float:
    """Cosine of two vectors of length 1."""
    return float(sum(map(mul, _floats(first), _floats(second))))


def _floats(data: bytes) -> "array[float]":
    floats = array("f", data)
    if sys.byteorder == "big":
        floats.byteswap()
    return floats


def encode_neighbour(neighbour: Neighbour) -> bytes:
    """The record as bytes."""
    embedder, facts = neighbour.embedder.encode(), encode_facts(neighbour.facts)
    dim = len(neighbour.vector) // _FLOAT_BYTES
    head = _HEAD.pack(_MAGIC, neighbour.expires_ms, neighbour.cache_key, len(embedder), len(facts), dim)
    return b"".join((head, embedder, facts, neighbour.vector))


def decode_neighbour(data: bytes) -> Neighbour:
    """See encode_neighbour. Raises NeighbourError unless the bytes are exactly one record."""
    if len(data) < _HEAD.size:
        raise NeighbourError("not a record of this format")
    magic, expires_ms, cache_key, embedder_size, facts_size, dim = _HEAD.unpack_from(data)
    facts_at = _HEAD.size + embedder_size
    vector_at = facts_at + facts_size
    if magic != _MAGIC or len(data) != vector_at + dim * _FLOAT_BYTES:
        raise NeighbourError("not a record of this format")
    try:
        embedder, facts = data[_HEAD.size : facts_at].decode(), decode_facts(data[facts_at:vector_at])
    except ValueError as error:
        raise NeighbourError("the record is spoilt") from error
    return Neighbour(cache_key, expires_ms, embedder, facts, data[vector_at:])


def compare(asked: Neighbour, known: Iterable[Neighbour], now_ms: int, min_similarity: float) -> Comparison:
    """Which of the known questions ask the same as the one that is asked.

    The guards go first, since a vector takes ten times as long; of those that they told apart as many as MAX_REFUSED
    are looked at for the count of near ones.
    """
    same: list[Near] = []
    refusals: Counter[Guard] = Counter()
    refused = 0
    for neighbour in known:
        is_comparable = neighbour.embedder == asked.embedder and len(neighbour.vector) == len(asked.vector)
        if not is_comparable or neighbour.expires_ms <= now_ms:
            continue
        guard = tell_apart(asked.facts, neighbour.facts)
        refused += guard is not None
        if guard is not None and refused > MAX_REFUSED:
            continue
        similarity = cosine(asked.vector, neighbour.vector)
        # A spoilt vector may hold what is not a number, which is no similarity either.
        if not similarity >= min_similarity:
            continue
        if guard is None:
            same.append(Near(neighbour.cache_key, min(1.0, similarity)))
        else:
            refusals[guard] += 1
    same.sort(key=lambda near: -near.similarity)
    return Comparison(tuple(same), refusals)


def name_of(scope_key: bytes, cache_key: bytes) -> bytes:
    """The name of a record."""
    return prefix_of(scope_key) + cache_key.hex().encode()


def prefix_of(scope_key: bytes) -> bytes:
    """How the names of a scope's records begin."""
    return scope_key.hex().encode() + b":"


def put_similar(keys: TenantKeys, name: bytes, record: bytes, *, ttl_ms: int, most: int) -> ScriptCall:
    """Call of `put_similar`."""
    return ScriptCall("put_similar", keys.similar, (name, record, ttl_ms, most))


def find_similar(keys: TenantKeys, scope_key: bytes) -> ScriptCall:
    """Call of `find_similar`."""
    return ScriptCall("find_similar", keys.similar[:2], (prefix_of(scope_key), MAX_COMPARED))


def drop_similar(keys: TenantKeys, name: bytes) -> ScriptCall:
    """Call of `drop_similar`."""
    return ScriptCall("drop_similar", keys.similar, (name,))
