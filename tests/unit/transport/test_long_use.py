"""A hundredth of the soak of tests/drill: what calls, cancels and reconnects leave behind."""

from pathlib import Path

import pytest

from helpers.transport_soak import Growth, soak_calls, soak_cancels, soak_reconnects

pytestmark = pytest.mark.needs("native_transport")


def leaves_nothing(growth: Growth) -> bool:
    """Whether the objects that the process holds do not grow by one for each ten rounds."""
    return growth.objects < 100_000 / 10


async def test_calls_leave_nothing_behind(tmp_path: Path) -> None:
    assert leaves_nothing(await soak_calls(tmp_path, 4_000))


async def test_cancels_leave_nothing_behind(tmp_path: Path) -> None:
    assert leaves_nothing(await soak_cancels(tmp_path, 2_000, 1))


async def test_reconnects_leave_nothing_behind(tmp_path: Path) -> None:
    assert leaves_nothing(await soak_reconnects(tmp_path, 300, 1))
