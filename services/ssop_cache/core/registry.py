"""Leases of nodes that announce themselves, in the state instance: calls of their scripts, and replies as values."""

from dataclasses import dataclass
from typing import Final

from ssop_cache.core.keys import NODE_LEASES
from ssop_cache.core.scripts import Reply, ScriptCall, data, number

MAX_LEASES: Final = 256
_FIELDS: Final = 2


@dataclass(frozen=True, slots=True)
class StoredLease:
    """A lease that holds: what the node said, and how long ago."""

    announcement: bytes
    age_ms: int


def announce_node(address: str, instance: str, lease_ms: int, announcement: bytes) -> ScriptCall:
    """Call of `announce_node`."""
    return ScriptCall("announce_node", NODE_LEASES, (address, instance, lease_ms, announcement, MAX_LEASES))


def withdraw_node(address: str, instance: str) -> ScriptCall:
    """Call of `withdraw_node`."""
    return ScriptCall("withdraw_node", NODE_LEASES, (address, instance))


def list_nodes() -> ScriptCall:
    """Call of `list_nodes`."""
    return ScriptCall("list_nodes", NODE_LEASES, ())


def read_leases(reply: Reply) -> list[StoredLease]:
    """The leases of a reply of `list_nodes`."""
    return [StoredLease(data(reply[index]), number(reply[index + 1])) for index in range(1, len(reply) - 1, _FIELDS)]
