# cython: annotation_typing=False
"""The conversations that the router remembers, by tenant and name.

`conversations.pxd` gives the types with which this very file is compiled.
"""

from collections import OrderedDict

from ssop_router.core.conversation import Conversation, advance
from ssop_router.core.decision import Decision


class Conversations:
    """At most `size` of them, each for `ttl_ms` after its last request."""

    def __init__(self, size: int, ttl_ms: int) -> None:
        self._size = size
        self._ttl_ms = ttl_ms
        self._entries: OrderedDict[tuple[str, str], Conversation] = OrderedDict()

    def find(self, tenant: str, name: str, now_ms: int) -> Conversation | None:
        """A conversation that is still alive."""
        if not name:
            return None
        entry = self._entries.get((tenant, name))
        return entry if entry is not None and now_ms - entry.at_ms < self._ttl_ms else None

    def advance(self, tenant: str, name: str, decision: Decision, now_ms: int) -> bool:
        """A request of a conversation is run; whether the conversation has changed its tier."""
        if not name:
            return False
        before = self.find(tenant, name, now_ms)
        after = advance(before, decision.tier, decision.tier_reason, now_ms)
        if after is None:
            return False
        key = (tenant, name)
        self._entries[key] = after
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)
        return before is not None and before.tier != after.tier
