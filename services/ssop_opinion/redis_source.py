"""The door for a Redis stream of somebody else, through a consumer group: acknowledged when a post is in the queue."""

import asyncio
import logging
import socket
import uuid
from typing import Any, Final

from redis.exceptions import RedisError, ResponseError

from ssop_chassis.logs import describe
from ssop_opinion.core.post import PostError
from ssop_opinion.core.reading import parse_post
from ssop_opinion.intake import Intake, Origin
from ssop_opinion.metrics import OpinionMetrics
from ssop_opinion.queue import away, open_redis
from ssop_opinion.settings import RedisSourceSettings

_COUNT: Final = 200
_BLOCK_MS: Final = 1_000
_TIMEOUT_S: Final = 5.0
_CLAIM_AFTER_MS: Final = 60_000
_LONGEST_PAUSE_S: Final = 10.0
_log = logging.getLogger(__name__)


class RedisSource:
    """A stream of a tenant."""

    def __init__(self, settings: RedisSourceSettings, intake: Intake, metrics: OpinionMetrics) -> None:
        self._settings = settings
        self._intake = intake
        self._metrics = metrics
        self._origin = Origin(settings.tenant, settings.source, "redis", has_unknown_members=True)
        self._name = f"{socket.gethostname()}-{uuid.uuid4().hex[:12]}"

    async def run(self) -> None:
        """Read until cancelled, through all breaks."""
        redis = open_redis(self._settings.url, _TIMEOUT_S, connections=2)
        pause_s, has_group = 0.0, False
        try:
            while True:
                try:
                    if not has_group:
                        await self._make_group(redis)
                        has_group = True
                    await self._take(redis, await self._next(redis))
                    pause_s = 0.0
                except (RedisError, OSError, TimeoutError) as error:
                    fault = away("the source can't be read", error)
                    pause_s, has_group = min(_LONGEST_PAUSE_S, 2 * pause_s or 0.05), False
                    self._metrics.tries.labels("redis_source").inc()
                    _log.warning("%s: %s", fault, describe(error))
                    await asyncio.sleep(pause_s)
        finally:
            await redis.aclose()

    async def _make_group(self, redis: Any) -> None:
        try:
            await redis.xgroup_create(self._settings.stream, self._settings.group, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def _next(self, redis: Any) -> list[tuple[bytes, Any]]:
        """Entries of readers that fell silent, else new ones."""
        stream, group = self._settings.stream, self._settings.group
        claimed = await redis.xautoclaim(stream, group, self._name, min_idle_time=_CLAIM_AFTER_MS, count=_COUNT)
        found = [(id_, fields) for id_, fields in claimed[1] if fields]
        if found:
            return found
        reply = await redis.xreadgroup(group, self._name, {stream: ">"}, count=_COUNT, block=_BLOCK_MS)
        streams = reply.items() if isinstance(reply, dict) else reply or []
        return [entry for _, entries in streams for entry in _flatten(entries)]

    async def _take(self, redis: Any, entries: list[tuple[bytes, Any]]) -> None:
        if not entries:
            return
        await self._intake.take([_read(fields) for _, fields in entries], self._origin)
        await redis.xack(self._settings.stream, self._settings.group, *(id_ for id_, _ in entries))


def _flatten(entries: Any) -> list[tuple[bytes, Any]]:
    """Entries of one stream; newer protocols wrap them once more."""
    if entries and isinstance(entries[0], list):
        return [entry for some in entries for entry in some]
    return list(entries)


def _read(fields: Any) -> tuple[Any, bytes]:
    data = fields.get(b"post", b"") if isinstance(fields, dict) else b""
    try:
        return parse_post(data), data
    except PostError as error:
        return error, data
