"""A whole mesh on gRPC's own transport, used by the stock client; the other tests take what is built."""

import asyncio
import signal
import time
from collections.abc import Iterator

import pytest

from helpers.live_mesh import LiveMesh, run_mesh, wait_until
from ssop.v1.mesh_pb2 import CacheReason
from ssop_sdk import AsyncSsopClient, AuthenticationError, SsopClient

MOOD = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"]}, "why": {"type": "string", "maxLength": 24}},
    "required": ["mood", "why"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveMesh]:
    with run_mesh(tmp_path_factory.mktemp("mesh"), {"mesh": {"transport": "grpc"}}) as running:
        yield running


@pytest.fixture
def client(mesh: LiveMesh) -> Iterator[SsopClient]:
    with SsopClient(mesh.key, mesh.target, output_schema=MOOD, timeout_s=60) as made:
        yield made


def test_answer_comes_whole_and_is_cached(client: SsopClient) -> None:
    first = client.generate("How is the sea today?")
    found = first.result()
    assert found["mood"] in {"good", "bad"}
    assert first.accounting is not None
    assert first.accounting.frames_sent == first.frames_received

    def is_cached() -> bool:
        again = client.generate("How is the sea today?")
        assert again.result() == found
        return again.decision is not None and again.decision.cache_reason == CacheReason.CACHE_REASON_HIT

    # An answer is stored after its end was sent.
    wait_until(is_cached, 120, "an answer from the cache")


async def test_session_takes_its_prompt_in_pieces(mesh: LiveMesh) -> None:
    client = AsyncSsopClient(mesh.key, mesh.target, output_schema=MOOD, timeout_s=60)
    async with client, client.session() as session:
        streams = [await session.begin("How is ") for _ in range(3)]
        for number, stream in enumerate(streams):
            await stream.piece(f"wind {number}?")
            await stream.commit()
        found = await asyncio.gather(*(stream.result() for stream in streams))
    assert all(answer["mood"] in {"good", "bad"} for answer in found)


def test_client_that_goes_away_frees_the_slot(mesh: LiveMesh, client: SsopClient) -> None:
    stream = client.generate("Write of the sea.", policy="no_cache")
    next(stream)
    stream.cancel()

    def busy() -> float:
        return sum(model.slots_busy.value for node in client.mesh_status().nodes for model in node.status.models)

    wait_until(lambda: busy() == 0, 60, "the slot is free")


def test_refusal_arrives_with_its_reason(mesh: LiveMesh) -> None:
    with SsopClient("ssop_wrong_key", mesh.target, timeout_s=60) as stranger, pytest.raises(AuthenticationError):
        stranger.generate("Hello").result()


@pytest.mark.parametrize("child", ["cache", "inference"])
def test_killed_service_is_found_again(mesh: LiveMesh, client: SsopClient, child: str) -> None:
    pid = mesh.signal(child, signal.SIGKILL)
    mesh.wait_restarted(child, pid)
    started_s = time.monotonic()
    wait_until(lambda: bool(client.generate("Still there?", policy="no_cache").result()), 60, "the mesh answers")
    assert time.monotonic() - started_s < 60
