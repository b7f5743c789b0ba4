"""A request that follows a generation which another one leads."""

from collections.abc import Awaitable, Callable

from ssop_codec import survey
from ssop_router.core.frames import END_BIT, FIELD_BITS
from ssop_router.core.transcript import Transcript
from ssop_router.delivery import Delivery
from ssop_router.outlet import finish


class Follower:
    """Takes the chunks of the leader; holds them back until the first field.

    A leader that took over from one that failed sends the whole document: what has been sent of it is compared, and
    not sent again. `prepare` runs before the delivery opens: by then the leader knows its passages, if it is one of
    this router.
    """

    def __init__(self, delivery: Delivery, transcript: Transcript, prepare: Callable[[], Awaitable[None]]) -> None:
        self._delivery = delivery
        self._transcript = transcript
        self._prepare = prepare
        self._held: list[bytes] = []

    async def take(self, chunk: bytes) -> None:
        """Chunk bytes of document frames. Raises ContradictionError where they are not what has been sent."""
        if not chunk:
            return
        if not self._delivery.is_open:
            self._held.append(chunk)
            if not survey(chunk).kinds & (FIELD_BITS | END_BIT):
                return
            chunk = b"".join(self._held)
            await self._prepare()
            self._delivery.mark_first_field()
            await finish(self._delivery.open(chunk, self._note(chunk)))
            return
        chunk = self._transcript.rest_of(chunk)
        if chunk:
            self._note(chunk)
            await finish(self._delivery.forward_all(chunk))

    def _note(self, chunk: bytes) -> int:
        frames = self._delivery.take_document(chunk)
        self._transcript.add(chunk, frames)
        return frames
