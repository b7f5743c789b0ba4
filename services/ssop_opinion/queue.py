"""The durable queue of posts: a Redis stream with a consumer group for each tenant, and the dead letters beside them.

A post is accepted when Redis has it on disk. It leaves the queue in one step, after the sink has its record; until then
it is pending for the worker that read it, and another takes it over when that one falls silent. Tenants share the
bounds of the queue as `core/turns.py` says. One common stream is read with theirs: of a version that had no other, and
of dead letters that are nobody's.
"""

import asyncio
import hashlib
import socket
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, cast

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from ssop_opinion.core.payload import write_payload
from ssop_opinion.core.post import Post
from ssop_opinion.core.turns import SHARE
from ssop_opinion.entries import DeadLetter, Entry, letter_fields, read_entry, read_letter, text_of
from ssop_opinion.settings import OpinionSettings

PREFIX: Final = "{ssop.opinion}"
"""Beginning of all keys; its braces put them on one node of a cluster."""
POSTS: Final = f"{PREFIX}:posts"
"""The common stream; those of tenants have `:TENANT` behind it."""
DEAD: Final = f"{PREFIX}:dead"
_COMMON_BYTES: Final = f"{PREFIX}:bytes"
SUMS: Final = f"{PREFIX}:sums"
"""How many posts and bytes are in the streams of all tenants, and by name how many bytes in that of each."""
SUM_OF_POSTS: Final = "=posts"
"""No tenant is named so."""
_SUM_OF_BYTES: Final = "=bytes"
_TENANTS: Final = f"{PREFIX}:tenants"
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


@contextmanager
def _reaching(message: str) -> Iterator[None]:
    """Raise QueueAwayError for what the client raises within."""
    try:
        yield
    except (RedisError, OSError, TimeoutError) as error:
        raise away(message, error) from error


