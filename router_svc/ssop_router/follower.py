"""A request that follows a generation which another one leads."""

from collections.abc import Awaitable, Callable

from ssop.v1.frame_pb2 import FrameKind
from ssop_codec import scan_heads
from ssop_router.delivery import FIELD_KINDS, Delivery


class Follower:
    """Takes the chunks of the leader; holds them back until the first field.

    `prepare` runs before the delivery opens: by then the leader knows its passages, if it is one of this router.
    """

    def __init__(self, delivery: Delivery, prepare: Callable[[], Awaitable[None]]) -> None:
        self._delivery = delivery
        self._prepare = prepare
        self._held: list[bytes] = []

    async def take(self, chunk: bytes) -> None:
        """Chunk bytes of document frames."""
        if not chunk:
            return
        if not self._delivery.is_open:
            self._held.append(chunk)
            if not any(kind in FIELD_KINDS or kind == FrameKind.FRAME_KIND_END for kind, _, _ in scan_heads(chunk)):
                return
            chunk = b"".join(self._held)
            await self._prepare()
            self._delivery.mark_first_field()
            self._delivery.take_document(chunk)
            await self._delivery.open(chunk)
            return
        self._delivery.take_document(chunk)
        await self._delivery.forward_all(chunk)
