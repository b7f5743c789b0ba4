"""How a host hears that Redis itself was told to drop all answers (FLUSHALL), which tells nobody.

The cache instance holds a mark. A server that is still the same process and has lost it was flushed; one that was
started again has lost it too, and the answers on hosts are as good as before. The mark is read all the time, so that an
instance that evicts what is used least keeps it; where it goes all the same, hosts forget what they could have kept.
"""

from dataclasses import dataclass, field
from typing import Final

from ssop_cache.core.changes import Change
from ssop_cache.core.scripts import Reply, ScriptCall

_KEYS: Final = ("ssop:{flushes}:mark",)
EVERYTHING: Final = Change("", b"", 2**53)
"""The change that drops every answer of every tenant."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """A run of the cache instance, and its mark; the same until it is flushed or started again.

    `is_first`: nobody had seen the mark before.
    """

    run_id: bytes
    mark: bytes
    is_first: bool = field(default=False, compare=False)


def read_epoch(nonce: bytes) -> ScriptCall:
    """Call of `read_flush_epoch`. `nonce`: 16 random bytes."""
    return ScriptCall("read_flush_epoch", _KEYS, (nonce,))


def parse_epoch(reply: Reply) -> Epoch:
    """What a reply of `read_flush_epoch` says."""
    run_id, mark = (value if isinstance(value, bytes) else str(value).encode() for value in reply[:2])
    return Epoch(run_id, mark, bool(reply[2]))


def was_flushed(before: Epoch | None, now: Epoch) -> bool:
    """Whether the instance was flushed between two looks. Who has not looked before can't know."""
    return before is not None and before.run_id == now.run_id and before.mark != now.mark
