"""Damaged connections: those that once found something or behaved as none before, and a fixed sample of new ones."""

import pytest

from fuzz.test_fuzz_transport import fuzz, read_corpus
from helpers.memory_wire import check, open_server, without_faults

pytestmark = pytest.mark.needs("native_transport")
ROUNDS = 800


async def test_corpus_is_held() -> None:
    server = await open_server()
    corpus = read_corpus()
    assert len(corpus) > 50
    for role, data in corpus:
        for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
            with without_faults():
                await check(role, data, pieces, server)
    await server.stop(0)


async def test_new_damage_is_held() -> None:
    assert await fuzz(0, 20_261_130, read_corpus(), rounds=ROUNDS) == ROUNDS
