"""The durable queue of posts: a Redis stream with a consumer group, and the dead letters beside it.

A post is accepted when Redis has it on disk. It leaves the queue in one step, after the sink has its record; until then
it is pending for the worker that read it, and another takes it over when that one falls silent.
"""

import asyncio
import hashlib
import socket
import time
import uuid
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, cast

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from ssop_opinion.core.payload import read_payload, write_payload
from ssop_opinion.core.post import Post
from ssop_opinion.settings import OpinionSettings

PREFIX: Final = "{ssop.opinion}"
"""Beginning of all keys; its braces put them on one node of a cluster."""
POSTS: Final = f"{PREFIX}:posts"
DEAD: Final = f"{PREFIX}:dead"
_BYTES: Final = f"{PREFIX}:bytes"
GROUP: Final = "workers"
_BATCH: Final = 500
_APPENDS: Final = 8
_FORGET_AFTER: Final = 10
"""Silences (`claim_ms`) after which the name of a worker that holds nothing is forgotten."""

QUEUED: Final = 1
DUPLICATE: Final = 0
SAMPLED_OUT: Final = 2
REFUSED: Final = -1


class QueueAwayError(Exception):
    """The queue's Redis can't be reached or takes no writes: nothing was accepted."""


def away(message: str, error: BaseException) -> QueueAwayError:
    """The error to raise for one of the client. Raises CancelledError where this task was cancelled.

    redis-py makes a ConnectionError of a cancellation that meets it while it connects.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError from error
    return QueueAwayError(message)


class ReplayedError(Exception):
    """The nonce of a request was used before."""


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of posts: QUEUED, DUPLICATE, SAMPLED_OUT or REFUSED each; and how many older ones were dropped."""

    outcomes: Sequence[int]
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """A post that was read. `post` None: its payload can't be read. `tries` counts from 1, over all workers."""

    id: str
    post: Post | None
    payload: bytes
    tries: int = 1


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What did not become a record, and why. `payload` is that of an accepted post, empty for what never was one."""

    reason: str
    tenant: str
    source: str = ""
    channel: str = ""
    size_bytes: int = 0
    digest: str = ""
    payload: bytes = b""


def open_redis(url: str, timeout_s: float, *, connections: int = 16) -> Redis:
    """A client that repeats nothing by itself, since a command whose reply was lost may have run."""
    return Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        max_connections=connections,
        retry=Retry(NoBackoff(), 0),
        decode_responses=False,
    )


class PostQueue:
    """The queue of one application, from one process. `name` is this process's among the workers."""

    def __init__(self, settings: OpinionSettings) -> None:
        self.name = f"{socket.gethostname()}-{uuid.uuid4().hex[:12]}"
        self._settings = settings
        timeout_s = settings.redis_timeout_ms / 1000
        self._redis = open_redis(settings.stream_url, timeout_s)
        self._appending = asyncio.Semaphore(_APPENDS)
        self._append, self._finish, self._forget = (
            self._redis.register_script(_script(name)) for name in ("append_posts", "finish_posts", "forget_consumers")
        )

    async def prepare(self) -> None:
        """Make the group, and check that this Redis keeps what it is given. Raises QueueAwayError and ValueError."""
        try:
            if self._settings.is_role_checked:
                await self._check_role()
            await self._make_group()
        except (RedisError, OSError, TimeoutError) as error:
            raise away("the queue's Redis does not answer", error) from error

    async def append(self, posts: Sequence[Post], nonce: str = "") -> Appended:
        """Append posts that were not seen before; on disk when this returns. Raises QueueAwayError, ReplayedError."""
        settings = self._settings
        keys = [POSTS, DEAD, _BYTES, f"{PREFIX}:nonce:{nonce}"]
        arguments: list[str | bytes | int] = [
            settings.max_queued,
            settings.max_queued_bytes,
            settings.overflow,
            settings.duplicate_window_ms,
            2 * settings.signature_window_ms if nonce else 0,
            settings.max_dead_letters,
            GROUP,
        ]
        for post in posts:
            digest = hashlib.blake2b(post.key.encode(), digest_size=12).digest()
            is_sampled = int.from_bytes(digest[:4], "big") % settings.sample_one_in == 0
            keys.append(f"{PREFIX}:seen:{digest.hex()}")
            arguments += [write_payload(post), int(is_sampled), post.tenant]
        try:
            # The pool refuses more connections than it has.
            async with self._appending:
                reply = await self._append(keys=keys, args=arguments)
        except (RedisError, OSError, TimeoutError) as error:
            raise away("the queue's Redis did not take the posts", error) from error
        if reply[0]:
            raise ReplayedError
        return Appended(reply[2], reply[1])

    async def read(self, count: int, block_ms: int) -> list[Entry]:
        """Posts that no worker has had yet, at most `count`, within `block_ms`. Raises QueueAwayError."""
        try:
            async with asyncio.timeout(block_ms / 1000 + self._settings.redis_timeout_ms / 1000):
                reply = await self._read_group(count, block_ms)
        except (RedisError, OSError, TimeoutError) as error:
            raise away("the queue can't be read", error) from error
        return [_entry(id_, fields) for _, entries in reply for id_, fields in entries if fields]

    async def _read_group(self, count: int, block_ms: int) -> Any:
        for is_last in (False, True):
            try:
                # Half of the client's own time-out at most: blocking is no silence.
                block_ms = min(block_ms, self._settings.redis_timeout_ms // 2)
                found = await self._redis.xreadgroup(
                    GROUP, self.name, {POSTS: ">"}, count=count, block=max(block_ms, 1)
                )
            except ResponseError as error:
                if is_last or "NOGROUP" not in str(error):
                    raise
                # The Redis was emptied, or replaced.
                await self._make_group()
            else:
                return list(found.items()) if isinstance(found, dict) else found or []
        return []

    async def claim(self, count: int) -> list[Entry]:
        """Posts of workers that fell silent for `claim_ms`. Raises QueueAwayError."""
        try:
            reply = await self._redis.xautoclaim(
                POSTS, GROUP, self.name, min_idle_time=self._settings.claim_ms, start_id="0-0", count=count
            )
            claimed = [(id_, fields) for id_, fields in reply[1] if fields]
            tries = await self._tries([id_ for id_, _ in claimed])
            await self._forget(keys=[POSTS], args=[GROUP, _FORGET_AFTER * self._settings.claim_ms])
        except ResponseError as error:
            if "NOGROUP" in str(error):
                return []
            raise away("the queue can't be claimed from", error) from error
        except (RedisError, OSError, TimeoutError) as error:
            raise away("the queue can't be claimed from", error) from error
        return [_entry(id_, fields, tries.get(id_, 1)) for id_, fields in claimed]

    async def _tries(self, ids: Sequence[bytes]) -> dict[bytes, int]:
        if not ids:
            return {}
        pipe = self._redis.pipeline(transaction=False)
        for id_ in ids:
            pipe.xpending_range(POSTS, GROUP, min=id_, max=id_, count=1)
        found = await pipe.execute()
        return {row["message_id"]: int(row["times_delivered"]) for rows in found for row in rows}

    async def keep(self, ids: Sequence[str]) -> None:
        """Say that this worker still holds posts, so that nobody takes them over. Raises QueueAwayError."""
        try:
            for at in range(0, len(ids), _BATCH):
                await self._redis.xclaim(
                    POSTS, GROUP, self.name, 0, cast("Any", list(ids[at : at + _BATCH])), idle=0, justid=True
                )
        except (RedisError, OSError, TimeoutError) as error:
            raise away("the queue's Redis does not answer", error) from error

    async def release(self, ids: Sequence[str]) -> None:
        """Let others take posts over at once. Raises QueueAwayError."""
        try:
            for at in range(0, len(ids), _BATCH):
                some = cast("Any", list(ids[at : at + _BATCH]))
                await self._redis.xclaim(
                    POSTS, GROUP, self.name, 0, some, idle=2 * self._settings.claim_ms, justid=True
                )
        except (RedisError, OSError, TimeoutError) as error:
            raise away("the queue's Redis does not answer", error) from error

    async def finish(self, entries: Sequence[Entry]) -> None:
        """Take posts out of the queue: their records are in the sink. Raises QueueAwayError."""
        try:
            for at in range(0, len(entries), _BATCH):
                arguments: list[str | int] = [GROUP]
                for entry in entries[at : at + _BATCH]:
                    arguments += [entry.id, len(entry.payload)]
                await self._finish(keys=[POSTS, _BYTES], args=arguments)
        except (RedisError, OSError, TimeoutError) as error:
            raise away("the queue's Redis does not answer", error) from error

    async def bury(self, letters: Sequence[DeadLetter]) -> int:
        """Keep dead letters; how many of the oldest had to go. Raises QueueAwayError."""
        if not letters:
            return 0
        try:
            pipe = self._redis.pipeline(transaction=True)
            for letter in letters:
                pipe.xadd(DEAD, _fields(letter))
            pipe.xtrim(DEAD, maxlen=self._settings.max_dead_letters, approximate=True)
            return int((await pipe.execute())[-1])
        except (RedisError, OSError, TimeoutError) as error:
            raise away("the queue's Redis did not take dead letters", error) from error

    async def dead_letters(self, count: int) -> list[tuple[str, DeadLetter]]:
        """The newest dead letters, with their ids, newest first. Raises QueueAwayError."""
        try:
            found = await self._redis.xrevrange(DEAD, count=count)
        except (RedisError, OSError, TimeoutError) as error:
            raise away("the queue's Redis does not answer", error) from error
        return [(_text(id_), _letter(fields)) for id_, fields in found or []]

    async def revive(self, count: int) -> int:
        """Queue the posts of the oldest `count` dead letters again, past all bounds; how many had one.

        Raises QueueAwayError.
        """
        try:
            found = await self._redis.xrange(DEAD, count=count)
            letters = [(id_, _letter(fields)) for id_, fields in found or []]
            held = [(id_, letter) for id_, letter in letters if letter.payload]
            pipe = self._redis.pipeline(transaction=True)
            for id_, letter in held:
                pipe.xadd(POSTS, {"post": letter.payload, "seen": "", "tenant": letter.tenant})
                pipe.incrby(_BYTES, len(letter.payload))
                pipe.xdel(DEAD, _text(id_))
            await pipe.execute()
        except (RedisError, OSError, TimeoutError) as error:
            raise away("the queue's Redis did not take the posts", error) from error
        return len(held)

    async def sizes(self) -> tuple[int, int]:
        """How many posts wait or are worked on, and how many dead letters there are. Raises QueueAwayError."""
        try:
            pipe = self._redis.pipeline(transaction=False)
            pipe.xlen(POSTS)
            pipe.xlen(DEAD)
            queued, dead = await pipe.execute()
        except (RedisError, OSError, TimeoutError) as error:
            raise away("the queue's Redis does not answer", error) from error
        return int(queued), int(dead)

    async def close(self) -> None:
        """Drop the connections."""
        await self._redis.aclose()

    async def _make_group(self) -> None:
        try:
            await self._redis.xgroup_create(POSTS, GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def _check_role(self) -> None:
        """Raise ValueError for a Redis that would forget posts."""
        wanted = {"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "always"}
        for name, value in wanted.items():
            reply = await cast("Awaitable[dict[Any, Any]]", self._redis.config_get(name))
            found = {_text(key): _text(held) for key, held in reply.items()}.get(name, "")
            if found != value:
                raise ValueError(f"the Redis of stream_url would lose accepted posts: {name} is '{found}', not {value}")


def _script(name: str) -> str:
    return (resources.files("ssop_opinion.lua") / f"{name}.lua").read_text(encoding="utf-8")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _entry(id_: bytes, fields: Any, tries: int = 1) -> Entry:
    found = fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))
    payload = found.get(b"post", b"")
    try:
        post = read_payload(payload)
    except ValueError:
        post = None
    return Entry(id_.decode(), post, payload, tries)


def _fields(letter: DeadLetter) -> Any:
    return {
        "reason": letter.reason,
        "post": letter.payload,
        "tenant": letter.tenant,
        "bytes": letter.size_bytes or len(letter.payload),
        "source": letter.source,
        "channel": letter.channel,
        "digest": letter.digest,
        "at_ms": time.time_ns() // 1_000_000,
    }


def _letter(fields: Any) -> DeadLetter:
    found = {_text(key): value for key, value in fields.items()}
    return DeadLetter(
        reason=_text(found.get("reason", "")),
        tenant=_text(found.get("tenant", "")),
        source=_text(found.get("source", "")),
        channel=_text(found.get("channel", "")),
        size_bytes=int(found.get("bytes", 0)),
        digest=_text(found.get("digest", "")),
        payload=found.get("post", b""),
    )
