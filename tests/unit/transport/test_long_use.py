"""A hundredth of the soak of tests/drill: what calls, cancels and reconnects leave behind."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from helpers.transport_soak import Growth, measure, soak_calls, soak_cancels, soak_reconnects

pytestmark = pytest.mark.needs("native_transport")


TRIES = 3
"""What leaks does so each time; what else lives in the process of the tests may grow by a few objects once."""


async def leaves_nothing(soak: Callable[[], Awaitable[Growth]]) -> bool:
    """Whether the objects that the process holds do not grow by one for each ten rounds."""
    for _ in range(TRIES):
        growth = await soak()
        if growth.objects < 100_000 / 10:
            return True
        print(growth)
    return False


async def test_calls_leave_nothing_behind(tmp_path: Path) -> None:
    assert await leaves_nothing(lambda: soak_calls(tmp_path, 4_000))


async def test_cancels_leave_nothing_behind(tmp_path: Path) -> None:
    assert await leaves_nothing(lambda: soak_cancels(tmp_path, 2_000, 1))


async def test_reconnects_leave_nothing_behind(tmp_path: Path) -> None:
    assert await leaves_nothing(lambda: soak_reconnects(tmp_path, 300, 1))


async def test_a_leak_is_seen() -> None:
    kept: list[list[int]] = []

    async def leak(rounds: int) -> None:
        kept.extend([] for _ in range(rounds))

    assert not await leaves_nothing(lambda: measure("leak", 300, leak))
