"""Fixtures of the SDK's tests: a scripted router on a unix socket, and clients of it."""

import tempfile
from collections.abc import AsyncIterator, Iterator

import pytest

from helpers.answers import PERSON, PERSON_SCHEMA, delivery, document_chunks
from helpers.scripted_router import ScriptedRouter, as_script, serve
from ssop_sdk import AsyncSsopClient, SsopClient

KEY = "sk-test"
GOOD = delivery(document_chunks(PERSON))


@pytest.fixture
def address() -> Iterator[str]:
    # Unix socket paths end at 107 bytes, which pytest's own folders come near to.
    with tempfile.TemporaryDirectory(prefix="sdk") as folder:
        yield f"unix:{folder}/r.sock"


@pytest.fixture
async def router(address: str) -> AsyncIterator[ScriptedRouter]:
    router = ScriptedRouter(as_script(GOOD))
    async with serve(router, address):
        yield router


@pytest.fixture
async def client(router: ScriptedRouter, address: str) -> AsyncIterator[AsyncSsopClient]:
    async with AsyncSsopClient(KEY, address, output_schema=PERSON_SCHEMA, timeout_s=10) as client:
        yield client


@pytest.fixture
def sync_client(router: ScriptedRouter, address: str) -> Iterator[SsopClient]:
    with SsopClient(KEY, address, output_schema=PERSON_SCHEMA, timeout_s=10) as client:
        yield client
