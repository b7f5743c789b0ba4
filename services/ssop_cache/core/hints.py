"""Hints of routers about nodes, in the state instance: the call of their script, and its reply as values."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ssop_cache.core.keys import HINTS
from ssop_cache.core.scripts import Reply, ScriptCall, data, number

MEMORY_MS: Final = 60_000
"""How long a hint is kept; readers take only much younger ones."""
MAX_HINTS: Final = 256
_FIELDS: Final = 3


@dataclass(frozen=True, slots=True)
class StoredHint:
    """A router has taken a node out; `age_ms` ago it last saw it fail."""

    address: str
    rule: str
    age_ms: int


def share_hints(router_id: str, hints: Iterable[StoredHint]) -> ScriptCall:
    """Call of `share_hints`."""
    parts = [part for hint in hints for part in (hint.address, hint.rule, hint.age_ms)]
    return ScriptCall("share_hints", HINTS, (router_id, MEMORY_MS, MAX_HINTS, *parts))


def read_reply(reply: Reply) -> list[StoredHint]:
    """Of each node the youngest hint of other routers, by address."""
    youngest: dict[str, StoredHint] = {}
    for index in range(1, len(reply) - _FIELDS + 1, _FIELDS):
        address, rule = (data(part).decode(errors="replace") for part in reply[index : index + 2])
        hint = StoredHint(address, rule, number(reply[index + 2]))
        if address not in youngest or hint.age_ms < youngest[address].age_ms:
            youngest[address] = hint
    return [youngest[address] for address in sorted(youngest)]
