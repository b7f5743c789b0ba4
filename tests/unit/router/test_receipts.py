"""Frames sent, received, verified and lost, by clients' receipts."""

import pytest
from prometheus_client import CollectorRegistry

from helpers.as_written import run_both_ways
from ssop.v1.mesh_pb2 import Receipt
from ssop_codec import Encoder
from ssop_router.metrics import RouterMetrics
from ssop_router.outlet import finish
from ssop_router.receipts import Receipts

way = run_both_ways("ssop_router.receipts", "Receipts")


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def receipts(registry: CollectorRegistry) -> Receipts:
    return Receipts(RouterMetrics(registry))


def receipt(received: int, verified: int) -> list[Receipt]:
    return [Receipt(request_id="r", frames_received=received, frames_verified=verified)]


def lost(registry: CollectorRegistry) -> float:
    found = registry.get_sample_value("ssop_router_frames_lost_total")
    assert found is not None
    return found


def test_frames_of_a_whole_answer_that_did_not_arrive_are_lost(registry: CollectorRegistry, receipts: Receipts) -> None:
    receipts.record_sent("t", "r", 10, is_whole=True)
    receipts.record("t", receipt(9, 8))
    assert lost(registry) == 1


def test_a_client_receives_no_more_than_was_sent(receipts: Receipts) -> None:
    receipts.record_sent("t", "r", 10, is_whole=True)
    receipts.record("t", receipt(2**64 - 1, 2**64 - 1))
    assert receipts.of_request("t", "r") == (10, 10, 10)


def test_a_whole_answer_that_arrived_lost_nothing(registry: CollectorRegistry, receipts: Receipts) -> None:
    receipts.record_sent("t", "r", 10, is_whole=True)
    receipts.record("t", receipt(10, 10))
    assert lost(registry) == 0


def test_what_was_on_its_way_to_a_client_that_left_is_no_loss(registry: CollectorRegistry, receipts: Receipts) -> None:
    receipts.record_sent("t", "r", 10, is_whole=False)
    receipts.record("t", receipt(4, 4))
    assert lost(registry) == 0


def test_a_client_that_left_because_of_a_gap_tells_a_loss(registry: CollectorRegistry, receipts: Receipts) -> None:
    receipts.record_sent("t", "r", 10, is_whole=False)
    receipts.record("t", receipt(4, 3))
    assert lost(registry) == 6


def test_a_receipt_that_comes_again_counts_no_loss_again(registry: CollectorRegistry, receipts: Receipts) -> None:
    receipts.record_sent("t", "r", 10, is_whole=True)
    receipts.record("t", receipt(9, 9))
    receipts.record("t", receipt(9, 9))
    assert lost(registry) == 1


async def test_what_a_failpoint_leaves_is_what_is_written() -> None:
    encoder = Encoder(None)
    encoder.feed(b"[1,2]")
    encoder.finish()
    written: list[bytes] = []

    async def write(chunk: bytes) -> None:
        written.append(chunk)

    receipts = Receipts(RouterMetrics(CollectorRegistry()), thin=lambda chunk: chunk[:0])
    await finish(receipts.watch(write, "r").put(b"".join(encoder.drain(True)), 2))
    assert written == [b""]
