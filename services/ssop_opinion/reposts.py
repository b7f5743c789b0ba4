"""Near-identical reposts are one analysis: those that come while it runs, and for a while after it.

The mesh's cache answers the same request; here are those that differ in what a repost changes (`core/signature.py`).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ssop_opinion.core.post import Post
from ssop_opinion.core.record import Analysis
from ssop_opinion.core.signature import same_words_key
from ssop_opinion.ports import Analyst, OnField

REPOST: Final = "repost"
"""`Analysis.cache` of a post that took another's analysis over."""
MAX_REMEMBERED: Final = 10_000


@dataclass(slots=True)
class _Running:
    """An analysis that others listen to. `done` is set without a result where it came to none."""

    fields: dict[str, Any] = field(default_factory=dict)
    listeners: list[OnField] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    result: Analysis | None = None

    def arrived(self, name: str, value: Any) -> None:
        self.fields[name] = value
        for listener in self.listeners:
            listener(name, value)


class RepostAnalyst:
    """An Analyst that asks another one once for what says the same. `now_s` is a monotonic clock."""

    def __init__(self, analyst: Analyst, window_s: float, now_s: Callable[[], float]) -> None:
        self._analyst = analyst
        self._window_s = window_s
        self._now_s = now_s
        self._running: dict[bytes, _Running] = {}
        self._recent: OrderedDict[bytes, tuple[float, Analysis]] = OrderedDict()

    async def analyse(self, post: Post, on_field: OnField) -> Analysis:
        """See Analyst."""
        began_s = self._now_s()
        key = same_words_key(post.tenant, post.language, post.text)
        while True:
            known = self._recall(key)
            if known is not None:
                for name, value in known.fields.items():
                    on_field(name, value)
                return self._share(known, began_s)
            running = self._running.get(key)
            if running is None:
                return await self._lead(key, post, on_field)
            for name, value in running.fields.items():
                on_field(name, value)
            running.listeners.append(on_field)
            try:
                await running.done.wait()
            finally:
                running.listeners.remove(on_field)
            if running.result is not None:
                return self._share(running.result, began_s)

    async def _lead(self, key: bytes, post: Post, on_field: OnField) -> Analysis:
        running = self._running[key] = _Running(listeners=[on_field])
        try:
            running.result = await self._analyst.analyse(post, running.arrived)
        finally:
            del self._running[key]
            running.done.set()
        if running.result.is_fresh and self._window_s > 0:
            self._recent[key] = (self._now_s() + self._window_s, running.result)
            if len(self._recent) > MAX_REMEMBERED:
                self._recent.popitem(last=False)
        return running.result

    def _recall(self, key: bytes) -> Analysis | None:
        found = self._recent.get(key)
        if found is None:
            return None
        if found[0] < self._now_s():
            del self._recent[key]
            return None
        return found[1]

    def _share(self, analysis: Analysis, began_s: float) -> Analysis:
        return replace(
            analysis,
            cache=REPOST,
            total_ms=(self._now_s() - began_s) * 1000,
            first_field_ms=None,
            input_tokens=0,
            output_tokens=0,
        )
