"""Streams over calls that a test scripts: repetition, holding back, cancelling. No socket, no clock."""

from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pytest

from helpers.answers import PERSON, decision_chunk, delivery, document_chunks
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.mesh_pb2 import Receipt
from ssop.v1.router_pb2 import GenerateRequest
from ssop_chassis.errors import MeshError
from ssop_sdk.answer import Answer
from ssop_sdk.errors import Cancelled, OutputInvalid, RateLimited, SsopError, Unavailable
from ssop_sdk.receipts import ReceiptBook
from ssop_sdk.retry import RetryPolicy
from ssop_sdk.stream import Stream


class Failure(grpc.RpcError):
    """An RPC that failed."""

    def __init__(self, code: grpc.StatusCode, details: bytes | None = None) -> None:
        self._code = code
        self._trailers = (("grpc-status-details-bin", details),) if details else ()

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "m"

    def trailing_metadata(self) -> Any:
        return self._trailers


def mesh_failure(error: MeshError) -> Failure:
    code = next(c for c in grpc.StatusCode if c.value[0] == error.code)
    return Failure(code, error.to_status().SerializeToString())


class Call:
    """gRPC's iterator: yields chunks, raises failures."""

    def __init__(self, events: Sequence[bytes | Failure]) -> None:
        self._events: Iterator[bytes | Failure] = iter(events)
        self.is_cancelled = False

    def __next__(self) -> bytes:
        if self.is_cancelled:
            raise Failure(grpc.StatusCode.CANCELLED)
        event = next(self._events)
        if isinstance(event, Failure):
            raise event
        return event

    def trailing_metadata(self) -> Any:
        return ()

    def cancel(self) -> None:
        self.is_cancelled = True


class Bench:
    """A stream over scripted calls, one a try, with a clock that only sleeping moves."""

    def __init__(self, *tries: Sequence[bytes | Failure], holds_back: bool = False, **request: Any) -> None:
        self.calls = [Call(events) for events in tries]
        self.timeouts: list[float] = []
        self.sleeps: list[float] = []
        self.now = 100.0
        self.receipts = ReceiptBook()
        self.request = GenerateRequest(**request)
        self.sent: list[GenerateRequest] = []
        self.stream: Stream[Any] = Stream(
            self._open,
            Answer("r"),
            timeout_s=10.0,
            retry=RetryPolicy(),
            receipts=self.receipts,
            random=lambda: 0.5,
            carrier=self.request,
            holds_back=holds_back,
            clock=lambda: self.now,
            sleep=self._sleep,
        )

    def _open(self, timeout_s: float) -> Call:
        self.timeouts.append(timeout_s)
        copy = GenerateRequest()
        copy.CopyFrom(self.request)
        self.sent.append(copy)
        return self.calls[len(self.timeouts) - 1]

    def _sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


GOOD = delivery(document_chunks(PERSON))
GONE = Failure(grpc.StatusCode.UNAVAILABLE)


def test_unreachable_mesh_is_tried_again_within_the_deadline() -> None:
    bench = Bench([GONE], [GONE], GOOD)
    assert bench.stream.result() == PERSON
    assert bench.sleeps == [0.05, 0.1]
    assert bench.timeouts == pytest.approx([10.0, 9.95, 9.85])


def test_third_failure_is_raised() -> None:
    bench = Bench([GONE], [GONE], [GONE])
    with pytest.raises(Unavailable):
        bench.stream.result()
    assert len(bench.timeouts) == 3


def test_nothing_is_repeated_after_a_frame() -> None:
    bench = Bench([decision_chunk(), GONE], GOOD)
    with pytest.raises(Unavailable):
        bench.stream.result()
    assert len(bench.timeouts) == 1


def test_retry_info_is_waited_for() -> None:
    limited = MeshError(ErrorReason.ERROR_REASON_RATE_LIMITED, "m", retry_after_ms=3_000)
    bench = Bench([mesh_failure(limited)], GOOD)
    assert bench.stream.result() == PERSON
    assert bench.sleeps == [pytest.approx(3.15)]


def test_retry_info_beyond_the_deadline_raises_at_once() -> None:
    limited = MeshError(ErrorReason.ERROR_REASON_RATE_LIMITED, "m", retry_after_ms=30_000)
    bench = Bench([mesh_failure(limited)], GOOD)
    with pytest.raises(RateLimited):
        bench.stream.result()
    assert bench.sleeps == []


def test_every_try_has_the_same_request_id() -> None:
    bench = Bench([GONE], GOOD, request_id="r")
    bench.stream.result()
    assert [request.request_id for request in bench.sent] == ["r", "r"]


def test_receipts_that_never_arrived_go_back_into_the_book() -> None:
    bench = Bench([GONE], [GONE], [GONE], receipts=[Receipt(request_id="earlier")])
    with pytest.raises(Unavailable):
        bench.stream.result()
    assert [r.request_id for r in bench.receipts.take()] == ["earlier"]


def test_receipts_that_the_mesh_has_read_are_not_sent_twice() -> None:
    busy = MeshError(ErrorReason.ERROR_REASON_OVERLOADED, "m")
    bench = Bench([mesh_failure(busy)], GOOD, receipts=[Receipt(request_id="earlier")])
    bench.stream.result()
    assert [len(request.receipts) for request in bench.sent] == [1, 0]


def test_finished_stream_files_one_receipt() -> None:
    bench = Bench(GOOD)
    bench.stream.result()
    bench.stream.close()
    [receipt] = bench.receipts.take()
    assert (receipt.request_id, receipt.is_complete) == ("r", True)


def test_bad_verdict_comes_after_the_frames() -> None:
    bench = Bench(document_chunks(text=b'{"name":"Ada","age":200}'))
    assert next(bench.stream).delta == {"name": "Ada"}
    with pytest.raises(OutputInvalid):
        list(bench.stream)


def test_error_is_raised_again_and_again() -> None:
    bench = Bench([mesh_failure(MeshError(ErrorReason.ERROR_REASON_KEY_INVALID, "m"))])
    for _ in range(2):
        with pytest.raises(SsopError):
            next(bench.stream)


def test_held_back_frames_are_not_seen_with_a_bad_verdict() -> None:
    bench = Bench(document_chunks(text=b'{"name":"Ada","age":200}'), holds_back=True)
    with pytest.raises(OutputInvalid):
        next(bench.stream)


def test_held_back_frames_come_with_a_good_verdict() -> None:
    bench = Bench(GOOD, holds_back=True)
    assert [f.path for f in bench.stream][:2] == ["/name", "/age"]


def test_cancelled_stream_raises_cancelled() -> None:
    bench = Bench(GOOD)
    next(bench.stream)
    bench.stream.cancel()
    with pytest.raises(Cancelled):
        bench.stream.result()


def test_leaving_the_block_cancels_without_an_error() -> None:
    bench = Bench(GOOD)
    with bench.stream as stream:
        next(stream)
    assert bench.calls[0].is_cancelled


def test_result_is_the_same_after_iterating() -> None:
    bench = Bench(GOOD)
    list(bench.stream)
    assert bench.stream.result() is bench.stream.result()


def test_cancel_while_waiting_for_a_retry_opens_no_call() -> None:
    bench = Bench([GONE], GOOD)
    bench._sleep = lambda seconds: bench.stream.cancel()  # type: ignore[method-assign]
    bench.stream._sleep = bench._sleep
    with pytest.raises(Cancelled):
        bench.stream.result()
    assert len(bench.timeouts) == 1
