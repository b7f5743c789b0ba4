"""Waiting, in tests: poll until a fact holds."""

import asyncio
import time
from collections.abc import Callable


async def eventually(predicate: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Return when the predicate holds; fail when it does not within `timeout_s` seconds."""
    deadline_s = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"did not hold within {timeout_s} s")
        await asyncio.sleep(0.005)
