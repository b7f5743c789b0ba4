"""The lease of a node: when it begins, how it is renewed, what an outage does, and its end."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from helpers.eventually import eventually
from ssop.v1 import registry_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.announcement import verify_announcement
from ssop_chassis.call import Metadata
from ssop_chassis.errors import MeshError
from ssop_inference.announcing import ANNOUNCE, WITHDRAW, Announcer, AnnouncingMetrics
from ssop_inference.settings import InferenceSettings

SECRET, INSTANCE, NOW_MS = b"a" * 32, "0" * 32, 1_000_000


class Registry:
    """A cache service that remembers what it was asked."""

    address = "cache"

    def __init__(self) -> None:
        self.calls: list[tuple[str, bytes]] = []
        self.fault: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def unary(self, method: str, request: bytes, *, timeout_s: float, metadata: Metadata | None = None) -> bytes:
        assert timeout_s <= 1
        self.calls.append((method, request))
        await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        return b""

    async def stream(self, *_: Any, **__: Any) -> Metadata:
        raise NotImplementedError

    async def close(self) -> None:
        pass

    def count(self, method: str) -> int:
        return sum(called == method for called, _ in self.calls)


class Scene:
    def __init__(self, lease_ms: int) -> None:
        self.registry = Registry()
        self.metrics = CollectorRegistry()
        self.announcer = Announcer(
            self.registry,
            AnnouncingMetrics(self.metrics),
            node="n",
            instance=INSTANCE,
            secret=SECRET,
            lease_ms=lease_ms,
            metadata=dict,
            wall_ms=lambda: NOW_MS,
        )

    def metric(self, name: str) -> float | None:
        return self.metrics.get_sample_value(f"ssop_inference_{name}")


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene(lease_ms=30)
    yield made
    made.registry.gate.set()
    await made.announcer.close()


async def test_announcement_is_signed_and_renewed(scene: Scene) -> None:
    scene.announcer.begin("10.0.0.1:7310")
    await eventually(lambda: scene.registry.count(ANNOUNCE) >= 3, 60)
    request = registry_pb2.AnnounceNodeRequest.FromString(scene.registry.calls[0][1])
    assert (request.address, request.instance, request.lease_ms) == ("10.0.0.1:7310", INSTANCE, 30)
    announced = verify_announcement(request.announcement, (SECRET,), now_ms=NOW_MS)
    assert (announced.address, announced.node, announced.lease_ms) == ("10.0.0.1:7310", "n", 30)
    await eventually(lambda: scene.metric("announced") == 1, 60)


@pytest.mark.parametrize(
    "fault", [MeshError(ErrorReason.ERROR_REASON_STORE_UNAVAILABLE, "gone"), RuntimeError("nobody foresaw this")]
)
async def test_outage_is_said_once_and_renewals_go_on(
    scene: Scene, fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    scene.registry.fault = fault
    scene.announcer.begin("10.0.0.1:7310")
    await eventually(lambda: (scene.metric("announcement_failures_total") or 0) >= 3, 60)
    assert scene.metric("announced") == 0
    assert caplog.text.count("can't announce itself") == 1
    scene.registry.fault = None
    await eventually(lambda: scene.metric("announced") == 1, 60)


async def test_lease_is_given_back_behind_the_renewal_that_is_under_way(scene: Scene) -> None:
    scene.registry.gate.clear()
    scene.announcer.begin("10.0.0.1:7310")
    await eventually(lambda: scene.registry.count(ANNOUNCE) == 1, 60)
    scene.announcer.withdraw()
    scene.registry.gate.set()
    await scene.announcer.close()
    assert [method for method, _ in scene.registry.calls] == [ANNOUNCE, WITHDRAW]
    assert scene.metric("announced") == 0


async def test_nothing_is_announced_after_the_withdrawal(scene: Scene) -> None:
    scene.announcer.withdraw()
    scene.announcer.begin("10.0.0.1:7310")
    await scene.announcer.close()
    assert scene.registry.calls == []


async def test_withdrawal_that_fails_ends_all_the_same(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.announcer.begin("10.0.0.1:7310")
    await eventually(lambda: scene.metric("announced") == 1, 60)
    scene.registry.fault = MeshError(ErrorReason.ERROR_REASON_STORE_UNAVAILABLE, "gone")
    await scene.announcer.close()
    assert "could not withdraw" in caplog.text


@pytest.mark.parametrize(
    "fields",
    [
        {"listen": ["10.0.0.1:7310"]},
        {"cache_address": "c:1", "listen": ["0.0.0.0:7310"]},
        {"cache_address": "c:1", "listen": ["node.test:7310"]},
        {"cache_address": "c:1", "announce_address": "10.0.0.1:0"},
    ],
)
def test_node_that_could_not_be_found_does_not_start(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        InferenceSettings(announce=True, **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"listen": ["10.0.0.1:7310"]},
        {"listen": ["127.0.0.1:0"]},
        {"listen": ["unix:/run/n.sock"]},
        {"listen": ["0.0.0.0:7310"], "announce_address": "10.0.0.1:7310"},
    ],
)
def test_node_that_can_be_found_starts(fields: dict[str, Any]) -> None:
    assert InferenceSettings(announce=True, cache_address="c:1", **fields).announce
