"""Who waits for a store that does not answer, and who does not."""

import asyncio
import time

import pytest

from helpers.as_written import run_both_ways
from helpers.eventually import eventually
from helpers.machine import stretched
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_router.dependency import Unavailable
from ssop_router.promises import Promises

way = run_both_ways("ssop_router.promises", "Promises")
KEY = b"\1" * 32


class Store:
    """Fails so many times, and counts."""

    def __init__(self, failures: int, error: MeshError | None = None) -> None:
        self.failures = failures
        self.error = error
        self.calls = 0

    async def __call__(self) -> str:
        # An answer is never there at once.
        await asyncio.sleep(0)
        self.calls += 1
        if self.calls <= self.failures:
            raise Unavailable("cache")
        if self.error is not None:
            raise self.error
        return "in"


async def keep(
    promises: Promises,
    store: Store,
    key: bytes = b"",
    *,
    has_budget: bool = False,
    is_kept: bool = False,
    remaining_s: float = 30.0,
) -> str:
    async def has_other(_: Unavailable) -> bool:
        return is_kept

    return await promises.keep(store, key, has_budget=has_budget, remaining_s=lambda: remaining_s, has_other=has_other)


async def test_a_lone_request_does_not_wait() -> None:
    store = Store(1)
    with pytest.raises(Unavailable):
        await keep(Promises(60), store, KEY)
    assert store.calls == 1


async def test_one_with_a_budget_waits() -> None:
    assert await keep(Promises(60), Store(3), has_budget=True) == "in"


async def test_of_those_that_ask_the_same_one_asks_again_for_all() -> None:
    store = Store(12)
    promises = Promises(60)
    assert await asyncio.gather(*(keep(promises, store, KEY) for _ in range(10))) == ["in"] * 10
    # Ten that failed, two tries, one that went well and nine after it.
    assert store.calls == 22


async def test_one_with_another_answer_does_not_wait() -> None:
    with pytest.raises(Unavailable):
        await keep(Promises(60), Store(1), has_budget=True, is_kept=True)


async def test_the_wait_ends_and_others_do_not_wait_for_it_again() -> None:
    promises = Promises(0.1)
    store = Store(1000)
    with pytest.raises(Unavailable):
        await keep(promises, store, has_budget=True)
    calls = store.calls
    started_s = time.monotonic()
    with pytest.raises(Unavailable):
        await keep(promises, store, has_budget=True)
    assert store.calls == calls + 1
    assert time.monotonic() - started_s < stretched(0.1)


async def test_a_refusal_is_an_answer() -> None:
    refusal = MeshError(ErrorReason.ERROR_REASON_QUOTA_EXHAUSTED, "used up")
    with pytest.raises(MeshError, match="used up"):
        await keep(Promises(60), Store(1, refusal), has_budget=True)


async def test_who_tries_for_others_may_go_away() -> None:
    promises = Promises(60)
    store = Store(14)
    asked = [asyncio.ensure_future(keep(promises, store, KEY)) for _ in range(10)]
    await asyncio.sleep(0.02)
    for task in asked[:5]:
        task.cancel()
    assert await asyncio.wait_for(keep(promises, store, has_budget=True), 60) == "in"
    assert await asyncio.wait_for(asyncio.gather(*asked[5:]), 60) == ["in"] * 5
    assert not promises._asking


async def test_another_one_tries_where_who_tried_went_away_and_nobody_comes() -> None:
    promises = Promises(3)
    # Ten that failed, and tries that one makes for all, before those that wait would ask in their last moment.
    store = Store(13)
    asked = [asyncio.ensure_future(keep(promises, store, KEY)) for _ in range(10)]
    await eventually(lambda: store.calls == 10)
    asked[0].cancel()
    assert await asyncio.gather(*asked[1:]) == ["in"] * 9


async def test_another_one_tries_where_the_time_of_who_tried_is_over() -> None:
    promises = Promises(3)
    store = Store(13)
    hasty = asyncio.ensure_future(keep(promises, store, KEY, remaining_s=0.02))
    asked = [asyncio.ensure_future(keep(promises, store, KEY)) for _ in range(9)]
    with pytest.raises(Unavailable):
        await hasty
    assert await asyncio.gather(*asked) == ["in"] * 9
