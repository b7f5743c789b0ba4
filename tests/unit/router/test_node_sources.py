"""Names that are looked up, and leases that are read."""

import asyncio
import socket
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from helpers.eventually import eventually
from ssop.v1 import registry_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.announcement import Announced, read_networks, sign_announcement
from ssop_chassis.call import Metadata
from ssop_chassis.errors import MeshError
from ssop_router.dependency import Dependency
from ssop_router.metrics import DiscoveryMetrics
from ssop_router.node_sources import DnsName, Leases, SourceError, read_dns

SECRET = b"a" * 32
NOW_MS = 1_000_000


def entries(*hosts: str) -> list[tuple[Any, ...]]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 7310)) for host in hosts]


def name(resolve: Any, timeout_s: float = 60) -> DnsName:
    return DnsName("dns:///nodes.test:7310", frozenset({1}), timeout_s=timeout_s, resolve=resolve)


async def test_each_address_of_a_name_is_a_node() -> None:
    found = await name(lambda *_: entries("10.0.0.2", "10.0.0.1", "10.0.0.2", "fc00::1", "fe80::1%eth0")).read()
    assert [place.address for place in found] == ["10.0.0.1:7310", "10.0.0.2:7310", "[fc00::1]:7310"]
    assert {(place.server_name, place.tiers) for place in found} == {("nodes.test", frozenset({1}))}


@pytest.mark.parametrize("fault", [socket.gaierror(-2, "Name or service not known"), UnicodeError("label too long")])
async def test_resolver_that_fails_is_an_error_of_the_source(fault: Exception) -> None:
    def fail(*_: Any) -> Any:
        raise fault

    with pytest.raises(SourceError, match="resolver"):
        await name(fail).read()


async def test_name_without_an_address_is_an_error_of_the_source() -> None:
    with pytest.raises(SourceError, match="no address"):
        await name(lambda *_: []).read()


async def test_resolver_that_hangs_is_asked_once_and_its_late_answer_is_taken() -> None:
    go_on, asked = threading.Event(), []

    def hang(*_: Any) -> Sequence[tuple[Any, ...]]:
        asked.append(1)
        go_on.wait(60)
        return entries("10.0.0.1")

    slow = name(hang, timeout_s=0.01)
    for _ in range(3):
        with pytest.raises(SourceError, match="in time"):
            await slow.read()
    assert len(asked) == 1
    go_on.set()
    await eventually(lambda: slow._asking is not None and slow._asking.done(), 60)
    slow._timeout_s = 60
    assert [place.address for place in await slow.read()] == ["10.0.0.1:7310"]


@pytest.mark.parametrize("text", ["dns:///nodes.test", "dns:///:1", "dns:///a:0", "dns:///a:x", "dns://server/a:1"])
def test_name_without_a_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="dns:///host:port"):
        read_dns(text)


class Registry:
    """A cache service that says what a test wants."""

    address = "cache"

    def __init__(self, answer: bytes | Exception) -> None:
        self.answer = answer

    async def unary(self, method: str, request: bytes, *, timeout_s: float, metadata: Metadata | None = None) -> bytes:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def stream(self, *_: Any, **__: Any) -> Metadata:
        raise NotImplementedError

    async def close(self) -> None:
        pass


def leases(answer: bytes | Exception, metrics: CollectorRegistry | None = None, networks: Sequence[str] = ()) -> Leases:
    store = Dependency("registry", Registry(answer), skip_ms=1_000, clock_ms=lambda: 0)
    return Leases(
        store,
        timeout_s=1,
        metadata=dict,
        secrets=(SECRET,),
        networks=read_networks(networks or ["10.0.0.0/8"]),
        wall_ms=lambda: NOW_MS,
        metrics=DiscoveryMetrics(metrics or CollectorRegistry()),
    )


def listed(*signed: bytes) -> bytes:
    response = registry_pb2.ListNodesResponse(leases=[registry_pb2.NodeLease(announcement=data) for data in signed])
    return response.SerializeToString()


def signed(address: str = "10.0.0.1:7310", secret: bytes = SECRET) -> bytes:
    return sign_announcement(Announced(address, "n", "0" * 32, NOW_MS, 5_000), secret)


async def test_announcements_that_are_not_believed_are_left_out_and_counted() -> None:
    metrics = CollectorRegistry()
    answer = listed(signed(), signed(secret=b"b" * 32), b"", signed("8.8.8.8:7310"), signed("10.0.0.2:7310"))
    found = await leases(answer, metrics).read()
    assert [place.address for place in found] == ["10.0.0.1:7310", "10.0.0.2:7310"]
    refused = "ssop_router_announcements_refused_total"
    assert metrics.get_sample_value(refused, {"reason": "unbelieved"}) == 2
    assert metrics.get_sample_value(refused, {"reason": "network"}) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff",
        MeshError(ErrorReason.ERROR_REASON_STORE_UNAVAILABLE, "gone"),
        MeshError(ErrorReason.ERROR_REASON_UNSUPPORTED, "an older cache service"),
        MeshError(ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED, "late"),
    ],
)
async def test_registry_that_does_not_answer_is_an_error_of_the_source(answer: bytes | Exception) -> None:
    with pytest.raises(SourceError):
        await leases(answer).read()


async def test_reading_is_cancelled_with_its_task() -> None:
    hung = asyncio.ensure_future(name(lambda *_: threading.Event().wait(0.2) or entries("10.0.0.1")).read())
    await asyncio.sleep(0)
    hung.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hung
