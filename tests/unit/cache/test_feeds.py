"""One reader for all followers of a generation, whatever moment they leave at."""

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from helpers.machine import stretched
from ssop_cache.core.keys import Layout
from ssop_cache.feeds import Feeds
from ssop_chassis.tallies import Gauge


class OpenGeneration:
    """A state whose generation goes on and says nothing new, and the wake-ups of its followers."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.reads = 0

    async def run(self, call: Any) -> list[int | bytes]:
        self.reads += call.script == "read_log"
        return [b"open", 0, 1] if call.script == "join_lease" else [b"open", 0]

    async def watch(self, _: str) -> asyncio.Event:
        return self.event

    async def unwatch(self, _: str, __: asyncio.Event) -> None:
        """Nothing to undo."""


@pytest.mark.parametrize("steps", range(6))
async def test_follower_that_leaves_as_it_is_woken_is_gone(steps: int) -> None:
    store: Any = OpenGeneration()
    gauge = Gauge("followed", "Followed.", registry=CollectorRegistry())
    feeds = Feeds(store, store, Layout(1, "t"), store, most=1, gauge=gauge)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60):
        async with feeds.attach("acme", b"\1" * 32):
            while not store.reads:
                await asyncio.sleep(0)
            for _ in range(5):
                await asyncio.sleep(0)
            store.event.set()
            for _ in range(steps):
                await asyncio.sleep(0)
            left_s = loop.time()
    assert loop.time() - left_s < stretched(1)
    assert gauge.labels().value == 0
