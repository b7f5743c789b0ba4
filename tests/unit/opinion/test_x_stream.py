"""The door for X, against a local server that speaks its filtered stream."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from helpers.eventually import eventually
from ssop_opinion.core.post import PostError
from ssop_opinion.core.reconnect import Break, backfill_minutes, pause_s
from ssop_opinion.intake import Origin
from ssop_opinion.metrics import OpinionMetrics
from ssop_opinion.settings import XStreamSettings
from ssop_opinion.x_stream import XStream

Speak = Callable[[asyncio.StreamWriter, str], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"


class Intake:
    """Notes what it is given."""

    def __init__(self) -> None:
        self.taken: list[Mapping[str, Any] | PostError] = []

    async def take(self, found: Iterable[tuple[Mapping[str, Any] | PostError, bytes]], origin: Origin) -> int:
        assert (origin.tenant, origin.channel) == ("acme", "x_stream")
        self.taken += [body for body, _ in found]
        return len(self.taken)


class Pauses:
    """Sleeps that are noted and not slept."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def line(number: int, **more: Any) -> bytes:
    data = {"id": str(number), "text": f"post {number}", "created_at": "2026-11-30T08:00:00.000Z", "lang": "en"}
    return json.dumps({"data": {**data, **more}, "matching_rules": [{"id": "1", "tag": "phones"}]}).encode() + b"\r\n"


@asynccontextmanager
async def serving(speak: Sequence[Speak]) -> AsyncIterator[tuple[str, list[str]]]:
    """A server whose connections are spoken to in turn, the last one for ever; its address and the heads it saw."""
    heads: list[str] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        heads.append(head)
        try:
            await speak[min(len(heads), len(speak)) - 1](writer, head)
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/2/tweets/search/stream", heads
    finally:
        server.close()


@asynccontextmanager
async def reading(
    tmp_path: Path, speak: Sequence[Speak], **settings: Any
) -> AsyncIterator[tuple[Intake, Pauses, list[str]]]:
    token = tmp_path / "token"
    token.write_text("a-bearer-token\n")
    async with serving(speak) as (url, heads):
        intake, pauses = Intake(), Pauses()
        stream = XStream(
            XStreamSettings.model_validate({"tenant": "acme", "token_file": token, "url": url, **settings}),
            intake,  # type: ignore[arg-type]
            OpinionMetrics(CollectorRegistry()),
            sleep=pauses,
        )
        task = asyncio.create_task(stream.run())
        try:
            yield intake, pauses, heads
        finally:
            task.cancel()
            await asyncio.wait({task})


async def forever(writer: asyncio.StreamWriter, _: str) -> None:
    writer.write(OK)
    await writer.drain()
    await asyncio.sleep(3_600)


def says(*pieces: bytes) -> Speak:
    async def speak(writer: asyncio.StreamWriter, _: str) -> None:
        writer.write(OK)
        for piece in pieces:
            writer.write(chunk(piece))
            await writer.drain()

    return speak


def refuses(status: int, *headers: str) -> Speak:
    async def speak(writer: asyncio.StreamWriter, _: str) -> None:
        lines = [f"HTTP/1.1 {status} No", "content-length: 0", *headers, "", ""]
        writer.write("\r\n".join(lines).encode())

    return speak


async def test_posts_are_read_across_pieces_and_beats(tmp_path: Path) -> None:
    first, second = line(1), line(2, text="zweite", note_tweet={"text": "the whole of a long one"})
    pieces = [b"\r\n", first[:20], first[20:] + second[:5], second[5:], b"\r\n"]
    async with reading(tmp_path, [says(*pieces), forever]) as (intake, _, heads):
        await eventually(lambda: len(intake.taken) == 2, 60)
    same = {"posted_at": "2026-11-30T08:00:00.000Z", "language": "en", "product_line": "phones"}
    assert intake.taken == [
        {"id": "1", "text": "post 1", **same},
        {"id": "2", "text": "the whole of a long one", **same},
    ]
    assert "authorization: Bearer a-bearer-token" in heads[0]
    assert "tweet.fields=created_at%2Clang%2Cnote_tweet" in heads[0]


async def test_a_stream_that_ends_is_opened_again_with_backfill(tmp_path: Path) -> None:
    speak = [says(line(1)), says(line(1), line(2)), forever]
    async with reading(tmp_path, speak, backfill_minutes=5) as (intake, _, heads):
        await eventually(lambda: len(heads) == 3, 60)
    assert len(intake.taken) == 3
    assert "backfill_minutes" not in heads[0]
    assert "backfill_minutes=1" in heads[1]


async def test_a_stream_that_says_that_it_ends_is_left(tmp_path: Path) -> None:
    farewell = b'{"errors":[{"title":"operational-disconnect","type":"..."}]}\r\n'
    async with reading(tmp_path, [says(line(1), farewell), forever]) as (intake, _, heads):
        await eventually(lambda: len(heads) == 2, 60)
    assert len(intake.taken) == 1


async def test_silence_is_a_break(tmp_path: Path) -> None:
    async with reading(tmp_path, [forever], stall_timeout_ms=50) as (_, _, heads):
        await eventually(lambda: len(heads) > 1, 60)


async def test_errors_of_http_back_off_by_their_own_rule(tmp_path: Path) -> None:
    speak = [refuses(503), refuses(503), refuses(429), forever]
    async with reading(tmp_path, speak) as (_, pauses, heads):
        await eventually(lambda: len(heads) == 4, 60)
    assert pauses.seconds == [5.0, 10.0, 60.0]


async def test_a_limit_is_waited_for_until_it_is_reset(tmp_path: Path) -> None:
    date, reset = "Mon, 30 Nov 2026 08:00:00 GMT", 1_796_025_600 + 90
    speak = [refuses(429, f"x-rate-limit-reset: {reset}", f"date: {date}"), forever]
    async with reading(tmp_path, speak) as (_, pauses, heads):
        await eventually(lambda: len(heads) == 2, 60)
    assert pauses.seconds == [90.0]


@pytest.mark.parametrize("sent", [b"not json", b"[]", b'{"data": 5}', b"\xff", b"x" * 100_000])
async def test_what_is_not_of_the_form_is_a_fault_and_the_stream_goes_on(tmp_path: Path, sent: bytes) -> None:
    async with reading(tmp_path, [says(sent + b"\r\n" + line(1)), forever]) as (intake, _, _):
        await eventually(lambda: len(intake.taken) == 2, 60)
    assert isinstance(intake.taken[0], PostError)


def test_breaks_of_the_network_are_mended_at_once_then_slower() -> None:
    assert [pause_s(Break.NETWORK, failures) for failures in (1, 2, 3, 1_000)] == [0.0, 0.25, 0.5, 16.0]
    assert pause_s(Break.HTTP, 1_000) == 320.0


def test_backfill_covers_the_gap_within_the_plan() -> None:
    assert [backfill_minutes(gap_s, 5) for gap_s in (0, 61, 4_000)] == [1, 2, 5]
    assert backfill_minutes(60, 0) == 0
