"""What happens around a handler: what is logged, what observers hear, and which ids are taken."""

import logging
import time
from typing import Any

import pytest
from google.rpc import code_pb2

from helpers.as_written import run_both_ways
from ssop_chassis import logs
from ssop_chassis.call import Arity, Handler, Method
from ssop_chassis.dispatch import REQUEST_ID_METADATA, CallState, Dispatcher, inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import PRINCIPAL_METADATA, Principal, read_token, sign_principal

SECRET = bytes(32)
way = run_both_ways("ssop_chassis.dispatch", "CallState", "Dispatcher")


class Observer:
    """Keeps the codes of the calls that ended."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def start(self, method: str) -> None: ...

    def finish(self, method: str, code: int, duration_s: float) -> None:
        self.codes.append(code)


async def serve(handler: Handler, observer: Observer | None = None, request_id: str = "") -> MeshError | None:
    """Serve one call without a principal."""
    method = Method("/test.T/M", Arity.UNARY, handler, needs_principal=False)
    call: Any = CallState(method.path, {REQUEST_ID_METADATA: request_id}, _soon_s())
    return await Dispatcher(inner_authenticate(SECRET), observer).dispatch(method, call)


def _soon_s() -> float:
    return time.monotonic() + 60


async def test_fault_of_a_handler_is_logged_with_its_place_and_without_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(_: object) -> None:
        raise ZeroDivisionError("a prompt")

    with caplog.at_level(logging.ERROR):
        error = await serve(fail)
    assert error is not None
    assert error.reason_name == "INTERNAL"
    (record,) = caplog.records
    assert record.getMessage() == "a handler failed"
    assert "ZeroDivisionError" in record.__dict__["cause"]
    assert "a prompt" not in str(record.__dict__)


async def test_call_that_its_client_left_counts_as_cancelled() -> None:
    async def left(call: Any) -> None:
        call.is_left = True

    observer = Observer()
    assert await serve(left, observer) is None
    assert observer.codes == [code_pb2.CANCELLED]


@pytest.mark.parametrize(("chars", "is_taken"), [(64, True), (65, False)])
async def test_request_id_of_a_caller_is_taken_up_to_a_bound(chars: int, is_taken: bool) -> None:
    seen: list[str] = []

    async def look(_: object) -> None:
        seen.append(logs.request_id.get())

    await serve(look, request_id="r" * chars)
    assert seen == ["r" * chars if is_taken else ""]


def test_tokens_that_were_verified_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []

    def count(token: Any, secrets: Any) -> Any:
        read.append(token)
        return read_token(token, secrets)

    monkeypatch.setattr("ssop_chassis.dispatch.MOST_TOKENS", 2)
    monkeypatch.setattr("ssop_chassis.dispatch.read_token", count)
    authenticate = inner_authenticate(SECRET)
    now_ms = time.time_ns() // 1_000_000
    tokens = [
        sign_principal(Principal(tenant, "k", frozenset()), SECRET, now_ms=now_ms, issuer="t") for tenant in "abc"
    ]
    for token in (*tokens, tokens[2], tokens[0]):
        authenticate({PRINCIPAL_METADATA: token})
    # The third forgets the two before it; the first is verified anew.
    assert read == [*tokens, tokens[0]]
