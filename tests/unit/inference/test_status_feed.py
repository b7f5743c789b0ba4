"""What watchers of a node's status are told, and when."""

import asyncio
import itertools

import pytest

from helpers.eventually import eventually
from ssop_inference.status_feed import StatusFeed, StatusWatch


class Source:
    """What a node would say: each message is another one, and says the load."""

    def __init__(self) -> None:
        self.load = 0
        self.written = itertools.count(1)
        self.count = 0
        self.feed = StatusFeed(self.write, lambda: self.load)

    def write(self) -> bytes:
        self.count = next(self.written)
        return b"%d: %d" % (self.count, self.load)


def load_of(message: bytes) -> int:
    return int(message.partition(b": ")[2])


async def opened(source: Source) -> StatusWatch:
    watch = source.feed.watch()
    await watch.read()
    return watch


async def test_the_first_message_is_of_its_moment() -> None:
    source = Source()
    source.load = 7
    watch = source.feed.watch()
    assert load_of(await watch.read()) == 7
    watch.close()


async def test_a_message_is_written_once_for_all_who_watch() -> None:
    source = Source()
    watches = [await opened(source) for _ in range(5)]
    before = source.count
    source.feed.change()
    assert len({await watch.read() for watch in watches}) == 1
    assert source.count == before + 1
    for watch in watches:
        watch.close()


async def test_a_change_of_state_does_not_wait_for_the_pause() -> None:
    source = Source()
    watch = await opened(source)
    source.feed.change()
    # It is there: no timer has to ring first.
    assert await watch.read() == b"2: 0"
    watch.close()


async def test_changes_of_load_are_one_message_with_the_last_value() -> None:
    source = Source()
    watch = await opened(source)
    for load in range(1, 1000):
        source.load = load
        source.feed.change_load()
    assert load_of(await watch.read()) == 999
    assert source.count == 2
    watch.close()


async def test_every_last_value_is_told() -> None:
    source = Source()
    watch = await opened(source)
    told = 0

    async def follow() -> None:
        nonlocal told
        while True:
            told = load_of(await watch.read())

    follower = asyncio.ensure_future(follow())
    for load in range(1, 6):
        source.load = load
        source.feed.change_load()
        await eventually(lambda load=load: told == load)  # type: ignore[misc]
    follower.cancel()
    await asyncio.wait({follower})
    watch.close()


async def test_a_load_that_is_again_what_was_told_is_no_news() -> None:
    source = Source()
    watch = await opened(source)
    source.load = 1
    source.feed.change_load()
    source.load = 0
    source.feed._tell_load()
    assert source.count == 1
    watch.close()


async def test_who_came_at_another_load_hears_that_it_is_again_what_the_others_were_told() -> None:
    source = Source()
    first = await opened(source)
    source.load = 1
    late = await opened(source)
    source.load = 0
    source.feed._tell_load()
    assert source.count == 3
    assert load_of(await late.read()) == 0
    first.close()
    late.close()


async def test_who_does_not_read_gets_the_newest_alone() -> None:
    source = Source()
    watch = await opened(source)
    for load in (1, 2, 3):
        source.load = load
        source.feed.change()
    assert load_of(await watch.read()) == 3
    source.load = 4
    source.feed.change()
    assert load_of(await watch.read()) == 4
    watch.close()


async def test_nobody_who_watches_costs_nothing() -> None:
    source = Source()
    watch = await opened(source)
    watch.close()
    source.feed.change()
    source.feed.change_load()
    assert source.count == 1
    assert (source.feed._load_timer, source.feed._period_timer) == (None, None)


async def test_one_who_could_not_be_told_anything_does_not_watch() -> None:
    def fail() -> bytes:
        raise FileNotFoundError

    source = Source()
    source.feed._write = fail
    with pytest.raises(FileNotFoundError):
        source.feed.watch()
    source.feed._write = source.write
    (await opened(source)).close()
    assert (source.feed._load_timer, source.feed._period_timer) == (None, None)


async def test_one_who_goes_leaves_the_others_theirs() -> None:
    source = Source()
    gone, watch = await opened(source), await opened(source)
    waiting = asyncio.ensure_future(gone.read())
    staying = asyncio.ensure_future(watch.read())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    gone.close()
    source.load = 5
    source.feed.change_load()
    assert load_of(await staying) == 5
    watch.close()


async def test_it_is_said_again_though_nothing_happens() -> None:
    source = Source()
    watch = await opened(source)
    assert await watch.read() == b"2: 0"
    watch.close()
