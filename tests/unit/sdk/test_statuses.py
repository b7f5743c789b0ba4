"""Statuses as typed errors."""

import pickle

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from ssop_sdk import errors
from ssop_sdk.statuses import CLASS_OF_CODE, error_of_status


def details(reason: str, *, retry_ms: int | None = None, domain: str = "ssop", **metadata: str) -> bytes:
    status = status_pb2.Status(code=3, message="m")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain=domain, metadata=metadata))
    if retry_ms is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(retry_ms)
        status.details.add().Pack(retry)
    sent: bytes = status.SerializeToString()
    return sent


def test_scope_is_named() -> None:
    error = error_of_status(grpc.StatusCode.PERMISSION_DENIED, "m", details("SCOPE_MISSING", scope="tier:full"))
    assert isinstance(error, errors.ScopeMissing)
    assert error.scope == "tier:full"


def test_refused_schema_names_pointer_and_keyword() -> None:
    sent = details("SCHEMA_REFUSED", pointer="/properties/a", keyword="$ref")
    error = error_of_status(grpc.StatusCode.INVALID_ARGUMENT, "m", sent)
    assert isinstance(error, errors.SchemaRefused)
    assert (error.pointer, error.keyword) == ("/properties/a", "$ref")


def test_rate_limit_says_when_to_come_back() -> None:
    error = error_of_status(grpc.StatusCode.RESOURCE_EXHAUSTED, "m", details("RATE_LIMITED", retry_ms=1500))
    assert isinstance(error, errors.RateLimited)
    assert error.retry_after_ms == 1500


def test_invalid_output_has_rule_pointer_and_offset() -> None:
    sent = details("OUTPUT_INVALID", pointer="/age", rule="maximum", offset_bytes="17")
    error = error_of_status(grpc.StatusCode.FAILED_PRECONDITION, "m", sent)
    assert isinstance(error, errors.OutputInvalid)
    assert (error.pointer, error.rule, error.offset_bytes) == ("/age", "maximum", 17)


def test_interruption_says_what_is_final() -> None:
    error = error_of_status(grpc.StatusCode.ABORTED, "m", details("GENERATION_INTERRUPTED", last_seq="9"))
    assert isinstance(error, errors.GenerationInterrupted)
    assert error.last_seq == 9


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
def test_unknown_reason_goes_by_code_and_keeps_its_name(code: grpc.StatusCode) -> None:
    error = error_of_status(code, "m", details("FROM_THE_FUTURE"))
    assert type(error) is CLASS_OF_CODE.get(code, errors.SsopError)
    assert (error.reason, error.code, error.from_mesh) == ("FROM_THE_FUTURE", code, True)


def test_code_without_details_is_not_from_the_mesh() -> None:
    error = error_of_status(grpc.StatusCode.UNAVAILABLE, "connection refused")
    assert isinstance(error, errors.Unavailable)
    assert not error.from_mesh


def test_details_of_another_domain_are_not_ours() -> None:
    sent = details("SCOPE_MISSING", domain="googleapis.com")
    assert not error_of_status(grpc.StatusCode.PERMISSION_DENIED, "m", sent).from_mesh


def test_broken_details_leave_the_code() -> None:
    error = error_of_status(grpc.StatusCode.UNAUTHENTICATED, "m", b"\xff\xff")
    assert isinstance(error, errors.AuthenticationError)


def test_deadline_is_a_timeout_error() -> None:
    assert isinstance(error_of_status(grpc.StatusCode.DEADLINE_EXCEEDED, "m"), TimeoutError)


def test_errors_survive_pickling() -> None:
    sent = details("RATE_LIMITED", retry_ms=10)
    error = error_of_status(grpc.StatusCode.RESOURCE_EXHAUSTED, "m", sent, request_id="r")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.retry_after_ms, copy.request_id, str(copy)) == (
        errors.RateLimited,
        10,
        "r",
        "RATE_LIMITED: m",
    )


def test_cancel_that_nobody_here_asked_for_is_a_peer_that_goes_away() -> None:
    error = error_of_status(grpc.StatusCode.CANCELLED, "CANCELLED")
    assert isinstance(error, errors.Unavailable)
    assert (error.code, error.from_mesh) == (grpc.StatusCode.UNAVAILABLE, False)


RESETS = ["Stream removed (RST_STREAM (Received RST_STREAM with error code 2))", "the stream was reset: 2"]


@pytest.mark.parametrize("message", RESETS)
def test_stream_that_a_proxy_resets_is_a_peer_that_is_lost(message: str) -> None:
    error = error_of_status(grpc.StatusCode.INTERNAL, message)
    assert isinstance(error, errors.Unavailable)
    assert (error.code, error.from_mesh) == (grpc.StatusCode.UNAVAILABLE, False)


def test_fault_within_the_mesh_stays_one_whatever_it_says_of_streams() -> None:
    error = error_of_status(grpc.StatusCode.INTERNAL, RESETS[1], details("INTERNAL"))
    assert (type(error), error.from_mesh) == (errors.InternalError, True)


@pytest.mark.parametrize(
    ("message", "sent"),
    [
        ("the caller cancelled", details("CANCELLED")),
        ("Locally cancelled by application!", None),
        ("Channel closed!", None),
    ],
)
def test_cancel_of_this_side_stays_one(message: str, sent: bytes | None) -> None:
    assert isinstance(error_of_status(grpc.StatusCode.CANCELLED, message, sent), errors.Cancelled)
