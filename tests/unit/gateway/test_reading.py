"""What the edge makes of headers and bodies."""

from typing import Any

import pytest

from ssop_gateway.core.faults import EdgeError
from ssop_gateway.core.generate_body import GenerateBody, plan_body
from ssop_gateway.core.reading import choose_type, media_type, read_caller, read_json, read_model


def reason(call: Any, *arguments: Any) -> str:
    with pytest.raises(EdgeError) as caught:
        call(*arguments)
    return caught.value.reason


@pytest.mark.parametrize("value", ["Bearer k", "bearer k", "BEARER   k "])
def test_the_scheme_is_read_in_any_case(value: str) -> None:
    assert read_caller({"authorization": value}, "r").key == "k"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, "KEY_MISSING"),
        ({"authorization": "Bearer"}, "KEY_MISSING"),
        ({"authorization": "Basic a2V5"}, "KEY_INVALID"),
        ({"authorization": "Bearer a, Bearer b"}, "KEY_INVALID"),
        ({"authorization": "Bearer a", "x-api-key": "b"}, "KEY_INVALID"),
        ({"authorization": "Bearer kéy"}, "KEY_INVALID"),
        ({"authorization": "Bearer " + "k" * 513}, "KEY_INVALID"),
        ({"x-api-key": "k", "x-router-policy": "l\x00"}, "POLICY_INVALID"),
    ],
)
def test_a_key_that_is_none_is_refused(headers: dict[str, str], expected: str) -> None:
    assert reason(read_caller, headers, "r") == expected


def test_the_repr_of_a_caller_shows_no_key() -> None:
    assert "secret" not in repr(read_caller({"x-api-key": "secret"}, "r"))


def test_a_malformed_trace_goes_no_further() -> None:
    assert "traceparent" not in read_caller({"x-api-key": "k", "traceparent": "00-zz"}, "r").metadata()


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", "a/x"),
        ("*/*", "a/x"),
        ("b/y", "b/y"),
        ("a/*;q=0.1, b/y", "b/y"),
        ("b/*, */*;q=0.5", "b/y"),
        ("*/*, b/y", "b/y"),
        ("a/x;q=0, */*", "a/x"),
    ],
)
def test_accept_chooses_among_what_is_offered(accept: str, chosen: str) -> None:
    assert choose_type(accept, ("a/x", "b/y")) == chosen


@pytest.mark.parametrize("accept", ["c/z", "a/x;q=0", "b/y;q=nonsense", "text"])
def test_what_is_not_offered_is_not_acceptable(accept: str) -> None:
    assert reason(choose_type, accept, ("a/x", "b/y")) == "NOT_ACCEPTABLE"


def test_parameters_of_a_content_type_do_not_count() -> None:
    assert media_type("Application/JSON; charset=utf-8") == "application/json"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  ",
        b"[1]",
        b"{",
        b"\xff{}",
        b'{"a": NaN}',
        b'{"a": ' + b"1" * 5_000 + b"}",
        b'{"a": "\\ud800"}',
        b'{"\\udc00": 1}',
        b"[" * 100_000,
        b'{"a": ' * 100_000,
    ],
)
def test_a_body_that_is_no_object_is_named_and_never_quoted(body: bytes) -> None:
    with pytest.raises(EdgeError) as caught:
        read_json(body)
    assert caught.value.status == 400
    assert len(caught.value.message) < 100


def test_a_pair_of_surrogates_is_text() -> None:
    assert read_json(b'{"a": "\\ud83d\\ude00"}') == {"a": "\U0001f600"}


def test_every_fault_of_a_body_is_named() -> None:
    with pytest.raises(EdgeError) as caught:
        read_model(GenerateBody, {"prompt": "x", "temperature": 3, "no_such": "the secret"})
    assert {path for path, _ in caught.value.fields} == {"temperature", "no_such"}
    assert "secret" not in str(caught.value.body())


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"prompt": "x", "messages": []},
        {"messages": []},
        {"messages": [{"role": "king", "content": "x"}]},
        {"messages": [{"role": "user", "content": 1}]},
        {"prompt": "x", "tools": [{"function": 1}]},
        {"prompt": "x", "tool_choice": "perhaps"},
        {"prompt": "x", "output_schema": {"maximum": float("inf")}},
        {"prompt": "x", "output_schema": " "},
    ],
)
def test_what_can_be_no_request_is_400(value: dict[str, Any]) -> None:
    body = read_model(GenerateBody, value)
    assert reason(lambda: plan_body(body, request_id="r", timeout_ms=1_000)) == "REQUEST_INVALID"


def test_auto_is_the_choice_of_the_router() -> None:
    plan = plan_body(GenerateBody(prompt="x", model="auto"), request_id="r", timeout_ms=1_000)
    assert not plan.request.model


def test_the_options_are_those_of_the_sdk() -> None:
    body = GenerateBody(prompt="x", temperature=0.5, collections=["faq"], max_degraded_level=1)
    request = plan_body(body, request_id="r", timeout_ms=1_500).request
    assert (request.request_id, request.prompt.sampling.temperature) == ("r", 0.5)
    assert (list(request.retrieval.collections), request.max_degraded_level) == (["faq"], 1)
