"""A router with scripted surroundings, for tests that need no special one."""

from collections.abc import AsyncIterator

import pytest

from helpers.scripted_mesh import Mesh, run_router


@pytest.fixture
async def mesh() -> AsyncIterator[Mesh]:
    async with run_router() as running:
        yield running
