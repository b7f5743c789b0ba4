"""Errors of the edge."""

import pytest

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import REASONS, MeshError
from ssop_gateway.core.faults import EdgeError, invalid, of_answer, of_mesh, unsupported
from ssop_sdk.errors import OutputIncomplete, OutputInvalid


@pytest.mark.parametrize("number", sorted(REASONS))
def test_every_reason_of_the_mesh_keeps_its_status(number: int) -> None:
    reason = ErrorReason.ValueType(number)
    assert of_mesh(MeshError(reason, "x")).status == REASONS[number].http_status


@pytest.mark.parametrize(
    ("cut", "status"), [("MAX_OUTPUT_TOKENS", 422), ("DEADLINE", 504), ("BACKEND_FAILED", 502), ("CANCELLED", 499)]
)
def test_an_answer_that_was_cut_is_never_a_success(cut: str, status: int) -> None:
    assert of_answer(OutputIncomplete("cut", metadata={"incomplete_reason": cut})).status == status


def test_an_answer_that_breaks_the_schema_is_422_with_the_pointer() -> None:
    error = of_answer(OutputInvalid("bad", metadata={"pointer": "/age"}))
    assert (error.status, error.metadata) == (422, {"pointer": "/age"})


def test_the_body_has_what_the_sdks_of_openai_read() -> None:
    error = invalid("temperature", "is too high").body("r")["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", "temperature", "request_invalid")


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("MODEL_UNKNOWN", "model_not_found"),
        ("QUOTA_EXHAUSTED", "insufficient_quota"),
        ("KEY_INVALID", "invalid_api_key"),
    ],
)
def test_known_codes_are_those_of_openai(reason: str, code: str) -> None:
    assert EdgeError(reason, "x").body()["error"]["code"] == code


def test_a_wait_is_rounded_up_to_seconds() -> None:
    headers = EdgeError("RATE_LIMITED", "x", retry_after_ms=1_001).response_headers()
    assert (headers["retry-after"], headers["retry-after-ms"]) == ("2", "1001")


def test_a_quota_is_429_and_not_to_be_repeated() -> None:
    assert EdgeError("QUOTA_EXHAUSTED", "x").response_headers()["x-should-retry"] == "false"


def test_what_is_not_served_is_a_400_that_names_it() -> None:
    assert (unsupported("n", "one").status, unsupported("n", "one").fields[0][0]) == (400, "n")
