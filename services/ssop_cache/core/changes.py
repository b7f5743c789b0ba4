"""The log of changes to stored answers, in the state instance: how the levels on hosts hear of each other.

Changes are numbered without gaps. A reader remembers the last number that it applied, across restarts. Where numbers
are missing (the log is bounded) or the log is another one (its store was lost), the reader can't know what changed, and
forgets all that it holds. Only the log's scripts write it.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ssop_cache.core.scripts import Reply, ScriptCall, number

MAX_CHANGES: Final = 20_000
"""Changes that the log remembers; a host that was away for longer forgets what it holds."""
READ_CHANGES: Final = 512
MOST_LOGGED: Final = 256
"""Changes of one call: a store serves nobody else while it writes them."""
_KEYS: Final = ("ssop:{changes}:head", "ssop:{changes}:log")
_FIELDS: Final = 4
_CURSOR: Final = struct.Struct(">QQ16s")


@dataclass(frozen=True, slots=True)
class Change:
    """Answers of a tenant that no level may serve any more.

    With a key: those of generations before `fence`. Without: all those of generations up to `fence`.
    """

    tag: str
    cache_key: bytes
    fence: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """What was applied last. `synced_ms` is when the log was last read to its end, on the wall clock."""

    epoch: bytes = b""
    last: int = 0
    synced_ms: int = 0


@dataclass(frozen=True, slots=True)
class News:
    """What reading the log gave. `has_gap`: changes are missing, so everything must be forgotten."""

    now_us: int
    cursor: Cursor
    changes: tuple[Change, ...]
    has_gap: bool
    is_end: bool


def log_changes(changes: Sequence[Change], nonce: bytes) -> ScriptCall:
    """Call of `log_changes`, at most MOST_LOGGED at once. `nonce` names the log where they are its first: 16 random
    bytes."""
    words = [word for change in changes for word in (change.tag, change.cache_key, change.fence)]
    return ScriptCall("log_changes", _KEYS, (nonce, MAX_CHANGES, *words))


def read_changes(cursor: Cursor) -> ScriptCall:
    """Call of `read_changes`."""
    return ScriptCall("read_changes", _KEYS, (cursor.last, READ_CHANGES))


def follow(cursor: Cursor, reply: Reply, now_ms: int) -> News:
    """What a reply of `read_changes` says to a reader at `cursor`."""
    now_us, last = number(reply[0]), number(reply[2])
    epoch = reply[1] if isinstance(reply[1], bytes) else b""
    numbers = [number(value) for value in reply[3::_FIELDS]]
    is_other = cursor.epoch not in {b"", epoch} or last < cursor.last
    # A reader that holds nothing begins where the log is.
    is_new = cursor == Cursor()
    expected = list(range(cursor.last + 1, cursor.last + 1 + len(numbers)))
    if is_new or is_other or numbers != expected or (not numbers and last > cursor.last):
        return News(now_us, Cursor(epoch, last, now_ms), (), not is_new, is_end=True)
    changes = tuple(
        Change(_text(reply[at + 1]), _bytes(reply[at + 2]), number(reply[at + 3]))
        for at in range(3, len(reply), _FIELDS)
    )
    reached = cursor.last + len(numbers)
    is_end = reached >= last
    return News(now_us, Cursor(epoch, reached, now_ms if is_end else cursor.synced_ms), changes, False, is_end)


def encode_cursor(cursor: Cursor) -> bytes:
    """The cursor as it lies on disk."""
    return _CURSOR.pack(cursor.last, cursor.synced_ms, cursor.epoch)


def decode_cursor(data: bytes) -> Cursor:
    """See encode_cursor. Raises ValueError."""
    try:
        last, synced_ms, epoch = _CURSOR.unpack(data)
    except struct.error as error:
        raise ValueError("not a cursor") from error
    return Cursor(b"" if epoch == bytes(16) else epoch, last, synced_ms)


def _text(value: int | bytes) -> str:
    return _bytes(value).decode("ascii", "replace")


def _bytes(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
