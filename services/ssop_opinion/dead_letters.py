"""Dead letters: what did not become a record, with its reason."""

import asyncio
import hashlib
import logging

from ssop_opinion.core.post import Channel, PostError
from ssop_opinion.entries import DeadLetter, Entry
from ssop_opinion.metrics import OpinionMetrics
from ssop_opinion.queue import PostQueue, QueueAwayError

_RETRY_S = 0.5
_log = logging.getLogger(__name__)


class DeadLetterOffice:
    """Keeps dead letters in the queue's Redis."""

    def __init__(self, queue: PostQueue, metrics: OpinionMetrics) -> None:
        self._queue = queue
        self._metrics = metrics

    async def note_faults(
        self, faults: list[tuple[PostError, bytes]], *, tenant: str, source: str, channel: Channel
    ) -> None:
        """Keep what is known of things that are no posts: reason, size, a digest to find them by; none of their text.

        Best effort: they were never accepted, and their senders are told.
        """
        letters = [
            DeadLetter(
                reason=error.reason,
                tenant=tenant,
                source=source,
                channel=channel,
                size_bytes=len(data),
                digest=hashlib.sha256(data).hexdigest()[:32] if data else "",
            )
            for error, data in faults
        ]
        for letter in letters:
            self._metrics.dead_letters.labels(letter.reason).inc()
        try:
            self._metrics.letters_dropped.inc(await self._queue.bury(letters))
        except QueueAwayError:
            _log.warning("dead letters were not kept", extra={"count": len(letters)})

    async def bury_entry(self, entry: Entry, reason: str) -> None:
        """Keep an accepted post that becomes no record, with its payload; returns when it is kept."""
        post = entry.post
        letter = DeadLetter(
            reason=reason,
            tenant=post.tenant if post is not None else "",
            source=post.source if post is not None else "",
            channel=post.channel if post is not None else "",
            payload=entry.payload,
        )
        self._metrics.dead_letters.labels(reason).inc()
        _log.warning("a post became a dead letter", extra={"reason": reason, "entry": entry.id})
        while True:
            try:
                dropped = await self._queue.bury([letter])
            except QueueAwayError:
                await asyncio.sleep(_RETRY_S)
            else:
                self._metrics.letters_dropped.inc(dropped)
                return
