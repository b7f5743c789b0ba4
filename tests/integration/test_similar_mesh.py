"""Similar answers from the question to the client: the real embedder, the real index, nodes that go away."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.cache_service import running_cache
from helpers.eventually import eventually
from helpers.near_pairs import SAME
from helpers.rag import RagUnderTest
from helpers.redis_server import RedisServer, redis_pair
from helpers.scripted_mesh import SECRET, Mesh, R, ask, failing, reason, run_router
from ssop.v1 import mesh_pb2
from ssop.v1.mesh_pb2 import CacheReason
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.memory import MemoryPeer
from ssop_rag.embedder import E5

QUESTION = "What is the refund policy for laptops after 30 days?"
SAME_QUESTION = "Hi, what's the refund policy for laptops after thirty days? Thanks"
DIFFERENT = [
    "What is the refund policy for laptops after 60 days?",
    "What is the refund policy for laptops before 30 days?",
    "What isn't the refund policy for laptops after 30 days?",
    "What is the refund policy for phones after 30 days?",
]


@pytest.fixture(scope="module")
def embedder() -> E5:
    return E5()


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[RedisServer, RedisServer]]:
    with redis_pair() as pair:
        yield pair


@asynccontextmanager
async def whole_mesh(
    servers: tuple[RedisServer, RedisServer], embedder: E5, folder: Path, **settings: Any
) -> AsyncIterator[Mesh]:
    """A router on real inner services; only the nodes are scripted."""
    inner = inner_authenticate(SECRET)
    for server in servers:
        server.ask("FLUSHALL")
    values: dict[str, Any] = {
        "similar": [{"tenant": "acme"}],
        "admission_timeout_ms": 10_000,
        "settle_timeout_ms": 10_000,
        "similar_timeout_ms": 20_000,
    } | settings
    async with (
        running_cache(*servers, authenticate=inner) as cache,
        RagUnderTest(folder, embedder=embedder) as rag,
        run_router(
            cache_peer=MemoryPeer(cache.cache.services, inner, address="cache"),
            rag_peer=MemoryPeer([rag.service], inner, address="rag"),
            **values,
        ) as mesh,
    ):
        yield mesh


async def learn(mesh: Mesh, text: str) -> None:
    """Answer a question while all is well, until it can be found."""
    kept = mesh.metric("ssop_router_similar_kept_total", outcome="kept")
    assert (await mesh.generate(ask(text, model="grok-3"), timeout_s=60)).error is None
    await eventually(lambda: mesh.metric("ssop_router_similar_kept_total", outcome="kept") == kept + 1)


async def test_question_in_other_words_is_answered_while_no_node_can(
    servers: tuple[RedisServer, RedisServer], embedder: E5, tmp_path: Path
) -> None:
    async with whole_mesh(servers, embedder, tmp_path) as mesh:
        await learn(mesh, QUESTION)
        good = await mesh.generate(ask(QUESTION, model="grok-3"))
        for node in mesh.nodes.values():
            node.script = failing()
        similar = await mesh.generate(ask(SAME_QUESTION, model="grok-3"), timeout_s=60)
        assert similar.error is None
        assert similar.documents == good.documents
        assert similar.status.degraded_level == 1
        assert similar.status.state == mesh_pb2.DELIVERY_STATE_DEGRADED
        assert 0.9 < similar.status.similarity <= 1
        assert similar.decision.cache_reason == CacheReason.CACHE_REASON_SIMILAR
        assert similar.accounting.usage == good.accounting.usage
        for text in DIFFERENT:
            assert reason(await mesh.generate(ask(text, model="grok-3"), timeout_s=60)) == R.ERROR_REASON_NO_BACKEND
        other = await mesh.generate(ask(SAME_QUESTION, model="grok-3"), key=mesh.keys.of("other"), timeout_s=60)
        assert reason(other) == R.ERROR_REASON_NO_BACKEND
        # The exact question is a hit, and nothing is degraded about it.
        assert (await mesh.generate(ask(QUESTION, model="grok-3"))).status.degraded_level == 0


async def test_nodes_that_are_back_are_asked_again(
    servers: tuple[RedisServer, RedisServer], embedder: E5, tmp_path: Path
) -> None:
    async with whole_mesh(servers, embedder, tmp_path) as mesh:
        await learn(mesh, QUESTION)
        scripts = {name: node.script for name, node in mesh.nodes.items()}
        for node in mesh.nodes.values():
            node.script = failing()
        assert (await mesh.generate(ask(SAME_QUESTION, model="grok-3"), timeout_s=60)).status.degraded_level == 1
        for name, node in mesh.nodes.items():
            node.script = scripts[name]
        # The degraded answer was not stored as the answer to this question.
        answer = await mesh.generate(ask(SAME_QUESTION, model="grok-3"), timeout_s=60)
        assert answer.status.served_by.startswith("full")


async def test_vectors_are_whole_and_of_length_1(embedder: E5, tmp_path: Path) -> None:
    async with RagUnderTest(tmp_path, embedder=embedder) as rag:
        response = await rag.caller(scopes=frozenset()).embed([pair.first for pair in SAME[:4]])
    vectors = np.array([np.frombuffer(data, "<f4") for data in response.vectors])
    assert vectors.shape == (4, embedder.dim)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert np.allclose(vectors, embedder.embed_query([pair.first for pair in SAME[:4]]))
    assert response.embedder == embedder.tag


@pytest.mark.parametrize("texts", [[], [""], ["x" * 8_193], ["x"] * 17])
async def test_texts_that_can_not_be_embedded_are_refused(texts: list[str], tmp_path: Path) -> None:
    async with RagUnderTest(tmp_path) as rag:
        with pytest.raises(MeshError) as caught:
            await rag.caller().embed(texts)
    assert caught.value.reason_name == "REQUEST_INVALID"
