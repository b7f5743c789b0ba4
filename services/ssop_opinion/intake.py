"""What all doors do with what came: judge it, append what is a post, and keep what is none as a dead letter."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ssop_opinion.core.post import Channel, Post, PostError, Raw
from ssop_opinion.core.reading import judge
from ssop_opinion.dead_letters import DeadLetterOffice
from ssop_opinion.metrics import OpinionMetrics
from ssop_opinion.queue import DUPLICATE, QUEUED, REFUSED, SAMPLED_OUT, Appended, PostQueue, QueueAwayError

MAX_APPEND: Final = 500
"""Posts of one append: its script holds Redis up."""
_WORDS: Final[Mapping[int, str]] = {
    QUEUED: "queued",
    DUPLICATE: "duplicate",
    SAMPLED_OUT: "sampled_out",
    REFUSED: "refused",
}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where posts come from. What a body says can't change it."""

    tenant: str
    source: str
    channel: Channel
    defaults: Mapping[str, str] = field(default_factory=dict)
    has_unknown_members: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """Posts, with the places in which they came; and the faults of others, with theirs and with what was read."""

    posts: Sequence[tuple[int, Post]]
    faults: Sequence[tuple[int, PostError, bytes]]


class Intake:
    """The way into the queue. `now_ms` is the wall clock."""

    def __init__(
        self,
        queue: PostQueue,
        office: DeadLetterOffice,
        metrics: OpinionMetrics,
        *,
        now_ms: Callable[[], int],
        max_wait_s: float,
    ) -> None:
        self._queue = queue
        self._office = office
        self._metrics = metrics
        self._now_ms = now_ms
        self._max_wait_s = max_wait_s

    def judge(self, found: Iterable[tuple[Mapping[str, Any] | PostError, bytes]], origin: Origin) -> Judged:
        """Judge objects, or faults of reading them; the bytes that each came in are for the digest of a fault."""
        now_ms = self._now_ms()
        posts: list[tuple[int, Post]] = []
        faults: list[tuple[int, PostError, bytes]] = []
        for place, (body, data) in enumerate(found):
            if isinstance(body, PostError):
                faults.append((place, body, data))
                continue
            raw = Raw(body, origin.tenant, origin.source, origin.channel, now_ms, origin.defaults)
            try:
                posts.append((place, judge(raw, has_unknown_members=origin.has_unknown_members)))
            except PostError as error:
                faults.append((place, error, data))
        return Judged(posts, faults)

    async def note(self, judged: Judged, origin: Origin) -> None:
        """Keep the faults as dead letters."""
        if judged.faults:
            self._count(origin, "faulty", len(judged.faults))
            faults = [(error, data) for _, error, data in judged.faults]
            await self._office.note_faults(faults, tenant=origin.tenant, source=origin.source, channel=origin.channel)

    async def append(self, posts: Sequence[Post], origin: Origin, nonce: str = "") -> Appended:
        """Append posts; durable when this returns. Raises QueueAwayError and ReplayedError."""
        appended = await self._queue.append(origin.tenant, posts, nonce)
        for outcome in set(appended.outcomes):
            self._count(origin, _WORDS[outcome], appended.outcomes.count(outcome))
        if refused := appended.outcomes.count(REFUSED):
            self._metrics.refused(origin.tenant, refused)
        self._metrics.dropped.inc(appended.dropped)
        return appended

    async def take(self, found: Iterable[tuple[Mapping[str, Any] | PostError, bytes]], origin: Origin) -> int:
        """For doors that pull: take all in, waiting while the queue is full or away; how many posts it has now.

        When this returns, the source may forget them.
        """
        judged = self.judge(found, origin)
        await self.note(judged, origin)
        rest = [post for _, post in judged.posts]
        taken, pause_s = 0, 0.1
        while rest:
            head, rest = rest[:MAX_APPEND], rest[MAX_APPEND:]
            try:
                outcomes = (await self.append(head, origin)).outcomes
            except QueueAwayError:
                refused = head
            else:
                taken += sum(outcome in {QUEUED, DUPLICATE} for outcome in outcomes)
                refused = [post for post, outcome in zip(head, outcomes, strict=True) if outcome == REFUSED]
            if refused:
                rest = refused + rest
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, self._max_wait_s)
            else:
                pause_s = 0.1
        return taken

    def _count(self, origin: Origin, outcome: str, count: int) -> None:
        self._metrics.posts.labels(origin.channel, outcome).inc(count)
