"""What happens, as it happens, for pages that watch. In memory, bounded, of this process alone."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from ssop_opinion.core.document import to_document
from ssop_opinion.core.post import Post
from ssop_opinion.core.record import Record

MAX_EVENTS: Final = 256
"""Events that wait for one watcher; beyond it the oldest go, and the watcher is told how many."""
MAX_WATCHERS: Final = 64
MAX_OF_TENANT: Final = 16
MAX_POSTS: Final = 2_000
"""Posts whose frames are remembered."""
MAX_FRAMES: Final = 64
MAX_TEXT: Final = 280


class FullError(Exception):
    """As many watch as may."""


class Watcher:
    """One page's queue of events."""

    def __init__(self) -> None:
        self._events: deque[Mapping[str, Any]] = deque()
        self._lost = 0
        self._woken = asyncio.Event()

    def put(self, event: Mapping[str, Any]) -> None:
        """Queue an event; never waits."""
        if len(self._events) >= MAX_EVENTS:
            self._events.popleft()
            self._lost += 1
        self._events.append(event)
        self._woken.set()

    async def take(self) -> list[Mapping[str, Any]]:
        """The events that wait, at least one."""
        await self._woken.wait()
        self._woken.clear()
        found = list(self._events)
        self._events.clear()
        if self._lost:
            found.insert(0, {"type": "lost", "count": self._lost})
            self._lost = 0
        return found


class Feed:
    """Events by tenant, and the frames of the last posts."""

    def __init__(self) -> None:
        self._watchers: dict[str, set[Watcher]] = {}
        self._frames: OrderedDict[str, list[tuple[str, Any, int]]] = OrderedDict()

    @contextmanager
    def watch(self, tenant: str) -> Iterator[Watcher]:
        """Watch a tenant's events until the block ends. Raises FullError."""
        of_tenant = len(self._watchers.get(tenant, ()))
        if of_tenant >= MAX_OF_TENANT or sum(map(len, self._watchers.values())) >= MAX_WATCHERS:
            raise FullError
        watcher = Watcher()
        self._watchers.setdefault(tenant, set()).add(watcher)
        try:
            yield watcher
        finally:
            self._watchers[tenant].discard(watcher)
            if not self._watchers[tenant]:
                del self._watchers[tenant]

    def field(self, post: Post, key: str, name: str, value: Any, now_ms: int) -> None:
        """A field of a post, whose key is given, has arrived."""
        frames = self._frames.get(key)
        if frames is None:
            frames = self._frames[key] = []
            if len(self._frames) > MAX_POSTS:
                self._frames.popitem(last=False)
        else:
            self._frames.move_to_end(key)
        if len(frames) < MAX_FRAMES:
            frames.append((name, _short(value), now_ms))
        for watcher in self._watchers.get(post.tenant, ()):
            event = {"type": "field", "key": key, "name": name, "value": _short(value), "text": _short(post.text)}
            watcher.put({**event, "at_ms": now_ms})

    def record(self, record: Record) -> None:
        """A record is in the sink."""
        watchers = self._watchers.get(record.post.tenant, ())
        if watchers:
            event = {"type": "record", "record": to_document(record)}
            for watcher in watchers:
                watcher.put(event)

    def tell(self, tenant: str, event: Mapping[str, Any]) -> None:
        """Something else has happened."""
        for watcher in self._watchers.get(tenant, ()):
            watcher.put(event)

    def frames(self, key: str) -> list[dict[str, Any]]:
        """The frames of a post, in their order; empty where they are not remembered."""
        return [{"name": name, "value": value, "at_ms": at_ms} for name, value, at_ms in self._frames.get(key, ())]


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value[:MAX_TEXT]
    return value if value is None or isinstance(value, bool | int | float) else str(value)[:MAX_TEXT]
