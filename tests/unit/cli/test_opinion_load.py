"""The load of `ssop opinion replay`: its posts, its connections, and what it holds records against."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.opinion import GOOD
from ssop_cli.opinion_load import add_up
from ssop_cli.opinion_load_door import Door, DoorError
from ssop_cli.opinion_load_posts import PostMaker, Said, read_records
from ssop_opinion.core.post import Post
from ssop_opinion.core.record import Record
from ssop_opinion.core.signature import Signed, check_signature
from ssop_opinion.sinks.sqlite import open_sqlite

SECRET = b"a secret of sixteen bytes or more"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def door_to(serve: Serve) -> AsyncIterator[Door]:
    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    async with await asyncio.start_server(served, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        door = Door(f"http://127.0.0.1:{port}", SECRET)
        try:
            yield door
        finally:
            door.close()


async def test_requests_are_signed_and_share_a_connection() -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(2):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in head[1:] if line)
            body = await reader.readexactly(int(headers["content-length"]))
            names = ("x-ssop-key", "x-ssop-timestamp", "x-ssop-nonce", "x-ssop-signature")
            signed = Signed(*(headers[name] for name in names))
            now_ms = int(signed.timestamp) * 1_000
            check_signature(signed, SECRET, body, now_ms=now_ms, window_ms=1)
            writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 14\r\n\r\n" + b'{"accepted":1}')

    async with door_to(serve) as door:
        assert [await door.post(b"[1]"), await door.post(b"[2]")] == [{"accepted": 1}] * 2
    assert connections == 1


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}"]
)
async def test_answer_that_is_none_is_an_error(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)

    async with door_to(serve) as door:
        with pytest.raises(DoorError):
            await door.post(b"[]")


def test_posts_are_the_same_for_a_seed_and_reposts_say_what_another_said() -> None:
    maker, again = PostMaker(7, 0.5), PostMaker(7, 0.5)
    ids, body = maker.make(200)
    assert (ids, body) == again.make(200)
    for post in json.loads(body):
        said = maker.said[post["id"]]
        assert f"{said.brand} order" in post["text"]
        assert ("late" in post["text"]) == (said.tone < 0)


async def test_records_are_held_against_what_posts_say(tmp_path: Path) -> None:
    sink = await open_sqlite(tmp_path / "records.db")
    found = [("brands/norvane", "brands/bellora"), ("brands/bellora", "brands/norvane"), (), ("brands/yarrowen",)]
    hints = [-0.5, 0.5, None, 0.2]
    records = [
        Record(
            Post("local", "local", str(number), "x", "webhook", 1),
            replace(GOOD, sources=sources, hint=hint, passages=len(sources)),
            2,
        )
        for number, (sources, hint) in enumerate(zip(found, hints, strict=True))
    ]
    await sink.write(records)
    await sink.close()
    kept = read_records(tmp_path / "records.db", {str(number): Said("Norvane", -1) for number in range(4)})
    assert kept.keys == {"0", "1", "2", "3"}
    assert kept.accuracy == {
        "records_with_passages": 3,
        "named_brand_first": 0.3333,
        "named_brand_among": 0.6667,
        "records_with_hint": 3,
        "hint_sign": 0.3333,
    }


def test_samples_of_a_page_are_added_up_by_the_beginning_of_their_lines() -> None:
    page = '# HELP a_total x\na_total{door="x"} 2.0\na_total{door="y"} 3.0\nb_total 9.0\n'
    assert add_up(page, "a_total") == 5
