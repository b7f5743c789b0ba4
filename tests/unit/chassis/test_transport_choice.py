"""Which transport a setting comes to."""

import importlib
from collections.abc import Iterator
from types import ModuleType

import pytest

from ssop_chassis import grpc_peer, grpc_server, transport
from ssop_chassis.settings import SettingsError


@pytest.fixture(params=["never built", "without its library"])
def absent(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """The native transport can't be imported."""
    import_module = importlib.import_module

    def find(name: str, package: str | None = None) -> ModuleType:
        if name.startswith("ssop_transport"):
            raise ImportError(request.param, name=name)
        return import_module(name, package)

    monkeypatch.setattr(importlib, "import_module", find)
    transport.is_native_built.cache_clear()
    yield
    transport.is_native_built.cache_clear()


@pytest.mark.needs("native_transport")
def test_auto_is_native_between_services_and_towards_clients() -> None:
    assert transport.resolve("auto") == "native"
    assert transport.server_starter("auto", "router") is not grpc_server.start_server
    assert transport.server_starter("auto", "cache") is not grpc_server.start_server
    assert transport.connector("auto") is not grpc_peer.connect


@pytest.mark.needs("native_transport")
def test_inner_is_native_between_services_and_grpc_towards_clients() -> None:
    assert transport.server_starter("inner", "router") is grpc_server.start_server
    assert transport.server_starter("inner", "cache") is not grpc_server.start_server
    assert transport.connector("inner") is not grpc_peer.connect


@pytest.mark.usefixtures("absent")
def test_auto_without_the_native_transport_is_grpc() -> None:
    assert transport.resolve("auto") == "grpc"
    assert transport.server_starter("auto", "cache") is grpc_server.start_server
    assert transport.server_starter("auto", "router") is grpc_server.start_server
    assert transport.connector("auto") is grpc_peer.connect
    assert transport.channel_maker("auto") is None


@pytest.mark.usefixtures("absent")
@pytest.mark.parametrize("kind", ["inner", "native"])
def test_who_asks_for_what_is_not_there_hears_how_to_get_it(kind: transport.Kind) -> None:
    with pytest.raises(SettingsError, match="libnghttp2-dev"):
        transport.server_starter(kind, "cache")
    with pytest.raises(SettingsError, match="libnghttp2-dev"):
        transport.connector(kind)
