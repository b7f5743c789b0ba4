"""Deadlines do what time-outs of asyncio do, nested and cancelled in whatever way, on a loop that does not wait."""

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.as_written import both_ways

DELAYS_S = (None, -1.0, 0.0, 0.003, 0.012, 0.9, 1.5, 1.503, 1.56, 5.0)
SLEEPS_S = (0.0, 0.001, 0.009, 0.02, 1.501, 1.7)
_NUDGE_S = 1e-4
Limit = Callable[[float | None], AbstractAsyncContextManager[Any]]


class HurriedLoop(asyncio.SelectorEventLoop):
    """Does not wait: what it would wait for is when it looks at its clock."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 100.0
        select = self._selector.select  # type: ignore[attr-defined]

        def hurry(timeout_s: float | None) -> Any:
            self._now_s += timeout_s or 0
            return select(0)

        self._selector.select = hurry  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._now_s


class Limited(AbstractAsyncContextManager[Any]):
    """A deadline, as asyncio's time-outs are used."""

    def __init__(self, kind: Any, delay_s: float | None) -> None:
        self._deadline = kind(delay_s)

    async def __aenter__(self) -> Any:
        return self._deadline.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._deadline.__exit__(kind, error, traceback)


class Scene:
    """Blocks with a time-out within each other. What happens in them follows from the seed, and from who times out."""

    def __init__(self, limit: Limit, seed: int) -> None:
        self._limit = limit
        self._rng = random.Random(seed)
        self.log: list[object] = []

    def _pick(self, values: tuple[float | None, ...]) -> Any:
        value = self._rng.choice(values)
        # Nothing is to happen at the very same time: who is first then is nobody's promise.
        return value + _NUDGE_S * self._rng.random() if value is not None and value > 0 else value

    async def play(self) -> list[object]:
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._nest(0))
        cancel_s = self._pick((None, None, 0.004, 1.502))
        if cancel_s is not None:
            loop.call_later(cancel_s, task.cancel)
        (result,) = await asyncio.gather(task, return_exceptions=True)
        self.log += type(result), task.cancelling()
        return self.log

    async def _nest(self, depth: int) -> None:
        is_raised = self._rng.random() < 0.3
        try:
            async with self._limit(self._pick(DELAYS_S)):
                if depth < 3 and self._rng.random() < 0.7:
                    await self._nest(depth + 1)
                await self._act()
        except TimeoutError:
            self.log.append(("late", depth))
            if is_raised:
                raise
        finally:
            # How many cancels are under way in between is not compared: of two that ring together ours makes one.
            self.log.append(("left", depth))

    async def _act(self) -> None:
        kind = self._rng.random()
        if kind < 0.5:
            await asyncio.sleep(self._pick(SLEEPS_S))
        elif kind < 0.6:
            raise KeyError
        elif kind < 0.75:
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                self.log.append("swallowed")
                if self._rng.random() < 0.5:
                    raise ValueError from None


def play(limit: Limit, seed: int) -> list[object]:
    loop = HurriedLoop()
    try:
        return loop.run_until_complete(Scene(limit, seed).play())
    finally:
        loop.close()


@pytest.mark.parametrize("way", both_ways("ssop_chassis.deadline"))
@given(st.integers(0, 2**32))
def test_nested_deadlines_end_as_time_outs_of_asyncio_do(way: Any, seed: int) -> None:
    ours, theirs = play(partial(Limited, way.Deadline), seed), play(asyncio.timeout, seed)
    # A body that swallows a cancel leaves it counted. Ours gives it a moment to end, in which more may happen.
    assert ours == theirs or "swallowed" in theirs