class ReplayedError(Exception):
    """The nonce of a request was used before."""


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of posts: QUEUED, DUPLICATE, SAMPLED_OUT or REFUSED each; and how many older ones were dropped."""

    outcomes: Sequence[int]
    dropped: int = 0


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
    """The queue of one application, from one process. `name` is this process's among the workers.

    `tenants` are those that are configured. Others that are in the queue when `prepare` looks are gone, and their posts
    are read, too. Who comes later is new: other processes know them, and their posts are left to those.
    """

    def __init__(self, settings: OpinionSettings, tenants: Collection[str] = ()) -> None:
        self.name = f"{socket.gethostname()}-{uuid.uuid4().hex[:12]}"
        self.lengths: Mapping[str, int] = dict.fromkeys(tenants, 0)
        """Posts of each tenant that wait or are worked on, when `refresh` looked last."""
        self._settings = settings
        self._tenants = tuple(tenants)
        self._gone: Collection[str] = ()
        self._streams: Sequence[str] = ("", *tenants)
        self._has_common = True
        self._cursors: dict[str, Any] = {}
        timeout_s = settings.redis_timeout_ms / 1000
        self._redis = open_redis(settings.stream_url, timeout_s)
        self._appending = asyncio.Semaphore(_APPENDS)
        self._append, self._finish, self._forget, self._open = (
            self._redis.register_script(_script(name))
            for name in ("append_posts", "finish_posts", "forget_consumers", "open_streams")
        )

    @property
    def is_shared(self) -> bool:
        """Whether more than one tenant uses it: is configured, or has posts in it."""
        return len({*self._tenants, *(name for name, length in self.lengths.items() if length)}) > 1

    def admit(self, tenants: Iterable[str]) -> None:
        """Tenants are configured from now on."""
        new = [tenant for tenant in tenants if tenant not in self._tenants]
        self._tenants = (*self._tenants, *new)
        self.lengths = {**dict.fromkeys(new, 0), **self.lengths}
        # Their groups are made when they are missed.
        self._streams = (*self._streams, *(tenant for tenant in new if tenant not in self._streams))

    async def prepare(self) -> None:
        """Make streams and groups, and check that this Redis keeps what it is given.

        Raises QueueAwayError and ValueError.
        """
        with _reaching("the queue's Redis does not answer"):
            if self._settings.is_role_checked:
                await self._check_role()
            await self._open_streams()
            self._gone = frozenset(self.lengths).difference(self._tenants)
            self._choose_streams()

    async def refresh(self) -> None:
        """See how much waits, that of tenants included that others brought. Raises QueueAwayError."""
        with _reaching("the queue's Redis does not answer"):
            await self._open_streams()

    async def append(self, tenant: str, posts: Sequence[Post], nonce: str = "") -> Appended:
        """Append posts of a tenant that were not seen before; on disk when this returns.

        Raises QueueAwayError and ReplayedError.
        """
        settings = self._settings
        keys = [_stream(tenant), POSTS, DEAD, SUMS, _COMMON_BYTES, _TENANTS, f"{PREFIX}:nonce:{nonce}"]
        arguments: list[str | bytes | int] = [
            settings.max_queued,
            settings.max_queued_bytes,
            settings.overflow,
            settings.duplicate_window_ms,
            2 * settings.signature_window_ms if nonce else 0,
            settings.max_dead_letters,
            GROUP,
            tenant,
            SHARE if self.is_shared else 0,
        ]
        for post in posts:
            digest = hashlib.blake2b(post.key.encode(), digest_size=12).digest()
            is_sampled = int.from_bytes(digest[:4], "big") % settings.sample_one_in == 0
            keys.append(f"{PREFIX}:seen:{digest.hex()}")
            arguments += [write_payload(post), int(is_sampled)]
        with _reaching("the queue's Redis did not take the posts"):
            # The pool refuses more connections than it has.
            async with self._appending:
                reply = await self._append(keys=keys, args=arguments)
        if reply[0]:
            raise ReplayedError
        return Appended(reply[2], reply[1])

    async def read(self, count: int, block_ms: int, *, without: Collection[str] = ()) -> list[Entry]:
        """Posts that no worker has had yet, at most `count` of each stream, within `block_ms` (0: at once).

        Streams of `without` are left alone. Raises QueueAwayError.
        """
        with _reaching("the queue can't be read"):
            async with asyncio.timeout((block_ms + self._settings.redis_timeout_ms) / 1000):
                reply = await self._read_group(count, block_ms, without)
        return [read_entry(_tenant(key), id_, fields) for key, entries in reply for id_, fields in entries if fields]

    async def _read_group(self, count: int, block_ms: int, without: Collection[str]) -> Any:
        # Half of the client's own time-out at most: blocking is no silence.
        block = max(min(block_ms, self._settings.redis_timeout_ms // 2), 1) if block_ms else None
        for is_last in (False, True):
            streams: Any = {_stream(one): ">" for one in self._streams if one not in without}
            if not streams:
                break
            try:
                found = await self._redis.xreadgroup(GROUP, self.name, streams, count=count, block=block)
            except ResponseError as error:
                if is_last or "NOGROUP" not in str(error):
                    raise
                # The Redis was emptied, or replaced.
                await self._open_streams()
            else:
                return list(found.items()) if isinstance(found, dict) else found or []
        return []

    async def claim(self, count: int) -> list[Entry]:
        """Posts of workers that fell silent for `claim_ms`, at most `count` of each stream. Raises QueueAwayError."""
        streams = list(self._streams)
        claim_ms = self._settings.claim_ms
        claimed: list[tuple[str, bytes, Any]] = []
        try:
            with _reaching("the queue can't be claimed from"):
                pipe = self._redis.pipeline(transaction=False)
                for stream in streams:
                    start = self._cursors.get(stream, "0-0")
                    pipe.xautoclaim(_stream(stream), GROUP, self.name, claim_ms, start_id=start, count=count)
                for stream, reply in zip(streams, await pipe.execute(), strict=True):
                    # It goes on behind what it looked at: much that others hold may stand before.
                    self._cursors[stream] = reply[0]
                    claimed += [(stream, id_, fields) for id_, fields in reply[1] if fields]
                tries = await self._tries([(stream, id_) for stream, id_, _ in claimed])
                keys = [_stream(stream) for stream in streams]
                await self._forget(keys=keys, args=[GROUP, _FORGET_AFTER * claim_ms])
        except QueueAwayError as error:
            if "NOGROUP" in str(error.__cause__):
                return []
            raise
        return [read_entry(stream, id_, fields, tries.get((stream, id_), 1)) for stream, id_, fields in claimed]

    async def _tries(self, places: Sequence[tuple[str, bytes]]) -> dict[tuple[str, bytes], int]:
        if not places:
            return {}
        pipe = self._redis.pipeline(transaction=False)
        for stream, id_ in places:
            pipe.xpending_range(_stream(stream), GROUP, min=id_, max=id_, count=1)
        found = await pipe.execute()
        return {place: int(row["times_delivered"]) for place, rows in zip(places, found, strict=True) for row in rows}

    async def keep(self, entries: Iterable[Entry]) -> None:
        """Say that this worker still holds posts, so that nobody takes them over. Raises QueueAwayError."""
        await self._touch(entries, 0)

    async def release(self, entries: Iterable[Entry]) -> None:
        """Let others take posts over at once. Raises QueueAwayError."""
        await self._touch(entries, 2 * self._settings.claim_ms)

    async def _touch(self, entries: Iterable[Entry], idle_ms: int) -> None:
        """Say how long posts of this worker have been silent."""
        with _reaching("the queue's Redis does not answer"):
            for stream, held in _by_stream(entries).items():
                ids = [entry.id for entry in held]
                for at in range(0, len(ids), _BATCH):
                    some = cast("Any", ids[at : at + _BATCH])
                    await self._redis.xclaim(_stream(stream), GROUP, self.name, 0, some, idle=idle_ms, justid=True)

    async def finish(self, entries: Sequence[Entry]) -> None:
        """Take posts out of the queue: their records are in the sink. Raises QueueAwayError."""
        with _reaching("the queue's Redis does not answer"):
            for at in range(0, len(entries), _BATCH):
                keys, arguments = [SUMS, _COMMON_BYTES], cast("list[str | int]", [GROUP])
                for stream, some in _by_stream(entries[at : at + _BATCH]).items():
                    keys.append(_stream(stream))
                    arguments += [stream, len(some)]
                    for entry in some:
                        arguments += [entry.id, len(entry.payload)]
                await self._finish(keys=keys, args=arguments)

    async def bury(self, letters: Sequence[DeadLetter]) -> int:
        """Keep dead letters; how many of the oldest had to go. Raises QueueAwayError."""
        if not letters:
            return 0
        with _reaching("the queue's Redis did not take dead letters"):
            pipe = self._redis.pipeline(transaction=True)
            for letter in letters:
                pipe.xadd(DEAD, letter_fields(letter))
            pipe.xtrim(DEAD, maxlen=self._settings.max_dead_letters, approximate=True)
            return int((await pipe.execute())[-1])

    async def dead_letters(self, count: int) -> list[tuple[str, DeadLetter]]:
        """The newest dead letters, with their ids, newest first. Raises QueueAwayError."""
        with _reaching("the queue's Redis does not answer"):
            found = await self._redis.xrevrange(DEAD, count=count)
        return [(text_of(id_), read_letter(fields)) for id_, fields in found or []]

    async def revive(self, count: int) -> int:
        """Queue the posts of the oldest `count` dead letters again, past all bounds; how many had one.

        Raises QueueAwayError.
        """
        with _reaching("the queue's Redis did not take the posts"):
            found = await self._redis.xrange(DEAD, count=count)
            letters = [(id_, read_letter(fields)) for id_, fields in found or []]
            held = [(id_, letter) for id_, letter in letters if letter.payload]
            pipe = self._redis.pipeline(transaction=True)
            for id_, letter in held:
                tenant, size_bytes = letter.tenant, len(letter.payload)
                pipe.xadd(_stream(tenant), {"post": letter.payload, "seen": "", "tenant": tenant})
                if tenant:
                    pipe.sadd(_TENANTS, tenant)
                    pipe.hincrby(SUMS, SUM_OF_POSTS, 1)
                    pipe.hincrby(SUMS, _SUM_OF_BYTES, size_bytes)
                    pipe.hincrby(SUMS, tenant, size_bytes)
                else:
                    pipe.incrby(_COMMON_BYTES, size_bytes)
                pipe.xdel(DEAD, text_of(id_))
            await pipe.execute()
        return len(held)

    async def sizes(self) -> tuple[int, int]:
        """How many posts wait or are worked on, and how many dead letters there are. Raises QueueAwayError."""
        with _reaching("the queue's Redis does not answer"):
            pipe = self._redis.pipeline(transaction=False)
            pipe.hget(SUMS, SUM_OF_POSTS)
            pipe.xlen(POSTS)
            pipe.xlen(DEAD)
            counted, common, dead = await pipe.execute()
        return int(counted or 0) + int(common), int(dead)

    async def close(self) -> None:
        """Drop the connections."""
        await self._redis.aclose()

    async def _open_streams(self) -> None:
        common, *found = await self._open(keys=[POSTS, _TENANTS, SUMS], args=[GROUP, *self._tenants])
        self.lengths = {text_of(name): int(length) for name, length in zip(found[::2], found[1::2], strict=True)}
        self._has_common = bool(common)
        self._choose_streams()

    def _choose_streams(self) -> None:
        ours = [name for name in self.lengths if name in self._tenants or name in self._gone]
        # Nothing new comes into the common stream while this version runs alone.
        self._streams = ("", *ours) if self._has_common else tuple(ours) or ("",)

    async def _check_role(self) -> None:
        """Raise ValueError for a Redis that would forget posts."""
        wanted = {"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "always"}
        for name, value in wanted.items():
            reply = await cast("Awaitable[dict[Any, Any]]", self._redis.config_get(name))
            found = {text_of(key): text_of(held) for key, held in reply.items()}.get(name, "")
            if found != value:
                raise ValueError(f"the Redis of stream_url would lose accepted posts: {name} is '{found}', not {value}")


def _script(name: str) -> str:
    return (resources.files("ssop_opinion.lua") / f"{name}.lua").read_text(encoding="utf-8")


def _stream(tenant: str) -> str:
    return f"{POSTS}:{tenant}" if tenant else POSTS


def _tenant(key: Any) -> str:
    return text_of(key)[len(POSTS) + 1 :]


def _by_stream(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        found[entry.stream].append(entry)
    return found
