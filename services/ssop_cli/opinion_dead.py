"""`ssop opinion dead`: what did not become a record, and why."""

import asyncio
from typing import Any

from ssop_cli.failure import CommandError
from ssop_cli.opinion_reports import Office
from ssop_opinion.queue import PostQueue, QueueAwayError


def read_dead(office: Office, count: int) -> list[dict[str, Any]]:
    """The newest dead letters, newest first, without their posts. Raises CommandError."""
    return asyncio.run(_read(office, count))


def revive_dead(office: Office, count: int) -> int:
    """Queue the posts of the oldest dead letters again; how many had one. Raises CommandError."""
    return asyncio.run(_revive(office, count))


async def _read(office: Office, count: int) -> list[dict[str, Any]]:
    queue = PostQueue(office.settings)
    try:
        found = await queue.dead_letters(count)
    except QueueAwayError as error:
        raise CommandError(f"the queue can't be read: {error}") from error
    finally:
        await queue.close()
    return [
        {
            "id": id_,
            "reason": letter.reason,
            "tenant": letter.tenant,
            "source": letter.source,
            "channel": letter.channel,
            "size_bytes": letter.size_bytes,
            "digest": letter.digest,
            "has_post": bool(letter.payload),
        }
        for id_, letter in found
    ]


async def _revive(office: Office, count: int) -> int:
    queue = PostQueue(office.settings)
    try:
        return await queue.revive(count)
    except QueueAwayError as error:
        raise CommandError(f"the posts were not queued: {error}") from error
    finally:
        await queue.close()
