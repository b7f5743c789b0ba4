# cython: annotation_typing=False
"""The cache level on the host: answers in memory, the ones used longest ago first to go. Bounded by bytes.

An entry is named by tenant and canonical key, the same key as in Redis. It holds the record that Redis holds, so a
replay is the same bytes from either level. Times are milliseconds of the wall clock, passed in.
"""

import struct
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final
from zlib import crc32

ENTRY_BYTES: Final = 384
"""What an entry costs besides its record, about."""
_FLOORS: Final = 10_000
_MAGIC: Final = b"SSL1"
_HEAD: Final = struct.Struct(">4sQQQI")
_FIELDS: Final = struct.Struct(">4sQQQ")
_SUM: Final = struct.Struct(">I")
"""What a head ends with, behind its fields."""
_NO_SUM: Final = bytes(_SUM.size)
"""Stands in its place while it is made."""
_KEY_BYTES: Final = 48

Name = tuple[str, bytes]
"""The tenant's tag and the canonical key."""


class LocalRecordError(ValueError):
    """An entry on disk that can't be used."""


class LocalAnswer:
    """A stored answer. `fence` names the generation that made it; a later one has a larger number."""

    __slots__ = ("expires_ms", "fence", "record", "size_bytes", "stored_ms")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, fence: int, stored_ms: int, expires_ms: int, record: bytes) -> None:
        self.fence = fence
        self.stored_ms = stored_ms
        self.expires_ms = expires_ms
        self.record = record
        self.size_bytes = len(record) + ENTRY_BYTES
        """What it counts for."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalAnswer) and _fields(self) == _fields(other)


def _fields(answer: LocalAnswer) -> tuple[int, int, int, bytes]:
    return answer.fence, answer.stored_ms, answer.expires_ms, answer.record


class LocalAnswers:
    """The answers of all tenants. Owned by the event loop."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.size_bytes = 0
        self.evictions = 0
        self._entries: OrderedDict[Name, LocalAnswer] = OrderedDict()
        self._tenants: dict[str, set[bytes]] = {}
        self._floors: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Name]:
        return iter(self._entries)

    def peek(self, name: Name) -> LocalAnswer | None:
        """The entry as it is."""
        return self._entries.get(name)

    def find(self, name: Name, now_ms: int, max_age_ms: int = 0) -> LocalAnswer | None:
        """The answer, unless it has lapsed or is older than `max_age_ms` (0: no limit)."""
        found = self._entries.get(name)
        if found is None:
            return None
        if now_ms >= found.expires_ms:
            self._remove(name)
            return None
        if max_age_ms and now_ms - found.stored_ms > max_age_ms:
            return None
        self._entries.move_to_end(name)
        return found

    def put(self, name: Name, answer: LocalAnswer) -> list[Name] | None:
        """Keep an answer; the names that had to go for it. None: it is not kept, being older than what is known here,
        from before a flush, or too large.
        """
        tag, key = name
        before = self._entries.get(name)
        if before is not None and before.fence > answer.fence:
            return None
        # One answer must not push out most of the others.
        if answer.fence <= self._floors.get(tag, 0) or answer.size_bytes > self.max_bytes // 8:
            return None
        if before is not None:
            self._remove(name)
        self._entries[name] = answer
        keys = self._tenants.get(tag)
        if keys is None:
            keys = self._tenants[tag] = set()
        keys.add(key)
        self.size_bytes += answer.size_bytes
        gone: list[Name] = []
        while self.size_bytes > self.max_bytes:
            oldest = next(iter(self._entries))
            self._remove(oldest)
            self.evictions += 1
            gone.append(oldest)
        return gone

    def drop(self, name: Name, below_fence: int) -> bool:
        """Forget an answer of a generation before `below_fence`; whether there was one."""
        found = self._entries.get(name)
        if found is None or found.fence >= below_fence:
            return False
        self._remove(name)
        return True

    def flush(self, tag: str, floor: int) -> list[Name]:
        """Forget a tenant's answers of generations up to `floor`, and take none of them any more; their names."""
        self._floors[tag] = max(floor, self._floors.pop(tag, 0))
        while len(self._floors) > _FLOORS:
            self._floors.popitem(last=False)
        gone = [(tag, key) for key in self._tenants.get(tag, ()) if self._entries[tag, key].fence <= floor]
        for name in gone:
            self._remove(name)
        return gone

    def clear(self) -> None:
        """Forget all answers."""
        self._entries.clear()
        self._tenants.clear()
        self.size_bytes = 0

    def _remove(self, name: Name) -> None:
        found = self._entries.pop(name, None)
        if found is None:
            return
        self.size_bytes -= found.size_bytes
        keys = self._tenants[name[0]]
        keys.discard(name[1])
        if not keys:
            del self._tenants[name[0]]


def encode_name(name: Name) -> bytes:
    """The name of an entry on disk: 48 bytes."""
    return bytes.fromhex(name[0]) + name[1]


def decode_name(data: bytes) -> Name:
    """See encode_name. Raises LocalRecordError."""
    if len(data) != _KEY_BYTES:
        raise LocalRecordError("not the name of an answer")
    return data[:16].hex(), data[16:]


def encode_local(answer: LocalAnswer) -> bytes:
    """An entry as it lies on disk, with a sum over all of it."""
    fields = _FIELDS.pack(_MAGIC, answer.fence, answer.stored_ms, answer.expires_ms)
    return b"".join((fields, _SUM.pack(_sum(fields, answer.record)), answer.record))


def decode_local(data: bytes) -> LocalAnswer:
    """See encode_local. Raises LocalRecordError unless the bytes are what was written."""
    if len(data) < _HEAD.size:
        raise LocalRecordError("too short")
    magic, fence, stored_ms, expires_ms, checksum = _HEAD.unpack_from(data)
    record = data[_HEAD.size :]
    if magic != _MAGIC or checksum != _sum(data[: _FIELDS.size], record):
        raise LocalRecordError("changed since it was written")
    return LocalAnswer(fence, stored_ms, expires_ms, record)


def _sum(fields: bytes, record: bytes) -> int:
    return crc32(record, crc32(fields + _NO_SUM))
