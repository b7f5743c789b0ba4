"""Which records of API keys nobody needs any more. Pure."""

from collections.abc import Iterable, Iterator

from google.protobuf.message import DecodeError

from ssop.v1.keys_pb2 import KeyRecord


def find_gone(records: Iterable[bytes], *, now_ms: int, kept_ms: int) -> Iterator[tuple[str, bytes]]:
    """Ids and records of keys that were revoked or expired `kept_ms` ago or longer. Times are milliseconds.

    A record that can't be read is kept: nobody knows what it is of.
    """
    for data in records:
        try:
            info = KeyRecord.FromString(data).info
        except DecodeError:
            continue
        ends_ms = [at_ms for at_ms in (info.revoked_at_ms, info.expires_at_ms) if at_ms]
        if info.key_id and ends_ms and min(ends_ms) + kept_ms <= now_ms:
            yield info.key_id, data
