"""The example inventory: settings that services take, and hosts that agree about who is where."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from ssop_cache.settings import CacheSettings
from ssop_chassis.settings import MeshSettings, Settings, load_settings
from ssop_gateway.settings import GatewaySettings
from ssop_inference.settings import InferenceSettings
from ssop_rag.settings import RagSettings
from ssop_router.settings import RouterSettings

DEPLOY: Final = Path(__file__).parents[2] / "k8s-free-deploy"
HOSTS: Final = sorted((DEPLOY / "inventory" / "four-hosts").glob("host-*"))
KINDS: Final[Mapping[str, type[Settings]]] = {
    "mesh": MeshSettings,
    "router": RouterSettings,
    "inference": InferenceSettings,
    "cache": CacheSettings,
    "rag": RagSettings,
    "gateway": GatewaySettings,
}


def environ(path: Path) -> dict[str, str]:
    lines = [line.partition("=") for line in path.read_text().splitlines() if line]
    return {name: value for name, _, value in lines} | {"CREDENTIALS_DIRECTORY": "/c"}


def instances(service: str) -> list[Any]:
    """Settings of the hosts' instances of a service, as the services load them."""
    return [
        load_settings(KINDS[service], service, path=host / "ssop.toml", environ=environ(file))
        for host in HOSTS
        for file in sorted((host / "instances").glob(f"{service}*.env"))
    ]


def listens(service: str) -> list[str]:
    """Where they listen."""
    return [address for settings in instances(service) for address in settings.listen]


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_settings_are_taken(host: Path) -> None:
    for section in tomllib.loads((host / "ssop.toml").read_text()):
        load_settings(KINDS[section], section, path=host / "ssop.toml", environ={"CREDENTIALS_DIRECTORY": "/c"})
    for file in (host / "instances").glob("*.env"):
        section = file.name.partition("-")[0].removesuffix(".env")
        load_settings(KINDS[section], section, path=host / "ssop.toml", environ=environ(file))
        load_settings(MeshSettings, "mesh", path=host / "ssop.toml", environ=environ(file))


def test_hosts_have_the_same_settings() -> None:
    assert len({(host / "ssop.toml").read_text() for host in HOSTS}) == 1


def test_routers_hear_of_every_node_where_it_listens() -> None:
    router: Any = instances("router")[0]
    announced = [node.listen[0] for node in instances("inference") if node.announce]
    assert sorted([*(node.address for node in router.static_nodes), *announced]) == sorted(listens("inference"))
    assert len(listens("inference")) == 12
    assert len(announced) == 6
    assert router.discovery.has_leases
    assert {node.cache_address for node in instances("inference")} == {router.cache_address}


def test_each_host_has_two_lite_nodes_and_a_full_one() -> None:
    for host in HOSTS:
        models = [
            json.loads(environ(file)["SSOP_INFERENCE_MODELS"]) for file in (host / "instances").glob("inference*")
        ]
        assert sorted(model["tiers"] for (model,) in models) == [["full"], ["lite"], ["lite"]]


def test_cache_and_retrieval_are_called_where_they_listen() -> None:
    router = tomllib.loads((HOSTS[0] / "ssop.toml").read_text())["router"]
    assert ([router["cache_address"]], [router["rag_address"]]) == (listens("cache"), listens("rag"))


def test_fronts_ask_every_router() -> None:
    fronts = [host for host in HOSTS if "edge" in (host / "roles").read_text().split()]
    assert fronts
    for host in fronts:
        text = (host / "upstreams.conf").read_text()
        assert all(f"server {address} " in text for address in listens("router"))


def test_roles_are_those_of_the_installer() -> None:
    known = {"router", "inference", "cache", "rag", "edge"}
    assert {role for host in HOSTS for role in (host / "roles").read_text().split()} == known
