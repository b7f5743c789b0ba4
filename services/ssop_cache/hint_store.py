"""HintService: what routers tell each other about nodes, in the state instance."""

import re
from typing import Final

from ssop.v1 import hints_pb2
from ssop_cache.core.hints import MEMORY_MS, StoredHint, read_reply, share_hints
from ssop_cache.key_store import require_router
from ssop_cache.store import RedisStore
from ssop_chassis.call import Call
from ssop_chassis.errors import invalid_request

MAX_OWN_HINTS: Final = 64
MAX_ADDRESS_BYTES: Final = 256
_ROUTER_ID: Final = re.compile(r"[0-9a-f]{32}")
_RULE: Final = re.compile(r"[a-z_]{1,32}")


class HintServicer:
    """Keeps and hands on; what a hint is worth is the routers' business."""

    def __init__(self, state: RedisStore) -> None:
        self._state = state

    async def share_hints(self, call: Call) -> None:
        """See HintService.ShareHints."""
        require_router(call)
        request = hints_pb2.ShareHintsRequest.FromString(call.request)
        if not _ROUTER_ID.fullmatch(request.router_id):
            raise invalid_request(("router_id", "must be 32 hexadecimal digits"))
        if len(request.hints) > MAX_OWN_HINTS:
            raise invalid_request(("hints", f"are more than {MAX_OWN_HINTS}"))
        for hint in request.hints:
            if not 0 < len(hint.address.encode()) <= MAX_ADDRESS_BYTES:
                raise invalid_request(("hints.address", f"must have 1 to {MAX_ADDRESS_BYTES} bytes"))
            if not _RULE.fullmatch(hint.rule):
                raise invalid_request(("hints.rule", "must be 1 to 32 of [a-z_]"))
        given = [StoredHint(hint.address, hint.rule, min(hint.age_ms, MEMORY_MS)) for hint in request.hints]
        reply = await self._state.run(share_hints(request.router_id, given))
        response = hints_pb2.ShareHintsResponse(
            hints=[
                hints_pb2.NodeHint(address=hint.address, rule=hint.rule, age_ms=hint.age_ms)
                for hint in read_reply(reply)
            ]
        )
        await call.write(response.SerializeToString())
