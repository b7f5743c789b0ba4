"""Targets, keys and requests as clients are set up and called."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from ssop.v1.content_pb2 import ROLE_USER
from ssop_sdk import AsyncSsopClient, ConfigurationError, GrokClient, RetryPolicy, SsopClient, Tls
from ssop_sdk.configuration import Setup, set_up
from ssop_sdk.request import Defaults, Plan, plan_request
from ssop_sdk.target import parse_target, parse_targets

KEY = "sk-very-secret"


def make(environ: Mapping[str, str] | None = None, **changes: Any) -> Setup:
    arguments: dict[str, Any] = {
        "api_key": KEY,
        "target": None,
        "streaming": True,
        "output_schema": None,
        "timeout_s": 30.0,
        "policy": None,
        "max_degraded_level": None,
        "allow_degraded": False,
        "stream_buffer_size": 0,
        "batch_size": 4,
        "tls": None,
        "retry": None,
    }
    return set_up(**(arguments | changes), environ=environ or {})


def plan(**options: Any) -> Plan:
    return plan_request(Defaults(), "hello", options=options)


@pytest.mark.parametrize(
    ("text", "address", "is_tls"),
    [
        ("127.0.0.1:7300", "127.0.0.1:7300", False),
        ("mesh", "mesh:7300", False),
        ("unix:/run/ssop.sock", "unix:/run/ssop.sock", False),
        ("https://mesh.example", "mesh.example:443", True),
        ("grpcs://mesh.example:7443/", "mesh.example:7443", True),
        ("ssops://mesh.example", "mesh.example:7300", True),
        ("ssops://[::1]:7301?ca=/ca.pem", "[::1]:7301", True),
        ("ssop://mesh.example", "mesh.example:7300", False),
        ("http://mesh.example", "mesh.example:7300", False),
        ("[::1]:7300", "[::1]:7300", False),
        ("::1", "[::1]:7300", False),
        ("dns:///mesh:7300", "dns:///mesh:7300", False),
    ],
)
def test_target_is_read(text: str, address: str, is_tls: bool) -> None:
    target = parse_target(text)
    assert (target.address, target.is_tls) == (address, is_tls)


@pytest.mark.parametrize(
    ("text", "tls"),
    [
        ("", None),
        ("https://h/path", None),
        ("https://h", False),
        ("http://h", True),
        ("ssop://h?ca=/a", None),
        ("ssops://h?ca=", None),
        ("ssops://h?password=a", None),
    ],
)
def test_contradicting_target_is_refused(text: str, tls: bool | None) -> None:
    with pytest.raises(ConfigurationError):
        parse_target(text, tls)


def test_target_names_the_files_of_tls_and_the_environment_the_others() -> None:
    environ = {"SSOP_TLS_CA": "/env.pem", "SSOP_TLS_KEY": "/env.key", "SSOP_TLS_CERTIFICATE": "/env.crt"}
    setup = make(environ, target="ssops://mesh?ca=/own.pem&name=mesh.test")
    assert setup.targets[0].tls == Tls("/own.pem", "/env.crt", "/env.key", "mesh.test")


def test_tls_that_is_given_counts_alone() -> None:
    setup = make({"SSOP_TLS_CA": "/env.pem"}, target="ssops://mesh?ca=/own.pem", tls=Tls(server_name="a"))
    assert setup.targets[0].tls == Tls(server_name="a")


def test_environment_makes_no_target_secure() -> None:
    assert not make({"SSOP_TLS_CA": "/env.pem"}, target="mesh").targets[0].is_tls


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a, b:1", ["a:7300", "b:1"]),
        ("https://a,ssops://b:9", ["a:443", "b:9"]),
        ("ipv4:10.0.0.1:1,10.0.0.2:2", ["ipv4:10.0.0.1:1,10.0.0.2:2"]),
        ("unix:/a,unix:/b", ["unix:/a", "unix:/b"]),
    ],
)
def test_several_routers_are_told_with_commas(text: str, addresses: list[str]) -> None:
    assert [target.address for target in parse_targets(text)] == addresses


@pytest.mark.parametrize("text", ["a,", ",", "a,,b", "a,a:7300"])
def test_list_of_routers_with_a_hole_or_one_twice_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_targets(text)


def test_environment_fills_in_key_and_target() -> None:
    setup = make({"SSOP_API_KEY": "k", "SSOP_TARGET": "unix:/x"}, api_key=None)
    assert setup.addresses == "unix:/x"
    assert setup.metadata == (("authorization", "Bearer k"),)


def test_default_target_is_the_local_mesh() -> None:
    assert make().addresses == "127.0.0.1:7300"


def test_missing_key_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="SSOP_API_KEY"):
        make(api_key=None)


def test_broken_key_is_refused_without_quoting_it() -> None:
    with pytest.raises(ConfigurationError) as caught:
        make(api_key=KEY + "\n")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"batch_size": 0},
        {"stream_buffer_size": 63},
        {"max_degraded_level": 4},
        {"timeout_s": 0},
        {"timeout_s": float("inf")},
    ],
)
def test_impossible_setting_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        make(**change)


def test_batch_size_of_one_is_legal() -> None:
    assert make(batch_size=1).batch_size == 1


@pytest.mark.parametrize("kind", [SsopClient, AsyncSsopClient])
def test_repr_shows_no_key(kind: type[Any]) -> None:
    client = kind(KEY, "unix:/nowhere")
    assert KEY not in repr(client)
    assert KEY not in repr(client._setup)
    assert "unix:/nowhere" in repr(client)


def test_repr_of_tls_shows_no_key() -> None:
    assert "PRIVATE" not in repr(Tls(client_key=b"PRIVATE"))


def test_key_in_the_clear_to_another_host_is_logged_without_the_key(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        make(target="mesh.example:7300")
    assert "unencrypted" in caplog.text
    assert KEY not in caplog.text


@pytest.mark.parametrize("target", ["127.0.0.1:1", "localhost:1", "[::1]:1", "unix:/x", "https://mesh.example"])
def test_local_and_encrypted_targets_are_not_warned_of(target: str, caplog: pytest.LogCaptureFixture) -> None:
    make(target=target)
    assert caplog.text == ""


def test_closed_client_says_so() -> None:
    with SsopClient(KEY, "unix:/nowhere") as client:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        client.generate("x")


def test_alias_is_the_client() -> None:
    assert GrokClient is SsopClient


def test_request_carries_what_was_asked_for() -> None:
    request = plan(
        model="m",
        policy="lite",
        temperature=0.5,
        max_output_tokens=9,
        stop="END",
        collections=["docs"],
        debug=True,
        logprobs=True,
        linger_ms=100,
        max_degraded_level=1,
        allow_similar_cache=True,
    ).request
    assert (request.model, request.policy, request.debug, request.max_degraded_level) == ("m", "lite", True, 1)
    assert (request.prompt.sampling.temperature, list(request.prompt.sampling.stop)) == (0.5, ["END"])
    assert list(request.retrieval.collections) == ["docs"]
    assert request.prompt.logprobs
    assert request.prompt.linger_ms == 100
    assert request.cache.allow_similar
    assert request.prompt.messages[0].role == ROLE_USER


def test_plain_request_leaves_options_absent() -> None:
    request = plan().request
    present = [request.HasField(name) for name in ("max_degraded_level", "retrieval", "cache")]
    assert present == [False, False, False]


def test_fresh_request_ids_differ() -> None:
    assert plan().request.request_id != plan().request.request_id


@pytest.mark.parametrize("request_id", ["", "a b", "x" * 65, "é"])
def test_impossible_request_id_is_refused(request_id: str) -> None:
    with pytest.raises(ValueError, match="request id"):
        plan(request_id=request_id)


def test_unknown_option_is_named() -> None:
    with pytest.raises(TypeError, match="temprature"):
        plan(temprature=1)


def test_single_collection_as_text_is_refused() -> None:
    with pytest.raises(TypeError, match="collections"):
        plan(collections="docs")


def test_schema_of_none_overrides_that_of_the_client() -> None:
    defaults = make(output_schema={"type": "object"}).defaults
    assert plan_request(defaults, "x", options={}).request.prompt.HasField("output_schema")
    assert not plan_request(defaults, "x", None, options={}).request.prompt.HasField("output_schema")


def test_calls_are_repeated_twice_for_each_router_unless_told_otherwise() -> None:
    assert make(target="a:1").retry.max_retries == 2
    assert make(target="a:1,b:1,c:1").retry.max_retries == 6
    assert make(target="a:1,b:1", retry=RetryPolicy(max_retries=1)).retry.max_retries == 1
