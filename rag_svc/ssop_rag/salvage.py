"""Reading a damaged database: what is readable is found around what is not, and only whole documents are kept."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import rocksdict

from ssop_rag.core import record as codec
from ssop_rag.core.record import COLLECTION, DOCUMENT, PASSAGE, TENANT, Record, RecordError

VERSION_LEAP: Final = 1_000_000
"""Versions after a loss begin so far above the highest that was found: those of lost changes must not come again."""
_BATCH: Final = 256


class Damage(Exception):  # noqa: N818 - it is no fault of this program
    """A place that can't be read. `last` is the key before it, empty for none."""

    def __init__(self, last: bytes, cause: str) -> None:
        super().__init__(cause)
        self.last = last


def walk(source: Any, begin: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys of a database or of a snapshot, from `begin` on, with their values. Raises Damage."""
    last = b""
    place = source.iter()
    _seek_to(place, begin)
    while place.valid():
        last = place.key()
        yield last, place.value()
        place.next()
    _end(place, last)


def check(source: Any) -> None:
    """Look at every block. Raises Damage."""
    place = source.iter()
    place.seek_to_first()
    while place.valid():
        place.next()
    _end(place, b"")


# Plain functions, no context manager: on Python 3.13 what one raises is in a circle with it, and with the iterator that
# holds the database open until garbage is collected.
def _seek_to(place: Any, begin: bytes) -> None:
    try:
        place.seek(begin)
    except Exception as error:  # the library raises plain Exception for all faults
        raise Damage(b"", str(error)) from error


def _end(place: Any, last: bytes) -> None:
    try:
        place.status()
    except Exception as error:
        raise Damage(last, str(error)) from error


def salvage(damaged: Any, fresh: Any) -> dict[str, int]:
    """Copy the whole documents of a damaged database into an empty one.

    Says how many `places` could not be read, and how many `documents` were left out that are known to have been there;
    of others nothing is known. Every collection that is left has a version that it never had.
    """
    lost = {"places": _copy(damaged, fresh)}
    lost["documents"] = _drop_broken(fresh)
    _renumber(fresh)
    fresh.flush()
    return lost


def _copy(damaged: Any, fresh: Any) -> int:
    """Copy all that can be read; the number of places that can't."""
    places, begin = 0, b""
    while True:
        batch, last = rocksdict.WriteBatch(raw_mode=True), begin
        try:
            for number, (key, value) in enumerate(walk(damaged, begin), start=1):
                batch.put(key, value)
                last = key
                if number % _BATCH == 0:
                    fresh.write(batch)
                    batch = rocksdict.WriteBatch(raw_mode=True)
        except Damage:
            places += 1
            after = _find_after(damaged, last)
        else:
            after = None
        fresh.write(batch)
        if after is None:
            return places
        begin = after


def _find_after(damaged: Any, last: bytes) -> bytes | None:
    """A readable key above a damaged place, as near to it as bisection finds; None where nothing is."""
    ends = sorted(bytes(file["end_key"]) for file in damaged.live_files() if bytes(file["end_key"]) > last)
    high = next((key for end in ends if (key := _seek(damaged, end)) is not None), None)
    if high is None:
        return None
    size = max(len(last), len(high)) + 1
    low_number, high_number = _as_number(last, size), _as_number(high, size)
    while high_number - low_number > 1:
        middle = (low_number + high_number) // 2
        found = _seek(damaged, middle.to_bytes(size, "big"))
        if found is None:
            low_number = middle
        else:
            high, high_number = found, middle
    return high


def _as_number(key: bytes, size: int) -> int:
    return int.from_bytes(key.ljust(size, b"\0"), "big")


def _seek(damaged: Any, key: bytes) -> bytes | None:
    """The first key from `key` on, if it can be read."""
    place = damaged.iter()
    with suppress(Exception):
        place.seek(key)
        if place.valid():
            return bytes(place.key())
    return None


def _drop_broken(fresh: Any) -> int:
    """Delete documents that lack a part, and parts without their document; how many documents these were."""
    parts: Counter[tuple[str, str, str]] = Counter()
    whole: dict[tuple[str, str, str], int] = {}
    versions: defaultdict[tuple[str, str, str], set[int]] = defaultdict(set)
    for key, value in walk(fresh, b""):
        if key[:1] not in {DOCUMENT, PASSAGE}:
            continue
        (tenant, collection, document_id), _ = codec.decode_key(key)
        name = (tenant, collection, document_id)
        try:
            record = codec.decode_record(value, tenant=tenant)
            versions[name].add(record.version)
            if key[:1] == PASSAGE:
                parts[name] += 1
            else:
                whole[name] = int(record.fields["passages"])
        except (RecordError, KeyError, ValueError, TypeError):
            # It counts as missing, and so takes its document with it.
            continue
    # Parts of several versions are what is left of a document and of what it replaced.
    broken = {name for name in {*parts, *whole} if whole.get(name) != parts[name] or len(versions[name]) != 1}
    for tenant, collection, document_id in broken:
        fresh.delete(codec.encode_key(DOCUMENT, tenant, collection, document_id))
        prefix = codec.encode_key(PASSAGE, tenant, collection, document_id)
        for key in _keys_below(fresh, prefix):
            fresh.delete(key)
    return len(broken)


def _keys_below(fresh: Any, prefix: bytes) -> list[bytes]:
    keys = []
    for key, _ in walk(fresh, prefix):
        if not key.startswith(prefix):
            break
        keys.append(key)
    return keys


def _renumber(fresh: Any) -> None:
    """Give every tenant and collection that has anything left a new version."""
    highest: defaultdict[str, int] = defaultdict(int)
    collections: set[tuple[str, str]] = set()
    for key, value in walk(fresh, b""):
        kind = key[:1]
        parts = _tenant_parts(key)
        if kind not in {TENANT, COLLECTION, DOCUMENT, PASSAGE} or not parts:
            continue
        if kind != TENANT and len(parts) > 1:
            collections.add((parts[0], parts[1]))
        with suppress(RecordError):
            version = codec.decode_record(value, tenant=parts[0]).version
            highest[parts[0]] = max(highest[parts[0]], version)
        highest[parts[0]] += 0
    for tenant, version in highest.items():
        record = codec.encode_record(Record(tenant, "", 0, version + VERSION_LEAP, {}))
        fresh.put(codec.encode_key(TENANT, tenant), record)
        for owner, collection in collections:
            if owner == tenant:
                fresh.put(codec.encode_key(COLLECTION, tenant, collection), record)


def _tenant_parts(key: bytes) -> list[str]:
    try:
        return codec.decode_key(key)[0]
    except (ValueError, IndexError):
        return []
