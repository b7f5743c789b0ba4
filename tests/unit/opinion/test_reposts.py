"""Reposts are one analysis; nobody waits for what came to nothing."""

import asyncio
from typing import Any

import pytest

from helpers.opinion import GOOD, posts
from ssop_opinion.core.post import Post
from ssop_opinion.core.record import Analysis
from ssop_opinion.ports import MeshAwayError, OnField
from ssop_opinion.reposts import RepostAnalyst


class Slow:
    """Answers when a test lets it."""

    def __init__(self) -> None:
        self.calls = 0
        self.go = asyncio.Event()
        self.error: Exception | None = None
        self.answer = GOOD

    async def analyse(self, post: Post, on_field: OnField) -> Analysis:
        self.calls += 1
        on_field("severity", 4)
        await self.go.wait()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return self.answer


def ignore(*_: Any) -> None:
    """Hear a field."""


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_those_that_come_while_it_runs_share_it_and_hear_its_fields() -> None:
    slow, [post] = Slow(), posts(1)
    analyst = RepostAnalyst(slow, 0, lambda: 0.0)
    heard: list[str] = []
    tasks = [asyncio.create_task(analyst.analyse(post, lambda name, _: heard.append(name))) for _ in range(3)]
    await settle()
    assert heard == ["severity"] * 3
    slow.go.set()
    found = await asyncio.gather(*tasks)
    assert (slow.calls, [one.cache for one in found]) == (1, ["miss", "repost", "repost"])


async def test_when_the_first_fails_the_next_one_asks() -> None:
    slow, [post] = Slow(), posts(1)
    slow.error = MeshAwayError("away", 0)
    analyst = RepostAnalyst(slow, 60, lambda: 0.0)
    tasks = [asyncio.create_task(analyst.analyse(post, ignore)) for _ in range(3)]
    await settle()
    slow.go.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(found[0], MeshAwayError)
    assert [one.cache for one in found[1:] if isinstance(one, Analysis)] == ["miss", "repost"]


async def test_when_the_first_is_cancelled_the_next_one_asks() -> None:
    slow, [post] = Slow(), posts(1)
    analyst = RepostAnalyst(slow, 0, lambda: 0.0)
    first = asyncio.create_task(analyst.analyse(post, ignore))
    await settle()
    second = asyncio.create_task(analyst.analyse(post, ignore))
    await settle()
    first.cancel()
    await settle()
    slow.go.set()
    assert (await second).cache == "miss"


@pytest.mark.parametrize(("later_s", "calls"), [(59.0, 1), (61.0, 2)])
async def test_an_analysis_serves_for_a_while(later_s: float, calls: int) -> None:
    slow, [post], now = Slow(), posts(1), [0.0]
    slow.go.set()
    analyst = RepostAnalyst(slow, 60, lambda: now[0])
    await analyst.analyse(post, ignore)
    now[0] = later_s
    await analyst.analyse(post, ignore)
    assert slow.calls == calls


@pytest.mark.parametrize("answer", [Analysis({}, "invalid"), Analysis({}, "ok", degraded_level=2)])
async def test_what_is_not_fresh_serves_nobody_later(answer: Analysis) -> None:
    slow, [post] = Slow(), posts(1)
    slow.go.set()
    slow.answer = answer
    analyst = RepostAnalyst(slow, 60, lambda: 0.0)
    await analyst.analyse(post, ignore)
    await analyst.analyse(post, ignore)
    assert slow.calls == 2
