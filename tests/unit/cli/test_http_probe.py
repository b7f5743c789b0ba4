"""Asking the HTTP edge whether it serves, and where it listens."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ssop_cli.embedded import HTTP_PORT_OFFSET, default_settings, http_port
from ssop_cli.places import Places
from ssop_cli.probe import HttpProbe


@asynccontextmanager
async def answering(data: bytes) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", True),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", False),
        (b"", None),
    ],
)
async def test_the_answer_is_the_status(data: bytes, expected: bool | None) -> None:
    async with answering(data) as port:
        assert await HttpProbe(f"127.0.0.1:{port}").ask() is expected


async def test_nobody_there_is_no_answer(tmp_path: Path) -> None:
    assert await HttpProbe(f"unix:{tmp_path}/none.sock").ask() is None


def test_the_port_is_beside_the_routers() -> None:
    assert http_port(None, 7300, is_any=False) == 7300 + HTTP_PORT_OFFSET == 7380


def test_a_port_that_is_asked_for_is_taken() -> None:
    assert http_port(8080, 7300, is_any=True) == 8080


@pytest.mark.parametrize(("asked", "router", "is_any"), [(0, 7300, False), (None, 7300, True), (None, 65_500, False)])
def test_any_free_port_is_one(asked: int | None, router: int, is_any: bool) -> None:
    assert 0 < http_port(asked, router, is_any=is_any) < 65_536


def test_without_a_port_there_is_no_edge() -> None:
    places = Places(Path("/state"), Path("/run/ssop"))
    assert "gateway" not in default_settings(places, port=7300, models_dir=Path("/m"), model="m")
