import json
from typing import Any

import pytest

from ssop.v1.errors_pb2 import ErrorReason
from ssop_inference.core.upstream_errors import DEFAULT_RETRY_MS, MAX_RETRY_MS, retry_after_ms, status_error

R = ErrorReason
NOW_S = 1_796_000_000.0


def reason(status: int, body: Any = None) -> int:
    return status_error(status, {}, json.dumps(body).encode(), now_s=NOW_S).reason


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (429, R.ERROR_REASON_OVERLOADED),
        (503, R.ERROR_REASON_OVERLOADED),
        (529, R.ERROR_REASON_OVERLOADED),
        (400, R.ERROR_REASON_INTERNAL),
        (401, R.ERROR_REASON_INTERNAL),
        (404, R.ERROR_REASON_INTERNAL),
        (422, R.ERROR_REASON_INTERNAL),
        (408, R.ERROR_REASON_BACKEND_FAILED),
        (500, R.ERROR_REASON_BACKEND_FAILED),
        (502, R.ERROR_REASON_BACKEND_FAILED),
        (302, R.ERROR_REASON_BACKEND_FAILED),
        (204, R.ERROR_REASON_BACKEND_FAILED),
    ],
)
def test_status_says_whose_fault_it_is(status: int, expected: int) -> None:
    assert reason(status) == expected


@pytest.mark.parametrize(
    "error",
    [
        {"code": "context_length_exceeded", "message": "x"},
        {"type": "exceed_context_size_error", "n_ctx": 100, "n_prompt_tokens": 200},
        {"message": "This model's maximum context length is 4096 tokens."},
        {"type": "invalid_request_error", "message": "prompt is too long: 200001 tokens > 200000 maximum"},
    ],
)
def test_prompt_that_is_too_long_is_the_caller_s(error: Any) -> None:
    assert reason(400, {"error": error}) == R.ERROR_REASON_CONTEXT_EXCEEDED


def test_counts_of_llama_server_are_passed_on() -> None:
    body = {"error": {"type": "exceed_context_size_error", "n_ctx": 100, "n_prompt_tokens": 200}}
    error = status_error(400, {}, json.dumps(body).encode(), now_s=NOW_S)
    assert error.metadata == {"limit_tokens": "100", "input_tokens": "200"}


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"[]", b"{", b'{"error": "secret"}', b'{"error": {"code": "secret text"}}', b"[" * 90_000]
)
def test_error_quotes_nothing_of_the_server(body: bytes) -> None:
    assert status_error(500, {}, body, now_s=NOW_S).message == "the model server answered 500"


@pytest.mark.parametrize(
    ("headers", "expected_ms"),
    [
        ({}, DEFAULT_RETRY_MS),
        ({"retry-after": "3"}, 3000),
        ({"retry-after": "0.5"}, 500),
        ({"retry-after-ms": "250", "retry-after": "3"}, 250),
        ({"retry-after": "Mon, 29 Nov 2026 21:33:30 GMT"}, None),
        ({"retry-after": "-1"}, DEFAULT_RETRY_MS),
        ({"retry-after": "soon"}, DEFAULT_RETRY_MS),
        ({"retry-after": "1e400"}, DEFAULT_RETRY_MS),
        ({"retry-after-ms": "nan"}, DEFAULT_RETRY_MS),
        ({"retry-after": "99999999999999"}, MAX_RETRY_MS),
    ],
)
def test_delay_is_read_in_every_form(headers: dict[str, str], expected_ms: int | None) -> None:
    delay_ms = retry_after_ms(headers, now_s=NOW_S)
    assert delay_ms == expected_ms if expected_ms is not None else 0 <= delay_ms <= MAX_RETRY_MS
