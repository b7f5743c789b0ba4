"""The error table."""

import asyncio
import base64
from urllib.parse import quote

import pytest
from google.protobuf.message import DecodeError
from google.rpc import code_pb2

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import REASONS, MeshError, as_mesh_error, forget_frames, from_status
from ssop_codec import SchemaError

NAMED = [value for value in ErrorReason.values() if value != ErrorReason.ERROR_REASON_UNSPECIFIED]


def test_every_reason_has_a_status() -> None:
    assert set(REASONS) == set(NAMED)


@pytest.mark.parametrize("reason", NAMED, ids=ErrorReason.Name)
def test_every_reason_survives_the_wire(reason: ErrorReason.ValueType) -> None:
    error = MeshError(reason, "text", metadata={"k": "v"})
    status = error.to_status()
    back = from_status(status.code, status.message, status.SerializeToString())
    assert (back.reason, back.message, back.metadata) == (reason, "text", {"k": "v"})


@pytest.mark.parametrize("reason", NAMED, ids=ErrorReason.Name)
def test_reason_fits_the_rules_of_error_info(reason: ErrorReason.ValueType) -> None:
    name = MeshError(reason, "").reason_name
    assert name.isupper()
    assert len(name) <= 63


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SchemaError("/properties/a", "not", "is not supported"), ErrorReason.ERROR_REASON_SCHEMA_REFUSED),
        (DecodeError("x"), ErrorReason.ERROR_REASON_REQUEST_INVALID),
        (TimeoutError(), ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED),
        (asyncio.CancelledError(), ErrorReason.ERROR_REASON_CANCELLED),
        (ConnectionResetError(), ErrorReason.ERROR_REASON_BACKEND_FAILED),
        (RuntimeError("secret"), ErrorReason.ERROR_REASON_INTERNAL),
    ],
    ids=lambda value: type(value).__name__,
)
def test_foreign_exception_becomes_its_reason(error: BaseException, reason: int) -> None:
    assert as_mesh_error(error).reason == reason


def test_refused_schema_names_pointer_and_keyword() -> None:
    error = as_mesh_error(SchemaError("/properties/a", "not", "is not supported"))
    assert error.metadata == {"pointer": "/properties/a", "keyword": "not"}


def test_status_without_details_is_mapped_by_its_code() -> None:
    assert from_status(code_pb2.UNAVAILABLE, "down").reason == ErrorReason.ERROR_REASON_BACKEND_FAILED
    # How gRPC ends what comes while a server drains.
    assert from_status(code_pb2.CANCELLED, "CANCELLED").reason == ErrorReason.ERROR_REASON_BACKEND_FAILED


def test_garbage_in_the_details_is_no_failure() -> None:
    assert from_status(code_pb2.INTERNAL, "x", b"\xff\xff").reason == ErrorReason.ERROR_REASON_INTERNAL


@pytest.mark.parametrize("character", ["x", "字", "😀", "%", "\ud800"])
def test_largest_error_fits_the_trailers(character: str) -> None:
    large = character * 10_000
    error = MeshError(
        ErrorReason.ERROR_REASON_SCHEMA_REFUSED,
        large,
        metadata={"pointer": large, "keyword": large},
        fields=[(large, large)] * 9,
        retry_after_ms=1,
    )
    # As gRPC sends them: percent-encoded, and in base64.
    size = len(quote(error.message)) + len(base64.b64encode(error.to_status().SerializeToString()))
    assert size < 8_192 - 512


def test_an_error_that_became_an_answer_holds_no_frames() -> None:
    def fail() -> None:
        try:
            raise KeyError
        except KeyError as error:
            raise MeshError(ErrorReason.ERROR_REASON_INTERNAL, "scripted") from error

    with pytest.raises(MeshError) as caught:
        fail()
    error = caught.value
    assert error.__cause__ is not None
    forget_frames(error)
    assert (error.__traceback__, error.__cause__.__traceback__) == (None, None)


def test_errors_that_cause_each_other_are_left_in_the_end() -> None:
    one, other = KeyError(), ValueError()
    one.__cause__, other.__cause__ = other, one
    forget_frames(one)
    assert other.__traceback__ is None
