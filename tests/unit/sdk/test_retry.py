"""When and how long to wait before a call is made again."""

import grpc
import pytest

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.mesh_pb2 import Receipt
from ssop_chassis.errors import REASONS
from ssop_sdk.errors import QuotaExhausted, RateLimited, SsopError, Unavailable
from ssop_sdk.receipts import ReceiptBook
from ssop_sdk.retry import RETRYABLE_REASONS, RetryPolicy, wait_before_retry_s

POLICY = RetryPolicy()


def wait(error: SsopError, *, attempt: int = 1, remaining_s: float = 30.0, random: float = 0.5) -> float | None:
    return wait_before_retry_s(POLICY, error, attempt=attempt, remaining_s=remaining_s, random=lambda: random)


def test_wait_doubles_with_each_try() -> None:
    assert [wait(Unavailable(), attempt=n) for n in (1, 2)] == [0.05, 0.1]


def test_two_retries_at_most() -> None:
    assert wait(Unavailable(), attempt=3) is None


def test_retry_info_is_honoured_in_full() -> None:
    error = RateLimited(retry_after_ms=4_000, from_mesh=True)
    assert wait(error, random=0.0) == 4.0


def test_retry_info_is_jittered_upwards_only() -> None:
    error = RateLimited(retry_after_ms=4_000, from_mesh=True)
    assert wait(error, random=0.5) == pytest.approx(4.2)


def test_no_wait_beyond_the_deadline() -> None:
    assert wait(RateLimited(retry_after_ms=4_000, from_mesh=True), remaining_s=3.0) is None


def test_quota_is_not_retried() -> None:
    assert wait(QuotaExhausted(from_mesh=True)) is None


def test_reason_of_the_mesh_rules_over_the_code() -> None:
    error = SsopError(reason="SOMETHING_FINAL", code=grpc.StatusCode.UNAVAILABLE, from_mesh=True)
    assert wait(error) is None


def test_retryable_reasons_are_those_of_the_mesh() -> None:
    prefix = "ERROR_REASON_"
    table = {
        ErrorReason.Name(ErrorReason.ValueType(number)).removeprefix(prefix)
        for number, info in REASONS.items()
        if info.is_retryable
    }
    assert table == RETRYABLE_REASONS


def test_book_keeps_the_newest_64_receipts_and_counts_the_rest() -> None:
    book = ReceiptBook()
    for number in range(70):
        book.add(Receipt(request_id=str(number)))
    assert [r.request_id for r in book.take()] == [str(n) for n in range(6, 70)]
    assert (book.dropped, len(book)) == (6, 0)
