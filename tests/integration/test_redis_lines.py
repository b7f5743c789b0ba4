"""Connections to a real Redis: replies in their order, together, and what becomes of those of one that ends."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError

from helpers.eventually import eventually
from helpers.redis_server import RedisServer
from ssop_cache.lines import CALLS_PER_CONNECTION, Lines

COUNT = 4


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer("state") as running:
        yield running


@asynccontextmanager
async def opened(server: RedisServer, count: int = COUNT) -> AsyncIterator[Lines]:
    redis = Redis.from_url(server.url, max_connections=4 * COUNT)
    lines = Lines(redis.connection_pool, count)
    try:
        yield lines
    finally:
        await lines.close()
        await redis.aclose()


def clients(server: RedisServer) -> int:
    """Connections of the server, that which asks not counted."""
    return int(server.ask("INFO", "clients")["connected_clients"]) - 1


async def turn() -> None:
    """Let what was asked be written: on a connection that stands that is the next turn of the loop."""
    for _ in range(2):
        await asyncio.sleep(0)


async def test_replies_reach_who_asked(server: RedisServer) -> None:
    async with opened(server) as lines:
        asked = [lines.send(("ECHO", str(n))) for n in range(500)]
        assert await asyncio.gather(*asked) == [str(n).encode() for n in range(500)]


@pytest.mark.parametrize("word", [None, 1.5, "\ud800", ["a"]])
async def test_what_is_no_command_harms_nobody_beside_it(server: RedisServer, word: object) -> None:
    async with opened(server) as lines:
        before = lines.send(("ECHO", "before"))
        with pytest.raises((TypeError, UnicodeEncodeError)):
            lines.send(("ECHO", word))  # type: ignore[arg-type]
        after = lines.send(("ECHO", 2**64))
        async with asyncio.timeout(60):
            assert (await before, await after) == (b"before", str(2**64).encode())


async def test_commands_of_a_turn_take_one_connection(server: RedisServer) -> None:
    async with opened(server) as lines:
        await asyncio.gather(*(lines.send(("PING",)) for _ in range(100)))
        assert clients(server) == 1


async def test_crowd_gets_no_more_connections_than_it_may(server: RedisServer) -> None:
    async with opened(server) as lines:
        await lines.send(("PING",))
        asked = []
        for _ in range(20 * COUNT * CALLS_PER_CONNECTION):
            asked.append(lines.send(("PING",)))
            await asyncio.sleep(0)
        await asyncio.gather(*asked)
        assert clients(server) <= COUNT


async def test_a_refusal_is_that_of_its_command_alone(server: RedisServer) -> None:
    async with opened(server) as lines:
        asked = [lines.send(("EVALSHA", "0" * 40, 0)), lines.send(("ECHO", "x"))]
        refused, echoed = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(refused, NoScriptError)
        assert echoed == b"x"


async def test_a_large_reply_comes_in_pieces(server: RedisServer) -> None:
    text = "x" * 3_000_000
    async with opened(server) as lines:
        asked = [lines.send(("ECHO", text)), lines.send(("ECHO", "y"))]
        assert await asyncio.gather(*asked) == [text.encode(), b"y"]


async def test_what_nobody_waits_for_is_not_sent(server: RedisServer) -> None:
    async with opened(server) as lines:
        lines.send(("SET", "given-up", "1")).cancel()
        await lines.send(("PING",))
        assert server.ask("EXISTS", "given-up") == 0


async def test_reply_to_one_that_gave_up_goes_to_nobody_else(server: RedisServer) -> None:
    async with opened(server) as lines:
        await lines.send(("PING",))
        given_up = lines.send(("ECHO", "old"))
        kept = lines.send(("ECHO", "new"))
        await turn()
        given_up.cancel()
        assert await kept == b"new"


async def test_server_that_dies_fails_all_that_wait() -> None:
    with RedisServer("state") as mortal:
        async with opened(mortal) as lines:
            await lines.send(("PING",))
            mortal.freeze()
            asked = [lines.send(("PING",)) for _ in range(10)]
            await turn()
            mortal.kill()
            ended = await asyncio.gather(*asked, return_exceptions=True)
            assert {type(error) for error in ended} == {RedisConnectionError}


async def test_server_that_is_back_is_reached_again() -> None:
    with RedisServer("state") as mortal:
        async with opened(mortal) as lines:
            await lines.send(("PING",))
            mortal.kill()
            mortal.start()
            replies: list[object] = []

            async def ask() -> None:
                while not replies:
                    try:
                        replies.append(await lines.send(("ECHO", "back")))
                    except RedisError:
                        await asyncio.sleep(0.01)

            async with asyncio.timeout(60):
                await ask()
            assert replies == [b"back"]


async def test_silent_connection_is_left_and_those_that_wait_on_it_still_hear() -> None:
    with RedisServer("state") as slow:
        async with opened(slow) as lines:
            await lines.send(("PING",))
            slow.freeze()
            first, second = lines.send(("ECHO", "1")), lines.send(("ECHO", "2"))
            await turn()
            first.cancel()
            lines.drop_silent()
            third = lines.send(("ECHO", "3"))
            slow.thaw()
            assert [await second, await third] == [b"2", b"3"]
            # The one that was left has gone, with its last reply.
            await eventually(lambda: clients(slow) == 1)


async def test_silent_connection_that_nobody_waits_on_is_closed() -> None:
    with RedisServer("state") as slow:
        async with opened(slow) as lines:
            await lines.send(("PING",))
            slow.freeze()
            asked = lines.send(("PING",))
            await turn()
            asked.cancel()
            lines.drop_silent()
            slow.thaw()
            await eventually(lambda: clients(slow) == 0)


async def test_idle_connections_are_given_up(server: RedisServer) -> None:
    async with opened(server) as lines:
        await lines.warm_up([("PING",)])
        assert clients(server) == COUNT
        lines.drop_idle()
        await eventually(lambda: clients(server) == 0)
        assert await lines.send(("ECHO", "x")) == b"x"


async def test_warming_up_without_a_server_fails(server: RedisServer) -> None:
    redis: Redis = Redis.from_url(f"unix://{server.socket}.none", max_connections=2 * COUNT)
    lines = Lines(redis.connection_pool, COUNT)
    with pytest.raises(RedisConnectionError):
        await lines.warm_up([("PING",)])
    await lines.close()
    await redis.aclose()


async def test_closing_ends_what_waits() -> None:
    with RedisServer("state") as frozen:
        async with opened(frozen) as lines:
            await lines.send(("PING",))
            frozen.freeze()
            asked = lines.send(("PING",))
            await turn()
        with pytest.raises(RedisConnectionError):
            await asked
