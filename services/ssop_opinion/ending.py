"""Ending tasks for certain."""

import asyncio
from collections.abc import Collection
from typing import Any, Final

_AGAIN_S: Final = 0.5


async def end(futures: Collection[asyncio.Future[Any]]) -> None:
    """Cancel until all have ended: redis-py can lose a cancellation that meets it while it connects or disconnects."""
    rest = set(futures)
    while rest:
        for future in rest:
            future.cancel()
        _, rest = await asyncio.wait(rest, timeout=_AGAIN_S)
