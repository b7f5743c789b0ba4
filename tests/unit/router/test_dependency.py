"""A dependency that is down is left alone, and tried again."""

import pytest

from helpers.as_written import run_both_ways
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Metadata, OnMessage
from ssop_chassis.errors import MeshError
from ssop_router.dependency import Dependency, Unavailable

way = run_both_ways("ssop_router.dependency", "Dependency", "Unavailable")
R = ErrorReason


class Peer:
    """Answers, or fails as a test says."""

    address = "there"
    error: MeshError | None = None
    calls = 0

    async def unary(self, method: str, request: bytes, *, timeout_s: float, metadata: Metadata | None = None) -> bytes:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return request

    async def stream(
        self,
        method: str,
        request: bytes,
        on_message: OnMessage,
        *,
        timeout_s: float,
        metadata: Metadata | None = None,
    ) -> Metadata:
        await self.unary(method, request, timeout_s=timeout_s)
        return {}

    async def close(self) -> None:
        """Nothing to close."""


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def dependency(peer: Peer, clock: Clock) -> Dependency:
    return Dependency("cache", peer, skip_ms=1000, clock_ms=clock)


async def ask(dependency: Dependency) -> bool:
    try:
        await dependency.unary("/x", b"", timeout_s=1, metadata={})
    except Unavailable:
        return False
    return True


async def test_three_failures_and_it_is_left_alone(dependency: Dependency, peer: Peer) -> None:
    peer.error = MeshError(R.ERROR_REASON_BACKEND_FAILED, "down")
    for _ in range(10):
        assert not await ask(dependency)
    assert peer.calls == 3
    assert not dependency.is_available


async def test_one_call_tries_it_after_a_while(dependency: Dependency, peer: Peer, clock: Clock) -> None:
    peer.error = MeshError(R.ERROR_REASON_DEADLINE_EXCEEDED, "slow")
    for _ in range(4):
        await ask(dependency)
    clock.now_ms += 1000
    for _ in range(4):
        await ask(dependency)
    assert peer.calls == 4
    clock.now_ms += 1000
    peer.error = None
    assert await ask(dependency)
    assert await ask(dependency)
    assert dependency.is_available


async def test_what_it_says_about_the_request_is_an_answer(dependency: Dependency, peer: Peer, clock: Clock) -> None:
    peer.error = MeshError(R.ERROR_REASON_QUOTA_EXHAUSTED, "used up")
    clock.now_ms = 50
    for _ in range(5):
        with pytest.raises(MeshError):
            await ask(dependency)
    assert dependency.is_available
    assert dependency.last_answer_age_ms == 0


async def test_error_of_the_receiver_is_not_the_dependencys() -> None:
    class Streaming(Peer):
        async def stream(
            self,
            method: str,
            request: bytes,
            on_message: OnMessage,
            *,
            timeout_s: float,
            metadata: Metadata | None = None,
        ) -> Metadata:
            if (pending := on_message(b"x")) is not None:
                await pending
            return {}

    def give_up(_: bytes) -> None:
        raise MeshError(R.ERROR_REASON_CANCELLED, "the caller went away")

    streaming = Dependency("cache", Streaming(), skip_ms=1000, clock_ms=Clock())
    for _ in range(4):
        with pytest.raises(MeshError):
            await streaming.stream("/x", b"", give_up, timeout_s=1, metadata={})
    assert streaming.is_available


async def test_length_of_a_stream_says_nothing(dependency: Dependency, peer: Peer) -> None:
    peer.error = MeshError(R.ERROR_REASON_DEADLINE_EXCEEDED, "the follower's own")
    for _ in range(5):
        with pytest.raises(MeshError):
            await dependency.stream("/x", b"", lambda _: None, timeout_s=1, metadata={})
    assert dependency.is_available
