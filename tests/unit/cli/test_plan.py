"""Which processes a settings file asks for."""

from pathlib import Path
from typing import Any

import pytest

from ssop_cli.embedded import default_settings
from ssop_cli.failure import CommandError
from ssop_cli.places import Places
from ssop_cli.plan import gateway_url, plan_children, router_target, shared_model

PLACES = Places(Path("/state"), Path("/run/ssop"))
BINARY = Path("/usr/bin/redis-server")


def plan(document: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    children = plan_children(document, Path("/state/ssop.toml"), PLACES, BINARY)
    return {child.name: child.after for child in children}


def defaults() -> dict[str, Any]:
    return default_settings(PLACES, port=7300, models_dir=Path("/models"), model="m")


def test_the_default_mesh_starts_in_order() -> None:
    assert list(plan(defaults())) == ["redis-cache", "redis-state", "cache", "rag", "inference", "router"]


def test_the_router_starts_last() -> None:
    assert plan(defaults())["router"] == ("redis-cache", "redis-state", "cache", "rag", "inference")


def test_the_cache_waits_for_both_instances_of_redis() -> None:
    assert plan(defaults())["cache"] == ("redis-cache", "redis-state")


def test_a_redis_that_is_named_by_host_is_not_started() -> None:
    document = defaults()
    document["cache"] |= {"cache_url": "redis://cache:6379", "state_url": "redis://state:6379"}
    assert list(plan(document)) == ["cache", "rag", "inference", "router"]


def test_a_service_without_its_section_is_not_started() -> None:
    document = {name: section for name, section in defaults().items() if name not in {"rag", "cache"}}
    assert list(plan(document)) == ["inference", "router"]


def test_the_opinion_service_starts_last_and_its_posts_have_room() -> None:
    document = {**defaults(), "opinion": {"listen": ["127.0.0.1:7391"]}}
    children = {child.name: child for child in plan_children(document, Path("/state/ssop.toml"), PLACES, BINARY)}
    assert list(children)[-1] == "opinion"
    assert (children["opinion"].address, children["opinion"].is_http) == ("127.0.0.1:7391", True)
    assert "704mb" in children["redis-state"].command


def test_a_mesh_without_a_router_is_refused() -> None:
    with pytest.raises(CommandError, match=r"\[router\]"):
        plan({"mesh": {}})


def test_a_socket_path_that_is_too_long_is_refused() -> None:
    document = defaults()
    document["cache"]["cache_url"] = f"unix:///{'x' * 120}.sock"
    with pytest.raises(CommandError, match="107"):
        plan(document)


@pytest.mark.parametrize(
    ("listen", "target"),
    [
        ("127.0.0.1:7300", "127.0.0.1:7300"),
        ("0.0.0.0:7300", "127.0.0.1:7300"),
        ("[::]:1", "[::1]:1"),
        ("unix:/x", "unix:/x"),
    ],
)
def test_clients_get_an_address_that_they_can_reach(listen: str, target: str) -> None:
    document = defaults()
    document["router"]["listen"] = [listen]
    assert router_target(plan_children(document, Path("/s"), PLACES, BINARY)) == target


def with_http() -> dict[str, Any]:
    return default_settings(PLACES, port=7300, models_dir=Path("/models"), model="m", http_port=7380)


def test_the_http_edge_starts_after_the_router() -> None:
    assert plan(with_http())["gateway"][-1] == "router"


def test_the_http_edge_is_named_with_a_host_that_clients_can_reach() -> None:
    document = with_http()
    document["gateway"]["listen"] = ["0.0.0.0:7380"]
    assert gateway_url(plan_children(document, Path("/s"), PLACES, BINARY)) == "http://127.0.0.1:7380"


def test_a_mesh_without_an_http_edge_names_none() -> None:
    assert not gateway_url(plan_children(defaults(), Path("/s"), PLACES, BINARY))


def test_one_model_for_both_tiers_is_named() -> None:
    assert shared_model(defaults()) == "m"


def test_two_models_are_not_shared() -> None:
    document = default_settings(PLACES, port=1, models_dir=Path("/m"), model="small", full_model="large")
    assert shared_model(document) == ""


def test_target_of_a_router_with_tls_says_how_to_trust_it() -> None:
    document = defaults()
    tls = {"certificate_file": "/h.pem", "key_file": "/h.key", "ca_file": "/ca.pem", "server_name": "mesh.test"}
    document["mesh"]["tls"] = tls
    plans = plan_children(document, Path("/s"), PLACES, BINARY)
    assert router_target(plans) == "ssops://127.0.0.1:7300?ca=/ca.pem&name=mesh.test"
    document["mesh"]["tls"] = {**tls, "mutual": ["router"]}
    plans = plan_children(document, Path("/s"), PLACES, BINARY)
    assert router_target(plans) == "ssops://127.0.0.1:7300?ca=/ca.pem&cert=/h.pem&key=/h.key&name=mesh.test"
    document["mesh"]["tls"] = {**tls, "plain": ["127.0.0.1:7300"]}
    assert router_target(plan_children(document, Path("/s"), PLACES, BINARY)) == "127.0.0.1:7300"


def test_table_of_tls_that_can_not_be_used_is_refused() -> None:
    document = defaults()
    document["mesh"]["tls"] = {"certificate_file": "/h.pem"}
    with pytest.raises(CommandError, match=r"mesh\.tls"):
        plan_children(document, Path("/s"), PLACES, BINARY)
